"""What the engine says about each pass of a worker: picked up, started, returned, finished.

TIMELINE (stderr) and tracing (stdout) tell the same story in two voices; either may be missing.
"""

from collections import defaultdict
from dataclasses import dataclass

import polars as pl

from gputrace.rebuild.clock import Epoch
from gputrace.rebuild.sequence import Sequence

_NEVER = 1 << 62
# By how much times of two accounts of one pass may contradict each other.
_SAME_PASS_MS = 20.0


@dataclass(slots=True)
class Attempt:
    """One worker's pass over one partition. Orders are positions in the log; times are ns, None where unknown."""

    worker: int | None
    job: str | None
    partition: int | None
    restart: int = 0
    gpu: int | None = None
    kind: str | None = None
    pickup_ns: int | None = None
    start_order: int | None = None
    start_ns: int | None = None
    end_order: int | None = None
    next_pickup_order: int | None = None
    finish_ns: int | None = None
    spawn_to_enter_ms: int | None = None
    prove_start_ms: int | None = None
    spawned_ns: int | None = None
    gpu_ms: int | None = None
    line: int | None = None
    source: int | None = None

    @property
    def closed_order(self) -> int:
        """The call's block ends before this position: the proof is finished, or its worker took the next one."""
        known = [order for order in (self.end_order, self.next_pickup_order) if order is not None]
        return min(known, default=_NEVER)

    @property
    def entry_ns(self) -> float | None:
        """Entry into the C function: forward from GPU_START, else backward from the return."""
        if self.start_ns is not None:
            # TIMELINE is floored to 1 ms: half of it is the expected remainder.
            return self.start_ns + 0.5e6 + (self.spawn_to_enter_ms or 0) * 1e6
        return self.entry_backward_ns

    @property
    def entry_backward_ns(self) -> float | None:
        """Entry from the time of the return and its duration."""
        if self.spawned_ns is None or self.prove_start_ms is None:
            return None
        return self.spawned_ns - (self.prove_start_ms + 0.5) * 1e6


def collect_attempts(sequence: Sequence, epochs: dict[int, Epoch]) -> list[Attempt]:
    """All attempts, by the position of their start (those without a TIMELINE start last, by time)."""
    spoken = _from_tracing(sequence)
    written = _from_timeline(sequence, epochs)
    waiting: dict[tuple[object, ...], list[Attempt]] = defaultdict(list)
    for attempt in spoken:
        waiting[attempt.worker, attempt.job, attempt.partition].append(attempt)
    for attempt in written:
        queue = waiting[attempt.worker, attempt.job, attempt.partition]
        other = next((other for other in queue if _may_be_one(attempt, other, epochs.get(attempt.restart))), None)
        if other is not None:
            queue.remove(other)
            attempt.gpu, attempt.kind = other.gpu, other.kind
            attempt.spawn_to_enter_ms, attempt.prove_start_ms = other.spawn_to_enter_ms, other.prove_start_ms
            attempt.spawned_ns = other.spawned_ns
    gpu_of: dict[int | None, int] = dict(sequence.of("worker_started", columns=("worker", "gpu")).iter_rows())
    for attempt in (*written, *spoken):
        if attempt.gpu is None:
            attempt.gpu = gpu_of.get(attempt.worker)
    alone = [attempt for queue in waiting.values() for attempt in queue]
    alone.sort(key=lambda attempt: attempt.spawned_ns or attempt.pickup_ns or 0)
    return written + alone


def _may_be_one(written: Attempt, spoken: Attempt, epoch: Epoch | None) -> bool:
    """Whether times allow that two accounts are of one pass: a log that begins or ends in the middle lacks some."""
    if epoch is None or written.start_ns is None:
        return True
    reach_ns = (epoch.uncertainty_ms + _SAME_PASS_MS) * 1e6
    returned_before = spoken.spawned_ns is not None and spoken.spawned_ns < written.start_ns - reach_ns
    begun_after = spoken.pickup_ns is not None and spoken.pickup_ns > written.start_ns + reach_ns
    return not (returned_before or begun_after)


def _from_timeline(sequence: Sequence, epochs: dict[int, Epoch]) -> list[Attempt]:
    attempts: list[Attempt] = []
    latest: dict[tuple[int, int | None], Attempt] = {}
    unfinished: dict[tuple[int, object, object, object], list[Attempt]] = defaultdict(list)
    columns = ("order", "event", "restart", "worker", "job", "partition", "offset_ms", "gpu_ms", "line", "source")
    # Without an epoch, times count from the engine's start.
    zero = Epoch(0.0, 0.0)
    for order, event, restart, worker, job, partition, offset_ms, gpu_ms, line, source in sequence.of(
        "GPU_PICKUP", "GPU_START", "GPU_END", columns=columns
    ).iter_rows():
        at_ns = epochs.get(restart, zero).to_ns(offset_ms)
        if event == "GPU_END":
            queue = unfinished[restart, worker, job, partition] or unfinished[restart, worker, job, None]
            if queue:
                attempt = queue.pop(0)
                attempt.end_order, attempt.finish_ns, attempt.gpu_ms = order, at_ns, gpu_ms
            continue
        current = latest.get((restart, worker))
        same = (
            current is not None and current.start_order is None and (current.job, current.partition) == (job, partition)
        )
        if not same or current is None:
            if current is not None:
                current.next_pickup_order = order
            current = Attempt(worker, job, partition, restart, line=line, source=source)
            latest[restart, worker] = current
            attempts.append(current)
            unfinished[restart, worker, job, partition].append(current)
        if event == "GPU_PICKUP":
            current.pickup_ns = at_ns
        else:
            current.start_order, current.start_ns = order, at_ns
    return [attempt for attempt in attempts if attempt.start_order is not None]


def _from_tracing(sequence: Sequence) -> list[Attempt]:
    attempts: list[Attempt] = []
    latest: dict[int | None, Attempt] = {}
    columns = (
        "event", "worker", "job", "partition", "gpu", "proof_kind", "log_ns", "spawn_to_enter_ms", "prove_start_ms",
        "line", "source",
    )  # fmt: skip
    for event, worker, job, partition, gpu, kind, log_ns, spawn_ms, prove_ms, line, source in sequence.of(
        "hot_path", "prove_start_spawned", "prove_start_returned", columns=columns
    ).iter_rows():
        current = latest.get(worker)
        if event == "hot_path":
            current = Attempt(worker, job, partition, gpu=gpu, kind=kind, pickup_ns=log_ns, line=line, source=source)
            latest[worker] = current
            attempts.append(current)
        elif current is None or current.partition != partition:
            if event != "prove_start_spawned":
                continue
            # The log begins in the middle: the return names the job, the line before it does not.
            current = Attempt(worker, None, partition, line=line, source=source)
            latest[worker] = current
            attempts.append(current)
        if current is None:
            continue
        if event == "prove_start_spawned":
            current.spawn_to_enter_ms, current.prove_start_ms, current.spawned_ns = spawn_ms, prove_ms, log_ns
        elif event == "prove_start_returned" and current.job is None and current.partition == partition:
            current.job, current.gpu, current.kind = job, gpu, kind
    return attempts


def failed_partitions(sequence: Sequence) -> set[tuple[str | None, int | None]]:
    """Job and partition of every error line that names them."""
    errors = sequence.of("error").filter(pl.col("job").is_not_null())
    return set(errors.select("job", "partition").iter_rows())
