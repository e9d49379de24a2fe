"""Ties the lines that a call prints outside its block to the call: split_vectors, prep_msm, b_g2_msm, async_dealloc.

They carry nothing but a number. What tells them apart: the order in which a call prints its lines, when they should be
printed (entry + setup + prep_msm, + b_g2_msm), and identities (setup <= pre_lock; barrier_wait is what prep_msm still
takes when ntt_msm_h is done; gpu_ms is no less than setup + prep_msm + b_g2_msm). Each kind is matched to all calls at
once, at the smallest total disagreement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.rebuild.binding import Pairs, match_lines
from gputrace.rebuild.sequence import Sequence
from gputrace.rebuild.timebounds import JITTER_MS, TimeBounds

if TYPE_CHECKING:
    from gputrace.rebuild.calls import Call

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# How many lines after a call's start may be its own: workers and finalizers outstanding.
_REACH_LINES = 24


@dataclass(frozen=True, slots=True)
class Floating:
    """A line of a call that is printed outside its block."""

    order: int
    line: int
    ms: int
    arrival_ns: int | None = None
    extra: int | None = None
    source: int | None = None


def attach_floating(sequence: Sequence, calls: list["Call"], bounds: TimeBounds) -> None:
    """Sets `split`, `prep`, `b_g2` and `dealloc` of the calls, and adds the disagreements to their residuals."""
    known = _with_block_times(calls, bounds)
    split = _lines(sequence, "split_vectors", "setup_to_split_ms")
    prep = _lines(sequence, "prep_msm", "prep_msm_ms")
    b_g2 = _lines(sequence, "b_g2_msm", "b_g2_msm_ms", "num_circuits")
    off = _match(calls, "split", split, _split_cost, known)
    for call in calls:
        call.setup_ms = call.split.ms if call.split else None
    off_prep = _match(calls, "prep", prep, _prep_cost, known)
    off_b_g2 = _match(calls, "b_g2", b_g2, _b_g2_cost, known)
    if max(off_b_g2, default=0.0) > JITTER_MS:
        # Two calls that begin together look alike until b_g2_msm, which follows prep_msm directly, tells them apart.
        off_prep = _match(calls, "prep", prep, _prep_cost, known)
        off_b_g2 = _match(calls, "b_g2", b_g2, _b_g2_cost, known)
    for call, *residuals in zip(calls, off, off_prep, off_b_g2, strict=True):
        call.residual_ms = max(call.residual_ms, *residuals)
    _attach_deallocs(calls, _lines(sequence, "async_dealloc", "async_dealloc_ms"))


class _Side:
    """Calls beside the lines that may be theirs, an entry a pair; NaN where a call lacks something."""

    def __init__(self, calls: list["Call"], lines: list[Floating], known: TimeBounds) -> None:
        self._calls, self._lines, self.known = calls, lines, known
        self.call = self.line = np.array([], dtype=np.int64)
        self.order = np.array([line.order for line in lines], dtype=np.int64)
        self._ms = np.array([line.ms for line in lines], dtype=np.float64)
        self._arrival_ns = np.array([line.arrival_ns for line in lines], dtype=np.float64)

    def pair(self, low: Ints, high: Ints) -> None:
        """Every call with its lines from `low` to before `high`."""
        number = np.maximum(high - low, 0)
        self.call = np.repeat(np.arange(len(low)), number)
        self.line = np.arange(len(self.call)) - np.repeat(np.cumsum(number) - number, number) + low[self.call]

    def of_calls(self, read: Callable[["Call"], float | None]) -> Floats:
        """One figure of every pair's call."""
        return np.array([read(call) for call in self._calls], dtype=np.float64)[self.call]

    def of_blocks(self, key: str) -> Floats:
        """One printed figure of every pair's block."""
        return self.of_calls(lambda call: call.block.ms.get(key) if call.block else None)

    @property
    def ms(self) -> Floats:
        """The figure of every pair's line."""
        return self._ms[self.line]

    def late(self, after_entry_ms: Floats) -> Floats:
        """How badly the lines' times fit their calls: they should be printed `after_entry_ms` after the entry, ms."""
        return self._late(after_entry_ms, self.order[self.line], self._arrival_ns[self.line])

    def late_b_g2(self, after_entry_ms: Floats) -> Floats:
        """The same of the b_g2 lines that the calls already have; 0 without one."""
        has = self.of_calls(lambda call: call.b_g2.order if call.b_g2 else None)
        arrival_ns = self.of_calls(lambda call: call.b_g2.arrival_ns if call.b_g2 else None)
        off = self._late(after_entry_ms, np.nan_to_num(has).astype(np.int64), arrival_ns)
        return np.where(np.isnan(has), 0.0, off)

    def _late(self, after_entry_ms: Floats, order: Ints, arrival_ns: Floats) -> Floats:
        entry_ns = self.of_calls(lambda call: call.entry_ns)
        at_ns = entry_ns + after_entry_ms * 1e6
        low, high = self.known.spans_ns(order)
        early = np.maximum(0.0, (low - at_ns) / 1e6 - JITTER_MS)
        off = np.maximum(early, np.maximum(0.0, (at_ns - high) / 1e6 - JITTER_MS))
        off = np.where(np.isnan(arrival_ns), off, np.abs(at_ns - arrival_ns) / 1e6)
        return np.where(np.isnan(entry_ns), 0.0, off)


