// A selected span: what it holds of a GPU, and the rows of the page's tables that lie in it.
const selectionPanel = document.getElementById("selection");
const filtered = new Map(); // table -> the line that says how many of its rows are shown

// Pale for a state, as its lane is.
const swatch = (kind, name) =>
  make("span", { class: kind === "states" ? "swatch faint" : "swatch", style: `--c: ${report.colours[kind][name] ?? report.colours.other}` });

function rowOf(name, value, note = "", mark = null) {
  const head = make("th", { scope: "row" }, ...(mark ? [mark] : []), name);
  return make("tr", {}, head, make("td", { class: "n" }, value), make("td", { class: "n" }, note));
}

function tableOf(title, rows, heads = ["", ""]) {
  if (!rows.length) return [];
  const head = make("tr", {}, ...[title, ...heads].map((text, i) => make("th", { scope: "col", ...(i ? { class: "n" } : {}) }, text)));
  return [make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))];
}

const added = (held, group, from, to) => {
  const sums = new Map();
  for (const store of held) {
    for (const sum of store.of(group)) sums.set(sum.name, (sums.get(sum.name) ?? 0) + sum.between(from, to));
  }
  return [...sums].filter(([, amount]) => amount > 0.0005);
};

function median(sorted) {
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Durations by phase and the calls of the phases that touch a span; null where the page lacks single phases.
function singlePhases(held, from, to) {
  if (!held.every((store) => store.holds(from, to))) return null;
  const durations = new Map();
  const calls = new Set();
  held.forEach((store, i) => {
    for (const lane of store.lanes) {
      const [first, last] = lane.range(from, to);
      for (let bar = first; bar < last; bar++) {
        if (!lane.touches(bar, from, to)) continue;
        const name = report.phases[lane.phase[bar]];
        if (!durations.has(name)) durations.set(name, []);
        durations.get(name).push(lane.length[bar]);
        calls.add(`${i}/${lane.call[bar]}`);
      }
    }
  });
  return { durations, calls: calls.size };
}

function phaseTable(held, from, to, time) {
  const found = singlePhases(held, from, to);
  if (found) {
    const rows = report.phases.filter((name) => found.durations.has(name)).map((name) => {
      const sorted = found.durations.get(name).sort((a, b) => a - b);
      const cells = [number(sorted.length, 0), ...[sorted[0], median(sorted), sorted[sorted.length - 1]].map(durationMs)];
      return make("tr", {}, make("th", { scope: "row" }, swatch("phases", name), name), ...cells.map((text) => make("td", { class: "n" }, text)));
    });
    return { calls: found.calls, table: tableOf("Phases that touch it", rows, ["Count", "Shortest", "Median", "Longest"]) };
  }
  const sums = new Map();
  for (const store of held) {
    for (const lane of store.lanes) {
      for (const sum of store.of(lane.name)) sums.set(sum.name, (sums.get(sum.name) ?? 0) + sum.between(from, to));
    }
  }
  const rows = report.phases.filter((name) => sums.get(name) > 0.0005).map((name) => rowOf(name, seconds(sums.get(name)), "", swatch("phases", name)));
  return { calls: null, table: tableOf("Phases, all together", rows, [time, ""]) };
}

function movedRows(held, from, to) {
  return added(held, "bytes", from, to).map(([name, bytes]) => {
    const holes = held.some((store) => store.series.find((series) => series.name === name)?.extremes(from, to).hole);
    return rowOf(name === "rx" ? "into the GPU (rx)" : "out of it (tx)", `${holes ? "at least " : ""}${number(bytes / 1e9, 2)} GB`, `${number(bytes / 1e9 / (to - from), 2)} GB/s`);
  });
}

async function describeSelection(chosen) {
  const [from, to] = [chosen.from, chosen.to];
  const figures = report.figures.filter((figure) => chosen.gpu === null || figure.gpu === chosen.gpu);
  const held = await Promise.all(figures.map(storeOf));
  const states = added(held, "state", from, to);
  const whole = states.reduce((sum, [, amount]) => sum + amount, 0);
  const lost = added(held, "lost to", from, to).sort((a, b) => b[1] - a[1]);
  const lostAll = lost.reduce((sum, [, amount]) => sum + amount, 0);
  const time = figures.length > 1 ? "GPU-seconds" : "Time";
  const phases = phaseTable(held, from, to, time);
  const summary = states.map(([name, amount]) => rowOf(name, seconds(amount), percent(amount / whole), swatch("states", name)));
  const note = `Sums are exact to within a bin of ${report.sums.bin_s} s` + (phases.calls === null ? "; the page holds no single phases there." : `. ${number(phases.calls, 0)} call${phases.calls === 1 ? "" : "s"}; phases of 0 ms are not counted.`);
  return [
    make("div", { class: "columns" },
      ...[
        tableOf("GPU state", summary, [time, "Share"]),
        tableOf("Lost to", lost.map(([name, amount]) => rowOf(name, seconds(amount), percent(amount / lostAll), swatch("causes", name))), [time, "Share"]),
        tableOf("Payload", movedRows(held, from, to), ["Sum", "Mean rate"]),
        phases.table,
      ].filter((table) => table.length).map((table) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figures of the selection" }, ...table)),
    ),
    make("p", { class: "note" }, note),
  ];
}

// Hides the rows of every table that do not touch the span, and says so; without a span shows all.
function filterTables(chosen, clear) {
  for (const table of new Set([...document.querySelectorAll("tr[data-from][data-to]")].map((row) => row.closest("table")))) {
    const rows = [...table.querySelectorAll("tr[data-from][data-to]")];
    let shown = 0;
    for (const row of rows) {
      const gpu = row.dataset.gpu;
      const other = chosen && chosen.gpu !== null && gpu !== undefined && Number(gpu) !== chosen.gpu;
      row.hidden = Boolean(chosen) && (other || Number(row.dataset.to) < chosen.from || Number(row.dataset.from) > chosen.to);
      if (!row.hidden) shown++;
    }
    let line = filtered.get(table);
    if (!line && chosen) {
      const button = make("button", { type: "button" }, "Show all rows");
      button.addEventListener("click", () => {
        clear();
        (table.closest("[tabindex]") ?? table.querySelector("button, a"))?.focus(); // the button itself goes
      });
      line = make("p", { class: "filtered" }, make("span"), " ", button);
      (table.closest(".scroll") ?? table).before(line);
      filtered.set(table, line);
    }
    if (!line) continue;
    line.hidden = !chosen;
    line.firstChild.textContent = `${number(shown, 0)} of ${number(rows.length, 0)} row${rows.length === 1 ? " lies" : "s lie"} in the selection.`;
  }
}

let described = 0;
let saying = null;

// Beside the buttons, once a drag rests: that something is selected, and where it is told of.
function saySelection(chosen) {
  clearTimeout(saying);
  saying = setTimeout(() => {
    const said = document.getElementById("selected");
    if (!chosen) return said.replaceChildren();
    const of = chosen.gpu === null ? "all GPUs" : `GPU ${chosen.gpu}`;
    said.replaceChildren(`${number(chosen.from, 1)} to ${number(chosen.to, 1)} s of ${of} selected: `, make("a", { href: "#selection" }, "summary below"));
  }, chosen ? 400 : 0);
}

async function showSelection(chosen, clear) {
  const ticket = ++described;
  filterTables(chosen, clear);
  saySelection(chosen);
  if (!chosen) {
    selectionPanel.hidden = true;
    return;
  }
  const parts = await describeSelection(chosen);
  if (ticket !== described) return;
  const length = chosen.to - chosen.from;
  selectionPanel.querySelector("h3").textContent = `Selected: ${number(chosen.from, 3)} to ${number(chosen.to, 3)} s, ${seconds(length)}`;
  selectionPanel.querySelector("select").value = chosen.gpu === null ? "all" : String(chosen.gpu);
  selectionPanel.querySelector(".parts-of-it").replaceChildren(...parts);
  selectionPanel.hidden = false;
}
