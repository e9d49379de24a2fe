"""When a position of the log was written, from the lines around it that have a time."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.rebuild.columns import Bools, Floats, Ints

# Printing and scheduling move a line by a few ms.
JITTER_MS = 5.0
# A line this far out of time, beside lines that are not, was not written where it stands.
STRAY_MS = 5_000.0
# So many lines before and after say what the time is.
_AROUND = 5
# A handful of strays in a row needs a few rounds; what needs more is no handful.
_MOST_ROUNDS = 8


def outside_ms(span_ns: tuple[float, float], time_ns: float) -> tuple[float, float]:
    """How far a time lies before and after a span, ms, beyond what printing moves a line; 0 where it does not."""
    low, high = span_ns
    return max(0.0, (low - time_ns) / 1e6 - JITTER_MS), max(0.0, (time_ns - high) / 1e6 - JITTER_MS)


def strays(times: Floats, reach: float) -> Bools:
    """Which of the times, in the order of the log, lie further than `reach` out of it while those around do not.

    A line of long ago lies before the median of the five before it, and what follows, if anything does, returns to
    where they were; one from the future lies after the median of the five after it. Where the lines that follow stay
    (a restart, a clock that was set) none is a stray.
    """
    found = np.zeros(len(times), dtype=bool)
    for _ in range(_MOST_ROUNDS):
        kept = np.flatnonzero(~found)
        own = times[kept]
        if not len(own) or (np.maximum.accumulate(own) - own).max() <= reach:
            break
        before, after = _medians_before(own), _medians_before(own[::-1])[::-1]
        stays = after < before - reach
        new = ~stays & ((own < before - reach) | (own > after + reach))
        if not new.any():
            break
        found[kept[new]] = True
    return found


def _medians_before(times: Floats) -> Floats:
    """The median of the few times before each; NaN for the first."""
    medians = pl.Series(times).rolling_median(_AROUND, min_samples=1)
    return np.concatenate([[np.nan], medians.to_numpy()[:-1]])


def in_order(orders: Ints, times: Floats) -> tuple[Ints, Floats]:
    """Positions and their times by position; of one position, by time."""
    ranked = np.argsort(orders, kind="stable")
    if (np.diff(orders[ranked]) == 0).any():
        ranked = np.lexsort((times, orders))
    return orders[ranked], times[ranked]


@dataclass(frozen=True)
class TimeBounds:
    """When a position of the log was written, from the lines around it that have a time (ns).

    Arrays, because there is an entry for every line with a time.
    """

    orders: "array[int]"
    lowest_ns: "array[float]"
    highest_ns: "array[float]"

    @classmethod
    def of(cls, known: Sequence[tuple[int, float]]) -> "TimeBounds":
        """Bounds from positions with known times; small disorder among them is allowed for."""
        return cls.between(
            np.array([order for order, _ in known], dtype=np.int64), np.array([time for _, time in known], dtype=float)
        )

    @classmethod
    def between(cls, orders: Ints, times: Floats) -> "TimeBounds":
        """As `of`, from arrays."""
        orders, times = in_order(orders, times)
        lowest = np.maximum.accumulate(times) if len(times) else times
        highest = np.minimum.accumulate(times[::-1])[::-1] if len(times) else times
        return cls(array("q", orders.tobytes()), array("d", lowest.tobytes()), array("d", highest.tobytes()))

    def also(self, orders: Ints, times: Floats) -> "TimeBounds":
        """The bounds with more positions whose times are known."""
        own = np.frombuffer(self.orders, dtype=np.int64), np.frombuffer(self.lowest_ns)
        return TimeBounds.between(np.concatenate([own[0], orders]), np.concatenate([own[1], times]))

    def miss_ms(self, order: int, time_ns: float) -> tuple[float, float]:
        """How far `time_ns` lies before and after what the lines around `order` allow, ms; 0 where it does not."""
        return outside_ms(self.span_ns(order), time_ns)

    def span_ns(self, order: int) -> tuple[float, float]:
        """Earliest and latest time at which `order` was written; infinite where nothing bounds it."""
        at = bisect_left(self.orders, order)
        low = self.lowest_ns[at - 1] if at > 0 else float("-inf")
        high = self.highest_ns[at] if at < len(self.orders) else float("inf")
        return low, high

    def spans_ns(self, orders: Ints) -> tuple[Floats, Floats]:
        """`span_ns` of many positions."""
        at = np.searchsorted(np.frombuffer(self.orders, dtype=np.int64), orders)
        lowest = np.concatenate([[-np.inf], np.frombuffer(self.lowest_ns)])
        highest = np.concatenate([np.frombuffer(self.highest_ns), [np.inf]])
        return lowest[at], highest[at]