# The disagreement of every pair, ms; NaN where the two cannot be.
Cost = Callable[[_Side], Floats]


def _match(calls: list["Call"], name: str, lines: list[Floating], cost: Cost, known: TimeBounds) -> list[float]:
    """Gives each call its line of one kind; returns the residuals in ms, 0 for calls without one."""
    side = _Side(calls, lines, known)
    side.pair(*_reachable(calls, name, side.order))
    chosen = match_lines(len(calls), Pairs(side.call, side.line, cost(side)))
    for call, (index, _) in zip(calls, chosen, strict=True):
        setattr(call, name, None if index is None else lines[index])
    return [residual for _, residual in chosen]


def _split_cost(side: _Side) -> Floats:
    pre_lock = side.of_blocks("pre_lock_cpu_ms")
    slack = pre_lock - side.ms
    return np.where(np.isnan(pre_lock), 1.0, np.where(slack < 0, np.nan, np.maximum(0.0, slack - 2.0)))


def _prep_cost(side: _Side) -> Floats:
    ready_ms = side.of_calls(lambda call: call.setup_ms or 0) + side.ms
    cost = side.late(ready_ms)
    barrier, before_lock = side.of_blocks("barrier_wait_ms"), side.of_calls(_before_lock_ms)
    ahead = ready_ms - before_lock - np.nan_to_num(side.of_blocks("ntt_msm_h_ms"))
    off = np.maximum(0.0, np.abs(np.maximum(0, ahead) - barrier) - 3.0)
    cost = cost + np.where(np.isnan(barrier) | np.isnan(before_lock), 0.0, off)
    b_g2 = side.of_calls(lambda call: call.b_g2.ms if call.b_g2 else None)
    return np.asarray(cost + side.late_b_g2(ready_ms + b_g2))


def _b_g2_cost(side: _Side) -> Floats:
    prep = side.of_calls(lambda call: call.prep.ms if call.prep else None)
    done_ms = side.of_calls(lambda call: call.setup_ms or 0) + prep + side.ms
    gpu_ms = side.of_calls(lambda call: call.attempt.gpu_ms if call.attempt else None)
    beyond = np.where(np.isnan(gpu_ms), 0.0, np.maximum(0.0, done_ms - gpu_ms - 3.0))
    return np.where(np.isnan(prep), side.late(side.ms) * 0.1, side.late(done_ms) + beyond)


