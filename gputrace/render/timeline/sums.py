"""What adds up over time, bin by bin: seconds by phase, state and cause, and bytes.

What is rounded is the sum so far, not each bin: over any stretch of whole bins the sum is off by one unit at most,
however many bins it has.
"""

from dataclasses import dataclass

import numpy as np

from gputrace.render.timeline.columns import Columns, Floats, Integers


@dataclass(frozen=True)
class Spread:
    """Amounts spread evenly over intervals. Times in seconds on the axis; an amount in seconds or bytes."""

    start_s: Floats
    end_s: Floats
    amount: Floats

    def until(self, times_s: Floats) -> Floats:
        """The sum of what lies before each of these times, which ascend."""
        end_s = np.maximum(self.end_s, self.start_s + 1e-6)
        density = self.amount / (end_s - self.start_s)
        begun, begun_at = _ordered(self.start_s, density, times_s)
        ended, ended_at = _ordered(end_s, density, times_s)
        return np.maximum.accumulate(np.maximum(times_s * (begun - ended) - (begun_at - ended_at), 0.0))


@dataclass(frozen=True)
class Counts:
    """Whole units in each bin, and what a unit is worth."""

    units: Integers
    unit: float


def _ordered(at_s: Floats, density: Floats, times_s: Floats) -> tuple[Floats, Floats]:
    """Until each time, the sum of the densities of what happened, and of their moments."""
    if not (at_s[1:] >= at_s[:-1]).all():
        order = np.argsort(at_s, kind="stable")
        at_s, density = at_s[order], density[order]
    count = np.searchsorted(at_s, times_s, side="right")
    sums = np.concatenate([[0.0], np.cumsum(density)])
    moments = np.concatenate([[0.0], np.cumsum(density * at_s)])
    return sums[count], moments[count]


def count_units(spread: Spread, edges_s: Floats, levels: int, whole: float | None = None) -> Counts:
    """The spread in bins between edges; `levels` units are the fullest bin, or `whole` if that is more."""
    before = spread.until(edges_s)
    most = max(float(np.diff(before).max(initial=0.0)), whole or 0.0)
    # One level is left for rounding.
    unit = most / (levels - 1) if most > 0 else 1.0
    return Counts(np.diff(np.floor((before - before[0]) / unit + 0.5)).astype(np.int64), unit)


def add_counts(columns: Columns, name: str, counts: Counts, kind: str) -> float:
    """Puts the bins into the store; what a unit is worth."""
    columns.add(name, kind, counts.units)
    return counts.unit
