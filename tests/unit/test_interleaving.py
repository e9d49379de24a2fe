"""Interleaving on simulated schedules, whose locks, waits and phases are known exactly, and its laws."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from gputrace import schema
from gputrace.analysis.diagnosis import Interleaving
from gputrace.analysis.segments import build_segments
from gputrace.analysis.spans import Spans, covered_ns, crossings, in_order, merged
from gputrace.analysis.workers.interleaving import interleavings
from gputrace.analysis.workers.shortest import Share, shortest_times
from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.simulate.pipeline import simulate
from gputrace.simulate.schedule import CallRecord, CallWork, Limits, Schedule
from gputrace.trace import Trace

BASE = CallWork("", 0, synth=0.5, ntt_kernels=0.6, release_abc=0.3, prep_msm=0.4)
SATURATED = Limits(parallel_syntheses=18, in_flight=40)
# Seconds; what the log would print is whole milliseconds, and a hand-over takes a little.
ROUNDING_S = 0.001
NO_BURSTS = pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "buffers": pl.UInt32})


def ns(seconds: float) -> int | None:
    return None if math.isnan(seconds) else round(seconds * 1e9)


def ms(seconds: float) -> int | None:
    return None if math.isnan(seconds) else int(seconds * 1e3)


def trace_of(schedule: Schedule) -> Trace:
    """The schedule as a perfect reading of its log would give it."""
    calls, phases = [], []
    for number, call in enumerate(schedule.calls):
        calls.append(
            {
                "call": number, "restart": 0, "gpu": call.gpu, "worker": call.worker, "job": call.work.job,
                "partition": call.work.partition, "complete": True, "start_ns": ns(call.entry),
                "lock_ns": ns(call.lock), "unlock_ns": ns(call.unlock), "end_ns": ns(call.returned),
                "finish_ns": ns(call.finished), "uncertainty_ms": 0.0, "pre_lock_cpu_ms": ms(call.asked - call.entry),
                "mutex_wait_ms": ms(call.mutex_wait), "release_abc_ms": ms(call.returned - call.unlock),
            }
        )  # fmt: skip
        phases += [
            {
                "call": number, "gpu": call.gpu, "worker": call.worker, "name": span.name,
                "duration_ms": ms(span.end - span.start), "start_ns": ns(span.start), "end_ns": ns(span.end),
                "under_mutex": span.name in LEAVES_UNDER_MUTEX,
            }
            for span in call.spans
        ]  # fmt: skip
    syntheses = [
        {"restart": 0, "queued_ns": ns(call_queue[0]), "picked_up_ns": ns(call_queue[1])}
        for call_queue in queue_times(schedule)
    ]
    return Trace(
        calls=schema.CALLS.fit(pl.DataFrame(calls)),
        phases=schema.PHASES.fit(pl.DataFrame(phases)),
        syntheses=schema.SYNTHESES.fit(pl.DataFrame(syntheses)),
    )


def queue_times(schedule: Schedule) -> list[tuple[float, float]]:
    queued = {synthesis.index: synthesis.queued for synthesis in schedule.syntheses}
    return [(queued[call.index], call.pickup) for call in schedule.calls]


@cache
def scheduled(name: str) -> Schedule:
    works, limits = [replace(BASE, job=f"job-{i // 10}", partition=i % 10) for i in range(40)], SATURATED
    if name == "late-prep":
        works = [replace(work, prep_msm=3.0) for work in works]
    elif name == "starved":
        works, limits = [replace(work, synth=4.0) for work in works], Limits(parallel_syntheses=1, in_flight=2)
    elif name == "uneven":
        works = [replace(work, ntt_kernels=0.2 + 0.3 * (i % 3), release_abc=0.9) for i, work in enumerate(works)]
        limits = replace(SATURATED, fifo_mutex=False, workers_per_gpu=4)
    elif name == "two-gpus":
        limits = replace(SATURATED, gpus=2)
    elif name == "one-worker":
        limits = replace(SATURATED, workers_per_gpu=1)
    return simulate(works, limits, seed=7)


def found(schedule: Schedule) -> tuple[Interleaving, ...]:
    trace = trace_of(schedule)
    return interleavings(trace, build_segments(trace, NO_BURSTS))


def on_gpu(schedule: Schedule, gpu: int) -> list[CallRecord]:
    return [call for call in schedule.by_lock if call.gpu == gpu]


def overlap(a: tuple[float, float], b: tuple[float, float]) -> float:
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0]))


SEVERAL = ("plain", "late-prep", "starved", "uneven", "two-gpus")


@pytest.mark.parametrize("name", SEVERAL)
def test_who_waits_for_whom_is_the_schedules(name: str) -> None:
    schedule = scheduled(name)
    results = found(schedule)
    assert [result.gpu for result in results] == list(range(schedule.limits.gpus))
    for result in results:
        calls = on_gpu(schedule, result.gpu)
        by_pair: dict[tuple[int, int], float] = defaultdict(float)
        barrier: dict[tuple[int, int], float] = defaultdict(float)
        for call in calls:
            if call.mutex_wait < ROUNDING_S:
                continue
            for other in calls:
                wait = (call.asked, call.lock)
                by_pair[call.worker, other.worker] += overlap(wait, (other.lock, other.unlock))
                barrier[call.worker, other.worker] += overlap(wait, (other.ntt_end, other.barrier_end))
        expected = {pair: seconds for pair, seconds in by_pair.items() if seconds > 0}
        assert {(w.waiter, w.holder): w.total_s for w in result.waits} == pytest.approx(expected, abs=0.02)
        for pair in result.waits:
            assert pair.holder is not None
            assert pair.by_phase_s.get("barrier_wait", 0.0) == pytest.approx(
                barrier[pair.waiter, pair.holder], abs=0.005
            )


@pytest.mark.parametrize("name", SEVERAL)
def test_every_second_waited_is_said_once(name: str) -> None:
    schedule = scheduled(name)
    for result in found(schedule):
        waits = [call.mutex_wait for call in on_gpu(schedule, result.gpu) if call.mutex_wait >= ROUNDING_S]
        assert result.waited_s == pytest.approx(sum(waits), abs=len(waits) * 0.0005 + 1e-9)
        parts = sum(sum(pair.by_phase_s.values()) for pair in result.waits)
        assert parts + result.waited_unheld_s == pytest.approx(result.waited_s, abs=1e-6)
        for pair in result.waits:
            assert sum(pair.by_phase_s.values()) == pytest.approx(pair.total_s, abs=1e-9)
        handed = sum(schedule.limits.handover for _ in waits)
        assert result.waited_unheld_s == pytest.approx(handed, abs=len(waits) * 0.0011)


@pytest.mark.parametrize("name", SEVERAL)
def test_hand_overs_are_the_schedules(name: str) -> None:
    schedule = scheduled(name)
    for result in found(schedule):
        calls = on_gpu(schedule, result.gpu)
        pairs = list(itertools.pairwise(calls))
        waited = [(b.lock - a.unlock) * 1e3 for a, b in pairs if b.mutex_wait >= ROUNDING_S]
        others = [(b.lock - a.unlock) * 1e3 for a, b in pairs if b.mutex_wait < ROUNDING_S]
        for times, expected in ((result.handovers_waited, waited), (result.handovers_unwaited, others)):
            assert times.count == len(expected)
            if expected:
                assert times.median_ms == pytest.approx(np.median(expected), abs=1e-3)
                assert times.p95_ms == pytest.approx(np.quantile(expected, 0.95), abs=1e-3)
                assert times.max_ms == pytest.approx(max(expected), abs=1e-3)
        switched = [a.worker != b.worker for a, b in pairs]
        assert result.alternation_share == pytest.approx(np.mean(switched))
        longest = run = 1
        for changed in switched:
            run = 1 if changed else run + 1
            longest = max(longest, run)
        assert result.longest_run == longest


@pytest.mark.parametrize("name", SEVERAL)
def test_work_off_the_gpu_is_divided_as_the_schedule_says(name: str) -> None:
    schedule = scheduled(name)
    for result in found(schedule):
        calls = on_gpu(schedule, result.gpu)
        window = (calls[0].lock, max(call.unlock for call in calls))
        edges = {"release": ("unlock", "returned"), "setup": ("entry", "asked"), "prep_msm": ("split_end", "prep_end")}
        work = {item.kind: item for item in result.off_gpu}
        for kind, (first, last) in edges.items():
            total = other = own = 0.0
            for call in calls:
                span = (max(getattr(call, first), window[0]), min(getattr(call, last), window[1]))
                total += max(0.0, span[1] - span[0])
                for holder in calls:
                    inside = overlap(span, (holder.lock, holder.unlock))
                    if holder.worker != call.worker:
                        other += inside
                    else:
                        own += inside - overlap(span, (holder.ntt_end, holder.barrier_end))
            # Asking is known to half a millisecond: the log prints the wait in whole ones.
            assert work[kind].total_s == pytest.approx(total, abs=0.001 * len(calls))
            assert work[kind].under_other_s == pytest.approx(other, abs=0.001 * len(calls))
            assert work[kind].under_own_s == pytest.approx(own, abs=0.001 * len(calls))
        for item in result.off_gpu:
            assert item.under_other_s + item.under_own_s + item.exposed_s == pytest.approx(item.total_s)
            assert min(item.under_other_s, item.under_own_s, item.exposed_s) >= -1e-9
        assert result.overlap_efficiency is not None
        assert 0.0 <= result.overlap_efficiency <= 1.0


def test_a_worker_without_work_is_not_in_its_loop() -> None:
    by_kind = [{item.kind: item for item in found(scheduled(name))[0].off_gpu} for name in ("plain", "starved")]
    loop_s = [kinds["loop"].total_s for kinds in by_kind]
    assert all(seconds < 0.001 * 40 for seconds in loop_s)
    calls = scheduled("starved").by_lock
    idle = sum(max(0.0, b.lock - a.unlock) for a, b in itertools.pairwise(calls))
    assert idle > 1.0 > sum(loop_s)


@pytest.mark.parametrize("name", SEVERAL)
def test_no_schedule_is_shorter_than_its_bounds(name: str) -> None:
    for result in found(scheduled(name)):
        for bound in result.shortest:
            assert bound.shortest_s <= result.window_s + 1e-6
            assert bound.shortest_s == pytest.approx(max(bound.limits_s.values()))
            assert bound.limits_s[bound.limited_by] == pytest.approx(bound.shortest_s)


def test_a_saturated_mutex_reaches_its_bound() -> None:
    """Work always queued, no barrier: what is left above the bound is hand-overs and the first call's launch."""
    result = found(scheduled("plain"))[0]
    bound = next(bound for bound in result.shortest if bound.id == "mutex-as-built")
    assert bound.limited_by == "mutex"
    assert bound.shortest_s == pytest.approx(result.window_s, rel=0.01)


