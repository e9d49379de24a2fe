"""Write `told-story`: a hand-made capture of the run that the background articles only tell about.

Nobody kept that run's log, so this replays its published numbers through a small model of the prover:
syntheses feed a queue, two GPU workers share one mutex, and the copy of a/b/c out of pageable memory slows
down as more syntheses load the host. Every log line and every sensor reading follows from that one
simulation, so a tool must find the same story in both. Each run of this script writes the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import io
import itertools
import json
import random
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

# Times are whole microseconds since the TIMELINE epoch, unless a name says otherwise.
EPOCH: Final = datetime(2026, 3, 13, 18, 10, 4, 312907, tzinfo=UTC)
EPOCH_UNIX_US: Final = (EPOCH - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
MS: Final = 1_000
SECOND: Final = 1_000_000
MIB: Final = 2**20

SEED: Final = 1
N_CALLS: Final = 60
MAX_IN_FLIGHT: Final = 88
"""Partitions synthesized or waiting at once: what 755 GiB hold beside the SRS, at 8 GiB each."""


@dataclass(frozen=True)
class Circuit:
    circuit_id: str
    proof_kind: str
    label: str
    synth_span: str
    synth_s: tuple[float, float]
    n_constraints: int
    domain_log2: int
    srs_bytes: int
    """What the four batch additions read: 50 GB/s for 401 ms when the circuit is a full one."""

    @property
    def abc_bytes(self) -> int:
        return 3 * 32 * self.n_constraints

    @property
    def h_msm_bytes(self) -> int:
        return 96 * ((1 << self.domain_log2) - 1)


SNAP_SPAN: Final = "synthesize_snap_deals_partition"
SNAP: Final = Circuit("snap-32g", "snap-update", "SnapDeals ", SNAP_SPAN, (30, 34), 81_049_499, 27, 20_050_000_000)
SMALL: Final = Circuit("porep-512m", "porep-c2", "", "synthesize_partition", (10, 11.5), 11_612_845, 24, 2_872_000_000)
"""Whose copies take 0.3-1.2 s: 7.78 GB in the told 287 ms would be 27 GB/s, too fast for pageable memory."""


class Told(NamedTuple):
    """What makes one call exactly as the articles tell it. None: the model decides."""

    copy_ms: int | None = None
    prep_ms: int | None = None
    batch_add_ms: int | None = None
    tail_ms: int | None = None


TOLD: Final[Mapping[int, Told]] = {
    5: Told(prep_ms=1488),
    6: Told(copy_ms=287),
    22: Told(copy_ms=1090, prep_ms=3612),  # makes the barrier wait and the shortest prove_start, 4.2 s
    27: Told(copy_ms=8104, prep_ms=4178, batch_add_ms=403, tail_ms=194),  # the one call told in full
    28: Told(copy_ms=5480),  # makes the longest prove_start, 16.2 s
    40: Told(prep_ms=3490),
    45: Told(copy_ms=8918),
}
"""By ordinal. The extremes stand between short calls, as two long ones in a row would exceed 16.2 s."""
UNTOLD: Final = Told()

PHASE_LOAD: Final = {
    "ntt_kernels": (0, 35),
    "coset_intt_sync": (97, 100),
    "msm_invoke": (97, 100),
    "batch_add": (90, 100),
    "tail_msm": (85, 93),
}
"""SM % and the driver's utilisation %, which counts copies as well: at 35 % its mean is the told 50 %."""


@dataclass
class Synthesis:
    circuit: Circuit
    job_id: str
    partition: int
    n_partitions: int
    start_us: int = 0
    end_us: int = 0
    hint_cached: bool = False

    @property
    def synth_ms(self) -> int:
        return (self.end_us - self.start_us) // MS - 2  # less the circuit's construction


