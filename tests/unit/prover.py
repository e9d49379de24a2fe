"""A toy prover: calls planned in true times, printed as the real one prints them.

Times are true milliseconds since the engine's start; every printed duration is floored. `schedule` gives each call the
mutex in the order in which it asks for it; `print_log` puts the lines of all calls in the order of their true times.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MS = 1_000_000
# 2026-03-13T18:11:02Z
EPOCH_NS = 1_773_425_462_000_000_000


@dataclass
class Planned:
    """One call, in true milliseconds. `wait` and `lock` are set by `schedule`."""

    worker: int
    partition: int
    start: float
    job: str = "snap-1000-42"
    pre_lock: float = 31.4
    setup: float = 29.3
    prep: float = 400.0
    b_g2: float = 200.0
    d_b_alloc: float = 0.2
    ntt_kernels: float = 800.0
    coset_intt_sync: float = 120.0
    msm_init: float = 1.2
    msm_invoke: float = 630.0
    msm_dtor: float = 0.3
    batch_add: float = 400.0
    tail_msm: float = 190.0
    release: float = 40.0
    pinned: bool | None = None
    lock: float = 0.0

    @property
    def entry(self) -> float:
        return self.start + 0.3

    @property
    def asks(self) -> float:
        """When it asks for the mutex."""
        return self.entry + self.pre_lock

    @property
    def ntt_h(self) -> float:
        return (
            self.d_b_alloc + self.ntt_kernels + self.coset_intt_sync + self.msm_init + self.msm_invoke + self.msm_dtor
        )

    @property
    def barrier(self) -> float:
        return max(0.0, self.entry + self.setup + self.prep - self.lock - self.ntt_h)

    @property
    def gpu_total(self) -> float:
        return self.ntt_h + self.barrier + self.batch_add + self.tail_msm

    @property
    def unlock(self) -> float:
        return self.lock + self.gpu_total + 6.0

    @property
    def end(self) -> float:
        return self.unlock + self.release

    @property
    def finish(self) -> float:
        return max(self.end, self.entry + self.setup + self.prep + self.b_g2) + 1.5

    @property
    def edges(self) -> dict[str, tuple[float, float]]:
        """True start and end of every phase under the mutex."""
        found, at = {}, self.lock
        for name in ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor"):
            found[name] = (at, at := at + float(getattr(self, name)))
        for name, length in (
            ("barrier_wait", self.barrier),
            ("batch_add", self.batch_add),
            ("tail_msm", self.tail_msm),
        ):
            found[name] = (at, at := at + length)
        return found


def schedule(calls: Iterable[Planned]) -> list[Planned]:
    """The calls with their locks: the mutex goes to whoever asked first."""
    free = 0.0
    placed = sorted(calls, key=lambda call: call.asks)
    for call in placed:
        call.lock = max(free, call.asks)
        free = call.unlock + 0.05
    return placed


def stamp(at_ms: float, epoch_ns: int = EPOCH_NS) -> str:
    """The time of a tracing line."""
    wall = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=(epoch_ns + at_ms * MS) // 1000)
    return wall.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def printed(call: Planned) -> list[tuple[float, str, str]]:
    """True time, stream and text of every line of one call."""
    w, p, j = call.worker, call.partition, call.job
    prepared = call.entry + call.setup + call.prep
    edges = call.edges
    tail_end = edges["tail_msm"][1]
    wait = call.lock - call.asks
    parts = " ".join(
        f"{name}={int(getattr(call, name))}ms"
        for name in ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor")
    )
    err, out = "stderr", "stdout"
    info = "INFO cuzk_core::engine: GPU_TIMING"
    span = f"INFO gpu_worker{{worker_id={w} gpu=0 job_id={j} proof_kind=snap-update batch_size=1 partition=Some({p})}}"
    hot_path = f"worker_id={w} partition=Some({p}) status_ms=0 fail_check_ms=0 mark_busy_ms=0 total_overhead_ms=0"
    begun, ended = call.start - 0.2, call.end
    gpu_ms = int(call.finish - call.entry)
    return [
        (begun, err, f"TIMELINE,{int(begun)},GPU_PICKUP,{j},worker={w},partition={p}"),
        (
            call.start - 0.1,
            out,
            f"{stamp(call.start - 0.1)}  {span}: cuzk_core::engine: GPU_TIMING hot_path pre-prove overhead {hot_path}",
        ),
        (call.start, err, f"TIMELINE,{int(call.start)},GPU_START,{j},worker={w},partition={p}"),
        (
            call.entry + call.setup,
            err,
            f"CUZK_TIMING: split_vectors_ms={int(call.setup - 1)} setup_to_split_ms={int(call.setup)}",
        ),
        (call.lock, err, f"CUZK_TIMING: pre_lock_cpu_ms={int(call.pre_lock)} mutex_wait_ms={int(wait)}"),
        (prepared, err, f"CUZK_TIMING: prep_msm_ms={int(call.prep)}"),
        (prepared + call.b_g2, err, f"CUZK_TIMING: b_g2_msm_ms={int(call.b_g2)} num_circuits=1"),
        (edges["msm_dtor"][1], err, f"CUZK_NTT_H: {parts} total={int(call.ntt_h)}ms"),
        (edges["msm_dtor"][1], err, f"CUZK_TIMING: gpu_tid=0 ntt_msm_h_ms={int(call.ntt_h)}"),
        (edges["barrier_wait"][1] + 1e-3, err, f"CUZK_TIMING: gpu_tid=0 barrier_wait_ms={int(call.barrier)}"),
        (edges["batch_add"][1], err, f"CUZK_TIMING: gpu_tid=0 batch_add_ms={int(call.batch_add)}"),
        (
            tail_end,
            err,
            f"CUZK_TIMING: gpu_tid=0 tail_msm_ms={int(call.tail_msm)} gpu_total_ms={int(call.gpu_total)}",
        ),
        (
            call.unlock,
            err,
            f"CUZK_TIMING: mutex_held_ms={int(call.unlock - call.lock)} "
            f"total_start_fn_ms={int(call.unlock - call.entry)}",
        ),
        (
            ended,
            out,
            f"{stamp(ended)}  {info} spawn_blocking prove_start worker_id={w} partition=Some({p}) "
            f"spawn_to_enter_ms=0 prove_start_ms={int(call.end - call.entry)}",
        ),
        (call.finish, err, f"TIMELINE,{int(call.finish)},GPU_END,{j},worker={w},partition={p},gpu_ms={gpu_ms}"),
        (call.finish + 5, err, "CUZK_TIMING: async_dealloc_ms=4"),
    ]


def print_log(calls: Iterable[Planned], streams: tuple[str, ...] = ("stderr", "stdout")) -> list[str]:
    """The log of these calls; of one stream only where asked for."""
    lines = [line for call in calls for line in printed(call) if line[1] in streams]
    return [text for _, _, text in sorted(lines, key=lambda line: line[0])]
