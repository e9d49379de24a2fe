"""Blocks and attempts to calls with times, and the floating lines to their calls."""

from dataclasses import dataclass, field

import polars as pl

from gputrace.rebuild.attempts import Attempt
from gputrace.rebuild.binding import TimeBounds, bind_blocks
from gputrace.rebuild.blocks import Block
from gputrace.rebuild.clock import Epoch
from gputrace.rebuild.floating import Floating
from gputrace.rebuild.sequence import Sequence


@dataclass
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
    notes: list[str] = field(default_factory=list)

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


def timeline_bounds(sequence: Sequence, epochs: dict[int, Epoch]) -> TimeBounds:
    """When each position of the log was written, by the TIMELINE lines around it."""
    marks = sequence.frame.filter(pl.col("offset_ms").is_not_null() & (pl.col("family") == "timeline"))
    zero = Epoch(0.0, 0.0)
    known = [
        (order, float(epochs.get(restart, zero).to_ns(offset_ms)))
        for order, restart, offset_ms in marks.select("order", "restart", "offset_ms").iter_rows()
    ]
    return TimeBounds.of(known)


def assemble(blocks: list[Block], attempts: list[Attempt], bounds: TimeBounds) -> list[Call]:
    """All calls in order of their blocks; attempts without a block (or with the log's end in it) come last."""
    bound = bind_blocks(blocks, attempts, bounds)
    taken = {index for index, _ in bound if index is not None}
    calls = [
        Call(block, attempts[index] if index is not None else None, residual)
        for block, (index, residual) in zip(blocks, bound, strict=True)
    ]
    _time_blocks(calls)
    calls += [Call(None, attempt) for i, attempt in enumerate(attempts) if i not in taken]
    for call in calls:
        if call.block is None and call.attempt is not None:
            call.entry_ns = call.attempt.entry_backward_ns or call.attempt.entry_ns
            call.uncertainty_ms = 2.0 if call.entry_ns is not None else None
    return calls


def _time_blocks(calls: list[Call]) -> None:
    """Lock and unlock of every block: forward from the start, backward from the return, reconciled; else the chain."""
    previous: Call | None = None
    for call in calls:
        block, attempt = call.block, call.attempt
        if block is None:
            continue
        if previous is not None and previous.block is not None and previous.block.restart != block.restart:
            previous = None
        held, before = block.held_ms, block.before_lock_ms
        estimates: list[float] = []
        if attempt is not None:
            forward = attempt.entry_ns if attempt.start_ns is not None else None
            total = block.ms.get("total_start_fn_ms")
            if attempt.spawned_ns is not None and attempt.prove_start_ms is not None and total is not None and held:
                # Backward: the return's time less the release is the unlock.
                estimates.append(attempt.spawned_ns - (attempt.prove_start_ms - total) * 1e6 - (held + 0.5) * 1e6)
            if forward is not None and before is not None:
                estimates.append(forward + (before + 1.0) * 1e6)
        if not estimates and "mutex_acquired" in block.arrivals:
            estimates.append(float(block.arrivals["mutex_acquired"]))
        elif not estimates and held is not None and block.arrivals:
            last = max(block.arrivals.values())
            estimates.append(last - (held + 0.5) * 1e6)
        waited = block.ms.get("mutex_wait_ms", 0) > 1
        if not estimates and waited and previous is not None and previous.unlock_ns is not None:
            # Who waited for the mutex got it when the holder let go.
            estimates.append(previous.unlock_ns)
        if not estimates:
            previous = call
            continue
        lock_ns = sum(estimates) / len(estimates)
        if len(estimates) == 2:
            spread_ms = abs(estimates[0] - estimates[1]) / 1e6
            call.uncertainty_ms = spread_ms / 2 + 1.0
            call.residual_ms += max(0.0, spread_ms - 2.0)
            # The return is printed by the thread itself; the start waits for a thread of the pool first.
            lock_ns = estimates[0]
        else:
            call.uncertainty_ms = 5.0
        call.lock_ns = lock_ns
        if held is not None:
            call.unlock_ns = lock_ns + (held + 0.5) * 1e6
        if before is not None:
            call.entry_ns = lock_ns - (before + 1.0) * 1e6
        elif attempt is not None:
            call.entry_ns = attempt.entry_backward_ns or attempt.entry_ns
        previous = call
