"""How the workers of a GPU take turns: what one does under another's hold, who waits for whom, hand-overs of the mutex.

Only where a log shows holds of the mutex by two workers or more. A wait is as long as the log prints it (floored
milliseconds, half a millisecond more), and ends at the lock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.diagnosis import Handovers, Interleaving, OffGpuWork, WaitsFor
from gputrace.analysis.segments import timed_holds
from gputrace.analysis.spans import Ints, Spans, covered_ns, crossings, merged
from gputrace.analysis.workers.shortest import Share, shortest_times
from gputrace.rows import Places, ordered, where, with_values
from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

Floats = npt.NDArray[np.float64]

# Kinds that keep a worker from its next hold, or a hold from going on. The others are beside: they keep nobody waiting.
DELAYING = ("release", "loop", "setup", "prep_msm")
_KINDS = (*DELAYING, "b_g2_msm", "finalise")
_IN_HOLD = (*LEAVES_UNDER_MUTEX, "mutex_held")
# A log prints whole milliseconds: a wait below one was none.
_WAITED_MS = 1
# More hand-overs than these that end before they begin are not the clock's error.
_IMPOSSIBLE_SHARE = 0.1
_NEVER_NS = -(1 << 62)


@dataclass(frozen=True)
class _Gpu:
    """One GPU: its calls with a lock, its holds (clamped, with raw times beside), and its segments."""

    number: int
    calls: pl.DataFrame
    holds: pl.DataFrame
    segments: pl.DataFrame

    def held(self, worker: int | None = None) -> Spans:
        """When the mutex was held, by anybody or by one worker."""
        own = self.holds if worker is None else where(self.holds, self.holds["worker"] == worker)
        return merged(own["lock_ns"], own["unlock_ns"])

    def barriers(self, worker: int) -> Spans:
        """When holds of a worker waited at the barrier."""
        waiting = where(self.in_holds, self.in_holds["name"] == "barrier_wait")
        own = where(waiting, self.workers_of(waiting["call"]) == worker)
        return merged(own["start_ns"], own["end_ns"])

    def workers_of(self, calls: pl.Series) -> Ints:
        """The worker of each of these calls; -1 where the log names none."""
        worker = np.nan_to_num(self.calls["worker"].cast(pl.Float64).to_numpy(), nan=-1.0).astype(np.int64)
        place = self.places.of(calls)
        return np.where(place >= 0, worker[place], -1)

    @cached_property
    def places(self) -> Places:
        """Where calls are among its calls."""
        return Places(self.calls["call"])

    @cached_property
    def in_holds(self) -> pl.DataFrame:
        """Its segments inside holds."""
        return where(self.segments, self.segments["name"].is_in(_IN_HOLD))

    @cached_property
    def windows(self) -> pl.DataFrame:
        """restart, start_ns, end_ns: first lock to last unlock."""
        first, last = pl.col("lock_ns").min().alias("start_ns"), pl.col("unlock_ns").max().alias("end_ns")
        return self.holds.group_by("restart").agg(first, last).sort("start_ns")


@dataclass(frozen=True)
class _Handed:
    """Each hold but the first of a restart: ms since the unlock before it, whether its worker had waited, and whether
    that is another worker than before; null where one of the two is not named."""

    ms: pl.Series
    waited: pl.Series
    switched: pl.Series


def interleavings(trace: Trace, segments: pl.DataFrame) -> tuple[Interleaving, ...]:
    """One finding for each GPU that two workers or more held; `segments` as `build_segments` makes them."""
    if trace.calls["lock_ns"].count() == 0 or trace.calls["unlock_ns"].count() == 0:
        return ()
    holds = timed_holds(trace)
    raw_lock_ns = trace.calls["lock_ns"][Places(trace.calls["call"]).of(holds["call"])]
    holds = holds.hstack([raw_lock_ns.alias("raw_lock_ns")])
    found = []
    for number in np.unique(holds["gpu"].drop_nulls().to_numpy()).tolist():
        own = where(holds, holds["gpu"] == number)
        if len(_named_workers(own)) < 2:
            continue
        calls = where(trace.calls, trace.calls["gpu"] == number)
        gpu = _Gpu(number, calls, own, ordered(where(segments, segments["gpu"] == number), "start_ns"))
        found.append(_interleaving(trace, gpu))
    return tuple(found)


def _named_workers(calls: pl.DataFrame) -> list[int]:
    """The workers that calls name, in order."""
    workers: list[int] = np.unique(calls["worker"].drop_nulls().to_numpy()).tolist()
    return workers


def _interleaving(trace: Trace, gpu: _Gpu) -> Interleaving:
    windows = gpu.windows
    window_s = float((windows["end_ns"] - windows["start_ns"]).sum()) / 1e9
    held_s = float((gpu.holds["unlock_ns"] - gpu.holds["lock_ns"]).sum()) / 1e9
    knows_queue = trace.syntheses["queued_ns"].count() > 0 and trace.syntheses["picked_up_ns"].count() > 0
    between = _between_holds(trace, gpu.calls, knows_queue)
    work = _off_gpu_work(trace, gpu, between)
    delaying = [item for item in work if item.kind in DELAYING]
    hidden, exposed = sum(item.under_other_s for item in delaying), sum(item.exposed_s for item in delaying)
    waited_s, unheld_s, waits = _waits(gpu)
    handed = _handed(gpu.holds)
    waited, unwaited = (_statistics(handed.ms.filter(handed.waited == kind)) for kind in (True, False))
    told = handed.switched.count()
    median_ms = gpu.holds["uncertainty_ms"].median()
    # Two edges, each with its own error.
    uncertainty_ms = None if median_ms is None else 2 * float(median_ms)  # type: ignore[arg-type]
    return Interleaving(
        gpu=gpu.number,
        workers=tuple(_named_workers(gpu.holds)),
        calls=gpu.holds.height,
        window_s=window_s,
        held_s=held_s,
        mutex_utilisation=held_s / window_s,
        overlap_efficiency=hidden / (hidden + exposed) if hidden + exposed > 0 else None,
        off_gpu=tuple(work),
        waited_s=waited_s,
        waited_unheld_s=unheld_s,
        waits=waits,
        handovers_waited=waited,
        handovers_unwaited=unwaited,
        handover_uncertainty_ms=uncertainty_ms,
        alternation_share=float(handed.switched.sum()) / told if told else None,
        longest_run=_longest_run(gpu.holds),
        shortest=shortest_times(_shares(trace, gpu, between)),
        notes=tuple(_notes(gpu, handed.ms, knows_queue, uncertainty_ms or 0.0)),
    )


def _notes(gpu: _Gpu, handed_ms: pl.Series, knows_queue: bool, handover_uncertainty_ms: float) -> list[str]:
    notes = []
    untimed = gpu.calls.height - with_values(gpu.calls, "lock_ns", "unlock_ns").height
    if untimed:
        notes.append(
            f"{_counted(untimed, 'call')} without both lock and unlock left out: a wait for one has no holder, and a "
            "hand-over across one looks long"
        )
    swallowed = gpu.calls.height - untimed - gpu.holds.height
    impossible = int((handed_ms < -handover_uncertainty_ms).sum())
    if swallowed or impossible > _IMPOSSIBLE_SHARE * len(handed_ms):
        notes.append(
            f"{_counted(swallowed, 'hold')} within another's, {_counted(impossible, 'hand-over')} that would end "
            "before beginning: calls of this log may be bound to the wrong GPU or partition, and its figures are "
            "doubtful"
        )
    if gpu.holds["mutex_wait_ms"].null_count():
        notes.append("calls whose wait the log does not print count as not having waited")
    if not knows_queue:
        notes.append("the log does not show the queue: time between calls counts as if work had been there")
    return notes


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# Who waits for whom.


def _waits(gpu: _Gpu) -> tuple[float, float, tuple[WaitsFor, ...]]:
    """Seconds waited, those while no call of the log held the mutex, and the rest by waiter and holder."""
    waiting = with_values(gpu.calls, "lock_ns", "worker")
    waiting = where(waiting, waiting["mutex_wait_ms"] >= _WAITED_MS)
    end = waiting["lock_ns"].to_numpy()
    start = end - ((waiting["mutex_wait_ms"].to_numpy() + 0.5) * 1e6).astype(np.int64)
    inside = gpu.in_holds
    found = crossings(start, end, Spans(inside["start_ns"].to_numpy(), inside["end_ns"].to_numpy()))
    waiter, holder = waiting["worker"].to_numpy()[found.interval], gpu.workers_of(inside["call"])[found.span]
    pieces = pl.DataFrame(
        {
            "wait": found.interval,
            "waiter": waiter,
            "holder": holder,
            "phase": inside["name"][found.span],
            "seconds": found.length_ns / 1e9,
        }
    )
    # An error of the clock can make a wait begin within the waiter's own last hold.
    pieces = where(pieces, holder != waiter)
    pairs = pieces.group_by("waiter", "holder").agg(pl.col("wait").n_unique(), pl.col("seconds").sum())
    by_phase: dict[tuple[int, int], dict[str, float]] = {}
    phases = pieces.group_by("waiter", "holder", "phase").agg(pl.col("seconds").sum())
    for one, other, phase, seconds in sorted(phases.iter_rows(), key=lambda row: (-row[3], row[2])):
        by_phase.setdefault((one, other), {})[phase] = seconds
    waits = tuple(
        WaitsFor(one, None if other < 0 else other, number, seconds, by_phase[one, other])
        for one, other, number, seconds in sorted(pairs.iter_rows())
    )
    waited_s = float((end - start).sum()) / 1e9
    return waited_s, waited_s - float(pieces["seconds"].sum()), waits


# How the mutex goes round.


def _handed(holds: pl.DataFrame) -> _Handed:
    """The hand-overs of the mutex, in order."""
    pairs = with_values(
        holds.select(
            ((pl.col("raw_lock_ns") - pl.col("unlock_ns").shift(1).over("restart")) / 1e6).alias("ms"),
            (pl.col("mutex_wait_ms").fill_null(0) >= _WAITED_MS).alias("waited"),
            (pl.col("worker") != pl.col("worker").shift(1).over("restart")).alias("switched"),
        ),
        "ms",
    )
    return _Handed(pairs["ms"], pairs["waited"], pairs["switched"])


def _longest_run(holds: pl.DataFrame) -> int:
    """Most holds of one worker in a row."""
    named = with_values(holds, "worker")
    turns = np.column_stack([named["restart"].to_numpy(), named["worker"].to_numpy()])
    begins = np.flatnonzero(np.append(True, (np.diff(turns, axis=0) != 0).any(axis=1)))
    return int(np.diff(begins, append=named.height).max(initial=0))


def _statistics(ms: pl.Series) -> Handovers:
    if ms.is_empty():
        return Handovers(0, 0.0)
    median, p95 = np.quantile(ms.to_numpy(), [0.5, 0.95])
    return Handovers(len(ms), float(ms.sum()) / 1e3, float(median), float(p95), float(np.max(ms.to_numpy())))


# What is done without the GPU.


def _between_holds(trace: Trace, calls: pl.DataFrame, knows_queue: bool) -> dict[str, pl.DataFrame]:
    """worker, call, start_ns, end_ns of release, loop and setup; a worker does one of them at a time."""
    asked = pl.col("start_ns") + (pl.col("pre_lock_cpu_ms") * 1_000_000).cast(pl.Int64)
    # Where the wait is printed, asking is that long before the lock: surer than rounding twice from the entry.
    waited = pl.when(pl.col("mutex_wait_ms") >= _WAITED_MS).then(pl.col("mutex_wait_ms") * 1_000_000 + 500_000)
    edges = ordered(with_values(calls, "worker"), "start_ns").select(
        "worker",
        "call",
        "start_ns",
        pl.coalesce(pl.col("lock_ns") - waited.otherwise(0), asked).alias("asked_ns"),
        "unlock_ns",
        "end_ns",
        pl.col("end_ns").shift(1).over("restart", "worker").alias("end_before_ns"),
    )
    loop = _lasting(edges, "end_before_ns", "start_ns")
    if knows_queue:
        loop = _clipped(loop, merged(trace.syntheses["queued_ns"], trace.syntheses["picked_up_ns"]))
    return {
        "setup": _lasting(edges, "start_ns", "asked_ns"),
        "release": _lasting(edges, "unlock_ns", "end_ns"),
        "loop": loop,
    }


def _lasting(rows: pl.DataFrame, start: str, end: str) -> pl.DataFrame:
    """worker, call, start_ns, end_ns of rows with times in the columns `start` and `end`, where any time passed."""
    named = pl.DataFrame({"worker": rows["worker"], "call": rows["call"], "start_ns": rows[start], "end_ns": rows[end]})
    return with_values(where(named, named["end_ns"] > named["start_ns"]))


def _clipped(work: pl.DataFrame, spans: Spans) -> pl.DataFrame:
    """The pieces of work (worker, call, start_ns, end_ns) that lie in spans."""
    found = crossings(work["start_ns"].to_numpy(), work["end_ns"].to_numpy(), spans)
    return pl.DataFrame(
        {
            "worker": work["worker"][found.interval],
            "call": work["call"][found.interval],
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
        }
    )


def _off_gpu_work(trace: Trace, gpu: _Gpu, between: Mapping[str, pl.DataFrame]) -> list[OffGpuWork]:
    """Each kind of work of all workers, `between` holds and beside, cut to the window, by what the mutex did then."""
    work = {**between, "finalise": _finalising(trace, gpu)}
    for name in ("prep_msm", "b_g2_msm"):
        told = trace.named_phases.of(name)
        work[name] = _lasting(where(told, gpu.places.of(told["call"]) >= 0), "start_ns", "end_ns")
    window, held = merged(gpu.windows["start_ns"], gpu.windows["end_ns"]), gpu.held()
    of_worker: dict[int, tuple[Spans, Spans]] = {}
    found = []
    for kind in _KINDS:
        inside = _clipped(work[kind], window)
        if inside.is_empty():
            continue
        other_ns = beside_own_ns = exposed_ns = 0.0
        for worker in _named_workers(inside):
            if worker not in of_worker:
                of_worker[worker] = gpu.held(worker), gpu.barriers(worker)
            own = where(inside, inside["worker"] == worker)
            start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
            any_hold = covered_ns(start, end, held)
            own_hold, barrier = (covered_ns(start, end, spans) for spans in of_worker[worker])
            other_ns += float((any_hold - own_hold).sum())
            beside_own_ns += float((own_hold - barrier).sum())
            exposed_ns += float((end - start - any_hold + barrier).sum())
        other_s, beside_own_s, exposed_s = other_ns / 1e9, beside_own_ns / 1e9, exposed_ns / 1e9
        found.append(OffGpuWork(kind, other_s + beside_own_s + exposed_s, other_s, beside_own_s, exposed_s))
    return found


def _finalising(trace: Trace, gpu: _Gpu) -> pl.DataFrame:
    """worker, call, start_ns, end_ns: from the call's end, or that of its b_g2_msm where it is later, to its finish."""
    told = with_values(trace.named_phases.of("b_g2_msm"), "end_ns")
    place = gpu.places.of(told["call"])
    g2_ns = np.full(gpu.calls.height, _NEVER_NS)
    np.maximum.at(g2_ns, place[place >= 0], told["end_ns"].to_numpy()[place >= 0])
    ends = gpu.calls["end_ns"]
    end_ns = (ends.fill_null(_NEVER_NS) if ends.null_count() else ends).to_numpy()
    begins = gpu.calls[["worker", "call", "finish_ns"]].hstack([pl.Series("begin_ns", np.maximum(end_ns, g2_ns))])
    return _lasting(where(begins, begins["begin_ns"] > _NEVER_NS), "begin_ns", "finish_ns")


