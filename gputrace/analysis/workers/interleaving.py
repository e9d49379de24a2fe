"""How the workers of a GPU take turns: what one does under another's hold, who waits for whom, hand-overs of the mutex.

Only where a log shows holds of the mutex by two workers or more. A wait is as long as the log prints it (floored
milliseconds, half a millisecond more), and ends at the lock.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import Handovers, Interleaving, OffGpuWork, WaitsFor
from gputrace.analysis.segments import timed_holds
from gputrace.analysis.spans import Ints, Spans, covered_ns, crossings, merged
from gputrace.analysis.workers.shortest import Share, shortest_times
from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

# Kinds that keep a worker from its next hold, or a hold from going on. The others are beside: they keep nobody waiting.
DELAYING = ("release", "loop", "setup", "prep_msm")
_KINDS = (*DELAYING, "b_g2_msm", "finalise")
_IN_HOLD = (*LEAVES_UNDER_MUTEX, "mutex_held")
# A log prints whole milliseconds: a wait below one was none.
_WAITED_MS = 1
# More hand-overs than these that end before they begin are not the clock's error.
_IMPOSSIBLE_SHARE = 0.1


@dataclass(frozen=True)
class _Gpu:
    """One GPU: its calls with a lock, its holds (clamped, with raw times beside), and its segments."""

    number: int
    calls: pl.DataFrame
    holds: pl.DataFrame
    segments: pl.DataFrame

    def held(self, worker: int | None = None) -> Spans:
        """When the mutex was held, by anybody or by one worker."""
        own = self.holds if worker is None else self.holds.filter(pl.col("worker") == worker)
        return merged(own["lock_ns"], own["unlock_ns"])

    def barriers(self, worker: int) -> Spans:
        """When holds of a worker waited at the barrier."""
        own = self.calls.filter(pl.col("worker") == worker)["call"].implode()
        waiting = self.segments.filter((pl.col("name") == "barrier_wait") & pl.col("call").is_in(own))
        return merged(waiting["start_ns"], waiting["end_ns"])

    @property
    def windows(self) -> pl.DataFrame:
        """restart, start_ns, end_ns: first lock to last unlock."""
        spans = self.holds.group_by("restart").agg(pl.col("lock_ns").min(), pl.col("unlock_ns").max())
        return spans.sort("lock_ns").rename({"lock_ns": "start_ns", "unlock_ns": "end_ns"})


def interleavings(trace: Trace, segments: pl.DataFrame) -> tuple[Interleaving, ...]:
    """One finding for each GPU that two workers or more held; `segments` as `build_segments` makes them."""
    if trace.calls["lock_ns"].count() == 0 or trace.calls["unlock_ns"].count() == 0:
        return ()
    raw = trace.calls.select("call", pl.col("lock_ns").alias("raw_lock_ns"))
    holds = timed_holds(trace).join(raw, on="call").sort("gpu", "lock_ns")
    found = []
    for (number,), own in holds.group_by("gpu", maintain_order=True):
        if number is None or own["worker"].drop_nulls().n_unique() < 2:
            continue
        of_gpu = pl.col("gpu") == number
        gpu = _Gpu(int(str(number)), trace.calls.filter(of_gpu), own, segments.filter(of_gpu).sort("start_ns"))
        found.append(_interleaving(trace, gpu))
    return tuple(found)


def _interleaving(trace: Trace, gpu: _Gpu) -> Interleaving:
    windows = gpu.windows
    window_s = float((windows["end_ns"] - windows["start_ns"]).sum()) / 1e9
    held_s = float((gpu.holds["unlock_ns"] - gpu.holds["lock_ns"]).sum()) / 1e9
    knows_queue = trace.syntheses["queued_ns"].count() > 0 and trace.syntheses["picked_up_ns"].count() > 0
    between = _between_holds(trace, gpu, knows_queue)
    work = _off_gpu_work(trace, gpu, between)
    delaying = [item for item in work if item.kind in DELAYING]
    hidden, exposed = sum(item.under_other_s for item in delaying), sum(item.exposed_s for item in delaying)
    waited_s, unheld_s, waits = _waits(gpu)
    waited, unwaited, alternation, longest = _handovers(gpu.holds)
    median_ms = gpu.holds["uncertainty_ms"].median()
    # Two edges, each with its own error.
    uncertainty_ms = None if median_ms is None else 2 * float(median_ms)  # type: ignore[arg-type]
    return Interleaving(
        gpu=gpu.number,
        workers=tuple(sorted(gpu.holds["worker"].drop_nulls().unique().to_list())),
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
        alternation_share=alternation,
        longest_run=longest,
        shortest=shortest_times(_shares(trace, gpu, between)),
        notes=tuple(_notes(gpu, knows_queue, uncertainty_ms or 0.0)),
    )


def _notes(gpu: _Gpu, knows_queue: bool, handover_uncertainty_ms: float) -> list[str]:
    notes = []
    untimed = gpu.calls.filter(pl.col("lock_ns").is_null() | pl.col("unlock_ns").is_null()).height
    if untimed:
        notes.append(
            f"{_counted(untimed, 'call')} without both lock and unlock left out: a wait for one has no holder, and a "
            "hand-over across one looks long"
        )
    swallowed = gpu.calls.height - untimed - gpu.holds.height
    handed = _handover_ms(gpu.holds)["ms"]
    impossible = int((handed < -handover_uncertainty_ms).sum())
    if swallowed or impossible > _IMPOSSIBLE_SHARE * len(handed):
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
    waiting = gpu.calls.filter(
        (pl.col("mutex_wait_ms") >= _WAITED_MS) & pl.col("lock_ns").is_not_null() & pl.col("worker").is_not_null()
    )
    end = waiting["lock_ns"].to_numpy()
    start = end - ((waiting["mutex_wait_ms"].to_numpy() + 0.5) * 1e6).astype(np.int64)
    inside = gpu.segments.filter(pl.col("name").is_in(_IN_HOLD)).join(
        gpu.calls.select("call", "worker"), on="call", how="left", maintain_order="left"
    )
    found = crossings(start, end, Spans(inside["start_ns"].to_numpy(), inside["end_ns"].to_numpy()))
    pieces = pl.DataFrame(
        {
            "wait": found.interval,
            "waiter": waiting["worker"].gather(found.interval),
            "holder": inside["worker"].gather(found.span),
            "phase": inside["name"].gather(found.span),
            "seconds": found.length_ns / 1e9,
        }
    )
    # An error of the clock can make a wait begin within the waiter's own last hold.
    pieces = pieces.filter(pl.col("holder").is_null() | (pl.col("holder") != pl.col("waiter")))
    waits = []
    for (waiter, holder), own in pieces.sort("waiter", "holder").group_by("waiter", "holder", maintain_order=True):
        phases = own.group_by("phase").agg(pl.col("seconds").sum()).sort("seconds", "phase", descending=[True, False])
        waits.append(
            WaitsFor(
                waiter=int(str(waiter)),
                holder=None if holder is None else int(str(holder)),
                waits=own["wait"].n_unique(),
                total_s=float(own["seconds"].sum()),
                by_phase_s=dict(phases.iter_rows()),
            )
        )
    waited_s = float((end - start).sum()) / 1e9
    return waited_s, waited_s - float(pieces["seconds"].sum()), tuple(waits)


# How the mutex goes round.


def _handovers(holds: pl.DataFrame) -> tuple[Handovers, Handovers, float | None, int]:
    """Hand-overs to one who waited and to one who did not, share that went to another worker, most holds in a row."""
    pairs = _handover_ms(holds)
    runs = holds.drop_nulls("worker").select(pl.struct("restart", "worker").rle_id().alias("run"))["run"]
    switched = pairs["switched"].drop_nulls()
    return (
        _statistics(pairs.filter("waited")["ms"]),
        _statistics(pairs.filter(~pl.col("waited"))["ms"]),
        float(switched.sum()) / len(switched) if len(switched) else None,
        int(runs.value_counts()["count"].max() or 0),  # type: ignore[arg-type]
    )


def _handover_ms(holds: pl.DataFrame) -> pl.DataFrame:
    """One row for each hold but the first of a restart: ms since the unlock before it, waited, switched worker."""
    return holds.select(
        ((pl.col("raw_lock_ns") - pl.col("unlock_ns").shift(1).over("restart")) / 1e6).alias("ms"),
        (pl.col("mutex_wait_ms").fill_null(0) >= _WAITED_MS).alias("waited"),
        (pl.col("worker") != pl.col("worker").shift(1).over("restart")).alias("switched"),
    ).drop_nulls("ms")


def _statistics(ms: pl.Series) -> Handovers:
    if ms.is_empty():
        return Handovers(0, 0.0)
    median, p95 = np.quantile(ms.to_numpy(), [0.5, 0.95])
    return Handovers(len(ms), float(ms.sum()) / 1e3, float(median), float(p95), float(np.max(ms.to_numpy())))


# What is done without the GPU.


def _between_holds(trace: Trace, gpu: _Gpu, knows_queue: bool) -> pl.DataFrame:
    """worker, call, kind, start_ns, end_ns of release, loop and setup; a worker does one of them at a time."""
    calls = gpu.calls.drop_nulls("worker").sort("start_ns")
    asked = pl.col("start_ns") + (pl.col("pre_lock_cpu_ms") * 1_000_000).cast(pl.Int64)
    # Where the wait is printed, asking is that long before the lock: surer than rounding twice from the entry.
    waited = pl.when(pl.col("mutex_wait_ms") >= _WAITED_MS).then(pl.col("mutex_wait_ms") * 1_000_000 + 500_000)
    asked = pl.coalesce(pl.col("lock_ns") - waited.otherwise(0), asked)
    own = ["worker", "call", "kind", "start_ns", "end_ns"]
    setup = calls.select("worker", "call", pl.lit("setup").alias("kind"), "start_ns", asked.alias("end_ns"))
    release = calls.select(
        "worker", "call", pl.lit("release").alias("kind"), pl.col("unlock_ns").alias("start_ns"), "end_ns"
    )
    loop = calls.select(
        "worker",
        "call",
        pl.lit("loop").alias("kind"),
        pl.col("end_ns").shift(1).over("restart", "worker").alias("end_before_ns"),
        pl.col("start_ns").alias("end_ns"),
    ).rename({"end_before_ns": "start_ns"})
    if knows_queue:
        queued = merged(trace.syntheses["queued_ns"], trace.syntheses["picked_up_ns"])
        loop = _clipped(loop.drop_nulls(), queued)
    return pl.concat([part.select(own).drop_nulls() for part in (setup, release, loop)]).filter(
        pl.col("end_ns") > pl.col("start_ns")
    )


def _clipped(work: pl.DataFrame, spans: Spans) -> pl.DataFrame:
    """The pieces of work (start_ns, end_ns, ...) that lie in spans."""
    found = crossings(work["start_ns"].to_numpy(), work["end_ns"].to_numpy(), spans)
    return work[found.interval].with_columns(
        pl.Series("start_ns", found.start_ns, pl.Int64), pl.Series("end_ns", found.end_ns, pl.Int64)
    )


def _off_gpu_work(trace: Trace, gpu: _Gpu, between: pl.DataFrame) -> list[OffGpuWork]:
    """Each kind of work of all workers, `between` holds and beside, cut to the window, by what the mutex did then."""
    own = ["worker", "call", "kind", "start_ns", "end_ns"]
    of_gpu = pl.col("call").is_in(gpu.calls["call"].implode())
    beside = trace.phases.filter(of_gpu & pl.col("name").is_in(["prep_msm", "b_g2_msm"])).rename({"name": "kind"})
    joined = beside.filter(pl.col("kind") == "b_g2_msm").group_by("call").agg(pl.col("end_ns").max().alias("g2_ns"))
    finalise = gpu.calls.join(joined, on="call", how="left").select(
        "worker",
        "call",
        pl.lit("finalise").alias("kind"),
        pl.max_horizontal("end_ns", "g2_ns").alias("start_ns"),
        pl.col("finish_ns").alias("end_ns"),
    )
    work = pl.concat(
        [between, beside.select(own).drop_nulls(), finalise.drop_nulls()],
        how="vertical_relaxed",
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    work = _clipped(work, merged(gpu.windows["start_ns"], gpu.windows["end_ns"]))
    held = gpu.held()
    of_worker = {number: (gpu.held(number), gpu.barriers(number)) for number in work["worker"].unique()}
    parts: dict[str, list[tuple[Ints, Ints, Ints]]] = {}
    for (kind, worker), some in work.group_by("kind", "worker", maintain_order=True):
        start, end = some["start_ns"].to_numpy(), some["end_ns"].to_numpy()
        own_held, own_barriers = of_worker[int(str(worker))]
        any_hold = covered_ns(start, end, held)
        own_hold = covered_ns(start, end, own_held)
        barrier = covered_ns(start, end, own_barriers)
        parts.setdefault(str(kind), []).append(
            (any_hold - own_hold, own_hold - barrier, end - start - any_hold + barrier)
        )
    found = []
    for kind in _KINDS:
        if kind in parts:
            other, beside_own, exposed = (sum(float(part[i].sum()) for part in parts[kind]) / 1e9 for i in range(3))
            found.append(OffGpuWork(kind, other + beside_own + exposed, other, beside_own, exposed))
    return found


# What the shortest time needs.


def _shares(trace: Trace, gpu: _Gpu, between: pl.DataFrame) -> list[Share]:
    """Per restart: seconds inside holds, and what each worker did between its own holds (`_between_holds`)."""
    late = _late_prep_s(trace, gpu, between)
    length_s = (pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9
    shares = []
    for restart in gpu.windows["restart"]:
        holds = gpu.holds.filter(pl.col("restart") == restart)
        ends = holds.drop_nulls("worker").group_by("worker").agg(pl.col("lock_ns").min(), pl.col("unlock_ns").max())
        inside = gpu.segments.filter(pl.col("call").is_in(holds["call"].implode()) & pl.col("name").is_in(_IN_HOLD))
        # What lies before a worker's first hold and after its last keeps no hold of its own apart.
        turning = between.join(ends, on="worker").filter(
            (pl.col("start_ns") >= pl.col("lock_ns")) & (pl.col("end_ns") <= pl.col("unlock_ns"))
        )
        first = pl.int_range(pl.len()).over("worker") == 0
        repeated = holds.drop_nulls("worker").filter(~first)
        shares.append(
            Share(
                workers=max(1, ends.height),
                in_hold_s=dict(inside.group_by("name").agg(length_s.alias("seconds")).sort("name").iter_rows()),
                turning_s=float(turning.select(length_s).item()),
                late_prep_s=float(late.filter(pl.col("call").is_in(repeated["call"].implode()))["late_s"].sum()),
            )
        )
    return shares


def _late_prep_s(trace: Trace, gpu: _Gpu, between: pl.DataFrame) -> pl.DataFrame:
    """call, late_s: by how much a call's preparation and what follows it exceed its setup and hold; 0 where not."""
    follow = ["split_vectors", "prep_msm", "batch_add", "tail_msm"]
    prepared = (
        trace.phases.filter(pl.col("name").is_in(follow))
        .group_by("call")
        .agg((pl.col("duration_ms").sum() / 1e3).alias("prepared_s"))
    )
    length_s = (pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9
    setup = between.filter(pl.col("kind") == "setup").group_by("call").agg(length_s.alias("setup_s"))
    held = (
        gpu.segments.filter(pl.col("name").is_in(_IN_HOLD) & (pl.col("name") != "barrier_wait"))
        .group_by("call")
        .agg(length_s.alias("held_s"))
    )
    late = pl.col("prepared_s") - pl.col("setup_s").fill_null(0.0) - pl.col("held_s")
    joined = prepared.join(held, on="call").join(setup, on="call", how="left")
    return joined.select("call", late.clip(0.0).alias("late_s"))
