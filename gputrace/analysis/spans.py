"""Arithmetic on intervals of time, as arrays of integer nanoseconds."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """Disjoint intervals in order."""

    starts: Ints
    ends: Ints


class Crossings(NamedTuple):
    """Where intervals cross spans: row of the interval, row of the span, and from when to when, nanoseconds."""

    interval: Ints
    span: Ints
    start_ns: Ints
    end_ns: Ints

    @property
    def length_ns(self) -> Ints:
        """How long each crossing is."""
        return self.end_ns - self.start_ns


def in_order(*moments: Ints) -> Ints:
    """All these moments in order, each once. What is mostly sorted is sorted in a tenth of the time of `np.unique`."""
    every: Ints = np.sort(np.concatenate(moments), kind="stable")
    is_new = np.append(True, every[1:] != every[:-1])[: len(every)]
    return np.asarray(every[is_new])


def merged(start_ns: pl.Series, end_ns: pl.Series) -> Spans:
    """Union of intervals; those without a start or an end are left out."""
    lasts = end_ns > start_ns
    starts, ends = start_ns.filter(lasts).to_numpy(), end_ns.filter(lasts).to_numpy()
    if not len(starts):
        empty = np.array([], dtype=np.int64)
        return Spans(empty, empty)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    new = np.concatenate([[True], starts[1:] > ends[:-1]])
    return Spans(starts[new], ends[np.concatenate([np.flatnonzero(new)[1:] - 1, [len(ends) - 1]])])


def covers(spans: Spans, at: Ints) -> npt.NDArray[np.bool_]:
    """Whether each moment lies in a span."""
    index = np.searchsorted(spans.starts, at, side="right") - 1
    inside: npt.NDArray[np.bool_] = index >= 0
    inside[inside] = at[inside] < spans.ends[index[inside]]
    return inside


def crossings(start_ns: Ints, end_ns: Ints, spans: Spans) -> Crossings:
    """Every piece of the intervals (which may overlap one another) that lies in a span."""
    first = np.searchsorted(spans.ends, start_ns, side="right")
    last = np.searchsorted(spans.starts, end_ns, side="left")
    number = np.maximum(last - first, 0)
    interval = np.repeat(np.arange(len(start_ns)), number)
    before = np.cumsum(number) - number
    span = np.arange(len(interval)) - np.repeat(before, number) + np.repeat(first, number)
    return Crossings(
        interval,
        span,
        np.maximum(start_ns[interval], spans.starts[span]),
        np.minimum(end_ns[interval], spans.ends[span]),
    )


def covered_ns(start_ns: Ints, end_ns: Ints, spans: Spans) -> Ints:
    """How much of each interval lies in spans."""
    found = crossings(start_ns, end_ns, spans)
    return np.bincount(found.interval, weights=found.length_ns, minlength=len(start_ns)).astype(np.int64)
