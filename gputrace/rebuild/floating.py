"""Ties the lines that a call prints outside its block to the call: split_vectors, prep_msm, b_g2_msm, async_dealloc.

They carry nothing but a number. What tells them apart: the order in which a call prints its lines, when they should be
printed (entry + setup + prep_msm, + b_g2_msm), and identities (setup <= pre_lock; barrier_wait is what prep_msm still
takes when ntt_msm_h is done; gpu_ms is no less than setup + prep_msm + b_g2_msm). Each kind is matched to all calls at
once, at the smallest total disagreement.
"""

from collections.abc import Callable

import numpy as np

from gputrace.rebuild.calls import Calls, FloatingLines
from gputrace.rebuild.columns import Floats, Ints, floats, ints, nothing
from gputrace.rebuild.matching import Pairs, match_lines
from gputrace.rebuild.sequence import Sequence
from gputrace.rebuild.timebounds import JITTER_MS, TimeBounds

# How many lines after a call's start may be its own: workers and finalizers outstanding.
_REACH_LINES = 24


def attach_floating(sequence: Sequence, calls: Calls, bounds: TimeBounds) -> None:
    """Gives calls their split, prep, b_g2 and dealloc lines, and adds the disagreements to their residuals."""
    known = _with_block_times(calls, bounds)
    calls.put_lines("split", _lines(sequence, "split_vectors", "setup_to_split_ms"))
    calls.put_lines("prep", _lines(sequence, "prep_msm", "prep_msm_ms"))
    calls.put_lines("b_g2", _lines(sequence, "b_g2_msm", "b_g2_msm_ms", "num_circuits"))
    calls.put_lines("dealloc", _lines(sequence, "async_dealloc", "async_dealloc_ms"))
    off = _match(calls, "split", _split_cost, known)
    off_prep = _match(calls, "prep", _prep_cost, known)
    off_b_g2 = _match(calls, "b_g2", _b_g2_cost, known)
    if off_b_g2.max(initial=0.0) > JITTER_MS:
        # Two calls that begin together look alike until b_g2_msm, which follows prep_msm directly, tells them apart.
        off_prep = _match(calls, "prep", _prep_cost, known)
        off_b_g2 = _match(calls, "b_g2", _b_g2_cost, known)
    calls.residual_ms = np.maximum.reduce([calls.residual_ms, off, off_prep, off_b_g2])
    _attach_deallocs(calls)


class _Side:
    """Calls beside the lines of one kind that may be theirs, an entry a pair; NaN where a call lacks something."""

    def __init__(self, calls: Calls, name: str, known: TimeBounds) -> None:
        self._calls, self._lines, self.known = calls, calls.lines[name], known
        low, high = _reachable(calls, name, self._lines.order)
        number = np.maximum(high - low, 0)
        self.call = np.repeat(np.arange(len(low)), number)
        self.line = np.arange(len(self.call)) - np.repeat(np.cumsum(number) - number, number) + low[self.call]

    def of_calls(self, values: Floats) -> Floats:
        """One figure of every pair's call."""
        return values[self.call]

    def of_blocks(self, key: str) -> Floats:
        """One printed figure of every pair's block."""
        return self.of_calls(self._calls.printed(key))

    def setup_ms(self) -> Floats:
        """How long every pair's call set up, before it prepared its MSMs."""
        return self.of_calls(np.nan_to_num(self._calls.line_figure("split", "ms")))

    def line_ms(self, name: str) -> Floats:
        """The figure of the line of another kind that every pair's call has."""
        return self.of_calls(self._calls.line_figure(name, "ms"))

    def before_lock_ms(self) -> Floats:
        """Entry to lock of every pair's call."""
        return self.of_calls(self._calls.of_blocks(self._calls.blocks.before_lock_ms))

    def gpu_ms(self) -> Floats:
        """What the engine says every pair's call took."""
        return self.of_calls(self._calls.of_attempts("gpu_ms"))

    @property
    def ms(self) -> Floats:
        """The figure of every pair's line."""
        return np.asarray(self._lines.ms[self.line])

    def late(self, after_entry_ms: Floats) -> Floats:
        """How badly the lines' times fit their calls: they should be printed `after_entry_ms` after the entry, ms."""
        return self._late(after_entry_ms, self._lines.order[self.line], self._lines.arrival_ns[self.line])

    def late_b_g2(self, after_entry_ms: Floats) -> Floats:
        """The same of the b_g2 lines that the calls already have; 0 without one."""
        has = self.of_calls(self._calls.line_figure("b_g2", "order"))
        arrival_ns = self.of_calls(self._calls.line_figure("b_g2", "arrival_ns"))
        off = self._late(after_entry_ms, np.nan_to_num(has).astype(np.int64), arrival_ns)
        return np.where(np.isnan(has), 0.0, off)

    def _late(self, after_entry_ms: Floats, order: Ints, arrival_ns: Floats) -> Floats:
        entry_ns = self.of_calls(self._calls.entry_ns)
        at_ns = entry_ns + after_entry_ms * 1e6
        low, high = self.known.spans_ns(order)
        early = np.maximum(0.0, (low - at_ns) / 1e6 - JITTER_MS)
        off = np.maximum(early, np.maximum(0.0, (at_ns - high) / 1e6 - JITTER_MS))
        off = np.where(np.isnan(arrival_ns), off, np.abs(at_ns - arrival_ns) / 1e6)
        return np.where(np.isnan(entry_ns), 0.0, off)


# The disagreement of every pair, ms; NaN where the two cannot be.
Cost = Callable[[_Side], Floats]


