"""Gives holds of several GPUs' mutexes their ntt_h lines, one a circuit, and those of what they allocated first."""

import numpy as np

from gputrace.rebuild.columns import Bools, Floats, Ints
from gputrace.rebuild.hold_lines import HoldLines, apart
from gputrace.rebuild.rivals import PLACED, disjoint, overlapping, rarity

# What ntt_msm_h exceeds the sum of its circuits by: at least and at most so much a circuit.
_LEAST_OFF_MS, _MOST_OFF_MS = -1.0, 2.0
_MOST_CIRCUITS = 64
# How odd a circuit is that leaves time for more, beside one that does not, nats.
_LEAVES_TIME = 3.0
_ALLOCATIONS = ("d_a_allocated", "pool_threshold_set")


class CircuitSearch:
    """Finds the circuits of holds backwards in time: the last one's line is printed just before ntt_msm_h.

    `lock` and `ntt` are where holds have their mutex_acquired and ntt_msm_h; `low_ms` and `high_ms` bound the lock.
    `hold_of` says of every line of the run which hold it was given to; -1 for none.
    """

    def __init__(self, lines: HoldLines, lock: Ints, ntt: Ints, low_ms: Floats, high_ms: Floats) -> None:
        self.lines, self.lock, self.ntt = lines, lock, ntt
        self.low_ms, self.high_ms = low_ms, high_ms
        self.hold_of = np.full(len(lines.event), -1, dtype=np.int64)
        self.begun, self.first = lock.copy(), ntt.copy()
        self.allocates = np.zeros(len(lock), dtype=bool)
        self.count = np.zeros(len(lock), dtype=np.int64)
        self.unexplained_ms = lines.ms["ntt_msm_h_ms"][ntt].copy()

    def whole(self) -> Bools:
        """Gives the holds their lines; says which have all."""
        for event in _ALLOCATIONS:
            self._add_allocation(event)
        if "ntt_h" not in self.lines.printed:
            return np.ones(len(self.lock), dtype=bool)
        # One circuit explains most holds; what is left may belong to those that have several.
        self._add_circuit(alone=True)
        for _ in range(_MOST_CIRCUITS):
            if not self._add_circuit(alone=False):
                break
        return (self.count > 0) & (self._explained() | self.allocates)

    def _explained(self) -> Bools:
        return self.unexplained_ms <= self._most_off_ms(self.count)

    def _most_off_ms(self, count: Ints) -> Floats:
        return np.asarray((_MOST_OFF_MS + self.lines.print_ms) * count, dtype=np.float64)

    def _add_circuit(self, alone: bool) -> bool:
        """Gives holds the circuit before those that they have, or their only one; whether any hold got one."""
        lines = self.lines
        open_holds = np.flatnonzero((self.count == 0) | ~self._explained())
        left_ms = self.unexplained_ms[open_holds]
        row, at = lines.written_in("ntt_h", self.low_ms[open_holds] + left_ms, self.high_ms[open_holds] + left_ms)
        hold = open_holds[row]
        off_ms = left_ms[row] - lines.ms["total"][at]
        kept = (self.hold_of[at] < 0) & (self.begun[hold] < at) & (at < self.first[hold])
        kept &= off_ms >= _LEAST_OFF_MS * (self.count[hold] + 1)
        if alone:
            kept &= (off_ms <= self._most_off_ms(np.ones_like(hold))) | self.allocates[hold]
        hold, at, off_ms = hold[kept], at[kept], off_ms[kept]
        low, high = lines.before_ms(at, left_ms[row[kept]])
        low, high = np.maximum(low, self.low_ms[hold]), np.minimum(high, self.high_ms[hold])
        oddity = apart(self.first[hold] - at) + lines.disagreement(low, high)
        oddity += rarity(off_ms) if alone else _LEAVES_TIME * (off_ms > self._most_off_ms(self.count[hold] + 1))
        chosen = disjoint(np.stack([self.ntt[hold], at], axis=1), PLACED - oddity)
        hold, at = hold[chosen], at[chosen]
        self.hold_of[at] = hold
        self.first[hold] = at
        self.count[hold] += 1
        self.unexplained_ms[hold] = off_ms[chosen]
        return len(hold) > 0

    def _add_allocation(self, event: str) -> None:
        """Gives holds the line of an allocation: it is printed soon after the lock, before the circuits."""
        low, high = self.lines.before_ms(self.lines.at(event), 0.0)
        hold, line = overlapping(self.low_ms, self.high_ms + self.unexplained_ms, low, high)
        at = self.lines.at(event)[line]
        kept = (self.lock[hold] < at) & (at < self.ntt[hold])
        hold, at = hold[kept], at[kept]
        worth = PLACED / (at - self.lock[hold])
        chosen = disjoint(np.stack([self.ntt[hold], at], axis=1), worth)
        hold, at = hold[chosen], at[chosen]
        self.hold_of[at] = hold
        self.allocates[hold] = True
        self.begun[hold] = np.maximum(self.begun[hold], at)
