// Draws the timeline's panels and moves them together.
(() => {
  "use strict";

  const report = JSON.parse(document.getElementById("report-data").textContent);
  const stacks = [...document.querySelectorAll(".figure-stack")];
  const darkMode = matchMedia("(prefers-color-scheme: dark)");
  const axis = report.axis;
  const full = axis ? [axis.start_s, axis.end_s] : [0, 1];
  const smallestSpan = 0.005;

  let domain = full;
  let highlight = null;
  let drawn = []; // {stack, element, embedded, view}, one for each panel
  let pending = null;

  function chartConfig() {
    const colours = report.chart[darkMode.matches ? "dark" : "light"];
    const font = getComputedStyle(document.body).fontFamily;
    return {
      ...colours,
      font,
      axis: { ...colours.axis, labelFontSize: 11, grid: true, labelPadding: 6 },
      view: { stroke: null },
    };
  }

  async function draw() {
    drawn.forEach((item) => item.embedded.finalize());
    const wanted = report.figures.flatMap((figure) => figure.panels);
    drawn = await Promise.all(
      wanted.map(async (panel) => {
        const element = document.getElementById(panel.key);
        const embedded = await vegaEmbed(element, panel.spec, {
          actions: false,
          ast: true, // expressions are interpreted: the page's policy forbids eval
          config: chartConfig(),
          defaultStyle: false,
          renderer: "canvas",
          tooltip: { disableDefaultStyle: false, theme: "custom" },
        });
        return { stack: element.closest(".figure-stack"), element, embedded, view: embedded.view };
      }),
    );
    await show();
  }

  // One frame of movement at most is under way; later wishes are folded into the next.
  function show() {
    pending ??= new Promise((resolve) => {
      requestAnimationFrame(async () => {
        pending = null;
        await Promise.all(drawn.map((item) => item.view.signal("domain_s", domain).runAsync()));
        stacks.forEach(placeBand);
        resolve();
      });
    });
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

  const shift = (share) => {
    const by = share * (domain[1] - domain[0]);
    const allowed = Math.min(Math.max(by, full[0] - domain[0]), full[1] - domain[1]);
    return zoom(domain[0] + allowed, domain[1] + allowed);
  };

  function reset() {
    highlight = null;
    domain = full;
    return show();
  }

  // Where a panel's plot lies in its stack, in CSS pixels.
  function plot(stack) {
    const item = drawn.find((candidate) => candidate.stack === stack);
    if (!item) return null;
    const box = item.element.getBoundingClientRect();
    const left = box.left + item.view.padding().left + item.view.origin()[0];
    return { left, width: item.view.width(), inStack: left - stack.getBoundingClientRect().left };
  }

  function timeAt(stack, clientX) {
    const area = plot(stack);
    if (!area) return null;
    const share = (clientX - area.left) / area.width;
    return share < 0 || share > 1 ? null : domain[0] + share * (domain[1] - domain[0]);
  }

  function placeBand(stack) {
    const band = stack.querySelector(".band");
    const area = plot(stack);
    const [from, to] = highlight ?? [0, 0];
    band.hidden = !highlight || !area || to < domain[0] || from > domain[1];
    if (band.hidden) return;
    const x = (time) => ((Math.min(Math.max(time, domain[0]), domain[1]) - domain[0]) / (domain[1] - domain[0])) * area.width;
    band.style.left = `${area.inStack + x(from)}px`;
    band.style.width = `${Math.max(x(to) - x(from), 1)}px`;
  }

  // The last value at or before a time; null in a hole.
  function valueAt(rows, time) {
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].time_s <= time) low = middle + 1;
      else high = middle;
    }
    return low ? rows[low - 1].value : null;
  }

  const seriesOf = new Map();
  for (const figure of report.figures) {
    const series = {};
    for (const panel of figure.panels) {
      for (const row of panel.spec.datasets.series ?? []) {
        (series[row.series ?? "SMs"] ??= []).push(row);
      }
    }
    seriesOf.set(String(figure.gpu), series);
  }

  function readout(stack, time) {
    const parts = [`${time.toFixed(3)} s`];
    if (axis.utc) parts.push(new Date(axis.origin_ms + time * 1000).toISOString().slice(11, 23) + " UTC");
    for (const [name, rows] of Object.entries(seriesOf.get(stack.dataset.gpu))) {
      const value = valueAt(rows, time);
      const text = value === null ? "unknown" : name === "SMs" ? `${Math.round(value * 100)}%` : `${value.toFixed(2)} GB/s`;
      parts.push(`${name} ${text}`);
    }
    document.getElementById("readout").textContent = parts.join(" · ");
  }

  function moveCrosshairs(from, clientX) {
    const time = from && timeAt(from, clientX);
    for (const stack of stacks) {
      const hair = stack.querySelector(".crosshair");
      const area = plot(stack);
      hair.hidden = time === null || time === undefined || !area;
      if (!hair.hidden) hair.style.left = `${area.inStack + ((time - domain[0]) / (domain[1] - domain[0])) * area.width}px`;
    }
    if (time !== null && time !== undefined) readout(from, time);
  }

  function listen(stack) {
    let drag = null;
    stack.addEventListener("wheel", (event) => {
      const around = timeAt(stack, event.clientX);
      if (around === null || event.ctrlKey) return;
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const whole = domain[1] - domain[0] >= full[1] - full[0];
      // Zooming out of the whole is scrolling the page.
      if (whole && (sideways || event.deltaY > 0)) return;
      event.preventDefault();
      if (sideways) shift(event.deltaX / plot(stack).width);
      else scale(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), around);
    }, { passive: false });
    stack.addEventListener("pointerdown", (event) => {
      const panel = event.target.closest(".panel");
      if (!panel || event.button !== 0 || timeAt(stack, event.clientX) === null) return;
      drag = { panel, x: event.clientX, domain, id: event.pointerId };
    });
    stack.addEventListener("pointermove", (event) => {
      if (drag && event.pointerId === drag.id) {
        if (!drag.panel.classList.contains("dragging")) {
          drag.panel.setPointerCapture(event.pointerId);
          drag.panel.classList.add("dragging");
        }
        const by = ((drag.x - event.clientX) / plot(stack).width) * (drag.domain[1] - drag.domain[0]);
        const allowed = Math.min(Math.max(by, full[0] - drag.domain[0]), full[1] - drag.domain[1]);
        zoom(drag.domain[0] + allowed, drag.domain[1] + allowed);
      }
      moveCrosshairs(stack, event.clientX);
    });
    const drop = () => {
      drag?.panel.classList.remove("dragging");
      drag = null;
    };
    stack.addEventListener("pointerup", drop);
    stack.addEventListener("pointercancel", drop);
    stack.addEventListener("pointerleave", () => moveCrosshairs(null, 0));
    stack.addEventListener("dblclick", reset);
    stack.addEventListener("keydown", (event) => {
      const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "reset" };
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
  }

  const actions = {
    in: () => scale(0.5),
    out: () => scale(2),
    left: () => shift(-0.25),
    right: () => shift(0.25),
    reset,
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button) actions[button.dataset.action]();
    const gap = event.target.closest("tr")?.querySelector("[data-zoom-from]");
    if (!gap || !stacks.length) return;
    const from = Number(gap.dataset.zoomFrom);
    const to = Number(gap.dataset.zoomTo);
    highlight = [from, to];
    zoom(from - (to - from) / 2, to + (to - from) / 2);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    document.getElementById("timeline").scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  });

  addEventListener("resize", () => stacks.forEach(placeBand));
  darkMode.addEventListener("change", () => { if (stacks.length) draw(); });
  stacks.forEach(listen);

  const ready = stacks.length ? draw() : Promise.resolve();
  window.gputrace = {
    ready,
    timeline: {
      get views() { return drawn.map((item) => item.view); },
      view: (key) => drawn.find((item) => item.element.id === key)?.view,
      domain: () => [...domain],
      zoom,
      reset,
    },
  };
})();
