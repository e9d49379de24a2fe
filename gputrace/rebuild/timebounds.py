"""When a position of the log was written, from the lines around it that have a time."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Printing and scheduling move a line by a few ms.
JITTER_MS = 5.0


@dataclass(frozen=True)
class TimeBounds:
    """When a position of the log was written, from the lines around it that have a time (ns)."""

    orders: list[int]
    lowest_ns: list[float]
    highest_ns: list[float]

    @classmethod
    def of(cls, known: Sequence[tuple[int, float]]) -> "TimeBounds":
        """Bounds from positions with known times; small disorder among them is allowed for."""
        ordered = sorted(known)
        times = np.array([time for _, time in ordered], dtype=np.float64)
        lowest = np.maximum.accumulate(times) if len(times) else times
        highest = np.minimum.accumulate(times[::-1])[::-1] if len(times) else times
        return cls([order for order, _ in ordered], lowest.tolist(), highest.tolist())

    def miss_ms(self, order: int, time_ns: float) -> tuple[float, float]:
        """How far `time_ns` lies before and after what the lines around `order` allow, ms; 0 where it does not."""
        low, high = self.span_ns(order)
        return max(0.0, (low - time_ns) / 1e6 - JITTER_MS), max(0.0, (time_ns - high) / 1e6 - JITTER_MS)

    def span_ns(self, order: int) -> tuple[float, float]:
        """Earliest and latest time at which `order` was written; infinite where nothing bounds it."""
        at = bisect_left(self.orders, order)
        low = self.lowest_ns[at - 1] if at > 0 else float("-inf")
        high = self.highest_ns[at] if at < len(self.orders) else float("inf")
        return low, high