@dataclass
class Call:
    """One pass through the prover's C++ call; `spans` has the start and end of whatever the log names."""

    ordinal: int
    worker: int
    synthesis: Synthesis
    pickup_us: int
    new_domain: bool = False
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)

    def start_us(self, name: str) -> int:
        return self.spans[name][0]

    def end_us(self, name: str) -> int:
        return self.spans[name][1]

    def ms(self, name: str) -> int:
        return (self.end_us(name) - self.start_us(name)) // MS

    def payload_bytes(self, name: str) -> float:
        circuit = self.synthesis.circuit
        tail_bytes = 1500 * (self.end_us("tail_msm") - self.start_us("tail_msm"))
        sizes = {"ntt_kernels": circuit.abc_bytes, "msm_invoke": circuit.h_msm_bytes}
        return {**sizes, "batch_add": circuit.srs_bytes, "tail_msm": tail_bytes}.get(name, 0)


def planned_partitions() -> Iterator[Synthesis]:
    """SnapDeals proofs of 16 partitions for ever, with a few small PoRep jobs between them."""
    snap = (Synthesis(SNAP, f"snap-1000-{42 + i // 16}", i % 16, 16) for i in itertools.count())
    small_jobs = {14: 1, 15: 1, 30: 2, 44: 2, 52: 1, 53: 1}  # before that full partition: so many small ones
    for index, full in enumerate(snap):
        n_small = small_jobs.get(index, 0)
        for n in range(n_small):
            yield Synthesis(SMALL, f"ps-porep-1000-{7000 + index}-{88100 + index}", n, n_small)
        yield full


def synthesis_slots(now_us: int) -> int:
    """How many syntheses the clients ask for: one proof, then a trickle, then all that the host can take."""
    t_s = now_us / SECOND
    if t_s < 27:
        return 14 if t_s < 20.5 else 16
    return int(min(20.0, 4 + max(0.0, t_s - 76) / 0.8))


def copy_bytes_per_s(n_running: int) -> float:
    """Pageable copy rate while so many syntheses compete for the host's memory bandwidth."""
    return 3.5e9 / (1 + (n_running / 17) ** 2)


