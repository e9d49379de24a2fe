"""What the pipeline model takes and gives: service times and limits in, a schedule out. No log formats here."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from gputrace.simulate.disturbance import Disturbance
from gputrace.simulate.events import Task

NTT_PHASES = ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor")


@dataclass(frozen=True)
class CallWork:
    """One partition's service times, seconds: how long each step takes when nothing else is in its way.

    The six NTT phases are per circuit; `constraints` and `domain_log2` are a circuit's size, for what is copied.
    `prep_msm` and `b_g2_msm` are what they take with their threads to themselves.
    `pinned_copy` is the first part of coset_intt_sync, in which pinned a/b/c come over the wire.
    `pre_lock` counts from the entry and includes `setup`. `fails` is None, ntt, batch_add, tail or finalize.
    `arrives` is when the partition can be synthesised, `enqueued` when its job was submitted (NaN: just before). Where
    limits changed during a run, `parallel_syntheses` and `in_flight` say how many there may be when this one begins
    (0: the limits of the run).
    """

    job: str
    partition: int | None
    kind: str = "porep-c2"
    attempt: int = 0
    arrives: float = 0.0
    enqueued: float = math.nan
    parallel_syntheses: int = 0
    in_flight: int = 0
    pinned: bool = False
    new_buffers: int = 0
    num_circuits: int = 1
    domain_log2: int = 27
    constraints: int = 130_278_869
    construct: float = 0.001
    synth: float = 30.0
    hot_path: float = 0.0001
    spawn: float = 0.0001
    split_vectors: float = 0.0275
    setup: float = 0.0285
    pre_lock: float = 0.0302
    d_b_alloc: float = 0.0003
    ntt_kernels: float = 1.0
    pinned_copy: float = 0.0
    coset_intt_sync: float = 0.122
    msm_init: float = 0.0013
    msm_invoke: float = 0.631
    msm_dtor: float = 0.0002
    batch_add: float = 0.402
    tail_msm: float = 0.197
    after_gpu: float = 0.006
    prep_msm: float = 1.6
    b_g2_msm: float = 0.5
    release_abc: float = 0.4
    finish: float = 0.001
    process: float = 0.003
    dealloc: float = 0.045
    fails: str | None = None

    def but(self, **changes: object) -> "CallWork":
        """The same work with other values: as `dataclasses.replace`, which takes twenty times as long."""
        changed = object.__new__(CallWork)
        object.__setattr__(changed, "__dict__", self.__dict__ | changes)
        return changed


@dataclass(frozen=True)
class Limits:
    """What the pipeline has: places, workers, threads; and small delays, seconds.

    `copy_slowdown` and `prep_slowdown` are what each running synthesis adds to the duration of a pageable copy and of
    prep_msm and b_g2_msm (0.05: ten syntheses make it half as long again). While a pinned buffer is being allocated
    (`allocate` seconds each, one after another), d_b_alloc, NTT and MSM phases go on at `allocation_rate`.

    `pool_order` is how the C++ pool serves prep_msm and b_g2_msm: fifo (a parallel loop takes all threads of a task and
    those behind it wait: what sppark's pool does, and what real captures show) or shared (all go on, each slower).
    `queue_order`: which synthesised partition a worker takes: fifo, or the first of its job (partition). `place_freed`
    says when a partition gives up its place among those in flight: pickup, returned or finalised. `workers_ready`: when
    each worker first looks for work (those beyond it: at once). Without `barrier` the GPU thread does not wait for
    prep_msm.
    `tracked_hot_path`: before a call the worker takes the job tracker, which finalizers hold while they trim the heap.
    """

    gpus: int = 1
    workers_per_gpu: int = 2
    parallel_syntheses: int = 18
    in_flight: int = 24
    pool_threads: float = 6.0
    threads_per_task: float = 6.0
    pool_order: str = "fifo"
    queue_order: str = "fifo"
    place_freed: str = "finalised"
    workers_ready: tuple[float, ...] = ()
    barrier: bool = True
    fifo_mutex: bool = True
    copy_slowdown: float = 0.0
    prep_slowdown: float = 0.0
    allocate: float = 0.5
    allocation_rate: float = 1.0
    line_rate: float = 55e9
    tracked_hot_path: bool = False
    whole_call_mutex: bool = False
    split_api: bool = True
    warmup_alloc: float = 0.7
    allocate_d_a: float = 0.004
    start_up: float = 0.001
    handover: float = 0.00008
    launch: float = 0.00015
    ntt_tail: float = 0.0001
    wake_up: float = 0.00006
    turn_around: float = 0.0002
    push: float = 0.0003


class Span(NamedTuple):
    """One phase of a call; `circuit` counts where a phase happens once per circuit."""

    name: str
    start: float
    end: float
    circuit: int = 0


@dataclass(slots=True)
class SynthesisRecord:
    """One synthesis. Times are NaN where something did not happen; `skipped`: its job had failed before."""

    index: int
    work: CallWork
    start: float
    begun: float = math.nan
    allocated: list[float] = field(default_factory=list)
    work_begun: float = math.nan
    end: float = math.nan
    queued: float = math.nan
    skipped: bool = False


@dataclass(slots=True)
class CallTimes:
    """What waits and holds of one pass of a worker are read from. Times are NaN where something did not happen."""

    index: int
    work: CallWork
    gpu: int
    worker: int
    pickup: float = math.nan
    split_end: float = math.nan
    asked: float = math.nan
    lock: float = math.nan
    barrier_begin: float = math.nan
    barrier_end: float = math.nan
    unlock: float = math.nan
    returned: float = math.nan
    b_g2_end: float = math.nan

    @property
    def mutex_wait(self) -> float:
        """Seconds from asking for the mutex to having it."""
        return self.lock - self.asked

    @property
    def mutex_held(self) -> float:
        """Seconds from lock to unlock."""
        return self.unlock - self.lock

    @property
    def barrier_wait(self) -> float:
        """Seconds in which the GPU thread waited for prep_msm."""
        return self.barrier_end - self.barrier_begin


@dataclass
class CallRecord(CallTimes):
    """One pass of a worker in detail.

    `outcome` is ok, ntt, batch_add, tail, finalize (it failed there), skipped (its job had failed), discarded (its job
    failed before it was finished) or open (the run was cut off). `held_end` is when the last line under the mutex gets
    its figures; `blocked` has, by the line under the mutex that was printed then, when its thread waited for the log.
    """

    warmup: bool = False
    new_domain: bool = False
    skipped: bool = False
    outcome: str = "ok"
    failed_at: float = math.nan
    status_end: float = math.nan
    checked: float = math.nan
    started: float = math.nan
    entry: float = math.nan
    gpu_begin: float = math.nan
    ntt_end: float = math.nan
    gpu_end: float = math.nan
    held_end: float = math.nan
    prep_end: float = math.nan
    joined: float = math.nan
    finished: float = math.nan
    tracker_wait: float = 0.0
    finalised: float = math.nan
    dealloc_begin: float = math.nan
    dealloc_end: float = math.nan
    gpu_spans: list[Span] = field(default_factory=list)
    pinned_copies: list[Span] = field(default_factory=list)
    blocked: dict[str, tuple[float, float]] = field(default_factory=dict)
    prep_stopped: bool = False
    prep_task: Task | None = field(default=None, repr=False, compare=False)

    def add_span(self, name: str, start: float, end: float, circuit: int = 0) -> None:
        """Adds a phase of the GPU thread."""
        self.gpu_spans.append(Span(name, start, end, circuit))

    def fail(self, where: str, at: float) -> None:
        """Notes where and when the call failed."""
        self.outcome, self.failed_at = where, at

    def printed(self, line: str, otherwise: float) -> float:
        """When a line under the mutex was written: after its thread had waited for the log, if it had to."""
        return self.blocked[line][1] if line in self.blocked else otherwise

    def span(self, name: str, circuit: int = 0) -> Span | None:
        """The phase of that name, None if it did not happen."""
        return next((span for span in self.gpu_spans if span.name == name and span.circuit == circuit), None)

    @property
    def spans(self) -> list[Span]:
        """Every phase that happened, on the GPU thread and beside it, in order of their names' threads."""
        edges = (
            ("pre_lock", self.entry, self.asked),
            ("mutex_wait", self.asked, self.lock),
            ("mutex_held", self.lock, self.unlock),
            ("ntt_msm_h", self.gpu_begin, self.ntt_end),
            ("gpu_total", self.gpu_begin, self.gpu_end),
            ("prep_msm", self.split_end, self.prep_end),
            ("b_g2_msm", self.prep_end, self.b_g2_end),
            ("release_abc", self.unlock, self.returned),
            ("async_dealloc", self.dealloc_begin, self.dealloc_end),
        )
        beside = [Span(name, start, end) for name, start, end in edges if not math.isnan(start + end)]
        return beside + self.gpu_spans


@dataclass(frozen=True)
class Outline:
    """When calls held and waited, without what happened inside. In order of pickup and of start, as in a `Schedule`."""

    limits: Limits
    calls: list[CallTimes] = field(default_factory=list)
    syntheses: list[SynthesisRecord] = field(default_factory=list)


@dataclass(frozen=True)
class JobRecord:
    """One job: first synthesis to last proof."""

    job: str
    attempt: int
    partitions: int
    start: float
    done: int
    end: float


@dataclass
class Schedule:
    """What happened when. Calls are in order of pickup, syntheses in order of start.

    `partitions` has how many partitions each (job, attempt) was given, `allocations` when a pinned buffer was being
    allocated (start, end), one after another.
    """

    limits: Limits
    partitions: dict[tuple[str, int], int] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    syntheses: list[SynthesisRecord] = field(default_factory=list)
    allocations: list[tuple[float, float]] = field(default_factory=list)
    disturbance: Disturbance = field(default_factory=Disturbance)

    @property
    def by_lock(self) -> list[CallRecord]:
        """Calls that got the mutex, in order of locks."""
        return sorted((c for c in self.calls if not math.isnan(c.lock)), key=lambda call: call.lock)

    @property
    def end(self) -> float:
        """When the last thing happened."""
        times = [t for c in self.calls for t in (c.returned, c.finalised, c.dealloc_end, c.b_g2_end, c.pickup)]
        times += [t for s in self.syntheses for t in (s.start, s.queued)]
        return max((t for t in times if not math.isnan(t)), default=0.0)

    @property
    def calls_per_s(self) -> float:
        """(n - 1) / (last - first unlock)."""
        unlocks = [c.unlock for c in self.by_lock if not math.isnan(c.unlock)]
        return (len(unlocks) - 1) / (max(unlocks) - min(unlocks)) if len(unlocks) > 1 else math.nan

    @property
    def jobs(self) -> list[JobRecord]:
        """Jobs in order of their first synthesis."""
        rows: dict[tuple[str, int], list[SynthesisRecord]] = {}
        for synthesis in self.syntheses:
            rows.setdefault((synthesis.work.job, synthesis.work.attempt), []).append(synthesis)
        ends: dict[tuple[str, int], list[float]] = {}
        for call in self.calls:
            if not math.isnan(call.finished) and call.outcome == "ok":
                ends.setdefault((call.work.job, call.work.attempt), []).append(call.finished)
        return [
            JobRecord(*key, len(own), own[0].start, len(ends.get(key, [])), max(ends.get(key, [math.nan])))
            for key, own in rows.items()
        ]