def test_late_preparation_limits_the_workers_and_the_bound_is_nearly_reached() -> None:
    result = found(scheduled("late-prep"))[0]
    for bound in result.shortest:
        assert bound.limited_by == "workers"
        assert bound.shortest_s == pytest.approx(result.window_s, rel=0.1)


def test_one_worker_has_nobody_to_take_turns_with() -> None:
    assert found(scheduled("one-worker")) == ()
    assert interleavings(Trace(), build_segments(Trace(), NO_BURSTS)) == ()


def test_calls_that_the_log_lost_are_said() -> None:
    trace = trace_of(scheduled("plain"))
    lost = pl.col("call") == 11
    trace.calls = trace.calls.with_columns(
        pl.when(lost).then(None).otherwise(pl.col(name)).alias(name) for name in ("lock_ns", "unlock_ns")
    )
    trace.phases = trace.phases.filter(~lost)
    result = interleavings(trace, build_segments(trace, NO_BURSTS))[0]
    assert result.calls == 39
    assert "1 call without both lock and unlock left out" in result.notes[0]
    whole = found(scheduled("plain"))[0]
    assert result.waited_unheld_s > whole.waited_unheld_s + 1.0
    parts = sum(sum(pair.by_phase_s.values()) for pair in result.waits)
    assert parts + result.waited_unheld_s == pytest.approx(result.waited_s)


