"""A panel of the timeline over the whole run, as rows for its chart: for pictures, which no script draws.

The rows are those that the page's script makes of the same store (reports/assets/drawing.js), with more bins.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gputrace.render.timeline.build import Figure, Timeline
from gputrace.render.timeline.columns import UNKNOWN, Floats, Integers, unpack
from gputrace.render.timeline.series import Steps, extremes

_MOST_BARS = 4000
_MOST_READINGS = 1000
_MOST_SHARES = 300
# Room above and below a box in its lane, and the least share of a bin that is drawn.
_PAD = 0.08
_LEAST_SHARE = 0.004

Rows = list[dict[str, Any]]


def still(timeline: Timeline, figure: Figure, kind: str) -> dict[str, Rows]:
    """The data sets of the figure's panel of this kind; none for one that has its data."""
    columns = unpack(figure.store)
    if kind == "phases":
        groups = [lane["name"] for lane in figure.told["lanes"]]
        few = figure.told["held"] is None and sum(lane["bars"] for lane in figure.told["lanes"]) <= _MOST_BARS
        return {"rows": _bars(timeline, figure, columns) if few else _shares(timeline, figure, columns, groups)}
    if kind == "lost":
        return {"rows": _shares(timeline, figure, columns, ["state", "lost to"])}
    if kind == "compute":
        return {"sm": _readings(timeline, figure, columns, "sm")[0], "gaps": figure.told["gaps"]}
    if kind != "link":
        return {}
    drawn = {
        told["name"]: _readings(timeline, figure, columns, told["name"])
        for told in figure.told["series"]
        if told["name"] != "sm"
    }
    return {name: rows for name, (rows, _) in drawn.items()} | {
        "holes": [row for _, own in drawn.values() for row in own]
    }


def _bars(timeline: Timeline, figure: Figure, columns: Mapping[str, Integers]) -> Rows:
    rows = []
    for i, _ in enumerate(figure.told["lanes"]):
        start = timeline.axis.start_s + columns[f"lane{i}.start"] * timeline.tick_s
        end = start + columns[f"lane{i}.length"] * timeline.tick_s
        names = (timeline.phases[phase] for phase in columns[f"lane{i}.phase"])
        rows += [
            {"start": float(first), "end": float(last), "top": i + _PAD, "bottom": i + 1 - _PAD, "name": name}
            for first, last, name in zip(start, end, names, strict=True)
        ]
    return rows


def _shares(timeline: Timeline, figure: Figure, columns: Mapping[str, Integers], groups: list[str]) -> Rows:
    """For each lane the shares of its kinds in every bin, stacked from the foot of the lane."""
    axis, edges_s = timeline.axis, timeline.axis.start_s + timeline.sums_bin_s * np.arange(timeline.sums_bins + 1)
    bins = min(_MOST_SHARES, timeline.sums_bins)
    bounds = np.linspace(axis.start_s, axis.end_s, bins + 1)
    rows = []
    for lane, group in enumerate(groups):
        foot = np.zeros(bins)
        for i, told in enumerate(figure.told["sums"]):
            if told["group"] != group:
                continue
            until = np.concatenate([[0.0], np.cumsum(columns[f"sum{i}"].astype(np.float64))]) * told["unit"]
            share = np.diff(np.interp(bounds, edges_s, until)) / np.diff(bounds)
            top = np.minimum(foot + share, 1.0)
            bottom_of = lane + 1 - _PAD
            height = 1 - 2 * _PAD
            rows += [
                {
                    "start": float(bounds[k]),
                    "end": float(bounds[k + 1]),
                    "top": float(bottom_of - top[k] * height),
                    "bottom": float(bottom_of - foot[k] * height),
                    "name": told["name"],
                }
                for k in np.flatnonzero(share >= _LEAST_SHARE)
            ]
            foot = np.where(share >= _LEAST_SHARE, top, foot)
    return rows


def _readings(timeline: Timeline, figure: Figure, columns: Mapping[str, Integers], name: str) -> tuple[Rows, Rows]:
    """Lowest and highest value of every bin, and the bins of which a part is unknown."""
    axis = timeline.axis
    told = next(told for told in figure.told["series"] if told["name"] == name)

    def values(column: str) -> Floats:
        levels = columns[column]
        return np.where(levels == UNKNOWN, np.nan, levels * told["level"])

    low = values(f"{name}.low")
    high = values(f"{name}.high") if f"{name}.high" in columns else low
    if "bin_s" in told:
        times = axis.start_s + told["bin_s"] * np.arange(len(low))
    else:
        times = axis.start_s + columns[f"{told['times']}.time"] * timeline.tick_s
    bins = min(_MOST_READINGS, len(times))
    width_s = (axis.end_s - axis.start_s) / bins
    lowest, highest = (extremes(Steps(times, of), axis.start_s, width_s, bins) for of in (low, high))
    starts = axis.start_s + width_s * np.arange(bins)
    rows: Rows = [
        {"time": float(at), "low": _known(least), "high": _known(most)}
        for at, least, most in zip(starts, lowest.low, highest.high, strict=True)
    ]
    rows.append({**rows[-1], "time": axis.end_s})
    holes = [{"start": float(at), "end": float(at + width_s)} for at in starts[lowest.hole]]
    return rows, holes


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
