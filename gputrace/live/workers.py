"""What each worker is doing at a moment, and since when."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

# What the worker's own thread goes through; prep_msm and b_g2_msm run beside it.
OWN_PHASES = ("pre_lock", "mutex_wait", *LEAVES_UNDER_MUTEX, "release_abc")
BESIDE = ("prep_msm", "b_g2_msm")


@dataclass(frozen=True)
class WorkerNow:
    """One worker at a moment.

    `doing`: the phase it is in; held (the mutex, between phases), in-call (inside the function, no line says where),
    queue (free, work is waiting), no-work (free, nothing waits), free (free, the log shows no queue).
    `since_ns` is when that began. `open_end`: the log does not say yet when it ends; `after` is then the last phase
    whose end it printed. `beside`: phases that run on the CPU for the same call.
    """

    worker: int
    gpu: int
    doing: str
    since_ns: int
    call: int | None = None
    job: str | None = None
    partition: int | None = None
    open_end: bool = False
    after: str | None = None
    beside: tuple[str, ...] = ()

    def for_s(self, now_ns: int) -> float:
        """For how long, in seconds."""
        return max(0.0, (now_ns - self.since_ns) / 1e9)


@dataclass(frozen=True)
class _Call:
    call: int
    gpu: int
    job: str | None
    partition: int | None
    start_ns: int
    lock_ns: int | None
    unlock_ns: int | None
    end_ns: int | None
    phases: tuple[tuple[str, int, int], ...]


class Workers:
    """The calls of a trace, by worker and time."""

    def __init__(self, trace: Trace) -> None:
        self._calls: dict[int, list[_Call]] = {}
        for worker, call in _calls(trace):
            self._calls.setdefault(worker, []).append(call)
        for own in self._calls.values():
            own.sort(key=lambda call: call.start_ns)

    def at(self, now_ns: int, queued: int | None) -> tuple[WorkerNow, ...]:
        """Every worker that has begun a call by `now_ns`, in order of GPU and number; `queued`: partitions waiting."""
        found = []
        for worker, calls in self._calls.items():
            begun = bisect_right(calls, now_ns, key=lambda call: call.start_ns)
            if not begun:
                continue
            call = calls[begun - 1]
            if call.end_ns is None or now_ns < call.end_ns:
                found.append(_inside(worker, call, now_ns))
            else:
                doing = "free" if queued is None else "queue" if queued else "no-work"
                found.append(WorkerNow(worker, call.gpu, doing, call.end_ns))
        return tuple(sorted(found, key=lambda one: (one.gpu, one.worker)))


class Syntheses:
    """How many syntheses run and how many finished ones wait for a worker."""

    def __init__(self, trace: Trace) -> None:
        frame = trace.syntheses.filter(pl.col("start_ns").is_not_null())
        never = np.iinfo(np.int64).max
        self._start, self._end, self._queued, self._picked_up = (
            frame[name].fill_null(never).to_numpy() for name in ("start_ns", "end_ns", "queued_ns", "picked_up_ns")
        )
        self._restart = frame["restart"].fill_null(0).to_numpy()
        self._knows_queue = bool(frame["queued_ns"].count() and frame["picked_up_ns"].count())

    def at(self, now_ns: int) -> tuple[int | None, int | None]:
        """Running and waiting of the prover's latest run at `now_ns`; None where the log does not tell."""
        begun = self._start <= now_ns
        if not begun.any():
            return None, None
        # What a run of the prover left unfinished is gone with it.
        own = begun & (self._restart == self._restart[begun].max())
        running = int((own & (self._end > now_ns)).sum())
        waiting = int((own & (self._queued <= now_ns) & (self._picked_up > now_ns)).sum())
        return running, waiting if self._knows_queue else None


def _inside(worker: int, call: _Call, now_ns: int) -> WorkerNow:
    """What a worker does in a call that it has begun and, as far as is known, not ended."""
    own = [phase for phase in call.phases if phase[0] in OWN_PHASES]
    beside = tuple(name for name, start, end in call.phases if name in BESIDE and start <= now_ns < end)
    current = [phase for phase in own if phase[1] <= now_ns < phase[2]]
    # Of phases that overlap by a rounding, the one that began last.
    doing, since_ns = max(((name, start) for name, start, _ in current), key=lambda p: p[1], default=("", 0))
    ended = [(end, name) for name, _, end in own if end <= now_ns]
    after = max(ended, key=lambda one: one[0])[1] if ended else None
    open_end = call.end_ns is None and not doing
    if not doing:
        held = call.lock_ns is not None and call.lock_ns <= now_ns
        held = held and (call.unlock_ns is None or now_ns < call.unlock_ns)
        doing = "held" if held else "in-call"
        since_ns = max([call.start_ns, *(end for end, _ in ended)])
    return WorkerNow(worker, call.gpu, doing, since_ns, call.call, call.job, call.partition, open_end, after, beside)


def _calls(trace: Trace) -> Iterator[tuple[int, _Call]]:
    placed = trace.phases.drop_nulls(["start_ns", "end_ns"])
    phases: dict[int, list[tuple[str, int, int]]] = {}
    for call, name, start_ns, end_ns in placed.select("call", "name", "start_ns", "end_ns").iter_rows():
        if end_ns >= start_ns:
            phases.setdefault(call, []).append((name, start_ns, end_ns))
    columns = ("call", "gpu", "worker", "job", "partition", "start_ns", "lock_ns", "unlock_ns", "end_ns", "failed")
    timed = trace.calls.filter(pl.col("worker").is_not_null())
    for call, gpu, worker, job, partition, start_ns, lock_ns, unlock_ns, end_ns, failed in timed.select(
        columns
    ).iter_rows():
        begin_ns = start_ns if start_ns is not None else lock_ns
        if begin_ns is None:
            continue
        own = tuple(phases.get(call, ()))
        if failed and end_ns is None:
            # The engine gave it up: the last that is known of it is its end.
            end_ns = max([begin_ns, *(end for _, _, end in own)])
        yield (
            worker,
            _Call(call, gpu, job, partition, begin_ns, lock_ns, unlock_ns, end_ns, own),
        )
