// The timeline's behaviour: one span of time for all panels, moved by mouse, touch, keys and links.
const stacks = [...document.querySelectorAll(".figure-stack")];
const smallestSpan = 0.005;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

let domain = full;
let chosen = null; // {from, to, gpu}; gpu null is all of them
let selecting = false;
let pending = null;
let resting = null;
let summing = null;

const panels = report.figures.flatMap((figure) => figure.panels.map((told) => new Panel(figure, told, point)));
const figureOf = (stack) => report.figures.find((figure) => String(figure.gpu) === stack.dataset.gpu);
const panelsOf = (stack) => panels.filter((panel) => panel.stack === stack);
const drawnIn = (stack) => panelsOf(stack).find((panel) => panel.view);

// One frame of movement at most is under way; later wishes are folded into the next.
function show() {
  pending ??= new Promise((resolve) => {
    requestAnimationFrame(async () => {
      pending = null;
      await Promise.all(panels.filter((panel) => panel.near || !panel.shown).map((panel) => panel.move(domain, MOVING)));
      stacks.forEach(placeBands);
      clearTimeout(resting);
      resting = setTimeout(() => {
        panels.filter((panel) => panel.near).forEach((panel) => panel.move(domain));
        report.figures.filter(isNear).forEach(tellCoarseness);
      }, 150);
      resolve();
    });
  });
  summariseSoon();
  return pending;
}

function zoom(from, to) {
  const span = Math.min(Math.max(to - from, smallestSpan), full[1] - full[0]);
  const middle = (from + to) / 2;
  const start = Math.min(Math.max(middle - span / 2, full[0]), full[1] - span);
  domain = [start, start + span];
  return show();
}

function scale(factor, around = (domain[0] + domain[1]) / 2) {
  const share = (around - domain[0]) / (domain[1] - domain[0]);
  const span = Math.min(Math.max((domain[1] - domain[0]) * factor, smallestSpan), full[1] - full[0]);
  return zoom(around - share * span, around + (1 - share) * span);
}

function move(by, from = domain) {
  const allowed = Math.min(Math.max(by, full[0] - from[0]), full[1] - from[1]);
  return zoom(from[0] + allowed, from[1] + allowed);
}

const shift = (share) => move(share * (domain[1] - domain[0]));

function reset() {
  highlight = null;
  domain = full;
  return show();
}

// Selection

function select(from, to, gpu = chosen?.gpu ?? report.figures[0]?.gpu ?? null) {
  const [low, high] = [Math.min(from, to), Math.max(from, to)].map((time) => Math.min(Math.max(time, full[0]), full[1]));
  chosen = high > low ? { from: low, to: high, gpu } : null;
  stacks.forEach(placeBands);
  return showSelection(chosen, clear);
}

function clear() {
  chosen = null;
  stacks.forEach(placeBands);
  return showSelection(null, clear);
}

// Shift and an arrow move the end of the selection; the first press begins one in the middle of what is shown.
function grow(stack, direction) {
  const step = (0.05 * (domain[1] - domain[0]));
  const gpu = figureOf(stack).gpu;
  if (!chosen) {
    const middle = (domain[0] + domain[1]) / 2;
    return select(middle, middle + step * direction, gpu);
  }
  return select(chosen.from, Math.max(chosen.to + step * direction, chosen.from + smallestSpan), gpu);
}

function setSelecting(wanted) {
  selecting = wanted;
  document.querySelector("[data-action='select']")?.setAttribute("aria-pressed", String(wanted));
  stacks.forEach((stack) => stack.classList.toggle("selecting", wanted));
  hint();
}

// What the pointer does here: a finger has neither a wheel nor Shift.
function hint() {
  const finger = matchMedia("(pointer: coarse)").matches;
  const modes = finger
    ? ["Drag moves; Select, then drag, selects.", "Drag selects; Select again, and drag moves."]
    : ["Click, then wheel zooms; drag moves, Shift and drag selects.", "Drag selects; Select again, and drag moves. Click, then wheel zooms."];
  document.getElementById("readout").textContent = modes[Number(selecting)];
}

// Places on the screen

const timeOn = (area, clientX) => domain[0] + ((clientX - area.left) / area.width) * (domain[1] - domain[0]);

function timeAt(stack, clientX, anywhere = false) {
  const area = drawnIn(stack)?.plot();
  if (!area) return null;
  const time = timeOn(area, clientX);
  if (anywhere) return Math.min(Math.max(time, domain[0]), domain[1]);
  return time < domain[0] || time > domain[1] ? null : time;
}

