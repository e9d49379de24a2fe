"""The lines under mutexes of one run of the prover, in columns: what they print and when they were written."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gputrace.rebuild.columns import Bools, Floats, Ints
from gputrace.rebuild.rivals import overlapping, rarity
from gputrace.rebuild.sequence import FIGURES_OF
from gputrace.rebuild.timebounds import JITTER_MS, TimeBounds

if TYPE_CHECKING:
    from gputrace.rebuild.blocks import MutexLine

# The figure that says how long after the lock a line is printed.
SINCE_LOCK = {"ntt_msm_h": "ntt_msm_h_ms", "tail_msm": "gpu_total_ms", "mutex_released": "mutex_held_ms"}
# Lines further from each other than this in the log are just far apart.
_FAR = 50
_LATER = 0.001
# Of a line whose time is not known better than to so many times the longest hold nothing is known.
_MOST_HOLDS = 2.0


@dataclass(frozen=True)
class HoldLines:
    """The lines of one run in order, an entry each.

    `ms` has their figures, NaN where not printed. `low_ms` and `high_ms` are when each was written, at the earliest
    and at the latest, counted from any one moment. `print_ms` is what a print may take: no time, mostly, but all prints
    are slow where the reader of the log is.
    """

    event: npt.NDArray[np.str_]
    low_ms: Floats
    high_ms: Floats
    ms: dict[str, Floats]
    print_ms: float = 0.0

    @classmethod
    def of(cls, lines: "list[MutexLine]", bounds: TimeBounds) -> "HoldLines":
        """A line that bears its time of arrival was written then; any other when `bounds` says."""
        low, high = bounds.spans_ns(np.array([line.order for line in lines], dtype=np.int64))
        arrival = np.array([np.nan if line.arrival_ns is None else line.arrival_ns for line in lines], dtype=np.float64)
        low, high = (np.where(np.isnan(arrival), edge, arrival) / 1e6 for edge in (low, high))
        event = np.array([line.event for line in lines])
        ms = {}
        for kind, keys in (*FIGURES_OF.items(), ("ntt_h", ("total",))):
            at = np.flatnonzero(event == kind)
            told = [lines[number].circuit or lines[number].ms for number in at.tolist()]
            for key in keys:
                ms[key] = np.full(len(lines), np.nan)
                ms[key][at] = [own.get(key, np.nan) for own in told]
        return cls(event, low, high, ms)

    @property
    def jitter_ms(self) -> float:
        """How far from when its figures say a line may be written."""
        return JITTER_MS + self.print_ms

    @cached_property
    def printed(self) -> frozenset[str]:
        """Events that have a line whose time is known."""
        return frozenset(str(event) for event in np.unique(self.event[self.timed]))

    @cached_property
    def timed(self) -> Bools:
        """Of which lines it is known when they were written."""
        longest_ms = np.nanmax(self.ms["mutex_held_ms"], initial=0.0)
        return self.high_ms - self.low_ms <= _MOST_HOLDS * longest_ms

    @cached_property
    def since_lock_ms(self) -> Floats:
        """When after its lock each line is printed; NaN where its own figures do not say."""
        since_ms = np.where(self.event == "mutex_acquired", 0.0, np.nan)
        for event, key in SINCE_LOCK.items():
            since_ms = np.where(self.event == event, self.ms[key], since_ms)
        return since_ms

    def at(self, event: str) -> Ints:
        """Where the lines of an event are whose time is known."""
        return np.flatnonzero((self.event == event) & self.timed)

    def before_ms(self, at: Ints, ms: Floats | float) -> tuple[Floats, Floats]:
        """The earliest and latest moment so long before lines: each is printed a few ms from when its figures say."""
        return self.low_ms[at] - ms - self.jitter_ms, self.high_ms[at] - ms + self.jitter_ms

    def disagreement(self, low_ms: Floats, high_ms: Floats) -> Floats:
        """How odd it is that lines leave each other so little time, nats: ten where they only just agree."""
        return np.maximum(0.0, 10.0 - 5.0 * (high_ms - low_ms) / self.jitter_ms)

    def written_in(
        self, event: str, low_ms: Floats, high_ms: Floats, after_key: str | None = None
    ) -> tuple[Ints, Ints]:
        """Pairs of an interval and a line that may have been written in it, or so long after it as `after_key` says."""
        at = self.at(event)
        low, high = self.before_ms(at, self.ms[after_key][at] if after_key else 0.0)
        interval, line = overlapping(low_ms, high_ms, low, high)
        return interval, at[line]


def apart(places: Ints) -> Floats:
    """How odd it is that lines of one hold are so many places of the log from each other, nats.

    Where nothing else tells, lines come in the order of those that they follow, and soon.
    """
    near = np.minimum(places, _FAR)
    return np.asarray(rarity(near) + _LATER * near**2)
