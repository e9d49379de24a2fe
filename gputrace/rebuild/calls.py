"""Blocks and attempts to calls with times, and the floating lines to their calls."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from gputrace.rebuild.attempts import Attempts
from gputrace.rebuild.binding import bind_blocks
from gputrace.rebuild.blocks import Blocks
from gputrace.rebuild.clock import Epoch
from gputrace.rebuild.columns import Bools, Floats, Ints, first_known, nothing, taken
from gputrace.rebuild.sequence import Sequence
from gputrace.rebuild.timebounds import JITTER_MS, STRAY_MS, TimeBounds, in_order, strays


class FloatingLines(NamedTuple):
    """Lines of one kind that calls print outside their blocks, in order of the log; NaN where one lacks something."""

    order: Ints
    line: Floats
    ms: Floats
    arrival_ns: Floats
    source: Floats
    extra: Floats


FLOATING = ("split", "prep", "b_g2", "dealloc")


@dataclass
class Calls:
    """Calls being put together, an entry each: those with a block in the order of blocks, then the others.

    `block` and `attempt` are numbers of blocks and attempts, -1 where there is none; `own_line` the same of a call's
    floating `lines`, by kind. Times are ns, NaN where unknown; so is `inferred_gpu`.
    """

    blocks: Blocks
    attempts: Attempts
    block: Ints
    attempt: Ints
    residual_ms: Floats
    uncertainty_ms: Floats
    entry_ns: Floats
    lock_ns: Floats
    unlock_ns: Floats
    inferred_gpu: Floats
    lines: dict[str, FloatingLines]
    own_line: dict[str, Ints]

    @classmethod
    def of(cls, blocks: Blocks, attempts: Attempts, bound: Ints, residual_ms: Floats) -> "Calls":
        """Blocks with the attempts that they are bound to, and the attempts that are left; without times."""
        alone = np.setdiff1d(np.arange(len(attempts)), bound)
        count = len(blocks) + len(alone)
        return cls(
            blocks,
            attempts,
            np.concatenate([np.arange(len(blocks)), np.full(len(alone), -1)]),
            np.concatenate([bound, alone]),
            np.concatenate([residual_ms, np.zeros(len(alone))]),
            uncertainty_ms=nothing(count),
            entry_ns=nothing(count),
            lock_ns=nothing(count),
            unlock_ns=nothing(count),
            inferred_gpu=nothing(count),
            lines={},
            own_line={kind: np.full(count, -1) for kind in FLOATING},
        )

    def __len__(self) -> int:
        return len(self.block)

    def of_blocks(self, values: Floats) -> Floats:
        """One figure of every call's block."""
        return taken(values, self.block)

    def printed(self, key: str) -> Floats:
        """One printed figure of every call's block, ms."""
        return self.of_blocks(self.blocks.figure(key))

    def of_attempts(self, name: str) -> Floats:
        """One column of every call's attempt."""
        return taken(self.attempts.figure(name), self.attempt)

    def put_lines(self, kind: str, lines: FloatingLines) -> None:
        """The floating lines of one kind, of which calls own some."""
        self.lines[kind] = lines

    def line_figure(self, kind: str, figure: str) -> Floats:
        """One figure of every call's own line of one kind."""
        if kind not in self.lines:
            return nothing(len(self))
        return taken(getattr(self.lines[kind], figure), self.own_line[kind])

    def set_lock(self, which: Ints, lock_ns: Floats, uncertainty_ms: Floats) -> None:
        """Times these calls by their locks; floored durations count half a millisecond more."""
        held, before = (self.of_blocks(own)[which] for own in (self.blocks.held_ms, self.blocks.before_lock_ms))
        self.lock_ns[which], self.uncertainty_ms[which] = lock_ns, uncertainty_ms
        self.entry_ns[which] = first_known(lock_ns - (before + 1.0) * 1e6, self.entry_of_attempts[which])
        self.unlock_ns[which] = lock_ns + (held + 0.5) * 1e6

    @property
    def entry_of_attempts(self) -> Floats:
        """Entry into the C++ function as the attempts tell it."""
        return taken(first_known(self.attempts.entry_backward_ns, self.attempts.entry_ns), self.attempt)

    @property
    def gpu(self) -> Ints:
        """GPU as the prover numbers it; as inferred, else 0, where the log names none."""
        return np.nan_to_num(first_known(self.of_attempts("gpu"), self.inferred_gpu)).astype(np.int64)

    @property
    def release_abc_ms(self) -> Floats:
        """Unlock to return, where both durations are printed. At least 0: two floors may differ by 1."""
        return np.maximum(0.0, self.of_attempts("prove_start_ms") - self.printed("total_start_fn_ms"))

    @property
    def end_ns(self) -> Floats:
        """The worker is free again."""
        return first_known(self.of_attempts("spawned_ns"), self.unlock_ns)


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
        order, time = in_order(*(np.concatenate([own[number] for number in clock]) for own in (orders, times)))
        own = ~strays(time, STRAY_MS * 1e6)
        kept.append((order[own], time[own]))
    order, time = (np.concatenate(column) for column in zip(*kept, strict=True))
    return TimeBounds.between(order, time), sum(map(len, orders)) - len(order)