def test_calls_on_the_wrong_gpu_make_the_figures_doubtful() -> None:
    trace = trace_of(scheduled("two-gpus"))
    assert all(not result.notes for result in interleavings(trace, build_segments(trace, NO_BURSTS)))
    wrong = trace.calls.filter(pl.col("gpu") == 1)["call"].gather_every(4).implode()
    for name in ("calls", "phases"):
        frame = getattr(trace, name)
        moved = pl.when(pl.col("call").is_in(wrong)).then(0).otherwise(pl.col("gpu")).cast(pl.Int32).alias("gpu")
        setattr(trace, name, frame.with_columns(moved))
    first, _ = interleavings(trace, build_segments(trace, NO_BURSTS))
    assert any("bound to the wrong GPU" in note for note in first.notes)


def test_bounds_of_restarts_add_up() -> None:
    busy = Share(2, {"msm_invoke": 6.0, "ntt_kernels": 3.0, "barrier_wait": 50.0}, 1.0, 0.0)
    slow = Share(2, {"msm_invoke": 1.0, "ntt_kernels": 4.0}, 20.0, 3.0)
    built, around = shortest_times([busy, slow])
    assert (built.shortest_s, built.limited_by) == (9.0 + 14.0, "workers")
    assert built.limits_s == {"mutex": 14.0, "workers": 5.0 + 14.0}
    assert (around.shortest_s, around.limited_by) == (6.0 + 14.0, "workers")
    assert around.limits_s == {"compute": 7.0, "copy": 7.0, "workers": 19.0}


