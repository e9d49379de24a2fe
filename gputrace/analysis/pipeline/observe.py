"""What happened to each call and synthesis of one run of the prover, in seconds since its first event."""

import math
from dataclasses import dataclass, field

import polars as pl

from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

MIN_CALLS = 8
# More calls say no more of the pipeline, and every prediction replays them dozens of times.
MOST_CALLS = 80
# Pickups and entries are known to some milliseconds.
_EDGE_S = 0.02

_LEAVES = tuple(name for name in LEAVES_UNDER_MUTEX if name != "barrier_wait")


class NotReplayableError(Exception):
    """The log does not show what the model needs; the message says what is missing."""


@dataclass
class CallSeen:
    """One call. `leaves` are seconds by phase under the mutex; what the log does not show is None.

    `stalled`: seconds by phase in which allocations of pinned buffers held it up, where that was charged.
    """

    call: int
    job: str
    partition: int | None
    kind: str
    gpu: int
    worker: int
    pinned: bool
    warmup: bool
    circuits: int
    entry: float
    lock: float
    unlock: float
    returned: float
    pre_lock: float
    mutex_wait: float
    barrier_wait: float
    leaves: dict[str, float]
    pickup: float | None = None
    prep_start: float | None = None
    prep_end: float | None = None
    b_g2_end: float | None = None
    ntt_start: float | None = None
    finished: float | None = None
    synthesis: int | None = None
    stalled: dict[str, float] = field(default_factory=dict)

    @property
    def held(self) -> float:
        """Seconds from lock to unlock."""
        return self.unlock - self.lock


@dataclass
class SynthesisSeen:
    """One synthesis; `queued` is None where it had not ended when the log did."""

    start: float
    queued: float | None
    picked_up: float | None
    job: str
    partition: int | None
    pinned: bool
    order: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Observed:
    """Calls in order of locks, syntheses in order of starts; `end` is the last thing seen."""

    calls: list[CallSeen]
    syntheses: list[SynthesisSeen]
    origin_ns: int
    end: float
    total_calls: int
    notes: list[str] = field(default_factory=list)


def observe(trace: Trace, most_calls: int = MOST_CALLS) -> Observed:
    """The restart with most calls; of a long one the last `most_calls`. Raises `NotReplayableError`."""
    usable = trace.calls.filter(
        "complete", ~pl.col("failed"), pl.all_horizontal(pl.col("start_ns", "lock_ns", "unlock_ns").is_not_null())
    )
    if usable.is_empty():
        raise NotReplayableError("no call of the log has a place in time")
    notes = []
    restarts = usable["restart"].value_counts().sort("count", "restart", descending=[True, False])
    usable = usable.filter(pl.col("restart") == restarts["restart"][0]).sort("lock_ns")
    if restarts.height > 1:
        notes.append(f"replays the run with most calls of {restarts.height} (restarts are left out)")
    if usable.height < MIN_CALLS:
        raise NotReplayableError(f"only {usable.height} complete calls; {MIN_CALLS} are needed")
    total = usable.height
    if total > most_calls:
        notes.append(f"replays the last {most_calls} of {total} calls")
        usable = usable.tail(most_calls)
    spans = _spans(trace, usable)
    if not any("tail_msm" in own for own in spans.values()):
        raise NotReplayableError("the log has no C++ lines that time the phases (CUZK_TIMING on stderr)")
    syntheses = _syntheses(trace, usable)
    known = [t for t in (usable["start_ns"].min(), syntheses["start_ns"].min()) if isinstance(t, int)]
    origin_ns = min(known)

    def at(time_ns: int | None) -> float | None:
        return None if time_ns is None else (time_ns - origin_ns) / 1e9

    job_order = {job: n for n, job in enumerate(syntheses["job"].unique(maintain_order=True).to_list())}
    seen = [
        SynthesisSeen(
            start=(row["start_ns"] - origin_ns) / 1e9,
            queued=at(row["queued_ns"] if row["queued_ns"] is not None else row["end_ns"]),
            picked_up=at(row["picked_up_ns"]),
            job=str(row["job"]),
            partition=row["partition"],
            pinned=bool(row["pinned"]),
            order=(job_order[row["job"]], row["partition"] or 0),
        )
        for row in syntheses.iter_rows(named=True)
    ]
    calls = [_call(row, spans.get(row["call"], {}), origin_ns) for row in usable.iter_rows(named=True)]
    _pair_up(calls, seen)
    last = max([call.returned for call in calls] + [s.queued or s.start for s in seen])
    return Observed(calls, seen, origin_ns, last, total, notes)


