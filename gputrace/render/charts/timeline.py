"""The timeline's panels as Vega-Lite specifications without their data, which the page's script puts in.

It does so for what is shown, at the resolution of the screen. Times are seconds on the report's axis. Colours come in
with the arguments, so that a cause looks the same in a chart and in a table. All panels share one parameter,
`domain_s` ([from, to] in seconds): whoever shows them sets it on every panel at once, and they move together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

Spec = dict[str, Any]
Colours = Mapping[str, str]

_LANE_HEIGHT = 20
_PLOT_HEIGHT = 120
# Text on a coloured band; the bands' colours are the same in light and dark.
_ON_BAND = "#10151a"
# Labels of every panel take the same room, so that their time axes lie under one another.
_LABEL_WIDTH = 62
# A thin bar at the foot of a plot where part of what is shown was not read.
_HOLE_HEIGHT = 5
_HOLE_COLOUR = "#98a1ab"
_PALE = 0.55
# Dashes of the rules of a plot, as the page's legend shows them too.
_DASHES = {"link's limit": [5, 3], "line rate": [2, 2]}


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


def lanes(
    names: Sequence[str], axis: TimeAxis, colours: Colours, lane_height: int = _LANE_HEIGHT, pale_lanes: int = 0
) -> Spec:
    """Lanes under one another, in which the data puts boxes: phases one by one, or shares of a bin stacked.

    Data `rows`: start, end (s), top, bottom (lanes from the top; a lane is 1 high), name. The first `pale_lanes` are
    paler than the others, whose colours may mean something else.
    """
    pale = {"opacity": alt.condition(f"datum.top < {pale_lanes}", alt.value(_PALE), alt.value(1))} if pale_lanes else {}
    lane_axis = _labels(
        values=[i + 0.5 for i in range(len(names))],
        labelExpr=f"{list(names)!r}[floor(datum.value)]",
        ticks=False,
        domain=False,
        grid=False,
    )
    boxes = (
        alt.Chart(alt.NamedData("rows"))
        .mark_rect(clip=True, invalid=None)
        .encode(
            x=_time(axis, "start", orient="top"),
            x2="end:Q",
            y=alt.Y("top:Q", scale=alt.Scale(domain=[len(names), 0], nice=False, zero=False), axis=lane_axis),
            y2="bottom:Q",
            color=_colour("name", colours),
            **pale,
        )
    )
    return _spec(alt.layer(boxes, height=lane_height * len(names), width="container"), axis, ("rows",))


def regimes(bands: Sequence[Mapping[str, Any]], axis: TimeAxis, colours: Colours) -> Spec:
    """Regimes as one thin lane of bands with their labels, as far as they have room.

    `bands`: start, end (s), name, calls, reason, cause.
    """
    base = alt.Chart(alt.NamedData("rows")).transform_calculate(lane="'regime'")
    lane = alt.Y("lane:N", axis=_labels(ticks=False, domain=False, grid=False))
    rects = base.mark_rect(clip=True, stroke=_ON_BAND, strokeWidth=0.6, strokeOpacity=0.5).encode(
        x=_time(axis, "start", labels=False), x2="end", y=lane, color=_colour("name", colours)
    )
    # The label stays at the left edge of what is shown of its band, and is cut where the band ends.
    labels = (
        base.transform_calculate(from_s="max(datum.start, domain_s[0])", until_s="min(datum.end, domain_s[1])")
        .transform_filter("datum.until_s > datum.from_s")
        .mark_text(
            clip=True,
            align="left",
            dx=5,
            fontSize=11,
            color=_ON_BAND,
            limit=alt.ExprRef("max(1, (datum.until_s - datum.from_s) / (domain_s[1] - domain_s[0]) * width - 8)"),
        )
        .encode(x=_time(axis, "from_s", labels=False), y=lane, text="name:N")
    )
    spec = _spec(alt.layer(rects, labels, height=_LANE_HEIGHT, width="container"), axis, ())
    spec["datasets"]["rows"] = [dict(band) for band in bands]
    return spec


def link_traffic(
    series: Sequence[str], peak_gb_per_s: float, rules: Sequence[tuple[str, float]], axis: TimeAxis, colours: Colours
) -> Spec:
    """What crossed the link, each way, as steps or as the extremes of bins; dashed rules at rates, with their words.

    `series`: rx, tx or both; data of each: time (s), low, high (payload GB/s, null where unknown). `rules`: GB/s.
    """
    most = max(peak_gb_per_s, *(rate for _, rate in rules), 0.001)
    y = _value_axis([0, most * 1.08], ",.0f" if most >= 3 else ",.2f")
    layers: list[alt.Chart] = []
    for name in series:
        base = alt.Chart(alt.NamedData(name))
        if name == "rx":
            layers.append(_area(base, axis, y, "low", None, opacity=0.18, color=colours[name]))
        layers.append(_area(base, axis, y, "high", "low", stroke=colours[name], strokeWidth=1.1, color=colours[name]))
    holes = alt.Chart(alt.NamedData("holes")).mark_rect(clip=True, color=_HOLE_COLOUR)
    foot = {"y": alt.value(_PLOT_HEIGHT - _HOLE_HEIGHT), "y2": alt.value(_PLOT_HEIGHT)}
    layers.append(holes.encode(x=_time(axis, "start", labels=False), x2="end:Q", **foot))
    if rules:
        for words, rate in rules:
            base = alt.Chart(alt.InlineData(values=[{"value": rate}]))
            layers.append(base.mark_rule(strokeDash=_DASHES.get(words, [5, 3])).encode(y=y))
        # The highest is labelled above its rule, the others below theirs: they often lie close together.
        ordered = sorted(rules, key=lambda rule: -rule[1])
        for above, some in ((True, ordered[:1]), (False, ordered[1:])):
            labelled = alt.Chart(alt.InlineData(values=[{"value": rate, "words": words} for words, rate in some]))
            text = labelled.mark_text(
                align="right", baseline="bottom" if above else "top", fontSize=10, dx=-3, dy=-1 if above else 2
            )
            layers.append(text.encode(y=y, x=alt.value(alt.ExprRef("width")), text="words:N"))
    return _spec(alt.layer(*layers, height=_PLOT_HEIGHT, width="container"), axis, (*series, "holes"))


def compute_share(axis: TimeAxis, state_colours: Colours, cause_colours: Colours) -> Spec:
    """How busy the SMs were, before gaps shaded in the colour of their cause.

    Data `sm`: time (s), low, high (0..1, null where unknown). `gaps`: start, end (s), name (the cause).
    """
    y = _value_axis([0, 1], ".0%")
    shade = (
        alt.Chart(alt.NamedData("gaps"))
        .mark_rect(clip=True, opacity=0.42)
        .encode(x=_time(axis, "start"), x2="end:Q", color=_colour("name", cause_colours))
    )
    busy = alt.Chart(alt.NamedData("sm"))
    colour = state_colours["compute"]
    surely = _area(busy, axis, y, "low", None, labels=True, opacity=0.85, color=colour)
    at_most = _area(busy, axis, y, "high", "low", labels=True, opacity=0.5, stroke=colour, color=colour)
    layers = alt.layer(shade, surely, at_most, height=_PLOT_HEIGHT, width="container")
    return _spec(layers, axis, ("sm", "gaps"))


def _area(
    base: alt.Chart, axis: TimeAxis, y: alt.Y, field: str, until: str | None, labels: bool = False, **looks: Any
) -> alt.Chart:
    """From `until` (0 if None) up to `field`, held until the next time, with breaks where it is unknown."""
    upper = y.copy()
    upper.shorthand = f"{field}:Q"
    ends = {} if until is None else {"y2": alt.Y2(f"{until}:Q")}
    marked = base.mark_area(
        interpolate="step-after", clip=True, line=False, invalid="break-paths-show-domains", tooltip=None, **looks
    )
    encoded: alt.Chart = marked.encode(x=_time(axis, "time", labels=labels), y=upper, **ends)
    return encoded


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
        stack=None,
        scale=alt.Scale(domain=domain, nice=False),
        axis=_labels(format=format_, tickCount=4, domain=False),
    )


def _labels(**options: Any) -> alt.Axis:
    return alt.Axis(title=None, minExtent=_LABEL_WIDTH, maxExtent=_LABEL_WIDTH, labelLimit=_LABEL_WIDTH - 4, **options)


def _colour(field: str, colours: Colours) -> alt.Color:
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())), legend=None)


def _spec(chart: alt.LayerChart | alt.FacetChart, axis: TimeAxis, data: Sequence[str]) -> Spec:
    """The specification with its data sets empty, and nothing in it that depends on where it is shown."""
    moving = chart.add_params(alt.param(name="domain_s", value=[axis.start_s, axis.end_s]))
    spec: Spec = moving.properties(autosize=alt.AutoSizeParams(type="fit-x", contains="padding")).to_dict()
    spec.pop("config", None)
    spec["datasets"] = {**spec.get("datasets", {}), **{name: [] for name in data}}
    return spec