# What the shortest time needs.


def _shares(trace: Trace, gpu: _Gpu, between: Mapping[str, pl.DataFrame]) -> list[Share]:
    """Per restart: seconds inside holds, and what each worker did between its own holds (`_between_holds`)."""
    late_s = _late_prep_s(trace, gpu, between["setup"])
    length_s = (pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9
    shares = []
    for restart in gpu.windows["restart"]:
        holds = where(gpu.holds, gpu.holds["restart"] == restart)
        inside = where(gpu.in_holds, Places(holds["call"]).of(gpu.in_holds["call"]) >= 0)
        workers = _named_workers(holds)
        turning_ns, late_prep_s = 0, 0.0
        for worker in workers:
            own = where(holds, holds["worker"] == worker)
            # What lies before a worker's first hold and after its last keeps no hold of its own apart.
            first_ns, last_ns = own["lock_ns"].min(), own["unlock_ns"].max()
            for work in between.values():
                turns = (work["worker"] == worker) & (work["start_ns"] >= first_ns) & (work["end_ns"] <= last_ns)
                turning_ns += int((work["end_ns"] - work["start_ns"]).filter(turns).sum())
            late_prep_s += float(late_s[gpu.places.of(own["call"][1:])].sum())
        shares.append(
            Share(
                workers=max(1, len(workers)),
                in_hold_s=dict(sorted(inside.group_by("name").agg(length_s.alias("seconds")).iter_rows())),
                turning_s=turning_ns / 1e9,
                late_prep_s=late_prep_s,
            )
        )
    return shares


def _late_prep_s(trace: Trace, gpu: _Gpu, setup: pl.DataFrame) -> Floats:
    """By how much the preparation of each call and what follows it exceed its setup and hold, seconds; 0 where not."""
    follow = trace.named_phases.any_of(["split_vectors", "prep_msm", "batch_add", "tail_msm"])
    held = where(gpu.in_holds, gpu.in_holds["name"] != "barrier_wait")
    prepared_ms = gpu.places.sums(follow["call"], follow["duration_ms"])
    held_ns = gpu.places.sums(held["call"], held["end_ns"] - held["start_ns"])
    setup_ns = gpu.places.sums(setup["call"], setup["end_ns"] - setup["start_ns"])
    is_told = (gpu.places.counts(follow["call"]) > 0) & (gpu.places.counts(held["call"]) > 0)
    late_s = np.maximum(prepared_ms / 1e3 - setup_ns / 1e9 - held_ns / 1e9, 0.0)
    return np.where(is_told, late_s, 0.0)
