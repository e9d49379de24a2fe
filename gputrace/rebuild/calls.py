"""Blocks and attempts to calls with times, and the floating lines to their calls."""

from dataclasses import dataclass, field

import polars as pl

from gputrace.rebuild.attempts import Attempt
from gputrace.rebuild.binding import TimeBounds, bind_blocks, match_lines
from gputrace.rebuild.blocks import Block
from gputrace.rebuild.clock import Epoch
from gputrace.rebuild.sequence import Sequence

# How many open calls a floating line may be looked for in: workers and finalizers outstanding.
_FLOATING_REACH = 24


@dataclass(frozen=True)
class Floating:
    """A line of a call that is printed outside its block."""

    order: int
    line: int
    ms: int
    arrival_ns: int | None = None
    extra: int | None = None


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


def assemble(
    sequence: Sequence, blocks: list[Block], attempts: list[Attempt], epochs: dict[int, Epoch]
) -> list[Call]:
    """All calls in order of their blocks; attempts without a block (or with the log's end in it) come last."""
    bounds = timeline_bounds(sequence, epochs)
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
    _attach_floating(sequence, calls, bounds)
    return calls


def _time_blocks(calls: list[Call]) -> None:
    """Lock and unlock of every block: forward from the start, backward from the return, reconciled; else the chain."""
    previous: Call | None = None
    for call in calls:
        block, attempt = call.block, call.attempt
        if block is None:
            continue
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
        if not estimates and previous is not None and previous.unlock_ns is not None:
            if block.ms.get("mutex_wait_ms", 0) > 1 and block.restart == (previous.block or block).restart:
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


def _attach_floating(sequence: Sequence, calls: list[Call], bounds: TimeBounds) -> None:
    """Ties split_vectors, prep_msm, b_g2_msm and async_dealloc lines to calls."""
    timed = [(o, t) for call in calls for o, t in _block_times(call)]
    inner = TimeBounds.of([*zip(bounds.orders, bounds.lowest_ns, strict=True), *timed]) if timed else bounds
    split = _lines(sequence, "split_vectors", "setup_to_split_ms")
    prep = _lines(sequence, "prep_msm", "prep_msm_ms")
    b_g2 = _lines(sequence, "b_g2_msm", "b_g2_msm_ms", "num_circuits")
    dealloc = _lines(sequence, "async_dealloc", "async_dealloc_ms")

    def split_cost(call: Call, line: Floating) -> float | None:
        pre_lock = call.block.ms.get("pre_lock_cpu_ms") if call.block else None
        if pre_lock is None:
            return 1.0
        slack = pre_lock - line.ms
        return None if slack < 0 else max(0.0, slack - 2.0)

    def prep_cost(call: Call, line: Floating) -> float | None:
        cost = _late(call, line, (call.setup_ms or 0) + line.ms, inner)
        block = call.block
        if block is not None and "barrier_wait_ms" in block.ms and block.before_lock_ms is not None:
            ahead = (call.setup_ms or 0) + line.ms - block.before_lock_ms - block.ms.get("ntt_msm_h_ms", 0)
            cost += max(0.0, abs(max(0, ahead) - block.ms["barrier_wait_ms"]) - 3.0)
        return cost

    def b_g2_cost(call: Call, line: Floating) -> float | None:
        if call.prep is None:
            return _late(call, line, line.ms, inner) * 0.1
        chain = (call.setup_ms or 0) + call.prep.ms + line.ms
        cost = _late(call, line, chain, inner)
        gpu_ms = call.attempt.gpu_ms if call.attempt else None
        if gpu_ms is not None:
            cost += max(0.0, chain - gpu_ms - 3.0)
        return cost

    for name, found, cost in (("split", split, split_cost), ("prep", prep, prep_cost), ("b_g2", b_g2, b_g2_cost)):
        orders = [line.order for line in found]
        chosen = match_lines(
            len(found),
            len(calls),
            lambda c, name=name, orders=orders: _reachable(calls[c], name, orders),  # type: ignore[misc]
            lambda c, i, cost=cost, found=found: cost(calls[c], found[i]),  # type: ignore[misc]
        )
        for call, (index, residual) in zip(calls, chosen, strict=True):
            if index is not None:
                setattr(call, name, found[index])
                call.residual_ms = max(call.residual_ms, residual)
                if name == "split":
                    call.setup_ms = found[index].ms
    _attach_deallocs(calls, dealloc)


def _lines(sequence: Sequence, event: str, key: str, extra: str | None = None) -> list[Floating]:
    marks = sequence.of(event).filter(pl.col(key).is_not_null())
    columns = ["order", "line", key, "arrival_ns", *([extra] if extra else [])]
    return [Floating(*row) for row in marks.select(columns).iter_rows()]


def _reachable(call: Call, name: str, orders: list[int]) -> range:
    """Indexes of the lines that order allows for a call (section 3.1 of the prover's order of printing)."""
    from bisect import bisect_left, bisect_right

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
        return range(low, min(high, low + _FLOATING_REACH))
    return range(max(0, high - _FLOATING_REACH), high) if before is not None else range(0)


def _late(call: Call, line: Floating, after_entry_ms: float, bounds: TimeBounds) -> float:
    """How badly a line's time fits its call: it should be printed `after_entry_ms` after the entry."""
    if call.entry_ns is None:
        return 0.0
    at_ns = call.entry_ns + after_entry_ms * 1e6
    if line.arrival_ns is not None:
        return abs(at_ns - line.arrival_ns) / 1e6
    return bounds.miss_ms(line.order, at_ns)


def _block_times(call: Call) -> list[tuple[int, float]]:
    block = call.block
    if block is None or call.lock_ns is None or call.unlock_ns is None:
        return []
    known = [(block.orders["mutex_acquired"], call.lock_ns)] if "mutex_acquired" in block.orders else []
    if "mutex_released" in block.orders:
        known.append((block.orders["mutex_released"], call.unlock_ns))
    if "ntt_msm_h" in block.orders:
        known.append((block.orders["ntt_msm_h"], call.lock_ns + block.ms["ntt_msm_h_ms"] * 1e6))
    return known


def _attach_deallocs(calls: list[Call], lines: list[Floating]) -> None:
    """async_dealloc has no identity: it comes after b_g2_msm, and frees come one after the other, in order."""
    waiting = sorted((call for call in calls if call.b_g2 is not None), key=lambda call: call.b_g2.order if call.b_g2 else 0)
    at = 0
    for call in waiting:
        while at < len(lines) and call.b_g2 is not None and lines[at].order < call.b_g2.order:
            at += 1
        if at == len(lines):
            return
        call.dealloc = lines[at]
        at += 1
