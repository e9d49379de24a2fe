// The page around the timeline: what is folded opens when it is wanted, figures are drawn when they come into view.
// Everything on it is plain HTML and works without this; the numbers of a figure are in a table beside it.
// A link to something folded opens what it is folded into; a row that a selection hides is shown again.
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const folded = target.closest("details:not([open])");
  const hidden = target.closest("tr[hidden]");
  if (folded) folded.open = true;
  if (hidden) hidden.hidden = false;
  if (folded || hidden) target.scrollIntoView();
}
addEventListener("hashchange", unfold);
// The same link again is no change of the hash.
addEventListener("click", (event) => {
  if (event.target.closest("a[href^='#']")?.hash === location.hash) unfold();
});

const report = JSON.parse(document.getElementById("report-data").textContent);
const places = [...document.querySelectorAll("[data-chart]")];
const darkMode = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // place to {dark, done}

function chartConfig(dark) {
  const colours = report.chart[dark ? "dark" : "light"];
  return {
    ...colours,
    font: getComputedStyle(document.body).fontFamily,
    axis: { ...colours.axis, labelFontSize: 11, titleFontWeight: "normal", grid: true, labelPadding: 6, labelLimit: 130 },
    view: { stroke: null },
  };
}

function draw(place, dark = darkMode.matches) {
  const before = drawn.get(place);
  if (before && before.dark === dark) return before.done;
  const drawing = document.createElement("div");
  drawing.setAttribute("aria-hidden", "true"); // the place around it has a name
  place.replaceChildren(drawing);
  const done = vegaEmbed(drawing, report.charts[place.dataset.chart], {
    actions: false,
    ast: true, // expressions are interpreted: the page's policy forbids eval
    config: chartConfig(dark),
    defaultStyle: false,
    renderer: "svg",
    tooltip: { disableDefaultStyle: false, theme: "custom" },
  });
  drawn.set(place, { dark, done });
  return done;
}

// What is below a figure stays where it is when the figure is drawn: its axis and title need this many pixels more.
const AXIS_HEIGHT = 54;
places.forEach((place) => {
  const height = report.charts[place.dataset.chart].height;
  if (Number.isFinite(height)) place.style.minHeight = `${height + AXIS_HEIGHT}px`;
});

const coming = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      coming.unobserve(entry.target);
      draw(entry.target);
    }
  },
  { rootMargin: "400px" },
);
places.forEach((place) => coming.observe(place));
darkMode.addEventListener("change", () => [...drawn.keys()].forEach((place) => draw(place)));

// Paper is white, and shows everything.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...unfolded, ...document.querySelectorAll("details:not([open])")];
  unfolded.forEach((item) => (item.open = true));
  places.forEach((place) => draw(place, false));
});
addEventListener("afterprint", () => {
  unfolded.forEach((item) => (item.open = false));
  unfolded = [];
  places.forEach((place) => draw(place));
});

unfold();
// Without a timeline there is nothing to wait for.
window.gputrace ??= { ready: Promise.resolve() };
window.gputrace.figures = {
  get drawn() { return [...drawn.keys()].map((place) => place.dataset.chart); },
  drawAll: () => Promise.all(places.map((place) => draw(place))).then(() => {}),
};
