"""The timeline's panels as Vega-Lite specifications with their data inside, for pictures that do not move.

Every function takes frames whose times are seconds on the report's axis, and returns a specification without
colours of its own: they come in with the arguments, so that a cause looks the same in a chart and in a table.

All panels share one parameter, `domain_s` ([from, to] in seconds): whoever shows them sets it on every panel at
once, and they move together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

Spec = dict[str, Any]
Colours = Mapping[str, str]

_LANE_HEIGHT = 20
_PLOT_HEIGHT = 110
# Text on a coloured band; the bands' colours are the same in light and dark.
_ON_BAND = "#10151a"
# Labels of every panel take the same room, so that their time axes lie under one another.
_LABEL_WIDTH = 62
_UTC = "%Y-%m-%d %H:%M:%S.%L"


@dataclass(frozen=True)
class TimeAxis:
    """What the time axis shows: `origin_ns` is its zero, `utc` whether that is a time of day at all."""

    origin_ns: int
    start_s: float
    end_s: float
    utc: bool

    def seconds(self, time_ns: int) -> float:
        """Seconds on this axis."""
        return (time_ns - self.origin_ns) / 1e9

    def seconds_of(self, column: str) -> pl.Expr:
        """Seconds on this axis, to 0.1 ms, of a column of nanoseconds."""
        return ((pl.col(column) - self.origin_ns) / 1e9).round(4)


def gantt(bars: pl.DataFrame, calls: pl.DataFrame, lanes: Sequence[str], axis: TimeAxis, colours: Colours) -> Spec:
    """Phases as bars, one lane for each thing that a worker does one at a time.

    `bars`: lane, phase, call, start_s, end_s, duration_ms. `calls`: call, worker, partition, job (text).
    """
    chart = (
        alt.Chart(alt.NamedData("bars"), height=_LANE_HEIGHT * len(lanes), width="container")
        .transform_lookup("call", alt.LookupData(alt.NamedData("calls"), "call", ["worker", "partition", "job"]))
        .transform_calculate(utc=_utc(axis, "start_s"))
        .mark_rect(clip=True)
        .encode(
            x=_time(axis, "start_s", orient="top"),
            x2="end_s",
            y=alt.Y(
                "lane:N",
                scale=alt.Scale(domain=list(lanes), paddingInner=0.15, paddingOuter=0.1),
                axis=_labels(ticks=False, domain=False, grid=False),
            ),
            color=_colour("phase", colours),
            tooltip=[
                alt.Tooltip("phase:N"),
                alt.Tooltip("duration_ms:Q", title="duration (ms)", format=",.0f"),
                alt.Tooltip("start_s:Q", title="start (s)", format=".3f"),
                *_utc_tooltip(axis),
                alt.Tooltip("call:N"),
                alt.Tooltip("worker:N"),
                alt.Tooltip("partition:N"),
                alt.Tooltip("job:N"),
            ],
        )
    )
    return _spec(chart, axis, {"bars": bars, "calls": calls})


def regimes(bands: pl.DataFrame, axis: TimeAxis, colours: Colours) -> Spec:
    """Regimes as one thin lane of bands with their labels, as far as they have room.

    `bands`: start_s, end_s, label, calls, reason, cause.
    """
    base = alt.Chart(alt.NamedData("bands")).transform_calculate(
        utc=_utc(axis, "start_s"), length_s="datum.end_s - datum.start_s", lane="'regime'"
    )
    lane = alt.Y("lane:N", axis=_labels(ticks=False, domain=False, grid=False))
    told = [
        alt.Tooltip("label:N", title="regime"),
        alt.Tooltip("start_s:Q", title="start (s)", format=".3f"),
        alt.Tooltip("length_s:Q", title="length (s)", format=".1f"),
        *_utc_tooltip(axis),
        alt.Tooltip("calls:Q"),
        alt.Tooltip("reason:N"),
        alt.Tooltip("cause:N"),
    ]
    rects = base.mark_rect(clip=True, stroke=_ON_BAND, strokeWidth=0.6, strokeOpacity=0.5).encode(
        x=_time(axis, "start_s", labels=False),
        x2="end_s",
        y=lane,
        color=_colour("label", colours),
        tooltip=told,
    )
    # The label stays at the left edge of what is shown of its band, and is cut where the band ends.
    names = (
        base.transform_calculate(from_s="max(datum.start_s, domain_s[0])", until_s="min(datum.end_s, domain_s[1])")
        .transform_filter("datum.until_s > datum.from_s")
        .mark_text(
            clip=True,
            align="left",
            dx=5,
            fontSize=11,
            color=_ON_BAND,
            limit=alt.ExprRef("max(1, (datum.until_s - datum.from_s) / (domain_s[1] - domain_s[0]) * width - 8)"),
        )
        .encode(x=_time(axis, "from_s", labels=False), y=lane, text="label:N", tooltip=told)
    )
    return _spec(alt.layer(rects, names, height=_LANE_HEIGHT, width="container"), axis, {"bands": bands})


def link_traffic(series: pl.DataFrame, line_rate_gb_per_s: float | None, axis: TimeAxis, colours: Colours) -> Spec:
    """What crossed the link, each way, as steps; a dashed rule at the run's own line rate.

    `series`: time_s, value (payload GB/s, null where it is not known), series (rx or tx).
    """
    peak = max(_most(series["value"]), line_rate_gb_per_s or 0.0, 0.001)
    y = _value_axis([0, peak * 1.05], ",.0f" if peak >= 3 else ",.2f")
    base = alt.Chart(alt.NamedData("series"))
    encoded = {"x": _time(axis, "time_s", labels=False), "y": y}
    filled = (
        base.transform_filter(alt.datum.series == "rx")
        .mark_area(interpolate="step-after", clip=True, opacity=0.18, color=colours["rx"])
        .encode(**encoded)
    )
    lines = base.mark_line(
        interpolate="step-after", clip=True, strokeWidth=1.2, invalid="break-paths-show-domains"
    ).encode(**encoded, color=_colour("series", colours))
    layers: list[Any] = [filled, lines]
    if line_rate_gb_per_s is not None:
        rule = alt.Chart(alt.InlineData(values=[{"value": line_rate_gb_per_s}]))
        layers.append(rule.mark_rule(strokeDash=[5, 3]).encode(y=y))
    return _spec(alt.layer(*layers, height=_PLOT_HEIGHT, width="container"), axis, {"series": series})


def compute_share(
    series: pl.DataFrame, gaps: pl.DataFrame, axis: TimeAxis, state_colours: Colours, cause_colours: Colours
) -> Spec:
    """How busy the SMs were, before gaps shaded in the colour of their cause.

    `series`: time_s, value (0..1, null where it is not known). `gaps`: start_s, end_s, cause, duration_ms, phase,
    call, rx (text).
    """
    y = _value_axis([0, 1], ".0%")
    shade = (
        alt.Chart(alt.NamedData("gaps"))
        .transform_calculate(utc=_utc(axis, "start_s"))
        .mark_rect(clip=True, opacity=0.42)
        .encode(
            x=_time(axis, "start_s"),
            x2="end_s",
            color=_colour("cause", cause_colours),
            tooltip=[
                alt.Tooltip("cause:N"),
                alt.Tooltip("duration_ms:Q", title="duration (ms)", format=",.0f"),
                alt.Tooltip("start_s:Q", title="start (s)", format=".3f"),
                *_utc_tooltip(axis),
                alt.Tooltip("phase:N"),
                alt.Tooltip("call:N"),
                alt.Tooltip("rx:N"),
            ],
        )
    )
    busy = (
        alt.Chart(alt.NamedData("series"))
        .mark_area(
            interpolate="step-after",
            clip=True,
            opacity=0.85,
            color=state_colours["compute"],
            invalid="break-paths-show-domains",
            tooltip=None,
        )
        .encode(x=_time(axis, "time_s"), y=y)
    )
    layers = alt.layer(shade, busy, height=_PLOT_HEIGHT, width="container")
    return _spec(layers, axis, {"series": series, "gaps": gaps})


def _time(axis: TimeAxis, field: str, orient: str = "bottom", labels: bool = True) -> alt.X:
    return alt.X(
        f"{field}:Q",
        scale=alt.Scale(domain=[axis.start_s, axis.end_s], domainRaw=alt.ExprRef("domain_s"), nice=False, zero=False),
        axis=alt.Axis(
            orient=orient,  # type: ignore[arg-type]
            title=None,
            labels=labels,
            ticks=labels,
            labelFlush=True,
            labelOverlap="greedy",
            labelSeparation=8,
            tickCount=alt.ExprRef("max(2, width / 90)"),
        ),
    )


def _value_axis(domain: list[float], format_: str) -> alt.Y:
    return alt.Y(
        "value:Q",
        scale=alt.Scale(domain=domain, nice=False),
        axis=_labels(format=format_, tickCount=4, domain=False),
    )


def _labels(**options: Any) -> alt.Axis:
    return alt.Axis(title=None, minExtent=_LABEL_WIDTH, maxExtent=_LABEL_WIDTH, labelLimit=_LABEL_WIDTH - 4, **options)


def _colour(field: str, colours: Colours) -> alt.Color:
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())), legend=None)


def _utc(axis: TimeAxis, field: str) -> str:
    return f"utcFormat({axis.origin_ns / 1e6!r} + 1000 * datum.{field}, '{_UTC}')" if axis.utc else "''"


def _utc_tooltip(axis: TimeAxis) -> list[alt.Tooltip]:
    return [alt.Tooltip("utc:N", title="UTC")] if axis.utc else []


def _most(values: pl.Series) -> float:
    most = values.max()
    return float(most) if isinstance(most, int | float) else 0.0


def _spec(chart: alt.Chart | alt.LayerChart | alt.FacetChart, axis: TimeAxis, data: Mapping[str, pl.DataFrame]) -> Spec:
    """The specification with its data inside, and nothing in it that depends on where it is shown."""
    moving = chart.add_params(alt.param(name="domain_s", value=[axis.start_s, axis.end_s]))
    spec: Spec = moving.properties(autosize=alt.AutoSizeParams(type="fit-x", contains="padding")).to_dict()
    spec.pop("config", None)
    spec["datasets"] = {**spec.get("datasets", {}), **{name: frame.to_dicts() for name, frame in data.items()}}
    return spec
