"""Ties the lines that a call prints outside its block to the call: split_vectors, prep_msm, b_g2_msm, async_dealloc.

They carry nothing but a number. What tells them apart: the order in which a call prints its lines, when they should be
printed (entry + setup + prep_msm, + b_g2_msm), and identities (setup <= pre_lock; barrier_wait is what prep_msm still
takes when ntt_msm_h is done; gpu_ms is no less than setup + prep_msm + b_g2_msm). Each kind is matched to all calls at
once, at the smallest total disagreement.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from gputrace.rebuild.binding import match_lines
from gputrace.rebuild.sequence import Sequence
from gputrace.rebuild.timebounds import JITTER_MS, TimeBounds

if TYPE_CHECKING:
    from gputrace.rebuild.calls import Call

# How many lines after a call's start may be its own: workers and finalizers outstanding.
_REACH_LINES = 24


@dataclass(frozen=True)
class Floating:
    """A line of a call that is printed outside its block."""

    order: int
    line: int
    ms: int
    arrival_ns: int | None = None
    extra: int | None = None


Cost = Callable[["Call", Floating, TimeBounds], float | None]


def attach_floating(sequence: Sequence, calls: list["Call"], bounds: TimeBounds) -> None:
    """Sets `split`, `prep`, `b_g2` and `dealloc` of the calls, and adds the disagreements to their residuals."""
    timed = [(order, time) for call in calls for order, time in _block_times(call)]
    known = TimeBounds.of([*zip(bounds.orders, bounds.lowest_ns, strict=True), *timed]) if timed else bounds
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


def _match(calls: list["Call"], name: str, lines: list[Floating], cost: Cost, known: TimeBounds) -> list[float]:
    """Gives each call its line of one kind; returns the residuals in ms, 0 for calls without one."""
    orders = [line.order for line in lines]
    chosen = match_lines(
        len(calls),
        lambda call: _reachable(calls[call], name, orders),
        lambda call, line: cost(calls[call], lines[line], known),
    )
    for call, (index, _) in zip(calls, chosen, strict=True):
        setattr(call, name, None if index is None else lines[index])
    return [residual for _, residual in chosen]


def _split_cost(call: "Call", line: Floating, known: TimeBounds) -> float | None:
    pre_lock = call.block.ms.get("pre_lock_cpu_ms") if call.block else None
    if pre_lock is None:
        return 1.0
    slack = pre_lock - line.ms
    return None if slack < 0 else max(0.0, slack - 2.0)


def _prep_cost(call: "Call", line: Floating, known: TimeBounds) -> float | None:
    ready_ms = (call.setup_ms or 0) + line.ms
    cost = _late(call, line, ready_ms, known)
    block = call.block
    if block is not None and "barrier_wait_ms" in block.ms and block.before_lock_ms is not None:
        ahead = ready_ms - block.before_lock_ms - block.ms.get("ntt_msm_h_ms", 0)
        cost += max(0.0, abs(max(0, ahead) - block.ms["barrier_wait_ms"]) - 3.0)
    if call.b_g2 is not None:
        cost += _late(call, call.b_g2, ready_ms + call.b_g2.ms, known)
    return cost


def _b_g2_cost(call: "Call", line: Floating, known: TimeBounds) -> float | None:
    if call.prep is None:
        return _late(call, line, line.ms, known) * 0.1
    done_ms = (call.setup_ms or 0) + call.prep.ms + line.ms
    cost = _late(call, line, done_ms, known)
    if call.attempt is not None and call.attempt.gpu_ms is not None:
        cost += max(0.0, done_ms - call.attempt.gpu_ms - 3.0)
    return cost


def _lines(sequence: Sequence, event: str, key: str, extra: str | None = None) -> list[Floating]:
    columns = ["order", "line", key, "arrival_ns", *([extra] if extra else [])]
    marks = sequence.of(event, columns=columns).filter(pl.col(key).is_not_null())
    return [Floating(*row) for row in marks.iter_rows()]


def _reachable(call: "Call", name: str, orders: list[int]) -> range:
    """Indexes of the lines that order allows for a call (section 3.1 of the prover's order of printing)."""
    attempt, block = call.attempt, call.block
    started = attempt.start_order if attempt else None
    after = started if started is not None else -1
    before = attempt.end_order if attempt and attempt.end_order is not None else None
    if name == "split":
        if block is None and started is None:
            return range(0)
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
        return range(0)
    high = bisect_left(orders, before) if before is not None else len(orders)
    if after >= 0:
        low = bisect_right(orders, after)
        return range(low, min(high, low + _REACH_LINES))
    return range(max(0, high - _REACH_LINES), high) if before is not None else range(0)


def _late(call: "Call", line: Floating, after_entry_ms: float, bounds: TimeBounds) -> float:
    """How badly a line's time fits its call: it should be printed `after_entry_ms` after the entry."""
    if call.entry_ns is None:
        return 0.0
    at_ns = call.entry_ns + after_entry_ms * 1e6
    if line.arrival_ns is not None:
        return abs(at_ns - line.arrival_ns) / 1e6
    return max(bounds.miss_ms(line.order, at_ns))


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
