// Draws a GPU's panels: what is shown of its store becomes rows for Vega, at the resolution of the screen.
const MOST_BARS = 1000;
// While the timeline moves it is drawn in coarser bins; once it rests, in fine ones. Extremes stay in either.
const FINE = { shares: 180, readings: 600 };
const MOVING = { shares: 64, readings: 220 };
const MOST_SHADED = 400;
const darkMode = matchMedia("(prefers-color-scheme: dark)");
let paper = false; // paper is white
const isDark = () => darkMode.matches && !paper;

function chartConfig() {
  const colours = report.chart[isDark() ? "dark" : "light"];
  return {
    ...colours,
    font: getComputedStyle(document.body).fontFamily,
    axis: { ...colours.axis, labelFontSize: 11, grid: true, labelPadding: 6 },
    text: { ...colours.text, font: getComputedStyle(document.body).fontFamily },
    view: { stroke: null },
    aria: false, // words for each of thousands of items that a canvas does not show
  };
}

// Whether single phases are drawn for a span, or what share of each bin they took.
function showsBars(store, [from, to]) {
  return store.holds(Math.max(from, full[0]), Math.min(to, full[1])) && store.bars(from, to) <= MOST_BARS;
}

const PAD = 0.08;

function barRows(store, [from, to]) {
  const rows = [];
  store.lanes.forEach((lane, i) => {
    const [first, last] = lane.range(from, to);
    for (let bar = first; bar < last; bar++) {
      if (!lane.touches(bar, from, to)) continue;
      rows.push({
        start: lane.start[bar],
        end: lane.start[bar] + lane.length[bar],
        top: i + PAD,
        bottom: i + 1 - PAD,
        name: report.phases[lane.phase[bar]],
        call: lane.call[bar],
      });
    }
  });
  return rows;
}

// For each lane the shares of its kinds in every bin, stacked from the foot of the lane.
function shareRows(store, groups, [from, to], width, detail) {
  const rows = [];
  const held = report.sums.bin_s;
  const bin = Math.max(held, (to - from) / Math.max(Math.min(width / 6, detail.shares), 30));
  groups.forEach((group, i) => {
    const sums = store.of(group);
    for (let k = Math.floor((from - full[0]) / bin); full[0] + k * bin < to; k++) {
      const start = full[0] + k * bin;
      const end = Math.min(start + bin, full[1]);
      let foot = 0;
      for (const sum of sums) {
        const share = sum.between(start, end) / (end - start);
        if (share < 0.004) continue;
        const height = 1 - 2 * PAD;
        const top = Math.min(foot + share, 1);
        rows.push({
          start,
          end,
          top: i + 1 - PAD - top * height,
          bottom: i + 1 - PAD - foot * height,
          name: sum.name,
          share,
        });
        foot = top;
      }
    }
  });
  return rows;
}

function gapRows(figure, [from, to]) {
  const touching = figure.gaps.filter((gap) => gap.end > from && gap.start < to);
  if (touching.length <= MOST_SHADED) return touching;
  return touching.sort((a, b) => b.end - b.start - (a.end - a.start)).slice(0, MOST_SHADED);
}

// The data sets of a panel for a span.
function rowsOf(figure, store, kind, span, width, detail) {
  const most = Math.min(Math.max(Math.round(width / 2), 100), detail.readings);
  if (kind === "phases") {
    const groups = figure.lanes.map((lane) => lane.name);
    return { rows: showsBars(store, span) ? barRows(store, span) : shareRows(store, groups, span, width, detail) };
  }
  if (kind === "lost") return { rows: shareRows(store, ["state", "lost to"], span, width, detail) };
  const data = {};
  if (kind === "compute") {
    data.sm = store.series.find((series) => series.name === "sm").rows(...span, most).rows;
    data.gaps = gapRows(figure, span);
  }
  if (kind === "link") {
    const drawn = store.series.filter((series) => series.name !== "sm").map((series) => [series.name, series.rows(...span, most)]);
    for (const [name, found] of drawn) data[name] = found.rows;
    data.holes = drawn.flatMap(([, found]) => found.holes);
  }
  return data;
}

// What Vega-Lite adds to guard against data of unknown types, item by item, these rows do not need: every number in them
// is one, and `known` says where a reading is none. It would be most of a frame's time.
function lighten(spec) {
  const guards = (transform) => !/^(toNumber|isValid)\(/.test(transform.expr ?? "");
  for (const data of spec.data ?? []) if (data.transform) data.transform = data.transform.filter(guards);
  for (const mark of spec.marks ?? []) {
    const update = mark.encode?.update ?? {};
    for (const [channel, value] of Object.entries(update)) {
      if (Array.isArray(value) && /^!isValid/.test(value[0]?.test ?? "")) update[channel] = value[value.length - 1];
    }
    if (update.defined) update.defined = { field: "known" };
    if (mark.type === "area") delete mark.sort;
    lighten(mark);
  }
  return spec;
}

// One panel in the page. It is drawn when it comes near the window, and moved only while it is there.
class Panel {
  constructor(figure, told, onPoint) {
    this.figure = figure;
    this.kind = told.kind;
    this.spec = told.spec;
    this.element = document.getElementById(told.key);
    this.stack = this.element.closest(".figure-stack");
    this.near = false;
    this.view = null;
    this.shown = null;
    this.onPoint = onPoint;
    this.drawing = null;
  }

  draw(span) {
    this.drawing ??= this.embed().then(() => this.move(span()));
    return this.drawing;
  }

  async embed() {
    this.store ??= await storeOf(this.figure);
    this.dark = isDark();
    this.embedded = await vegaEmbed(this.element, this.spec, {
      actions: false,
      ast: true, // expressions are interpreted: the page's policy forbids eval
      config: chartConfig(),
      defaultStyle: false,
      patch: lighten,
      renderer: "canvas",
      tooltip: false,
    });
    this.view = this.embedded.view;
    this.stack.classList.toggle("drawn-dark", this.dark); // on paper it keeps the ground it was drawn for
    const canvas = this.element.querySelector("canvas");
    canvas.setAttribute("aria-hidden", "true");
    this.view.addEventListener("pointermove", (event, item) => this.onPoint(this, item?.datum, event));
    this.view.addEventListener("touchend", (event, item) => this.onPoint(this, item?.datum, event.changedTouches[0]));
  }

  erase() {
    this.embedded?.finalize();
    this.view = this.shown = this.drawing = null;
  }

  async move(span, detail = FINE) {
    const same = this.shown && this.shown.span[0] === span[0] && this.shown.span[1] === span[1];
    if (!this.view || (same && (this.shown.detail === detail || detail === MOVING))) return;
    this.shown = { span, detail };
    this.view.signal("domain_s", span);
    if (this.kind !== "regimes") {
      const data = rowsOf(this.figure, this.store, this.kind, span, this.view.width(), detail);
      for (const [name, rows] of Object.entries(data)) this.view.data(name, rows);
    }
    await this.view.runAsync();
  }

  // Where the plot lies in its stack, in CSS pixels.
  plot() {
    const box = this.element.getBoundingClientRect();
    const left = box.left + this.view.padding().left + this.view.origin()[0];
    return { left, width: this.view.width(), inStack: left - this.stack.getBoundingClientRect().left };
  }
}