def _before_lock_ms(call: "Call") -> float | None:
    return call.block.before_lock_ms if call.block else None


def _lines(sequence: Sequence, event: str, key: str, extra: str | None = None) -> list[Floating]:
    beside = pl.col(extra) if extra else pl.lit(None, pl.Int64).alias("extra")
    columns = ["order", "line", key, "arrival_ns", *([extra] if extra else []), "source"]
    marks = sequence.of(event, columns=columns).filter(pl.col(key).is_not_null())
    return [Floating(*row) for row in marks.select("order", "line", key, "arrival_ns", beside, "source").iter_rows()]


def _reachable(calls: list["Call"], name: str, orders: Ints) -> tuple[Ints, Ints]:
    """First and one past the last of the lines that order allows for each call, by number.

    Section 3.1 of the prover's order of printing.
    """
    allowed = np.array([_allowed(call, name) for call in calls], dtype=np.float64).reshape(-1, 2)
    after, before = allowed[:, 0], allowed[:, 1]
    high = np.where(np.isnan(before), len(orders), np.searchsorted(orders, np.nan_to_num(before)))
    low = np.where(after >= 0, np.searchsorted(orders, np.nan_to_num(after), side="right"), high - _REACH_LINES)
    high = np.where(after >= 0, np.minimum(high, low + _REACH_LINES), high)
    # Nothing says where the lines of such a call would be.
    nowhere = np.isnan(after) | ((after < 0) & np.isnan(before))
    return np.maximum(low, 0), np.where(nowhere, 0, high)


def _allowed(call: "Call", name: str) -> tuple[float | None, float | None]:
    """The positions that a call's line lies between: -1 and None where there is no such bound; (None, ...): none."""
    attempt, block = call.attempt, call.block
    started = attempt.start_order if attempt else None
    after = started if started is not None else -1
    before = attempt.end_order if attempt and attempt.end_order is not None else None
    if name == "split":
        if block is None and started is None:
            return None, None
        if block is not None:
            before = block.order_locked
    elif name == "prep":
        if call.split is not None:
            after = max(after, call.split.order)
        if block is not None and "barrier_wait" in block.orders:
            before = block.orders["barrier_wait"]
    elif call.prep is not None:
        after = max(after, call.prep.order)
    elif started is None:
        return None, None
    return after, before


def _with_block_times(calls: list["Call"], bounds: TimeBounds) -> TimeBounds:
    """The bounds, and what the calls' own locks say of the lines of their blocks."""
    timed = [(order, time) for call in calls for order, time in _block_times(call)]
    if not timed:
        return bounds
    orders = np.array([order for order, _ in timed], dtype=np.int64)
    return bounds.also(orders, np.array([time for _, time in timed], dtype=np.float64))


def _block_times(call: "Call") -> list[tuple[int, float]]:
    block = call.block
    if block is None or call.lock_ns is None or call.unlock_ns is None:
        return []
    known = [(block.orders["mutex_acquired"], call.lock_ns)] if "mutex_acquired" in block.orders else []
    if "mutex_released" in block.orders:
        known.append((block.orders["mutex_released"], call.unlock_ns))
    if "ntt_msm_h" in block.orders:
        known.append((block.orders["ntt_msm_h"], call.lock_ns + block.ms["ntt_msm_h_ms"] * 1e6))
    return known


def _attach_deallocs(calls: list["Call"], lines: list[Floating]) -> None:
    """async_dealloc has no identity: it comes after b_g2_msm, and frees come one after the other, in order."""
    waiting = sorted(
        (call for call in calls if call.b_g2 is not None), key=lambda call: call.b_g2.order if call.b_g2 else 0
    )
    at = 0
    for call in waiting:
        while at < len(lines) and call.b_g2 is not None and lines[at].order < call.b_g2.order:
            at += 1
        if at == len(lines):
            return
        call.dealloc = lines[at]
        at += 1