def test_crossings_are_those_of_a_loop_over_everything() -> None:
    random = np.random.default_rng(5)
    starts = np.sort(random.choice(10_000, 80, replace=False)).astype(np.int64)
    ends = np.minimum(starts + random.integers(1, 200, 80), np.append(starts[1:], 10_000))
    low = random.integers(-50, 10_000, 60)
    high = low + random.integers(0, 900, 60)
    crossed = crossings(low, high, Spans(starts, ends))
    expected = [
        (i, j, max(low[i], starts[j]), min(high[i], ends[j]))
        for i in range(60)
        for j in range(80)
        if max(low[i], starts[j]) < min(high[i], ends[j])
    ]
    kept = [row for row in zip(*(column.tolist() for column in crossed), strict=True) if row[2] < row[3]]
    assert kept == expected
    per_interval = [sum(e - s for i, _, s, e in expected if i == row) for row in range(60)]
    assert covered_ns(low, high, Spans(starts, ends)).tolist() == per_interval
    union = merged(pl.Series(low), pl.Series(high))
    assert (union.starts[1:] > union.ends[:-1]).all()
    seen = np.zeros(12_000, dtype=bool)
    for a, b in zip(low, high, strict=True):
        seen[a + 50 : b + 50] = True
    assert int((union.ends - union.starts).sum()) == int(seen.sum())


def test_moments_in_order_are_each_there_once() -> None:
    moments = [np.array(times, dtype=np.int64) for times in ([3, 9], [1, 3, 3], [], [7])]
    assert in_order(*moments).tolist() == [1, 3, 7, 9]
    assert in_order(moments[2]).tolist() == []
