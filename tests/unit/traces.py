"""Small traces built by hand from planned calls: frames as the rebuild makes them, samples as of a perfect sampler."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace import schema
from gputrace.analysis.diagnose import diagnose
from gputrace.trace import Clock, GpuInfo, Trace
from tests.unit.prover import Planned
from tests.unit.support import MS, frame_of

BEGIN_NS = 1_773_425_462_000_000_000
LINK_BYTES_PER_S = 3.938e9 * 16
LINE_RATE = 55e9


@dataclass(frozen=True)
class Activity:
    """What the GPU does: wire bytes/s in, and the share of time with SMs active."""

    rx: float = 0.0
    sm: float = 0.0


# As measured on pageable runs, rounded: a slow copy, then kernels that stream their points.
USUAL = {
    "ntt_kernels": Activity(3e9, 0.02),
    "coset_intt_sync": Activity(0.0, 1.0),
    "msm_invoke": Activity(20e9, 0.9),
    "batch_add": Activity(LINE_RATE, 0.8),
    "tail_msm": Activity(5e9, 0.7),
}


def ns(ms: float) -> int:
    return BEGIN_NS + round(ms * MS)


def calls_frame(
    plan: Sequence[Planned], gpu: int = 0, first: int = 0, warmup: frozenset[int] = frozenset()
) -> pl.DataFrame:
    """CALLS of a plan; the calls at the positions in `warmup` are marked so."""
    return frame_of(
        schema.CALLS,
        [
            {
                "call": first + n,
                "restart": 0,
                "gpu": gpu,
                "worker": call.worker,
                "job": call.job,
                "partition": call.partition,
                "pinned": call.pinned,
                "complete": True,
                "failed": False,
                "warmup": n in warmup,
                "start_ns": ns(call.entry),
                "lock_ns": ns(call.lock),
                "unlock_ns": ns(call.unlock),
                "end_ns": ns(call.end),
                "mutex_held_ms": int(call.unlock - call.lock),
                "release_abc_ms": int(call.release),
            }
            for n, call in enumerate(plan)
        ],
    )


def phases_frame(plan: Sequence[Planned], gpu: int = 0, first: int = 0) -> pl.DataFrame:
    """PHASES of a plan: those under the mutex, the hold itself, and the release."""
    rows: list[dict[str, object]] = []
    for n, call in enumerate(plan):
        spans = {**call.edges, "mutex_held": (call.lock, call.unlock), "release_abc": (call.unlock, call.end)}
        rows += [
            {
                "call": first + n,
                "gpu": gpu,
                "worker": call.worker,
                "name": name,
                "duration_ms": int(end - start),
                "start_ns": ns(start),
                "end_ns": ns(end),
                "under_mutex": name != "release_abc",
                "source": 0,
                "line": 100 * (first + n) + position,
            }
            for position, (name, (start, end)) in enumerate(spans.items())
        ]
    return frame_of(schema.PHASES, rows)


def queue_frame(spans: Sequence[tuple[float, float]]) -> pl.DataFrame:
    """SYNTHESES with these times in the queue (queued, picked up)."""
    return frame_of(
        schema.SYNTHESES,
        [
            {
                "job": "snap-1000-42",
                "partition": n,
                "restart": 0,
                "start_ns": ns(queued - 1000),
                "end_ns": ns(queued),
                "queued_ns": ns(queued),
                "picked_up_ns": ns(taken),
            }
            for n, (queued, taken) in enumerate(spans)
        ],
    )


def sampled(
    plan: Sequence[Planned], activity: dict[str, Activity], step_ms: float = 100.0, gpu: int = 0
) -> pl.DataFrame:
    """SAMPLES of a plan: what happens in each phase, averaged over steps."""
    begin, end = min(c.lock for c in plan) - 500.0, max(c.end for c in plan) + 500.0
    ticks = np.arange(begin, end, step_ms)
    rx, busy = np.zeros(len(ticks) - 1), np.zeros(len(ticks) - 1)
    for call in plan:
        for name, (start, stop) in call.edges.items():
            doing = activity.get(name, Activity())
            inside = np.maximum(0.0, np.minimum(ticks[1:], stop) - np.maximum(ticks[:-1], start))
            rx += inside / 1e3 * doing.rx
            busy += inside * doing.sm
    return frame_of(
        schema.SAMPLES,
        [
            {
                "gpu": gpu,
                "start_ns": ns(ticks[n]),
                "end_ns": ns(ticks[n + 1]),
                "rx_wire_bytes": float(rx[n]),
                "tx_wire_bytes": 0.0,
                "coverage": 1.0,
                "sm_active": min(1.0, float(busy[n]) / step_ms),
            }
            for n in range(len(ticks) - 1)
        ],
    )


def marks_frame(allocations_ms: Sequence[float] = ()) -> pl.DataFrame:
    """MARKS that a trace with a log must have: one line, and one for each allocation of a pinned buffer."""
    rows: list[dict[str, object]] = [{"source": 0, "line": 1, "event": "engine_start", "log_ns": ns(0.0)}]
    rows += [
        {"source": 0, "line": 2 + n, "event": "pinned_alloc", "log_ns": ns(at)} for n, at in enumerate(allocations_ms)
    ]
    return frame_of(schema.MARKS, rows)


def trace_of(
    plan: Sequence[Planned],
    activity: dict[str, Activity] | None = None,
    queue: Sequence[tuple[float, float]] = (),
    allocations_ms: Sequence[float] = (),
    change_samples: Callable[[pl.DataFrame], pl.DataFrame] = lambda samples: samples,
    warmup: frozenset[int] = frozenset(),
) -> Trace:
    """A trace of one GPU; without `activity` there are no samples."""
    samples = schema.SAMPLES.empty() if activity is None else change_samples(sampled(plan, activity))
    return Trace(
        marks=marks_frame(allocations_ms),
        calls=calls_frame(plan, warmup=warmup),
        phases=phases_frame(plan),
        syntheses=queue_frame(queue) if queue else schema.SYNTHESES.empty(),
        samples=samples,
        gpus=[GpuInfo(0, "a GPU", 5, 16, LINK_BYTES_PER_S, "counters", "gpm")],
        clock=Clock("timeline+tracing", True, BEGIN_NS / 1e9, 0.001, 0.0),
    )


def run(
    count: int = 10, seed: int = 4, between_ms: float = 0.0, lengths: dict[str, float] | None = None, **more: float
) -> list[Planned]:
    """Calls of one worker after another, their lengths a little different each time; phases as given, in ms."""
    rng = random.Random(seed)
    plan: list[Planned] = []
    at = 1000.0
    for n in range(count):
        call = Planned(0, n, start=at, prep=100.0, release=5.0)
        for name, length in {**(lengths or {}), **more}.items():
            setattr(call, name, length)
        for name in ("ntt_kernels", "coset_intt_sync", "msm_invoke", "batch_add", "tail_msm"):
            setattr(call, name, getattr(call, name) * rng.uniform(0.85, 1.15))
        call.lock = call.asks
        plan.append(call)
        at = call.end + between_ms + rng.uniform(0.5, 3.0)
    return plan


def queue_of(plan: Sequence[Planned]) -> list[tuple[float, float]]:
    return [(call.start - 700.0 * (call.partition % 3), call.start) for call in plan]


def charged(trace: Trace, phase: str | None = None) -> dict[str, float]:
    """Lost seconds by cause, of one phase or of all."""
    blame = diagnose(trace).blame
    own = blame if phase is None else blame.filter(pl.col("phase") == phase)
    totals = own.group_by("cause").agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("s"))
    return {cause: seconds for cause, seconds in totals.iter_rows() if seconds > 1e-9}
