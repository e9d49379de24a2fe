"""How busy each resource of the pipeline is, and the most calls a second that it could sustain."""

import statistics
from dataclasses import dataclass

import numpy as np

from gputrace.analysis.diagnosis import Bound
from gputrace.analysis.pipeline.observe import Observed
from gputrace.analysis.pipeline.services import Services
from gputrace.simulate.schedule import CallTimes, Outline

MUTEX, POOL, SYNTHESIS, PCIE, LOOP = "mutex", "cpp-pool", "synthesis", "pcie", "worker-loop"
ARRIVALS = "arrivals"
# Below this share of its time a resource that is the busiest has time all the same.
_HAS_TIME_SHARE = 0.75
# Resources as a sentence names them.
IN_WORDS = {
    MUTEX: "the GPU mutex",
    POOL: "the C++ pool (prep_msm, b_g2_msm)",
    SYNTHESIS: "synthesis",
    PCIE: "the PCIe link",
    LOOP: "the workers' loop",
    ARRIVALS: "the arrival of work",
}


@dataclass(frozen=True)
class Window:
    """Calls of a schedule, and the time from their first lock to their last unlock."""

    calls: list[CallTimes]
    start: float
    end: float

    @classmethod
    def of(cls, calls: list[CallTimes]) -> "Window":
        """The window of these calls."""
        return cls(calls, min(call.lock for call in calls), max(call.unlock for call in calls))

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(self.end - self.start, 1e-9)


def busy_shares(schedule: Outline, window: Window) -> dict[str, float]:
    """Share of the window in which each resource worked, 0..1; waiting for another resource is not work.

    The mutex works while it is held without waiting for prep_msm; a worker from pickup to return, less its waits.
    """
    limits = schedule.limits
    held = sum(call.mutex_held - call.barrier_wait for call in window.calls)
    # The last calls are cut off with the schedule; they are free when the mutex is.
    ends = [call.unlock if call.returned != call.returned else call.returned for call in window.calls]
    own = sum(
        end - call.pickup - call.mutex_wait - call.barrier_wait + limits.turn_around
        for end, call in zip(ends, window.calls, strict=True)
    )
    pool = covered([(call.split_end, call.b_g2_end) for call in schedule.calls], window.start, window.end)
    running = sum(
        max(0.0, min(s.queued if s.queued == s.queued else np.inf, window.end) - max(s.start, window.start))
        for s in schedule.syntheses
    )
    places = statistics.fmean(s.work.parallel_syntheses or limits.parallel_syntheses for s in schedule.syntheses)
    workers = limits.gpus * limits.workers_per_gpu
    return {
        MUTEX: held / window.seconds / limits.gpus,
        POOL: pool / window.seconds,
        SYNTHESIS: running / window.seconds / places,
        LOOP: own / window.seconds / workers,
    }


def covered(spans: list[tuple[float, float]], start: float, end: float) -> float:
    """Seconds between start and end that some span covers; an end that is NaN is not reached."""
    total, reached = 0.0, start
    for low, high in sorted((low, np.inf if high != high else high) for low, high in spans if low == low):
        low, high = max(low, reached), min(high, end)
        if high > low:
            total += high - low
            reached = high
    return total


def limiting(shares: dict[str, float], arrivals: bool) -> str:
    """The resource that sets the rate: the busiest one; arrivals where all have time and work came one by one."""
    most = max(shares, key=lambda name: shares[name])
    return ARRIVALS if arrivals and shares[most] < _HAS_TIME_SHARE else most


def bounds(seen: Observed, own: Services, bytes_per_call: float | None, line_rate: float | None) -> tuple[Bound, ...]:
    """The most that each resource could sustain at this run's service times, tightest first."""
    works = [work for work, is_own in zip(own.works, own.seen, strict=True) if is_own]
    limits, calls = own.limits, seen.calls
    start, end = calls[0].lock, max(call.unlock for call in calls)
    window_s = max(end - start, 1e-9)
    workers = limits.gpus * limits.workers_per_gpu
    held = statistics.fmean(call.held - min(call.barrier_wait, call.held) for call in calls)
    pool = statistics.fmean(work.prep_msm + work.b_g2_msm for work in works)
    loop = held + statistics.fmean(w.hot_path + w.pre_lock + w.release_abc for w in works) + limits.turn_around
    rows = [
        (MUTEX, float(limits.gpus), held, len(calls) * held / window_s / limits.gpus,
         "the GPU mutex, held for copies and kernels (waits for prep_msm left out)"),
        (LOOP, float(workers), loop, len(calls) * loop / window_s / workers,
         f"{workers} GPU worker{'s' if workers > 1 else ''}: pickup to return, waits left out"),
    ]  # fmt: skip
    if pool > 0:
        spans = [(c.prep_start, c.b_g2_end if c.b_g2_end is not None else c.prep_end) for c in calls]
        known = [(a, b) for a, b in spans if a is not None and b is not None]
        rows.append((POOL, 1.0, pool, covered(known, start, end) / window_s, "prep_msm and b_g2_msm, which share it"))
    synthesised = [work for work in works if work.parallel_syntheses]
    if synthesised:
        places = statistics.median(work.parallel_syntheses for work in synthesised)
        synth = statistics.fmean(work.synth for work in synthesised)
        running = sum(
            max(0.0, min(end if s.queued is None else s.queued, end) - max(s.start, start)) for s in seen.syntheses
        )
        rows.append(
            (SYNTHESIS, float(places), synth, running / window_s / places, f"{places:g} syntheses at once, as seen")
        )
    if bytes_per_call and line_rate:
        copy = bytes_per_call / line_rate
        rows.append(
            (PCIE, float(limits.gpus), copy, len(calls) * copy / window_s / limits.gpus, "bytes at the run's line rate")
        )
    found = [
        Bound(name, servers, seconds * 1e3, min(1.0, busy), servers / seconds, what)
        for name, servers, seconds, busy, what in rows
        if seconds > 0
    ]
    return tuple(sorted(found, key=lambda bound: bound.max_calls_per_s))