function placeBand(band, area, span) {
  const [from, to] = span ?? [0, 0];
  band.hidden = !span || !area || to < domain[0] || from > domain[1];
  if (band.hidden) return;
  const x = (time) => ((Math.min(Math.max(time, domain[0]), domain[1]) - domain[0]) / (domain[1] - domain[0])) * area.width;
  band.style.left = `${area.inStack + x(from)}px`;
  band.style.width = `${Math.max(x(to) - x(from), 1)}px`;
}

function placeBands(stack) {
  const area = highlight || chosen ? drawnIn(stack)?.plot() : null;
  const here = chosen && (chosen.gpu === null || String(chosen.gpu) === stack.dataset.gpu);
  placeBand(stack.querySelector(".band"), area, highlight?.gpu === stack.dataset.gpu ? [highlight.from, highlight.to] : null);
  placeBand(stack.querySelector(".chosen"), area, here ? [chosen.from, chosen.to] : null);
}

function moveCrosshairs(from, clientX) {
  const time = from ? timeAt(from, clientX) : null;
  for (const stack of stacks) {
    const hair = stack.querySelector(".crosshair");
    const area = time === null ? null : drawnIn(stack)?.plot();
    hair.hidden = !area;
    if (area) hair.style.left = `${area.inStack + ((time - domain[0]) / (domain[1] - domain[0])) * area.width}px`;
  }
  if (time !== null) readout(drawnIn(from).store, time);
}

function point(panel, datum, event) {
  showTip(panel, datum, event);
}

const isNear = (figure) => panels.some((panel) => panel.figure === figure && panel.near && panel.view);

async function tellCoarseness(figure) {
  const coarse = stacks.find((stack) => figureOf(stack) === figure).querySelector(".coarse");
  if (coarse) coarse.textContent = coarsenessOf(figure, await storeOf(figure), domain);
}

// What is shown, in words: said once the span has come to rest, not while the page is scrolled.
async function summarise() {
  const seen = report.figures.filter(isNear);
  const lines = [];
  for (const figure of seen.length ? seen : report.figures.slice(0, 1)) {
    lines.push(summaryOf(figure, await storeOf(figure), domain));
  }
  const from = number(domain[0], 2);
  document.getElementById("shown").textContent = `Shown: ${from} to ${number(domain[1], 2)} s (${seconds(domain[1] - domain[0])}). ${lines.join(" ")}`;
}

function summariseSoon() {
  clearTimeout(summing);
  summing = setTimeout(summarise, 600);
}

// What buttons and keys do

const actions = {
  in: () => scale(0.5),
  out: () => scale(2),
  left: () => shift(-0.25),
  right: () => shift(0.25),
  reset,
  next: (stack) => stepGap(stack, 1),
  previous: (stack) => stepGap(stack, -1),
  grow: (stack) => grow(stack, 1),
  shrink: (stack) => grow(stack, -1),
  shown: (stack) => select(...domain, figureOf(stack).gpu),
  select: () => setSelecting(!selecting),
  clear: (stack) => {
    const leaving = selectionPanel.contains(document.activeElement);
    setSelecting(false);
    highlight = null;
    clear();
    if (leaving) stack.focus();
  },
};
const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "reset", n: "next", p: "previous", s: "select", Enter: "shown", Escape: "clear" };
const shiftKeys = { ArrowLeft: "shrink", ArrowRight: "grow" };

// A wheel gesture that began by scrolling the page goes on scrolling it, whatever comes under the pointer.
let lastScroll_ms = -Infinity;
const scrolled = () => { lastScroll_ms = performance.now(); };
const scrollsPage = () => performance.now() - lastScroll_ms < 300;
addEventListener("wheel", (event) => { if (!event.target.closest?.(".figure-stack")) scrolled(); }, { passive: true });