class Prover:
    """Discrete-event model: syntheses -> FIFO queue -> two workers -> one GPU mutex."""

    def __init__(self) -> None:
        self.syntheses: list[Synthesis] = []
        self.calls: list[Call] = []
        self.end_us = 3600 * SECOND  # until the last call is laid out
        self._plan = planned_partitions()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._now_us = 0
        self._n_running = 0
        self._n_in_flight = 0
        self._hinted: set[Circuit] = set()
        self._queue: deque[Synthesis] = deque()
        self._idle_workers = deque([0, 1])
        self._mutex_held = False
        self._mutex_queue: deque[Call] = deque()
        self._domain_log2 = 0

    def run(self) -> None:
        self._offer()
        while self._events[0][0] <= self.end_us:
            self._now_us, _, action = heapq.heappop(self._events)
            action()

    def _at(self, t_us: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (t_us, next(self._serial), action))

    def _offer(self) -> None:
        self._fill_slots()
        self._at(self._now_us + 400 * MS, self._offer)

    def _fill_slots(self) -> None:
        while self._n_running < synthesis_slots(self._now_us) and self._n_in_flight < MAX_IN_FLIGHT:
            synthesis = next(self._plan)
            rng = random.Random(f"{SEED} synthesis {len(self.syntheses)}")
            crowding = 1 + 0.2 * max(0, self._n_running - 16)  # the host's cores are all taken at 16
            synthesis.start_us = self._now_us + rng.randrange(200, 900)
            seconds = rng.uniform(*synthesis.circuit.synth_s) * crowding
            synthesis.end_us = synthesis.start_us + int(seconds * SECOND)
            synthesis.hint_cached = synthesis.circuit in self._hinted
            self.syntheses.append(synthesis)
            self._n_running += 1
            self._n_in_flight += 1
            self._at(synthesis.end_us, partial(self._synthesized, synthesis))

    def _synthesized(self, synthesis: Synthesis) -> None:
        self._hinted.add(synthesis.circuit)
        self._n_running -= 1
        self._queue.append(synthesis)
        self._pick_up()
        self._fill_slots()

    def _worker_free(self, worker: int) -> None:
        self._n_in_flight -= 1
        self._idle_workers.append(worker)
        self._pick_up()

    def _pick_up(self) -> None:
        """Enter the C++ call: its CPU preparation runs beside the wait for the mutex."""
        if not self._queue or not self._idle_workers or len(self.calls) == N_CALLS:
            return
        ordinal = len(self.calls)
        rng = random.Random(f"{SEED} pick up {ordinal}")
        load = min(1.0, self._n_running / 20)
        prep_ms = rng.randrange(1500, 1900) + int(load**2 * rng.randrange(700, 2100))
        prep_ms = TOLD.get(ordinal, UNTOLD).prep_ms or prep_ms
        call = Call(ordinal, self._idle_workers.popleft(), self._queue.popleft(), self._now_us + 700)
        enter_us = call.pickup_us + rng.randrange(400, 900)
        split_us = enter_us + rng.randrange(27_000, 31_000)
        prepared_us = split_us + prep_ms * MS + 400
        b_g2_us = int((450 + 1250 * load) * MS * rng.uniform(0.9, 1.1))
        request_us = split_us + rng.randrange(300, 1_900)
        call.spans["split_vectors"] = (enter_us + 700, split_us)
        call.spans["setup_to_split"] = (enter_us, split_us)
        call.spans["prep_msm"] = (split_us, prepared_us)
        call.spans["b_g2_msm"] = (prepared_us, prepared_us + b_g2_us)
        call.spans["pre_lock_cpu"] = (enter_us, request_us)
        self.calls.append(call)
        self._at(request_us, partial(self._request_mutex, call))

    def _request_mutex(self, call: Call) -> None:
        if self._mutex_held:
            self._mutex_queue.append(call)
        else:
            self._lock(call)

    def _lock(self, call: Call) -> None:
        self._mutex_held = True
        domain_log2 = call.synthesis.circuit.domain_log2
        call.new_domain = domain_log2 != self._domain_log2
        self._domain_log2 = domain_log2
        call.spans["mutex_wait"] = (call.end_us("pre_lock_cpu"), self._now_us)
        alloc_us = self._now_us + (560 if call.new_domain else 240)
        copy_us = alloc_us + (703_200 if call.ordinal == 0 else 300)  # the first allocation warms up
        call.spans["d_b_alloc"] = (alloc_us, copy_us)
        self._at(copy_us, partial(self._copy, call))

    def _copy(self, call: Call) -> None:
        """Lay out the rest of the call: only the copy's rate depends on what runs beside it.

        The articles call the other phases constant over all calls, so small circuits get no shorter ones.
        """
        rng = random.Random(f"{SEED} call {call.ordinal}")
        told, circuit, spans = TOLD.get(call.ordinal, UNTOLD), call.synthesis.circuit, call.spans
        bytes_per_s = min(copy_bytes_per_s(self._n_running) * rng.uniform(0.88, 1.12), 3.5e9)

        def span(name: str, start_us: int, told_ms: int | None, model_us: float) -> int:
            end_us = start_us + (told_ms * MS + 400 if told_ms else int(model_us))
            spans[name] = (start_us, end_us)
            return end_us

        lock_us, alloc_us = call.end_us("mutex_wait"), call.start_us("d_b_alloc")
        gpu_start_us = lock_us + 180
        t_us = span("ntt_kernels", self._now_us, told.copy_ms, circuit.abc_bytes / bytes_per_s * SECOND)
        t_us = span("coset_intt_sync", t_us, None, rng.uniform(122_100, 122_900))
        t_us = span("msm_init", t_us, None, 1_300)
        t_us = span("msm_invoke", t_us, 631 if told.batch_add_ms else None, rng.uniform(630_000, 633_000))
        t_us = span("msm_dtor", t_us, None, 200)
        span("total", alloc_us, None, t_us - alloc_us)
        t_us = span("ntt_msm_h", gpu_start_us, None, t_us + rng.randrange(100, 400) - gpu_start_us)
        t_us = span("barrier_wait", t_us, None, max(0, call.end_us("prep_msm") - t_us) + 80)
        t_us = span("batch_add", t_us, told.batch_add_ms, rng.uniform(400_000, 403_000))
        t_us = span("tail_msm", t_us, told.tail_ms, rng.uniform(196_000, 199_000))
        span("gpu_total", gpu_start_us, None, t_us - gpu_start_us)
        unlock_us = span("mutex_held", lock_us, None, t_us + rng.randrange(4_000, 9_000) - lock_us)
        enter_us = call.start_us("pre_lock_cpu")
        span("total_start_fn", enter_us, None, unlock_us - enter_us)
        release_us = rng.randrange(300, 1000) * MS * circuit.n_constraints // SNAP.n_constraints
        return_us = span("prove_start", enter_us, None, unlock_us + release_us - enter_us)
        finish_us = max(return_us, call.end_us("b_g2_msm")) + rng.randrange(800, 2_500)
        span("gpu", enter_us, None, finish_us - enter_us)
        end_us = span("async_dealloc", finish_us, None, rng.uniform(35_000, 65_000))
        self._at(unlock_us, self._unlock)
        self._at(return_us, partial(self._worker_free, call.worker))
        if call.ordinal == N_CALLS - 1:
            self.end_us = end_us + SECOND

    def _unlock(self) -> None:
        self._mutex_held = bool(self._mutex_queue)
        if self._mutex_queue:
            self._at(self._now_us + 90, partial(self._lock, self._mutex_queue.popleft()))


