"""What every column of a simulated trace is made from: runs with their clocks, and totals that grow over time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputrace.simulate.schedule import Schedule
from gputrace.simulate.text import Clocks

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TracedRun:
    """One run of the prover and its clocks."""

    schedule: Schedule
    clocks: Clocks

    def seconds(self, at: float, zero_ns: int) -> float:
        """Seconds since zero_ns of a time of this run."""
        return (self.clocks.wall_ns(at) - zero_ns) / 1e9


class Total:
    """A running total that grows evenly within pieces (start s, end s, amount), on top of a steady rate."""

    def __init__(self, parts: Sequence[tuple[float, float, float]], steady: float = 0.0) -> None:
        knots, amounts = [-1.0], [0.0]
        for start, end, amount in sorted(parts):
            knots += [start, end]
            amounts += [amounts[-1], amounts[-1] + amount]
        self._knots, self._amounts = np.array(knots), np.array(amounts)
        self._steady = steady

    def at(self, t: Floats) -> Floats:
        """The total at each time."""
        return np.asarray(np.interp(t, self._knots, self._amounts) + self._steady * t)

    def mean(self, start: Floats, end: Floats) -> Floats:
        """Its mean rate over each interval."""
        return np.asarray((self.at(end) - self.at(start)) / np.maximum(end - start, 1e-9))