def _pair_up(calls: list[CallSeen], syntheses: list[SynthesisSeen]) -> None:
    """Gives each call its synthesis: of its job and partition, the one last picked up before its entry.

    Job ids are used again, whole proofs have no partition, and WindowPoSt's pickups name none: there, the one of the
    job that had waited longest.
    """
    of_job: dict[str, list[int]] = {}
    for n, one in enumerate(syntheses):
        of_job.setdefault(one.job, []).append(n)
    for call in sorted(calls, key=lambda call: call.entry):
        free = of_job.get(call.job, [])
        picked = [
            n for n in free
            if syntheses[n].partition == call.partition and (syntheses[n].picked_up or math.inf) <= call.entry + _EDGE_S
        ]  # fmt: skip
        waited = [n for n in free if syntheses[n].picked_up is None and (syntheses[n].queued or math.inf) <= call.entry]
        if picked:
            call.synthesis = max(picked, key=lambda n: syntheses[n].picked_up or 0.0)
            call.pickup = syntheses[call.synthesis].picked_up
        elif waited:
            call.synthesis = min(waited, key=lambda n: syntheses[n].queued or 0.0)
        if call.synthesis is not None:
            free.remove(call.synthesis)


def _spans(trace: Trace, calls: pl.DataFrame) -> dict[int, dict[str, tuple[float, int | None, int | None]]]:
    """Per call and phase: seconds (of all circuits), first start, last end."""
    phases = (
        trace.phases.join(calls.select("call"), on="call", how="semi")
        .group_by("call", "name")
        .agg(pl.col("duration_ms").sum() / 1e3, pl.col("start_ns").min(), pl.col("end_ns").max())
    )
    spans: dict[int, dict[str, tuple[float, int | None, int | None]]] = {}
    for call, name, seconds, start_ns, end_ns in phases.iter_rows():
        spans.setdefault(call, {})[name] = (max(0.0, seconds or 0.0), start_ns, end_ns)
    return spans


def _syntheses(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Syntheses of the calls and of those after them, in order of starts."""
    own = trace.syntheses.filter(
        (pl.col("restart") == calls["restart"][0]) & pl.col("start_ns").is_not_null() & pl.col("job").is_not_null()
    )
    kept = calls.select("job", "partition", pl.lit(True).alias("kept")).unique()
    own = own.join(kept, on=["job", "partition"], how="left", nulls_equal=True, maintain_order="left")
    before = (pl.col("picked_up_ns") < calls["start_ns"].min()).fill_null(False)
    # Those of a burst begin within some milliseconds of one another; the engine starts them by partition.
    together = pl.col("start_ns") // 50_000_000
    return own.filter(pl.col("kept").fill_null(False) | ~before).sort(together, pl.col("partition"), "start_ns")


def _call(row: dict[str, object], spans: dict[str, tuple[float, int | None, int | None]], origin_ns: int) -> CallSeen:
    def at(time_ns: object) -> float | None:
        return (time_ns - origin_ns) / 1e9 if isinstance(time_ns, int) else None

    def edge(name: str, which: int) -> float | None:
        return at(spans[name][which]) if name in spans else None

    def seconds(column: str) -> float:
        value = row[column]
        return value / 1e3 if isinstance(value, int) else 0.0

    entry, lock, unlock = (at(row[name]) for name in ("start_ns", "lock_ns", "unlock_ns"))
    assert entry is not None and lock is not None and unlock is not None
    leaves = {name: spans[name][0] for name in _LEAVES if name in spans}
    if "ntt_kernels" not in leaves:
        # Builds before CUZK_NTT_H time the NTT and the H MSM together.
        leaves["ntt_kernels"] = seconds("ntt_msm_h_ms")
    if "barrier_wait" in spans:
        barrier = spans["barrier_wait"][0]
    else:
        # Older builds do not print it: what gpu_total has beyond its parts.
        parts = seconds("ntt_msm_h_ms") + leaves.get("batch_add", 0.0) + leaves.get("tail_msm", 0.0)
        barrier = max(0.0, seconds("gpu_total_ms") - parts) if row["gpu_total_ms"] is not None else 0.0
    returned = at(row["end_ns"])
    pre_lock = seconds("pre_lock_cpu_ms")
    worker, gpu, circuits = row["worker"], row["gpu"], row["num_circuits"]
    return CallSeen(
        call=int(str(row["call"])),
        job=str(row["job"]),
        partition=partition if isinstance(partition := row["partition"], int) else None,
        kind=str(row["kind"]),
        gpu=gpu if isinstance(gpu, int) else 0,
        worker=worker if isinstance(worker, int) else 0,
        pinned=bool(row["pinned"]),
        warmup=bool(row["warmup"]),
        circuits=circuits if isinstance(circuits, int) else 1,
        entry=entry,
        lock=lock,
        unlock=unlock,
        returned=unlock + seconds("release_abc_ms") if returned is None else max(returned, unlock),
        pre_lock=min(pre_lock, lock - entry),
        mutex_wait=max(0.0, lock - entry - pre_lock),
        barrier_wait=barrier,
        leaves=leaves,
        prep_start=edge("prep_msm", 1),
        prep_end=edge("prep_msm", 2),
        b_g2_end=edge("b_g2_msm", 2),
        ntt_start=edge("ntt_kernels", 1),
        finished=at(row["finish_ns"]),
    )