def assemble(blocks: Blocks, attempts: Attempts, bounds: TimeBounds, arrival_error_ms: float = JITTER_MS) -> Calls:
    """All calls in order of their blocks; attempts without a block (or with the log's end in it) come last.

    `arrival_error_ms` is by how much a line's arrival may miss its writing.
    """
    calls = Calls.of(blocks, attempts, *bind_blocks(blocks, attempts, bounds))
    _time_blocks(calls, bounds, arrival_error_ms)
    alone = calls.block < 0
    calls.entry_ns[alone] = calls.entry_of_attempts[alone]
    calls.uncertainty_ms[alone & ~np.isnan(calls.entry_ns)] = 2.0
    return calls


def _time_blocks(calls: Calls, bounds: TimeBounds, arrival_error_ms: float) -> None:
    """Lock and unlock of every block, by the best source that there is."""
    window = _lock_windows(calls, bounds)
    lock_ns, uncertainty_ms = _locks_of_attempts(calls, window)
    by_arrival = _locks_of_arrivals(calls.blocks)
    stamped = np.isnan(lock_ns) & ~np.isnan(calls.of_blocks(by_arrival))
    lock_ns = np.where(stamped, calls.of_blocks(by_arrival), lock_ns)
    uncertainty_ms = np.where(stamped, arrival_error_ms, uncertainty_ms)
    known = np.flatnonzero(~np.isnan(lock_ns))
    calls.set_lock(known, lock_ns[known], uncertainty_ms[known])
    untimed = np.isnan(lock_ns) & (calls.block >= 0)
    if untimed.any():
        _time_by_others(calls, untimed, window)


# The earliest and the latest time of locks, ns.
_Window = tuple[Floats, Floats]


def _locks_of_attempts(calls: Calls, window: _Window) -> tuple[Floats, Floats]:
    """Forward from the start and backward from the return, reconciled: half their difference is the uncertainty."""
    held, before = calls.of_blocks(calls.blocks.held_ms), calls.of_blocks(calls.blocks.before_lock_ms)
    entry_ns = np.where(np.isnan(calls.of_attempts("start_ns")), np.nan, taken(calls.attempts.entry_ns, calls.attempt))
    forward = entry_ns + (before + 1.0) * 1e6
    # The return's time less the release is the unlock.
    release_ms = calls.of_attempts("prove_start_ms") - calls.printed("total_start_fn_ms")
    backward = calls.of_attempts("spawned_ns") - release_ms * 1e6 - (held + 0.5) * 1e6
    spread_ms = np.abs(forward - backward) / 1e6
    calls.residual_ms += np.nan_to_num(np.maximum(0.0, spread_ms - 2.0))
    # The wait for a thread is not known: the lines around may say that it was longer than nothing.
    earliest, latest = window
    alone = np.minimum(np.maximum(forward, earliest), np.maximum(forward, latest))
    # The return is printed by the thread itself; the start waits for a thread of the pool first.
    uncertainty_ms = np.where(np.isnan(spread_ms), JITTER_MS, spread_ms / 2 + 1.0)
    return first_known(backward, alone), uncertainty_ms


