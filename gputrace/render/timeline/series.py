"""A reading over time for the page: every step where that fits, else the extremes of every bin and its holes.

Nothing is averaged: the lowest and the highest value of a bin stay, so that a peak of one sample is seen however far
one zooms out.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.render.charts.timeline import TimeAxis
from gputrace.render.timeline.columns import Columns, Floats, levels

# Samples further apart than this leave a hole in a line.
_HOLE_S = 0.001


@dataclass(frozen=True)
class Steps:
    """A value holds from its time until the next; nan where nothing was read. Times in seconds on the axis."""

    time_s: Floats
    value: Floats

    @property
    def known(self) -> bool:
        """Whether anything was read at all."""
        return bool(np.isfinite(self.value).any())


@dataclass(frozen=True)
class Extremes:
    """Bins of one length: lowest and highest value in force in each (nan: none), and whether part of it is unknown."""

    first_s: float
    bin_s: float
    low: Floats
    high: Floats
    hole: npt.NDArray[np.bool_]


def steps_of(readings: pl.DataFrame, axis: TimeAxis) -> Steps:
    """start_ns, end_ns, value to steps inside the axis; what was in force at its start begins there."""
    seconds = readings.sort("start_ns").select(
        axis.seconds_of("start_ns").alias("time_s"), axis.seconds_of("end_ns").alias("until_s"), "value"
    )
    seconds = seconds.filter((pl.col("until_s") > axis.start_s) & (pl.col("time_s") < axis.end_s))
    following = pl.col("time_s").shift(-1)
    ends = seconds.filter(following.is_null() | (following - pl.col("until_s") > _HOLE_S)).select(
        pl.col("until_s").alias("time_s"), pl.lit(None, pl.Float64).alias("value")
    )
    steps = pl.concat([seconds.select("time_s", pl.col("value").cast(pl.Float64)), ends])
    steps = steps.with_columns(pl.col("time_s").clip(axis.start_s, axis.end_s)).sort("time_s", maintain_order=True)
    values = steps["value"].fill_null(float("nan")).to_numpy().astype(np.float64)
    return Steps(steps["time_s"].to_numpy().astype(np.float64), np.maximum(values, 0.0))


def extremes(steps: Steps, first_s: float, bin_s: float, bins: int) -> Extremes:
    """The extremes of `bins` bins from `first_s`; a value counts in every bin in which it is in force."""
    edges = first_s + bin_s * np.arange(bins + 1)
    # The row in force at a bin's start, and the first row at or after its end.
    opening = np.searchsorted(steps.time_s, edges[:-1], side="right") - 1
    closing = np.maximum(np.searchsorted(steps.time_s, edges[1:], side="left"), opening + 1)
    pairs = np.column_stack([np.maximum(opening, 0), closing]).ravel()
    known = np.isfinite(steps.value)
    # One more row, so that the end of the last bin is an index too.
    low = np.minimum.reduceat(np.append(np.where(known, steps.value, np.inf), np.inf), pairs)[::2]
    high = np.maximum.reduceat(np.append(np.where(known, steps.value, -np.inf), -np.inf), pairs)[::2]
    hole = np.maximum.reduceat(np.append(~known, False), pairs)[::2] | (opening < 0)
    # An empty slice yields its first row, which is not of this bin.
    empty = closing <= np.maximum(opening, 0)
    none = empty | ~np.isfinite(low)
    return Extremes(first_s, bin_s, np.where(none, np.nan, low), np.where(none, np.nan, high), hole | none)


def add_steps(columns: Columns, name: str, steps: Steps, axis: TimeAxis, tick: float, times: str | None) -> float:
    """Puts steps into the store, sharing the times of column `times` if given; what a level of the values is worth."""
    if times is None:
        columns.add(f"{name}.time", "d4", np.rint((steps.time_s - axis.start_s) / tick).astype(np.int64))
    whole, level = levels(steps.value)
    columns.add(f"{name}.low", "u2", whole)
    return level


def add_extremes(columns: Columns, name: str, found: Extremes) -> float:
    """Puts bins into the store; what a level of both values is worth."""
    both, level = levels(np.concatenate([found.low, found.high]))
    columns.add(f"{name}.low", "u2", both[: len(found.low)])
    columns.add(f"{name}.high", "u2", both[len(found.low) :])
    columns.add(f"{name}.hole", "u1", found.hole.astype(np.uint8))
    return level
