// Going to a place in the timeline, from which GPU, and the way back.
let highlight = null; // {from, to, gpu}: the place gone to
let usedStack = null; // the one last focused, pressed in or gone to

// How much of an element can be seen, in CSS pixels of its height.
function visibleHeight(element) {
  const box = element.getBoundingClientRect();
  return Math.max(0, Math.min(box.bottom, document.documentElement.clientHeight) - Math.max(box.top, 0));
}

// The stack that the keyboard is in, else the one last used if it is in the window, else what fills most of the window.
function currentStack() {
  const focused = document.activeElement?.closest?.(".figure-stack");
  if (focused) return focused;
  if (usedStack && visibleHeight(usedStack) > 0) return usedStack;
  return stacks.reduce((most, stack) => (visibleHeight(stack) > visibleHeight(most) ? stack : most), stacks[0]);
}

// `focus` is false where the keyboard must stay where it is.
function goTo(from, to, gpu, focus = true) {
  const stack = stacks.find((candidate) => candidate.dataset.gpu === gpu) ?? stacks[0];
  usedStack = stack;
  highlight = { from, to, gpu: stack.dataset.gpu };
  const shown = zoom(from - (to - from) / 2, to + (to - from) / 2);
  stack.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth", block: "start" });
  if (focus) stack.focus({ preventScroll: true });
  return shown;
}

// From the gap gone to while it is in view, else from the edge of what is shown.
function stepGap(stack, direction) {
  const figure = figureOf(stack);
  const inView = highlight?.gpu === stack.dataset.gpu && highlight.to > domain[0] && highlight.from < domain[1];
  const here = inView ? highlight.from : direction > 0 ? domain[0] - 1e-6 : domain[1];
  const ahead = figure.gaps.filter((gap) => (direction > 0 ? gap.start > here + 1e-6 : gap.start < here - 1e-6));
  const gap = direction > 0 ? ahead[0] : ahead[ahead.length - 1];
  if (!gap) {
    document.getElementById("readout").textContent = `No ${direction > 0 ? "later" : "earlier"} gap on GPU ${figure.gpu}.`;
    return;
  }
  goTo(gap.start, gap.end, String(figure.gpu), document.activeElement === stack);
  document.getElementById("readout").textContent = `GPU ${figure.gpu}, gap at ${number(gap.start, 3)} s, ${durationMs(gap.end - gap.start)}: ${gap.name}`;
}

// A link into the timeline leaves a step in the browser's history, so that Back returns to the link.
const links = () => [...document.querySelectorAll("[data-zoom-from]")];

function follow(link) {
  const place = [Number(link.dataset.zoomFrom), Number(link.dataset.zoomTo), link.dataset.gpu];
  history.replaceState({ ...history.state, origin: links().indexOf(link) }, "");
  history.pushState({ place }, "");
  goTo(...place);
}

addEventListener("popstate", ({ state }) => {
  const link = links()[state?.origin];
  if (link) {
    const row = link.closest("tr[hidden]");
    if (row) row.hidden = false;
    link.focus({ preventScroll: true });
    link.scrollIntoView({ block: "center" });
  } else if (state?.place) {
    goTo(...state.place);
  }
});
