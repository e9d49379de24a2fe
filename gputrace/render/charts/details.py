"""The report's figures apart from the timeline, as Vega-Lite specifications with their numbers inside.

`detail_charts` is the list of them: the page embeds those that say more than its tables, and all can be written to
files. Colours come in with the theme, so that a phase or a cause looks the same in every chart and table.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from gputrace.analysis.diagnosis import Diagnosis, PhaseFinding
from gputrace.analysis.drivers import driver_points
from gputrace.render.prospect import prospect
from gputrace.trace import Trace

Spec = dict[str, Any]
AnyChart = alt.Chart | alt.LayerChart | alt.FacetChart

_WIDTH = 640
_ROW_HEIGHT = 22
# Of one phase's calls, evenly over the ranks: more ticks would lie on one another.
_MOST_POINTS = 200
_MOST_DRIVERS = 4
# Drivers that are whole numbers, of which an axis names each while they are few.
_WHOLE_DRIVERS = ("worker", "pinned buffers")
_MOST_PLACES = 24
_DURATION_TICKS = [0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]

DRIVER_UNITS = {
    "concurrent syntheses": "syntheses running, mean while the call held the mutex",
    "host CPU": "share of all CPU cores busy while the call held the mutex, 0 to 1",
    "order in the run": "number of the call in the run",
    "allocation bursts": "share of the hold beside bursts of buffer allocation",
    "worker": "number of the worker",
    "pinned buffers": "0: pageable buffers, 1: pinned",
}


@dataclass(frozen=True)
class Chart:
    """One figure: `key` names its file and its place in the page, `caption` says in words how to read it."""

    key: str
    title: str
    caption: str
    spec: Spec


def detail_charts(trace: Trace, diagnosis: Diagnosis, theme: Mapping[str, Any]) -> tuple[Chart, ...]:
    """Every figure that this run has numbers for, in the order of the report. `theme` is `reports/theme.json`."""
    colours: Mapping[str, Any] = theme["colours"]
    found = [
        _states(diagnosis, colours),
        _causes(diagnosis, colours),
        _what_if(diagnosis, colours),
        _bounds(diagnosis, colours),
        _phase_durations(trace, diagnosis, colours),
        _bandwidth(diagnosis, colours),
    ]
    return (*(chart for chart in found if chart is not None), *_drivers(trace, diagnosis, colours))


def _states(diagnosis: Diagnosis, colours: Mapping[str, Any]) -> Chart | None:
    rows = []
    for gpu in diagnosis.gpus:
        parts = (("compute", gpu.compute_share), ("copy-only", gpu.copy_only_share), ("idle", gpu.idle_share))
        rows += [
            {"gpu": f"GPU {gpu.gpu}", "state": name, "share": round(part, 5)}
            for name, part in parts
            if part is not None
        ]
    if not rows:
        return None
    chart = (
        alt.Chart(alt.NamedData("states"))
        .mark_bar()
        .encode(
            x=alt.X("share:Q", stack="zero", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%", title=None)),
            y=alt.Y("gpu:N", title=None),
            color=_colour("state", colours["states"], [row["state"] for row in rows], legend=True),
            tooltip=["gpu:N", "state:N", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    return _chart(
        "states",
        "What the GPU did",
        "Share of each GPU's time in which it computed, only copied, or did neither.",
        chart,
        {"states": rows},
        len(diagnosis.gpus),
    )


def _causes(diagnosis: Diagnosis, colours: Mapping[str, Any]) -> Chart | None:
    rows = [
        {"cause": total.cause, "lost_s": round(total.total_s, 3), "share": round(total.share, 5)}
        for total in diagnosis.gaps.by_cause
    ]
    if not rows:
        return None
    chart = (
        alt.Chart(alt.NamedData("causes"))
        .mark_bar()
        .encode(
            x=alt.X("lost_s:Q", title="GPU seconds without compute", axis=alt.Axis(tickCount=6)),
            y=alt.Y("cause:N", title=None, sort=None),
            color=_colour("cause", colours["causes"], [row["cause"] for row in rows], colours["other"]),
            tooltip=["cause:N", alt.Tooltip("lost_s:Q", title="lost (s)", format=",.1f"), _percent("share")],
        )
    )
    return _chart(
        "causes",
        "Where the lost seconds went",
        "GPU seconds without compute by the cause that they are charged to. The bars add up to all lost seconds.",
        chart,
        {"causes": rows},
        len(rows),
    )


def _what_if(diagnosis: Diagnosis, colours: Mapping[str, Any]) -> Chart | None:
    rows = [
        {
            "scenario": effect.scenario,
            "title": effect.title,
            "predicted": _rounded(effect.calls_per_s.predicted),
            "low": _rounded(effect.calls_per_s.low),
            "high": _rounded(effect.calls_per_s.high),
            "now": _rounded(effect.calls_per_s.now),
            "prospect": prospect(effect),
            "limit": effect.limited_by,
        }
        for effect in diagnosis.what_if
        if effect.calls_per_s.predicted is not None
    ]
    if not rows:
        return None
    base = alt.Chart(alt.NamedData("scenarios"))
    y = alt.Y("scenario:N", title=None, sort=None)
    told = [
        alt.Tooltip("title:N", title="scenario"),
        *(alt.Tooltip(f"{name}:Q", format=",.3f") for name in ("now", "predicted", "low", "high")),
        alt.Tooltip("prospect:N"),
        alt.Tooltip("limit:N", title="limited by, then"),
    ]
    bars = base.mark_bar(opacity=0.75).encode(
        x=alt.X("predicted:Q", title="calls a second"),
        y=y,
        color=_colour("prospect", colours["prospects"], [row["prospect"] for row in rows], legend=True),
        tooltip=told,
    )
    ranges = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_rule(strokeWidth=2)
    now = base.transform_filter("isValid(datum.now)").mark_tick(thickness=2, size=_ROW_HEIGHT, strokeDash=[3, 2])
    level = diagnosis.what_if[0].level
    return _chart(
        "what-if",
        "What a fix is worth",
        f"Calls a second predicted for each change (bar), the interval meant to hold it {level:.0%} of the time (line "
        "along the bar), and what was measured (mark across it).",
        alt.layer(bars, ranges.encode(x="low:Q", x2="high:Q", y=y), now.encode(x="now:Q", y=y)),
        {"scenarios": rows},
        len(rows),
    )


def _bounds(diagnosis: Diagnosis, colours: Mapping[str, Any]) -> Chart | None:
    rows = [
        {
            "resource": bound.resource,
            "most": _rounded(bound.max_calls_per_s),
            "busy": _rounded(bound.busy_share),
            "what": bound.what,
        }
        for bound in diagnosis.bounds
    ]
    if not rows:
        return None
    bars = (
        alt.Chart(alt.NamedData("bounds"))
        .mark_bar(color=colours["series"]["rx"])
        .encode(
            x=alt.X("most:Q", title="most calls a second"),
            y=alt.Y("resource:N", title=None, sort=None),
            tooltip=["resource:N", alt.Tooltip("most:Q", format=",.3f"), _percent("busy"), "what:N"],
        )
    )
    layers: list[alt.Chart] = [bars]
    measured = diagnosis.calls.per_s
    if measured is not None:
        rule = alt.Chart(alt.InlineData(values=[{"measured": _rounded(measured)}]))
        layers.append(rule.mark_rule(strokeDash=[5, 3], strokeWidth=2).encode(x="measured:Q"))
    return _chart(
        "bounds",
        "The most that each resource allows",
        "Calls a second that each resource alone could sustain at this run's service times."
        + (f" Dashed: the {measured:.2f} that the run did." if measured is not None else ""),
        alt.layer(*layers),
        {"bounds": rows},
        len(rows),
    )


def _phase_durations(trace: Trace, diagnosis: Diagnosis, colours: Mapping[str, Any]) -> Chart | None:
    phases = [phase for phase in diagnosis.phases if phase.max_ms >= 1 and not phase.contains_others]
    if not phases:
        return None
    ticks = _ticks(trace, phases)
    summary = [
        {
            "phase": phase.name,
            "p5": round(phase.p5_ms, 1),
            "median": round(phase.median_ms, 1),
            "p95": round(phase.p95_ms, 1),
            "most": round(phase.max_ms, 1),
            "calls": phase.count,
        }
        for phase in phases
    ]
    y = alt.Y("phase:N", title=None, sort=None, scale=alt.Scale(domain=[phase.name for phase in phases]))
    longest = max(phase.max_ms for phase in phases)
    scale = alt.Scale(type="symlog", constant=10, domain=[0, longest * 1.05], nice=False)
    shown = [tick for tick in _DURATION_TICKS if tick <= longest and tick not in (1, 3)]
    axis = alt.Axis(values=shown, format=",d", title="milliseconds; the scale shrinks long ones", labelOverlap=True)
    colour = _colour("phase", colours["phases"], [phase.name for phase in phases], colours["other"])
    numbers = [
        alt.Tooltip(f"{name}:Q", format=",.0f", title=f"{name} (ms)") for name in ("p5", "median", "p95", "most")
    ]
    base = alt.Chart(alt.NamedData("summary"))
    spans = base.mark_bar(height=12, opacity=0.45).encode(
        x=alt.X("p5:Q", scale=scale, axis=axis), x2="p95:Q", y=y, color=colour,
        tooltip=["phase:N", *numbers, "calls:Q"],
    )  # fmt: skip
    single = alt.Chart(alt.NamedData("ticks")).mark_tick(thickness=1, size=8, opacity=0.6)
    medians = base.mark_tick(thickness=3, size=18).encode(x=alt.X("median:Q", scale=scale), y=y)
    return _chart(
        "phase-durations",
        "How long each phase takes",
        "A thin mark is a call, the band spans the middle nine tenths of the calls (5th to 95th percentile), the thick "
        "mark is the median.",
        alt.layer(spans, single.encode(x=alt.X("duration_ms:Q", scale=scale), y=y), medians),
        {"summary": summary, "ticks": ticks},
        len(phases),
    )


def _ticks(trace: Trace, phases: list[PhaseFinding]) -> list[dict[str, Any]]:
    """phase and duration_ms, a row a call; of many calls evenly over the ranks."""
    calls = trace.calls_in_focus.filter("complete").select("call")
    durations = (
        trace.phases.join(calls, on="call", how="semi").group_by("call", "name").agg(pl.col("duration_ms").sum())
    )
    rows: list[dict[str, Any]] = []
    for phase in phases:
        values = durations.filter(pl.col("name") == phase.name)["duration_ms"].drop_nulls().sort()
        step = max(1.0, values.len() / _MOST_POINTS)
        chosen = {int(values[int(i * step)]) for i in range(int(values.len() / step))}
        rows += [{"phase": phase.name, "duration_ms": value} for value in sorted(chosen)]
    return rows


def _bandwidth(diagnosis: Diagnosis, colours: Mapping[str, Any]) -> Chart | None:
    rows = [
        {
            "phase": phase.name,
            "p10": round(phase.rx_bytes_per_s["p10"] / 1e9, 3),
            "median": round(phase.rx_bytes_per_s["median"] / 1e9, 3),
            "p90": round(phase.rx_bytes_per_s["p90"] / 1e9, 3),
            "transfer": phase.transfer,
        }
        for phase in diagnosis.phases
        if phase.rx_bytes_per_s is not None
    ]
    if not rows:
        return None
    names = [row["phase"] for row in rows]
    y = alt.Y("phase:N", title=None, sort=None)
    x = "GB/s into the GPU, payload"
    told = [
        "phase:N",
        *(alt.Tooltip(f"{name}:Q", format=",.2f", title=f"{name} (GB/s)") for name in ("p10", "median", "p90")),
        alt.Tooltip("transfer:N", title="copies"),
    ]
    base = alt.Chart(alt.NamedData("rates"))
    layers: list[alt.Chart] = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("p10:Q", title=x), x2="p90:Q", y=y, tooltip=told),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            x="median:Q", y=y, color=_colour("phase", colours["phases"], names, colours["other"]), tooltip=told
        ),
    ]
    reached = max((gpu.line_rate_bytes_per_s or 0.0 for gpu in diagnosis.gpus), default=0.0)
    if reached:
        rule = alt.Chart(alt.InlineData(values=[{"rate": round(reached / 1e9, 3)}]))
        layers.append(rule.mark_rule(strokeDash=[5, 3], strokeWidth=2).encode(x="rate:Q"))
    return _chart(
        "bandwidth",
        "How fast each phase copies",
        "Payload into the GPU while a phase runs: the point is the median over the calls, the line spans the middle "
        "eight tenths (10th to 90th percentile)."
        + (f" Dashed: the {reached / 1e9:.0f} GB/s that the link reached in this run." if reached else ""),
        alt.layer(*layers),
        {"rates": rows},
        len(rows),
    )


def _drivers(trace: Trace, diagnosis: Diagnosis, colours: Mapping[str, Any]) -> Iterator[Chart]:
    """For the phases that vary most, each call against what it goes with most closely."""
    variable = [phase for phase in diagnosis.phases if phase.drivers and not phase.contains_others]
    variable.sort(key=lambda phase: (phase.p5_ms - phase.p95_ms, phase.name))
    chosen = variable[:_MOST_DRIVERS]
    points = driver_points(trace, chosen)
    for phase in chosen:
        first = phase.drivers[0]
        own = points.filter((pl.col("phase") == phase.name) & (pl.col("driver") == first.name))
        if own.is_empty():
            continue
        rows = own.select("call", pl.col("value").round(4), "duration_ms").to_dicts()
        whole = first.name in _WHOLE_DRIVERS
        value = alt.X("value:Q", title=DRIVER_UNITS.get(first.name, first.name), scale=alt.Scale(zero=False))
        if whole:
            value = value.axis(_whole_axis(own["value"])).scale(zero=False, padding=20)
        chart = (
            alt.Chart(alt.NamedData("points"), height=200)
            .mark_circle(size=50, opacity=0.75, color=colours["phases"].get(phase.name, colours["other"]))
            .encode(
                x=value,
                y=alt.Y("duration_ms:Q", title=f"{phase.name}, ms"),
                tooltip=[
                    "call:Q",
                    alt.Tooltip("value:Q", title=first.name, format="d" if whole else ",.2f"),
                    alt.Tooltip("duration_ms:Q", title="duration (ms)", format=",.0f"),
                ],
            )
        )
        yield Chart(
            f"driver-{phase.name}",
            f"{phase.name} against {first.name}",
            f"A point is a call. Rank correlation {first.spearman:+.2f} over {first.n} calls: +1 would mean that the "
            "longer call always has the higher value, 0 that they have nothing to do with each other. A correlation is "
            "no proof of a cause.",
            _with_data(chart.properties(width=_WIDTH), {"points": rows}),
        )


def _whole_axis(values: pl.Series) -> alt.Axis:
    """An axis with a tick at every whole number that occurs, or at whole numbers only where they are many."""
    places = sorted({int(value) for value in values})
    return alt.Axis(values=places, format="d") if len(places) <= _MOST_PLACES else alt.Axis(format="d", tickMinStep=1)


def _chart(key: str, title: str, caption: str, chart: AnyChart, data: Mapping[str, list[Any]], rows: int) -> Chart:
    sized = chart.properties(width=_WIDTH, height=max(1, rows) * _ROW_HEIGHT)
    return Chart(key, title, caption, _with_data(sized, data))


def _with_data(chart: AnyChart, data: Mapping[str, list[Any]]) -> Spec:
    spec: Spec = chart.to_dict()
    spec.pop("config", None)
    spec["datasets"] = {**spec.get("datasets", {}), **data}
    return spec


def _colour(
    field: str, colours: Mapping[str, str], names: Iterable[object], other: str = "", legend: bool = False
) -> alt.Color:
    shown = list(dict.fromkeys(map(str, names)))
    scale = alt.Scale(domain=shown, range=[colours.get(name, other) for name in shown])
    placed = alt.Legend(title=None, orient="top") if legend else None
    return alt.Color(f"{field}:N", scale=scale, legend=placed)


def _percent(field: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", format=".1%")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
