"""Simulated schedules as traces: frames made straight from the truth, so that many runs cost little."""

import math
from collections.abc import Sequence
from dataclasses import replace

from gputrace import schema
from gputrace.simulate.pipeline import simulate
from gputrace.simulate.scenarios import random_scenario, works_of
from gputrace.simulate.schedule import CallWork, Limits, Schedule
from gputrace.trace import Clock, Trace
from tests.unit.support import frame_of

BEGIN_NS = 1_773_425_462_000_000_000


def _ns(seconds: float) -> int | None:
    return None if math.isnan(seconds) else BEGIN_NS + round(seconds * 1e9)


def trace_of_schedule(schedule: Schedule, first: int = 0) -> Trace:
    """Calls, phases and syntheses of the calls that were unlocked, from the `first` lock on; no samples."""
    calls = [call for call in schedule.by_lock if not math.isnan(call.unlock)][first:]
    rows: list[dict[str, object]] = [
        {
            "call": n, "restart": 0, "gpu": call.gpu, "worker": call.worker, "job": call.work.job,
            "partition": call.work.partition, "pinned": call.work.pinned, "complete": True, "failed": False,
            "warmup": call.warmup, "start_ns": _ns(call.entry), "lock_ns": _ns(call.lock),
            "unlock_ns": _ns(call.unlock), "end_ns": _ns(call.returned),
        }
        for n, call in enumerate(calls)
    ]  # fmt: skip
    phases: list[dict[str, object]] = [
        {
            "call": n, "gpu": call.gpu, "worker": call.worker, "name": span.name,
            "duration_ms": math.floor((span.end - span.start) * 1e3), "start_ns": _ns(span.start),
            "end_ns": _ns(span.end), "under_mutex": call.lock <= span.start < call.unlock,
        }
        for n, call in enumerate(calls)
        for span in call.spans
    ]  # fmt: skip
    syntheses: list[dict[str, object]] = [
        {"job": s.work.job, "partition": s.work.partition, "restart": 0, "start_ns": _ns(s.start), "end_ns": _ns(s.end)}
        for s in schedule.syntheses
    ]
    mark: dict[str, object] = {"source": 0, "line": 1, "event": "engine_start", "log_ns": BEGIN_NS}
    return Trace(
        marks=frame_of(schema.MARKS, [mark]),
        calls=frame_of(schema.CALLS, rows),
        phases=frame_of(schema.PHASES, phases),
        syntheses=frame_of(schema.SYNTHESES, syntheses),
        clock=Clock("timeline+tracing", True, BEGIN_NS / 1e9, 0.001, 0.0),
    )


def steady_run(seed: int, calls: int) -> tuple[Sequence[CallWork], Limits]:
    """Works and limits of a random run in which nothing changes: one kind of memory, no allocation."""
    scenario = random_scenario(seed)
    scenario = replace(scenario, pinned="no" if scenario.pinned == "pool" else scenario.pinned, partitions=calls)
    return works_of(scenario, 0, seed), scenario.limits


def stepped(works: Sequence[CallWork], at: int, factor: float) -> list[CallWork]:
    """The works with the copy `factor` times longer from number `at` on."""
    return [
        replace(work, ntt_kernels=work.ntt_kernels * (factor if number >= at else 1.0))
        for number, work in enumerate(works)
    ]


def run_of(works: Sequence[CallWork], limits: Limits, seed: int, skip: int, keep: int) -> Trace:
    """The trace of calls `skip` to `skip + keep`: without filling up and draining."""
    schedule = simulate(works, limits, seed)
    ends = sorted(call.unlock for call in schedule.by_lock)
    return trace_of_schedule(simulate(works, limits, seed, until=ends[skip + keep - 1] + 1e-6), skip)
