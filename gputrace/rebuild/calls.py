"""Blocks and attempts to calls with times, and the floating lines to their calls."""

from dataclasses import dataclass
from math import isinf

import numpy as np
import polars as pl

from gputrace.rebuild.attempts import Attempt
from gputrace.rebuild.binding import bind_blocks
from gputrace.rebuild.blocks import Block
from gputrace.rebuild.clock import Epoch
from gputrace.rebuild.floating import Floating
from gputrace.rebuild.sequence import Sequence
from gputrace.rebuild.timebounds import JITTER_MS, STRAY_MS, Floats, Ints, TimeBounds, strays


@dataclass(slots=True)
class Call:
    """One call being put together: its block, its attempt, its floating lines, and its times in ns."""

    block: Block | None
    attempt: Attempt | None
    residual_ms: float = 0.0
    uncertainty_ms: float | None = None
    entry_ns: float | None = None
    lock_ns: float | None = None
    unlock_ns: float | None = None
    setup_ms: int | None = None
    split: Floating | None = None
    prep: Floating | None = None
    b_g2: Floating | None = None
    dealloc: Floating | None = None
    inferred_gpu: int | None = None

    def set_lock(self, lock_ns: float, uncertainty_ms: float) -> None:
        """Times the call by its lock; floored durations count half a millisecond more."""
        self.lock_ns, self.uncertainty_ms = lock_ns, uncertainty_ms
        if self.block is None:
            return
        if self.block.held_ms is not None:
            self.unlock_ns = lock_ns + (self.block.held_ms + 0.5) * 1e6
        if self.block.before_lock_ms is not None:
            self.entry_ns = lock_ns - (self.block.before_lock_ms + 1.0) * 1e6
        elif self.attempt is not None:
            self.entry_ns = self.attempt.entry_backward_ns or self.attempt.entry_ns

    @property
    def gpu(self) -> int:
        """GPU as the prover numbers it; as inferred, else 0, where the log names none."""
        if self.attempt is not None and self.attempt.gpu is not None:
            return self.attempt.gpu
        return self.inferred_gpu or 0

    @property
    def first_order(self) -> int:
        """Position by which calls are numbered."""
        if self.block is not None:
            return self.block.first_order
        return (self.attempt.start_order or 0) if self.attempt else 0

    @property
    def release_abc_ms(self) -> int | None:
        """Unlock to return, where both durations are printed. At least 0: two floors may differ by 1."""
        if self.block is None or self.attempt is None or self.attempt.prove_start_ms is None:
            return None
        total = self.block.ms.get("total_start_fn_ms")
        return None if total is None else max(0, self.attempt.prove_start_ms - total)

    @property
    def end_ns(self) -> float | None:
        """The worker is free again."""
        if self.attempt is not None and self.attempt.spawned_ns is not None:
            return float(self.attempt.spawned_ns)
        return self.unlock_ns


def time_bounds(sequence: Sequence, epochs: dict[int, Epoch]) -> tuple[TimeBounds, int]:
    """When each position of the log was written, by the lines around it that have a time; and how many were strays.

    These are TIMELINE lines and, in a file that holds both streams, tracing lines: there the order of lines is the
    order in which they were written. A stray, with a time far from that of the lines around it, says nothing.
    """
    frame = sequence.frame
    timeline = frame.lazy().filter(pl.col("offset_ms").is_not_null()).select("order", "restart", "offset_ms").collect()
    orders, times, on_wall = [], [], []
    for (run,), own in timeline.group_by("restart", maintain_order=True):
        epoch = epochs.get(int(str(run)))
        orders.append(own["order"].cast(pl.Int64).to_numpy())
        times.append((epoch or Epoch(0.0, 0.0)).all_to_ns(own["offset_ms"].to_numpy()))
        on_wall.append(epoch is not None)
    if epochs:
        both = frame.lazy().group_by("source").agg((pl.col("family") == "cuzk-timing").any().alias("has_c_lines"))
        spoken = frame.lazy().filter(pl.col("log_ns").is_not_null()).select("source", "order", "log_ns")
        spoken_rows = spoken.join(both, on="source").filter("has_c_lines").collect()
        orders.append(spoken_rows["order"].cast(pl.Int64).to_numpy())
        times.append(spoken_rows["log_ns"].to_numpy().astype(np.float64))
        on_wall.append(True)
    if not orders:
        return TimeBounds.of([]), 0
    return _without_strays(orders, times, on_wall)


def _without_strays(orders: list[Ints], times: list[Floats], on_wall: list[bool]) -> tuple[TimeBounds, int]:
    """Bounds from lines by run, and how many lines were strays. Only what shares a clock can be compared."""
    kept = []
    clocks = [[number for number, own in enumerate(on_wall) if own], *([n] for n, own in enumerate(on_wall) if not own)]
    for clock in clocks:
        if not clock:
            continue
        order = np.concatenate([orders[number] for number in clock])
        time = np.concatenate([times[number] for number in clock])
        ranked = np.lexsort((time, order))
        whole = ranked[~strays(time[ranked], STRAY_MS * 1e6)]
        kept.append((order[whole], time[whole]))
    order, time = (np.concatenate(column) for column in zip(*kept, strict=True))
    return TimeBounds.between(order, time), sum(map(len, orders)) - len(order)