function listen(stack) {
  let drag = null;
  stack.addEventListener("focus", () => (usedStack = stack));
  stack.addEventListener("pointerdown", () => (usedStack = stack));
  stack.addEventListener("wheel", (event) => {
    const around = timeAt(stack, event.clientX);
    const asked = event.ctrlKey || event.metaKey;
    if (around === null || !(asked || (document.activeElement === stack && !scrollsPage()))) return scrolled();
    usedStack = stack;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const whole = domain[1] - domain[0] >= full[1] - full[0];
    // Zooming out of the whole is scrolling the page.
    if (whole && !asked && (sideways || event.deltaY > 0)) return scrolled();
    event.preventDefault();
    if (sideways) shift(event.deltaX / drawnIn(stack).plot().width);
    else scale(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), around);
  }, { passive: false });
  stack.addEventListener("pointerdown", (event) => {
    const panel = event.target.closest(".panel");
    const time = timeAt(stack, event.clientX);
    if (!panel || event.button !== 0 || time === null) return;
    drag = { panel, x: event.clientX, domain, id: event.pointerId, selects: selecting || event.shiftKey, time };
  });
  stack.addEventListener("pointermove", (event) => {
    if (drag && event.pointerId === drag.id && (drag.moved || Math.abs(event.clientX - drag.x) > 2)) {
      if (!drag.moved) {
        drag.moved = true;
        drag.panel.setPointerCapture(event.pointerId);
        drag.panel.classList.add("dragging");
        hideTip();
      }
      if (drag.selects) select(drag.time, timeAt(stack, event.clientX, true), figureOf(stack).gpu);
      else move(((drag.x - event.clientX) / drawnIn(stack).plot().width) * (drag.domain[1] - drag.domain[0]), drag.domain);
    }
    moveCrosshairs(stack, event.clientX);
  });
  const drop = () => {
    drag?.panel.classList.remove("dragging");
    drag = null;
  };
  stack.addEventListener("pointerup", drop);
  stack.addEventListener("pointercancel", drop);
  stack.addEventListener("pointerleave", () => {
    moveCrosshairs(null, 0);
    hideTip();
  });
  stack.addEventListener("dblclick", (event) => { if (event.target.closest(".panel")) reset(); });
  stack.addEventListener("keydown", (event) => {
    if (event.target !== stack || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = event.shiftKey && event.key in shiftKeys ? shiftKeys[event.key] : keys[event.key];
    if (!action) return;
    event.preventDefault();
    actions[action](stack);
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-action]");
  if (button) actions[button.dataset.action](currentStack());
  if (!stacks.length) return;
  // A row about a stretch is a link as a whole, where nothing else in it was meant.
  const row = event.target.closest("a, button, input, select, summary") || String(getSelection()) ? null : event.target.closest("#gaps tr, #regimes tr, #jobs tr");
  const link = event.target.closest("[data-zoom-from]") ?? row?.querySelector("[data-zoom-from]");
  if (!link) return;
  event.preventDefault();
  follow(link);
});

selectionPanel?.querySelector("select").addEventListener("change", (event) => {
  if (chosen) select(chosen.from, chosen.to, event.target.value === "all" ? null : Number(event.target.value));
});

// Drawing

const draw = (panel) => panel.draw(() => domain).then(() => placeBands(panel.stack));

const nearness = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const panel = panels.find((candidate) => candidate.element === entry.target);
    panel.near = entry.isIntersecting;
    if (panel.near) draw(panel).then(() => panel.move(domain)).then(() => tellCoarseness(panel.figure));
  }
}, { rootMargin: "300px 0px" });

function redraw() {
  const drawn = panels.filter((panel) => panel.drawing && panel.dark !== isDark());
  drawn.forEach((panel) => panel.erase());
  return Promise.all(drawn.map(draw));
}

// Paper shows every GPU and waits for nothing: of a few GPUs all are drawn beforehand, one by one.
const MOST_DRAWN_UNSEEN = 4;
const whenIdle = (work) => ("requestIdleCallback" in window ? requestIdleCallback(work, { timeout: 2000 }) : setTimeout(work, 200));

function drawUnseen(figures) {
  const [figure, ...others] = figures;
  if (figure) whenIdle(() => Promise.all(panels.filter((panel) => panel.figure === figure).map(draw)).then(() => drawUnseen(others)));
}

function print(begins) {
  paper = begins;
  redraw();
  panels.filter((panel) => panel.drawing).forEach((panel) => panel.drawing.then(() => panel.move(domain)));
  if (begins) summarise();
}
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
addEventListener("resize", () => requestAnimationFrame(() => {
  panels.forEach((panel) => (panel.shown = null));
  show();
}));
darkMode.addEventListener("change", redraw);
stacks.forEach(listen);
hint();
panels.forEach((panel) => nearness.observe(panel.element));

window.gputrace = {
  // The first GPU is drawn, wherever the page is scrolled to; the others are when they come near.
  ready: Promise.all(panels.filter((panel) => panel.figure === report.figures[0]).map(draw)).then(() => {
    summarise();
    if (report.figures.length <= MOST_DRAWN_UNSEEN) drawUnseen(report.figures.slice(1));
  }),
  timeline: {
    get views() { return panels.filter((panel) => panel.view).map((panel) => panel.view); },
    view: (key) => panels.find((panel) => panel.element.id === key)?.view,
    domain: () => [...domain],
    full: () => [...full],
    zoom,
    reset,
    select,
    clear,
    selection: () => (chosen ? { ...chosen } : null),
    store: (gpu) => storeOf(report.figures.find((figure) => figure.gpu === gpu)),
  },
};