def _locks_of_arrivals(blocks: Blocks) -> Floats:
    """When a block's lock was by the stamps on its lines; NaN without one."""
    ended_ns = blocks.latest_arrival_ns - (blocks.held_ms + 0.5) * 1e6
    return first_known(blocks.event_lines("mutex_acquired").arrival_ns, ended_ns)


def _time_by_others(calls: Calls, untimed: Bools, window: _Window) -> None:
    """Locks by the holder before, for who waited got the mutex when that let go; else between the lines around."""
    blocks = calls.blocks
    # Calls with a block come first, in the order of blocks.
    count = len(blocks)
    earliest, latest = (side[:count] for side in window)
    bounded = np.isfinite(earliest) & np.isfinite(latest)
    earliest, latest = np.where(bounded, earliest, np.nan), np.where(bounded, latest, np.nan)
    lock_ns, uncertainty_ms = (earliest + latest) / 2, np.abs(latest - earliest) / 2e6 + JITTER_MS
    unlock_ns, told_ms = calls.unlock_ns[:count].copy(), calls.uncertainty_ms[:count].copy()
    previous = _previous_of(calls.gpu[:count])
    handed = (previous >= 0) & blocks.waited & (blocks.restart == blocks.restart[previous])
    for number in np.flatnonzero(untimed[:count]).tolist():
        before = previous[number]
        if handed[number] and not np.isnan(unlock_ns[before]):
            lock_ns[number], uncertainty_ms[number] = unlock_ns[before], np.nan_to_num(told_ms[before]) + 1.0
        unlock_ns[number] = lock_ns[number] + (blocks.held_ms[number] + 0.5) * 1e6
        told_ms[number] = uncertainty_ms[number]
    known = np.flatnonzero(untimed[:count] & ~np.isnan(lock_ns))
    calls.set_lock(known, lock_ns[known], uncertainty_ms[known])


def _previous_of(gpu: Ints) -> Ints:
    """The number of the call before on the same GPU; -1 for the first."""
    ranked = np.argsort(gpu, kind="stable")
    previous = np.full(len(gpu), -1)
    follows = np.diff(gpu[ranked]) == 0
    previous[ranked[1:][follows]] = ranked[:-1][follows]
    return previous


def _lock_windows(calls: Calls, bounds: TimeBounds) -> _Window:
    """Earliest and latest time of the locks, ns: each of a block's lines says when it was, more or less."""
    blocks = calls.blocks
    ntt = blocks.figure("ntt_msm_h_ms")
    barrier, batch_add = (np.nan_to_num(blocks.figure(key)) for key in ("barrier_wait_ms", "batch_add_ms"))
    since_lock = {
        "mutex_acquired": np.zeros(len(blocks)),
        "ntt_msm_h": ntt,
        "batch_add": ntt + barrier + batch_add,
        "tail_msm": blocks.figure("gpu_total_ms"),
        "mutex_released": blocks.figure("mutex_held_ms"),
    }
    earliest, latest = np.full(len(blocks), -np.inf), np.full(len(blocks), np.inf)
    for event, after_ms in since_lock.items():
        order = blocks.order(event)
        told = np.flatnonzero(~(np.isnan(order) | np.isnan(after_ms)))
        low, high = bounds.spans_ns(order[told].astype(np.int64))
        earliest[told] = np.maximum(earliest[told], low - after_ms[told] * 1e6)
        latest[told] = np.minimum(latest[told], high - after_ms[told] * 1e6)
    # Calls without a block are not timed by one.
    return calls.of_blocks(earliest), calls.of_blocks(latest)
