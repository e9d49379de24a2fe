// Words for what is under the pointer and for what is shown.
const number = (value, digits) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace(/^-(?=[0.]*$)/, "");
const seconds = (value) => `${number(value, Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 1 ? 2 : 3)} s`;
const percent = (share) => (share > 0 && share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`);
const utc = (time) => new Date(axis.origin_ms + time * 1000).toISOString().replace("T", " ").slice(0, 23);
const durationMs = (length_s) => `${number(length_s * 1000, length_s >= 0.01 ? 0 : 1)} ms`;

// An element with text and children; words of a log only ever become text.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const tip = document.getElementById("timeline-tip");

function linesOf(panel, datum) {
  const known = (value) => (value === null || value === undefined ? "unknown" : String(value));
  const when = [["start", `${number(datum.start, 3)} s`], ...(axis.utc ? [["UTC", utc(datum.start)]] : [])];
  if ("share" in datum) {
    const kind = panel.kind === "phases" ? "phase" : "time";
    return [[kind, datum.name], ["share", `${percent(datum.share)} of ${seconds(datum.end - datum.start)}`], ...when];
  }
  const length = datum.end - datum.start;
  if (panel.kind === "regimes") {
    return [["regime", datum.name], ["length", seconds(length)], ...when, ["calls", datum.calls], ["reason", datum.reason], ["cause", datum.cause]];
  }
  if (panel.kind === "phases") {
    const call = panel.store.call(datum.call);
    return [
      ["phase", datum.name],
      ["duration", durationMs(length)],
      ...when,
      ["call", datum.call],
      ...["worker", "partition", "job"].map((name) => [name, known(call[name])]),
    ];
  }
  if (panel.kind === "compute") {
    return [["gap", datum.name], ["length", durationMs(length)], ...when, ["phase", datum.phase], ["call", datum.call], ["rx", datum.rx]];
  }
  return [["no reading", seconds(length)], ...when];
}

function hideTip() {
  tip.hidden = true;
}

addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
addEventListener("pointerdown", (event) => { if (!event.target.closest?.(".panel")) hideTip(); });

function showTip(panel, datum, event) {
  if (!datum || datum.start === undefined || panel.element.classList.contains("dragging")) return hideTip();
  const rows = linesOf(panel, datum).map(([key, value]) =>
    make("tr", {}, make("th", { scope: "row" }, String(key)), make("td", {}, String(value))),
  );
  tip.replaceChildren(make("table", {}, make("tbody", {}, ...rows)));
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, room))}px`;
  const below = event.clientY + 16;
  const fits = below + tip.offsetHeight < document.documentElement.clientHeight;
  tip.style.top = `${fits ? below : Math.max(8, event.clientY - tip.offsetHeight - 12)}px`;
}

function range(series, low, high) {
  if (low === null) return "unknown";
  const write = (value) => (series.name === "sm" ? percent(value) : number(value, 2));
  const unit = series.name === "sm" ? "" : " GB/s";
  return write(low) === write(high) ? `${write(high)}${unit}` : `${write(low)} to ${write(high)}${unit}`;
}

const titleOf = (series) => (series.name === "sm" ? "SMs" : series.name);

function readout(store, time) {
  const parts = [`${number(time, 3)} s`];
  if (axis.utc) parts.push(`${utc(time).slice(11)} UTC`);
  for (const series of store.series) {
    const row = countUntil(series.times, time) - 1;
    const unknown = row < 0 || series.low[row] === UNKNOWN;
    parts.push(`${titleOf(series)} ${unknown ? "unknown" : range(series, series.low[row] * series.level, series.high[row] * series.level)}`);
  }
  document.getElementById("readout").textContent = parts.join(" · ");
}

// What a span holds of one GPU, in a sentence or two.
function summaryOf(figure, store, [from, to]) {
  const parts = [];
  const states = store.of("state").map((sum) => [sum.name, sum.between(from, to)]);
  const total = states.reduce((sum, [, amount]) => sum + amount, 0);
  if (total > 0) parts.push(states.map(([name, amount]) => `${percent(amount / total)} ${name}`).join(", "));
  const lost = store.of("lost to").map((sum) => [sum.name, sum.between(from, to)]).sort((a, b) => b[1] - a[1])[0];
  if (lost && lost[1] > 0.0005) parts.push(`most lost to ${lost[0]}, ${seconds(lost[1])}`);
  const gaps = figure.gaps.filter((gap) => gap.end > from && gap.start < to).length;
  if (figure.gaps.length) parts.push(`${gaps} of ${figure.gaps.length} listed gaps`);
  for (const series of store.series) {
    const found = series.extremes(from, to);
    parts.push(`${titleOf(series)} ${range(series, found.low, found.high)}`);
  }
  return `GPU ${figure.gpu}: ${parts.join("; ") || "no readings"}.`;
}

// How finely the page holds what is shown, where that is coarser than the run's own data.
function coarsenessOf(figure, store, span) {
  const [from, to] = [Math.max(span[0], full[0]), Math.min(span[1], full[1])];
  if (!figure.lanes.length || showsBars(store, span)) return "";
  if (store.holds(from, to)) return "Phases are drawn as shares of time; closer in they are single bars.";
  if (to - from > 1800) return "Phases are drawn as shares of time; the page holds single ones only in parts of the run.";
  const command = `${report.command} --from ${from.toFixed(1)} --to ${to.toFixed(1)} --html part.html`;
  return `The page holds no single phases here, only their shares in ${seconds(report.sums.bin_s)}. A page that does, of the whole calls and mutex holds inside these times: ${command}`;
}
