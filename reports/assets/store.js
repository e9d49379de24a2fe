// What the page holds of each GPU: packed columns, read when the GPU is first looked at.
const report = JSON.parse(document.getElementById("report-data").textContent);
const axis = report.axis;
const full = axis ? [axis.start_s, axis.end_s] : [0, 1];
const UNKNOWN = 65535;

// How many of the ascending `times`, from `first`, are at most `time`.
function countUntil(times, time, first = 0) {
  let low = first;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function unpack(text, directory) {
  const inflated = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(inflated).arrayBuffer());
  const columns = {};
  let at = 0;
  for (const [name, kind, count] of directory) {
    const width = Number(kind[1]);
    const values = width === 1 ? bytes.slice(at, at + count) : width === 2 ? new Uint16Array(count) : new Uint32Array(count);
    for (let plane = 0; width > 1 && plane < width; plane++) {
      const factor = 256 ** plane;
      const from = at + plane * count;
      for (let i = 0; i < count; i++) values[i] += bytes[from + i] * factor;
    }
    if (kind === "d4") for (let i = 1; i < count; i++) values[i] += values[i - 1];
    columns[name] = values;
    at += count * width;
  }
  return columns;
}

function secondsOf(ticks) {
  const seconds = new Float64Array(ticks.length);
  for (let i = 0; i < ticks.length; i++) seconds[i] = full[0] + ticks[i] * report.tick_s;
  return seconds;
}

// A reading: each row's extremes hold from its time to the next row's.
class Series {
  constructor(told, columns) {
    this.name = told.name;
    this.level = told.level;
    this.bin_s = told.bin_s ?? null;
    this.low = columns[`${told.name}.low`];
    this.high = columns[`${told.name}.high`] ?? this.low;
    this.holes = columns[`${told.name}.hole`] ?? null;
    if (this.bin_s === null) this.times = secondsOf(columns[`${told.times}.time`]);
    else this.times = Float64Array.from(this.low, (_, i) => full[0] + i * this.bin_s);
  }

  hasHole(row) {
    return this.holes ? this.holes[row] === 1 : this.low[row] === UNKNOWN;
  }

  // Lowest and highest value in force between two times (null: none known), and whether any of it is unknown.
  // `row` is where to begin looking: the one in force at `from`, or one before it.
  extremes(from, to, row = countUntil(this.times, from) - 1) {
    let [low, high, hole] = [UNKNOWN, -1, row < 0];
    let at = Math.max(row, 0);
    for (; at < this.times.length && (at === row || this.times[at] < to); at++) {
      hole ||= this.hasHole(at);
      if (this.low[at] === UNKNOWN) continue;
      if (this.low[at] < low) low = this.low[at];
      if (this.high[at] > high) high = this.high[at];
    }
    const known = high >= 0;
    return { low: known ? low * this.level : null, high: known ? high * this.level : null, hole, row: at - 1 };
  }

  // Rows to draw between two times: those there are if at most `most`, else the extremes of `most` bins.
  rows(from, to, most) {
    const first = Math.max(countUntil(this.times, from) - 1, 0);
    const last = countUntil(this.times, to, first);
    const rows = [];
    const holes = [];
    const put = (time, until, found) => {
      rows.push({ time, low: found.low, high: found.high, known: found.low !== null });
      if (!found.hole) return;
      const before = holes[holes.length - 1];
      if (before && before.end >= time) before.end = until;
      else holes.push({ start: time, end: until });
    };
    if (last - first <= most) {
      for (let i = first; i < last; i++) {
        const known = this.low[i] !== UNKNOWN;
        const until = i + 1 < this.times.length ? this.times[i + 1] : full[1];
        put(this.times[i], until, {
          low: known ? this.low[i] * this.level : null,
          high: known ? this.high[i] * this.level : null,
          hole: this.hasHole(i),
        });
      }
    } else {
      // Bins lie on multiples of their width, so that they stand still while one pans.
      const width = (to - from) / most;
      let row = first;
      for (let bin = Math.floor(from / width); bin * width < to; bin++) {
        const [start, end] = [Math.max(bin * width, from), Math.min((bin + 1) * width, to)];
        while (row + 1 < this.times.length && this.times[row + 1] <= start) row++;
        const found = this.extremes(start, end, this.times[row] <= start ? row : -1);
        put(start, end, found);
        row = Math.max(found.row, row);
      }
    }
    if (rows.length) {
      const end = last < this.times.length ? this.times[last] : full[1];
      rows.push({ ...rows[rows.length - 1], time: Math.min(end, Math.max(to, rows[rows.length - 1].time)) });
    }
    return { rows, holes };
  }
}

// What adds up over time: its sum up to each edge of a bin; within a bin it is taken to be even.
class Sum {
  constructor(told, units) {
    this.group = told.group;
    this.name = told.name;
    this.unit = told.unit;
    this.until = new Float64Array(units.length + 1);
    for (let i = 0; i < units.length; i++) this.until[i + 1] = this.until[i] + units[i];
  }

  before(time) {
    const bins = this.until.length - 1;
    const place = Math.min(Math.max((time - full[0]) / report.sums.bin_s, 0), bins);
    const bin = Math.min(Math.floor(place), bins - 1);
    return this.unit * (this.until[bin] + (place - bin) * (this.until[bin + 1] - this.until[bin]));
  }

  between(from, to) {
    return this.before(to) - this.before(from);
  }
}

// The phases of one lane, one by one, in order of their start.
class Lane {
  constructor(told, index, columns) {
    this.name = told.name;
    const column = (name) => columns[`lane${index}.${name}`];
    this.start = secondsOf(column("start"));
    this.length = Float64Array.from(column("length"), (ticks) => ticks * report.tick_s);
    this.phase = column("phase");
    this.call = column("call");
    this.longest = this.length.reduce((most, length) => Math.max(most, length), 0);
  }

  // [first, last) of what may touch a span; some of the first may end before it.
  range(from, to) {
    return [countUntil(this.start, from - this.longest), countUntil(this.start, to)];
  }

  touches(bar, from, to) {
    return this.start[bar] + this.length[bar] > from && this.start[bar] < to;
  }
}

class Store {
  constructor(figure, columns) {
    this.columns = columns;
    this.series = figure.series.map((told) => new Series(told, columns));
    this.sums = figure.sums.map((told, i) => new Sum(told, columns[`sum${i}`]));
    this.lanes = figure.lanes.map((told, i) => new Lane(told, i, columns));
    this.stretches = figure.held;
  }

  of(group) {
    return this.sums.filter((sum) => sum.group === group);
  }

  // Whether every single phase of a span is in the page.
  holds(from, to) {
    return this.stretches === null || this.stretches.some(([first, last]) => first <= from && to <= last);
  }

  bars(from, to) {
    return this.lanes.reduce((sum, lane) => sum + lane.range(from, to)[1] - lane.range(from, to)[0], 0);
  }

  call(number) {
    const row = countUntil(this.columns["call.number"], number) - 1;
    if (row < 0 || this.columns["call.number"][row] !== number) return {};
    const known = (name) => {
      const value = this.columns[`call.${name}`][row];
      return value === 0 ? null : value - 1;
    };
    const job = known("job");
    return { worker: known("worker"), partition: known("partition"), job: job === null ? null : report.jobs[job] };
  }
}

const stores = new Map();

function storeOf(figure) {
  if (!stores.has(figure)) {
    const element = document.getElementById(`store-gpu${figure.gpu}`);
    stores.set(figure, unpack(element.textContent.trim(), figure.directory).then((columns) => new Store(figure, columns)));
  }
  return stores.get(figure);
}