def assemble(
    blocks: list[Block], attempts: list[Attempt], bounds: TimeBounds, arrival_error_ms: float = JITTER_MS
) -> list[Call]:
    """All calls in order of their blocks; attempts without a block (or with the log's end in it) come last.

    `arrival_error_ms` is by how much a line's arrival may miss its writing.
    """
    bound = bind_blocks(blocks, attempts, bounds)
    taken = {index for index, _ in bound if index is not None}
    calls = [
        Call(block, attempts[index] if index is not None else None, residual)
        for block, (index, residual) in zip(blocks, bound, strict=True)
    ]
    _time_blocks(calls, bounds, arrival_error_ms)
    calls += [Call(None, attempt) for i, attempt in enumerate(attempts) if i not in taken]
    for call in calls:
        if call.block is None and call.attempt is not None:
            call.entry_ns = call.attempt.entry_backward_ns or call.attempt.entry_ns
            call.uncertainty_ms = 2.0 if call.entry_ns is not None else None
    return calls


def _time_blocks(calls: list[Call], bounds: TimeBounds, arrival_error_ms: float) -> None:
    """Lock and unlock of every block, by the best source that there is."""
    latest: dict[int, Call] = {}
    for call in calls:
        previous = latest.get(call.gpu)
        latest[call.gpu] = call
        if call.block is None:
            continue
        found = (
            _lock_of_attempt(call, bounds)
            or _lock_of_arrivals(call.block, arrival_error_ms)
            or _lock_of_holder(call.block, previous)
            or _lock_of_bounds(call.block, bounds)
        )
        if found is not None:
            call.set_lock(*found)


# Lock in ns and the half-width of its error in ms.
_Lock = tuple[float, float]


def _lock_of_attempt(call: Call, bounds: TimeBounds) -> _Lock | None:
    """Forward from the start and backward from the return, reconciled: half their difference is the uncertainty."""
    block, attempt = call.block, call.attempt
    if block is None or attempt is None:
        return None
    forward = backward = None
    before, held, total = block.before_lock_ms, block.held_ms, block.ms.get("total_start_fn_ms")
    if attempt.start_ns is not None and attempt.entry_ns is not None and before is not None:
        forward = attempt.entry_ns + (before + 1.0) * 1e6
    if attempt.spawned_ns is not None and attempt.prove_start_ms is not None and total is not None and held is not None:
        # The return's time less the release is the unlock.
        backward = attempt.spawned_ns - (attempt.prove_start_ms - total) * 1e6 - (held + 0.5) * 1e6
    if forward is not None and backward is not None:
        spread_ms = abs(forward - backward) / 1e6
        call.residual_ms += max(0.0, spread_ms - 2.0)
        # The return is printed by the thread itself; the start waits for a thread of the pool first.
        return backward, spread_ms / 2 + 1.0
    if backward is not None:
        return backward, JITTER_MS
    if forward is None:
        return None
    # The wait for a thread is not known: the lines around may say that it was longer than nothing.
    earliest, latest = _lock_window(block, bounds)
    return min(max(forward, earliest), max(forward, latest)), JITTER_MS


def _lock_of_arrivals(block: Block, error_ms: float) -> _Lock | None:
    if "mutex_acquired" in block.arrivals:
        return float(block.arrivals["mutex_acquired"]), error_ms
    if block.arrivals and block.held_ms is not None:
        return max(block.arrivals.values()) - (block.held_ms + 0.5) * 1e6, error_ms
    return None


def _lock_of_holder(block: Block, previous: Call | None) -> _Lock | None:
    """Who waited for the mutex got it when the holder before let go."""
    if previous is None or previous.block is None or previous.unlock_ns is None:
        return None
    if block.ms.get("mutex_wait_ms", 0) <= 1 or previous.block.restart != block.restart:
        return None
    return previous.unlock_ns, (previous.uncertainty_ms or 0.0) + 1.0


def _lock_of_bounds(block: Block, bounds: TimeBounds) -> _Lock | None:
    """Between the times of the lines around the block's own."""
    earliest, latest = _lock_window(block, bounds)
    if isinf(earliest) or isinf(latest):
        return None
    return (earliest + latest) / 2, abs(latest - earliest) / 2e6 + JITTER_MS


def _lock_window(block: Block, bounds: TimeBounds) -> tuple[float, float]:
    """Earliest and latest time of the lock, ns: each of the block's lines says when it was, more or less."""
    ms = block.ms
    ntt = ms.get("ntt_msm_h_ms")
    since_lock = {
        "mutex_acquired": 0,
        "ntt_msm_h": ntt,
        "batch_add": None if ntt is None else ntt + ms.get("barrier_wait_ms", 0) + ms.get("batch_add_ms", 0),
        "tail_msm": ms.get("gpu_total_ms"),
        "mutex_released": ms.get("mutex_held_ms"),
    }
    earliest, latest = float("-inf"), float("inf")
    for event, after_ms in since_lock.items():
        if event in block.orders and after_ms is not None:
            low, high = bounds.span_ns(block.orders[event])
            earliest, latest = max(earliest, low - after_ms * 1e6), min(latest, high - after_ms * 1e6)
    return earliest, latest