def _match(calls: Calls, name: str, cost: Cost, known: TimeBounds) -> Floats:
    """Gives each call its line of one kind; returns the residuals in ms, 0 for calls without one."""
    side = _Side(calls, name, known)
    calls.own_line[name], residual_ms = match_lines(len(calls), Pairs(side.call, side.line, cost(side)))
    return residual_ms


def _split_cost(side: _Side) -> Floats:
    pre_lock = side.of_blocks("pre_lock_cpu_ms")
    slack = pre_lock - side.ms
    return np.where(np.isnan(pre_lock), 1.0, np.where(slack < 0, np.nan, np.maximum(0.0, slack - 2.0)))


def _prep_cost(side: _Side) -> Floats:
    ready_ms = side.setup_ms() + side.ms
    cost = side.late(ready_ms)
    barrier, before_lock = side.of_blocks("barrier_wait_ms"), side.before_lock_ms()
    ahead = ready_ms - before_lock - np.nan_to_num(side.of_blocks("ntt_msm_h_ms"))
    off = np.maximum(0.0, np.abs(np.maximum(0, ahead) - barrier) - 3.0)
    cost = cost + np.where(np.isnan(barrier) | np.isnan(before_lock), 0.0, off)
    return np.asarray(cost + side.late_b_g2(ready_ms + side.line_ms("b_g2")))


def _b_g2_cost(side: _Side) -> Floats:
    prep = side.line_ms("prep")
    done_ms = side.setup_ms() + prep + side.ms
    gpu_ms = side.gpu_ms()
    beyond = np.where(np.isnan(gpu_ms), 0.0, np.maximum(0.0, done_ms - gpu_ms - 3.0))
    return np.where(np.isnan(prep), side.late(side.ms) * 0.1, side.late(done_ms) + beyond)


def _lines(sequence: Sequence, event: str, key: str, extra: str | None = None) -> FloatingLines:
    columns = ["order", "line", key, "arrival_ns", "source", *([extra] if extra else [])]
    marks = sequence.of(event, columns=columns).drop_nulls(key)
    return FloatingLines(
        ints(marks["order"]),
        floats(marks["line"]),
        floats(marks[key]),
        floats(marks["arrival_ns"]),
        floats(marks["source"]),
        floats(marks[extra]) if extra else nothing(marks.height),
    )


def _reachable(calls: Calls, name: str, orders: Ints) -> tuple[Ints, Ints]:
    """First and one past the last of the lines that order allows for each call, by number.

    Section 3.1 of the prover's order of printing.
    """
    after, before = _allowed(calls, name)
    high = np.where(np.isnan(before), len(orders), np.searchsorted(orders, np.nan_to_num(before)))
    low = np.where(after >= 0, np.searchsorted(orders, np.nan_to_num(after), side="right"), high - _REACH_LINES)
    high = np.where(after >= 0, np.minimum(high, low + _REACH_LINES), high)
    # Nothing says where the lines of such a call would be.
    nowhere = np.isnan(after) | ((after < 0) & np.isnan(before))
    return np.maximum(low, 0), np.where(nowhere, 0, high)


def _allowed(calls: Calls, name: str) -> tuple[Floats, Floats]:
    """The positions that calls' lines lie between: -1 and NaN where there is no such bound; (NaN, ...): nowhere."""
    started, has_block = calls.of_attempts("start_order"), calls.block >= 0
    after = np.where(np.isnan(started), -1.0, started)
    before = calls.of_attempts("end_order")
    if name == "split":
        after = np.where(~has_block & np.isnan(started), np.nan, after)
        locked = calls.of_blocks(calls.blocks.order_locked.astype(np.float64))
        return after, np.where(has_block, locked, before)
    previous = calls.line_figure("split" if name == "prep" else "prep", "order")
    if name == "prep":
        barrier = calls.of_blocks(calls.blocks.order("barrier_wait"))
        return np.fmax(after, previous), np.where(np.isnan(barrier), before, barrier)
    nowhere = np.isnan(previous) & np.isnan(started)
    return np.where(nowhere, np.nan, np.fmax(after, previous)), before


def _with_block_times(calls: Calls, bounds: TimeBounds) -> TimeBounds:
    """The bounds, and what the calls' own locks say of the lines of their blocks."""
    ntt_end_ns = calls.lock_ns + calls.printed("ntt_msm_h_ms") * 1e6
    told = [("mutex_acquired", calls.lock_ns), ("mutex_released", calls.unlock_ns), ("ntt_msm_h", ntt_end_ns)]
    orders, times = [], []
    for event, at_ns in told:
        order = calls.of_blocks(calls.blocks.order(event))
        known = ~(np.isnan(order) | np.isnan(calls.lock_ns) | np.isnan(calls.unlock_ns))
        orders.append(order[known].astype(np.int64))
        times.append(at_ns[known])
    return bounds.also(np.concatenate(orders), np.concatenate(times)) if any(map(len, orders)) else bounds


def _attach_deallocs(calls: Calls) -> None:
    """async_dealloc has no identity: it comes after b_g2_msm, and frees come one after the other, in order."""
    lines = calls.lines["dealloc"].order
    after = calls.line_figure("b_g2", "order")
    waiting = np.flatnonzero(~np.isnan(after))
    waiting = waiting[np.argsort(after[waiting], kind="stable")]
    # Each takes the first line after its own that no call before it took.
    first = np.searchsorted(lines, after[waiting])
    turn = np.arange(len(waiting))
    taken = np.maximum.accumulate(first - turn) + turn
    has = taken < len(lines)
    calls.own_line["dealloc"][waiting[has]] = taken[has]