def sgr(code: int, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def coloured(fields: Mapping[str, object]) -> str:
    return " ".join(f"{sgr(3, key)}{sgr(2, '=')}{value}" for key, value in fields.items())


class Log:
    """The prover's two streams on one descriptor, in write order, coloured as `tracing` does by default."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []

    def native(self, t_us: int, text: str) -> None:
        self._lines.append((t_us, text))

    def timeline(self, t_us: int, event: str, job_id: str, detail: str) -> None:
        self.native(t_us, f"TIMELINE,{t_us // MS},{event},{job_id},{detail}")

    def tracing(
        self, t_us: int, text: str, fields: Mapping[str, object], module: str = "engine", span: str = ""
    ) -> None:
        stamp = f"{EPOCH + timedelta(microseconds=t_us):%Y-%m-%dT%H:%M:%S.%f}Z"
        target = f"{sgr(2, f'cuzk_core::{module}')}{sgr(2, ':')}"
        self.native(t_us, f"{sgr(2, stamp)} {sgr(32, ' INFO')} {span}{target} {text} {coloured(fields)}")

    def render(self, end_us: int) -> str:
        """The text up to `end_us`, with a record torn in each of the two ways a shared descriptor allows."""
        lines = sorted((line for line in self._lines if line[0] <= end_us), key=lambda line: line[0])
        texts = [text for _, text in lines]
        close = [i for i, (a, b) in enumerate(itertools.pairwise(lines)) if b[0] - a[0] < 5 * MS]
        # Rust's eprintln! is several writes: a C++ line can land inside a record ...
        inner = next(i for i in close if texts[i].startswith("TIMELINE") and texts[i + 1].startswith("CUZK"))
        record = texts[inner]
        texts[inner : inner + 2] = ["TIMELINE," + texts[inner + 1], record.removeprefix("TIMELINE,")]
        # ... and a record's newline can come after another stream's line.
        late = max(i for i in close if ",SYNTH_END," in texts[i] and "pushing to" in texts[i + 1])
        texts[late : late + 2] = [texts[late] + texts[late + 1], ""]
        return "\n".join(texts) + "\n"


def span_prefix(name: str, fields: Mapping[str, object]) -> str:
    return f"{sgr(1, name)}{sgr(1, '{')}{coloured(fields)}{sgr(1, '}')}{sgr(2, ':')} "


def log_engine_start(log: Log) -> None:
    log.tracing(0, "starting cuzk engine", {"pipeline_enabled": "true"})
    workers = {"num_gpus": 1, "gpu_workers_per_device": 2, "total_workers": 2, "gpus": "[0]"}
    log.tracing(90, "initializing GPU workers", workers)
    for worker in (0, 1):
        ids = {"worker_id": worker, "gpu": 0, "sub_id": worker}
        log.tracing(120 + worker, "pipeline GPU worker started", ids)


def log_synthesis(log: Log, s: Synthesis) -> None:
    circuit: dict[str, object] = {"circuit_id": s.circuit.circuit_id}
    span = span_prefix(s.circuit.synth_span, {"job_id": f'"{s.job_id}"', "partition": s.partition})
    if s.partition == 0:
        text = f"dispatching per-partition {s.circuit.label}synthesis (budget-gated)"
        log.tracing(s.start_us - 150, text, {"job_id": s.job_id, "num_partitions": s.n_partitions})
    log.timeline(s.start_us, "SYNTH_START", s.job_id, f"partition={s.partition}")
    cold = "no capacity hint cached — first synthesis will grow organically"
    hint = "using cached capacity hint for synthesis" if s.hint_cached else cold
    log.tracing(s.start_us + 1_500, hint, circuit, "pipeline", span)
    n = s.circuit.n_constraints
    size = {"num_constraints": n, "num_aux": n * 29 // 30, "num_inputs": 1}
    log.tracing(s.end_us - 600, "cached synthesis capacity hint", circuit | size, "pipeline", span)
    done = {"partition": s.partition, "synth_ms": s.synth_ms, "is_pinned": "false"}
    done_text = f"{s.circuit.label}partition synthesis complete"
    log.tracing(s.end_us - 300, done_text, done, "pipeline", span)
    log.timeline(s.end_us, "SYNTH_END", s.job_id, f"partition={s.partition},synth_ms={s.synth_ms}")
    pushed = {"job_id": s.job_id, "partition": s.partition, "synth_ms": s.synth_ms}
    log.tracing(s.end_us + 90, "partition synthesis complete, pushing to GPU queue", pushed)
    log.timeline(s.end_us + 160, "GPU_QUEUE", s.job_id, f"partition={s.partition}")


def log_native_call(log: Log, call: Call) -> None:
    """The C++ lines, each printed at the end of what it measures."""

    def timing(*names: str, before: str = "", after: str = "") -> None:
        values = " ".join(f"{name}_ms={call.ms(name)}" for name in names)
        log.native(call.end_us(names[-1]), f"CUZK_TIMING: {before}{values}{after}")

    if call.ordinal == 0:
        pool = "CUZK_TIMING: set pool release threshold to MAX on gpu 0"
        log.native(call.start_us("gpu_total") + 20, pool)
    if call.new_domain:
        domain_mib = (32 << call.synthesis.circuit.domain_log2) // MIB
        cache = f"CUZK_TIMING: d_a_cache allocated {domain_mib} MiB on gpu 0"
        log.native(call.start_us("d_b_alloc") - 40, cache)
    timing("split_vectors", "setup_to_split")
    timing("prep_msm")
    timing("b_g2_msm", after=" num_circuits=1")
    timing("pre_lock_cpu", "mutex_wait")
    steps = ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor", "total")
    ntt_h = " ".join(f"{name}={call.ms(name)}ms" for name in steps)
    log.native(call.end_us("total"), f"CUZK_NTT_H: {ntt_h}")
    timing("ntt_msm_h", before="gpu_tid=0 ")
    timing("barrier_wait", before="gpu_tid=0 ")
    timing("batch_add", before="gpu_tid=0 ")
    timing("tail_msm", "gpu_total", before="gpu_tid=0 ")
    timing("mutex_held", "total_start_fn")
    timing("async_dealloc")


def log_call(log: Log, call: Call, finished: list[Call]) -> None:
    """The worker's lines around the C++ call and the finalizer's; `finished` are the job's calls so far."""
    job, n, pickup_us = call.synthesis.job_id, call.synthesis.partition, call.pickup_us
    ids: dict[str, object] = {"worker_id": call.worker, "partition": f"Some({n})"}
    job_ids: dict[str, object] = {"job_id": job, "partition": n}
    kind = call.synthesis.circuit.proof_kind
    of_span = {"worker_id": call.worker, "gpu": 0, "job_id": job, "proof_kind": kind, "batch_size": 1}
    span = span_prefix("gpu_worker", of_span | {"partition": f"Some({n})"})
    where = f"worker={call.worker},partition={n}"
    log.timeline(pickup_us, "GPU_PICKUP", job, where)
    nothing = {"status_ms": 0, "fail_check_ms": 0, "mark_busy_ms": 0, "total_overhead_ms": 0}
    log.tracing(pickup_us + 80, "GPU_TIMING hot_path pre-prove overhead", ids | nothing, span=span)
    log.timeline(pickup_us + 150, "GPU_START", job, where)
    log_native_call(log, call)
    enter_us, return_us = call.spans["prove_start"]
    spawn_ms, prove_start_ms = (enter_us - pickup_us - 150) // MS, call.ms("prove_start")
    entered = {"spawn_to_enter_ms": spawn_ms, "prove_start_ms": prove_start_ms}
    log.tracing(return_us + 60, "GPU_TIMING spawn_blocking prove_start", ids | entered)
    wall_ms = (return_us - pickup_us) // MS
    walls = {"total_pre_prove_ms": wall_ms, "spawn_blocking_wall_ms": wall_ms}
    log.tracing(return_us + 160, "GPU_TIMING prove_start returned", ids | walls, span=span)

    finish_us, gpu_ms = call.end_us("gpu"), call.ms("gpu")
    is_last = len(finished) == call.synthesis.n_partitions
    proof = {"proof_count": 1, "proof_bytes": 192, "gpu_ms": gpu_ms}
    log.tracing(finish_us, "GPU prove complete (split)", proof, "pipeline")
    log.timeline(finish_us + 70, "GPU_END", job, f"{where},gpu_ms={gpu_ms}")
    complete = {"gpu_ms": gpu_ms, "filled": int(is_last)}
    log.tracing(finish_us + 200, "partition GPU prove complete", job_ids | complete)
    if is_last:
        first_us = min(one.synthesis.start_us for one in finished)
        synth_ms, gpu_ms = sum(c.synthesis.synth_ms for c in finished), sum(c.ms("gpu") for c in finished)
        sums = {"total_ms": (finish_us - first_us) // MS, "synth_ms": synth_ms, "gpu_ms": gpu_ms}
        assembled = {"job_id": job, "proof_len": 192 * len(finished)} | sums
        log.tracing(finish_us + 260, "Phase 7: all partitions complete, proof assembled", assembled)
    trim_ms, finish_ms = 2 + call.ordinal % 5, (finish_us - return_us) // MS
    trimmed_us = finish_us + trim_ms * MS + 400
    log.tracing(trimmed_us, "FIN_TIMING malloc_trim (success path)", job_ids | {"malloc_trim_ms": trim_ms})
    steps = {"finish_ms": finish_ms, "drop_res_ms": 0, "lock_wait_ms": 0, "process_ms": trim_ms}
    total = {"total_ms": finish_ms + trim_ms}
    log.tracing(trimmed_us + 20, "FIN_TIMING finalizer partition", ids | steps | total)


def log_text(prover: Prover) -> str:
    log = Log()
    log_engine_start(log)
    for synthesis in prover.syntheses:
        log_synthesis(log, synthesis)
    finished: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(prover.calls, key=lambda call: call.end_us("gpu")):
        finished[call.synthesis.job_id].append(call)
        log_call(log, call, finished[call.synthesis.job_id])
    return log.render(prover.end_us)


WIRE_PER_PAYLOAD: Final = 1.078
TX_PER_RX: Final = 0.087  # read requests travel up while data comes down
STEP_US: Final = 100 * MS
CLOCKS: Final = {"sm_clock_mhz": 1980, "mem_clock_mhz": 3201, "pcie_gen": 5, "pcie_width": 16}
PCIE_COSTS_US: Final = {"pcie_rx_us": 20_800, "pcie_tx_us": 20_700, "cnt_us": 460, "gpm_us": 1_250}
OTHER_COSTS_US: Final = {"clock_us": 10, "gpu_mem_us": 21, "power_us": 7, "link_us": 96, "host_us": 390}
COSTS_US: Final = PCIE_COSTS_US | OTHER_COSTS_US | {"util_us": 14, "row_us": 45_800}
STEADY: Final = CLOCKS | COSTS_US | {"host_mem_total_mib": 755 * 1024}
COLUMNS: Final = """
    seq t_wall_ns t_mono_ns pcie_rx_kbps pcie_rx_us pcie_tx_kbps pcie_tx_us cnt_rx_bytes cnt_tx_bytes
    cnt_ts_us cnt_us gpm_interval_ms gpm_pcie_rx_mibps gpm_pcie_tx_mibps gpm_sm_util gpm_sm_occ
    gpm_dram_bw_util gpm_graphics_util gpm_us util_gpu util_mem util_us sm_clock_mhz mem_clock_mhz clock_us
    gpu_mem_used_mib gpu_mem_us power_mw power_us pcie_gen pcie_width link_us host_cpu_pct
    host_mem_used_mib host_mem_total_mib host_pgfault host_us row_us
"""


class Integral:
    """A running total that grows at a piecewise constant rate, so that readings at any instants add up."""

    def __init__(self, pieces: Iterable[tuple[int, int, float]]) -> None:
        self._pieces = sorted(pieces)
        self._starts_us = [start_us for start_us, _, _ in self._pieces]
        self._before = [0.0, *itertools.accumulate(amount for _, _, amount in self._pieces)]

    def at(self, t_us: int) -> float:
        index = bisect_right(self._starts_us, t_us) - 1
        if index < 0:
            return 0.0
        start_us, end_us, amount = self._pieces[index]
        return self._before[index] + amount * min(1.0, (t_us - start_us) / (end_us - start_us))

    def per_us(self, start_us: int, end_us: int) -> float:
        return (self.at(end_us) - self.at(start_us)) / (end_us - start_us)


def host_memory_gib(prover: Prover, t_us: int) -> float:
    """SRS, system and 8 GiB a full partition: filled while synthesized, held until its call returns."""
    used_gib = 33.0 + 8.0
    returned_us = {id(call.synthesis): call.end_us("prove_start") for call in prover.calls}
    for s in prover.syntheses:
        if s.start_us <= t_us < returned_us.get(id(s), t_us + 1):
            full_gib = 8 * s.circuit.n_constraints / SNAP.n_constraints
            used_gib += full_gib * min(1.0, (t_us - s.start_us) / (s.end_us - s.start_us))
    return used_gib


def sensor_rows(prover: Prover) -> Iterator[dict[str, object]]:
    """One row a step, as a sampler would have read the GPU and the host.

    At this step the 32-bit counters alias while `batch_add` runs at line rate; GPM still has the true total,
    one step late and 0.6 % low.
    """
    rng = random.Random(f"{SEED} rows")
    phases = [(call, name, *call.spans[name]) for call in prover.calls for name in PHASE_LOAD]
    payload = Integral((start, end, call.payload_bytes(name)) for call, name, start, end in phases)
    sm = Integral((start, end, (end - start) * PHASE_LOAD[name][0]) for _, name, start, end in phases)
    driver = Integral((start, end, (end - start) * PHASE_LOAD[name][1]) for _, name, start, end in phases)
    first_us, last_us = -4 * SECOND, prover.end_us + 4 * SECOND
    rows_us = [t_us + rng.randrange(MS) for t_us in range(first_us, last_us, STEP_US)]
    counts_us = [t_us + 45_000 + rng.randrange(-400, 400) for t_us in rows_us]
    page_faults, util_gpu = 74_000, 0

    def wire_bytes(t_us: int) -> int:
        idle_bytes = 1000 * (t_us - first_us) // MS
        return 534_200_008 + idle_bytes + int(payload.at(t_us) * WIRE_PER_PAYLOAD)

    def wire_bytes_per_s(start_us: int, end_us: int) -> float:
        return (wire_bytes(end_us) - wire_bytes(start_us)) / (end_us - start_us) * SECOND

    for seq, (t_us, count_us) in enumerate(zip(rows_us, counts_us, strict=True)):
        late_us, later_us = counts_us[max(0, seq - 1)], counts_us[max(0, seq - 2)]
        late_us = max(late_us, later_us + 1)
        gpm_mibps, sm_percent = wire_bytes_per_s(later_us, late_us) / MIB, sm.per_us(later_us, late_us)
        if seq % 2 == 0:  # the driver refreshes it every 0.2 s
            util_gpu = round(driver.per_us(t_us - 2 * STEP_US, t_us))
        n_running = sum(s.start_us <= t_us < s.end_us for s in prover.syntheses)
        page_faults += 40 + int(4_100 * n_running * rng.uniform(0.95, 1.05))
        window_us = t_us + 20 * MS
        yield STEADY | {
            "seq": seq,
            "t_wall_ns": (EPOCH_UNIX_US + t_us) * 1000,
            "t_mono_ns": (60_400 * SECOND + t_us) * 1000,
            "pcie_rx_kbps": round(wire_bytes_per_s(t_us, window_us) / 1000),
            "pcie_tx_kbps": round(wire_bytes_per_s(window_us, window_us + 20 * MS) / 1000 * TX_PER_RX),
            "cnt_rx_bytes": wire_bytes(count_us) % 2**32,
            "cnt_tx_bytes": int(wire_bytes(count_us) * TX_PER_RX) % 2**32,
            "cnt_ts_us": EPOCH_UNIX_US + count_us,
            "gpm_interval_ms": f"{(count_us - late_us) / MS if seq else STEP_US / MS:.1f}",
            "gpm_pcie_rx_mibps": f"{gpm_mibps * 0.994:.3f}",
            "gpm_pcie_tx_mibps": f"{gpm_mibps * 0.06:.3f}",
            "gpm_sm_util": f"{sm_percent:.3f}",
            "gpm_sm_occ": f"{sm_percent * 0.2:.3f}",
            "gpm_dram_bw_util": f"{sm_percent * 0.07:.3f}",
            "gpm_graphics_util": f"{sm_percent:.3f}",
            "util_gpu": util_gpu,
            "util_mem": util_gpu // 10,
            "gpu_mem_used_mib": 637 if t_us < prover.calls[0].end_us("mutex_wait") else 17_213,
            "power_mw": 142_000 + round(sm_percent) * 2_400,
            "host_cpu_pct": f"{min(100.0, 2 + 4.7 * n_running + rng.uniform(0, 2)):.1f}",
            "host_mem_used_mib": round(host_memory_gib(prover, t_us) * 1024),
            "host_pgfault": page_faults,
        }


META: Final = {
    "name": "told-story",
    "hand_made": True,
    "what": "the background articles' run, replayed by a model: SnapDeals partitions, two workers on one "
    "GPU, pageable a/b/c; chains nicely at first, then about 20 syntheses slow the copies down",
    "written_by": "sample_logs/told_story.py",
    "gpu_name": "NVIDIA GPU (hand-made)",
    "pcie": {"gen": 5, "width": 16},
    "abc_bytes": {circuit.circuit_id: circuit.abc_bytes for circuit in (SNAP, SMALL)},
    "num_constraints": {circuit.circuit_id: circuit.n_constraints for circuit in (SNAP, SMALL)},
    "stdio": "stdout and stderr on one descriptor; two TIMELINE records are torn, as happens there",
    "sampler_interval_s": STEP_US / SECOND,
}


def main() -> None:
    prover = Prover()
    prover.run()
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, COLUMNS.split(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(sensor_rows(prover))
    folder = Path(__file__).with_name("told-story")
    folder.mkdir(exist_ok=True)
    for name, text in {"prover.log.gz": log_text(prover), "nvml.csv.gz": table.getvalue()}.items():
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "meta.json").write_text(json.dumps(META, indent=1) + "\n")


if __name__ == "__main__":
    main()
