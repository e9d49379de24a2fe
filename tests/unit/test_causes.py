"""Each lost second is charged to the cause that it should: every rule is reached."""

import numpy as np
import polars as pl
import pytest

from gputrace.analysis.blame import UNEXPLAINED
from gputrace.analysis.diagnose import diagnose
from gputrace.trace import Trace
from tests.unit.support import MS
from tests.unit.traces import (
    LINE_RATE,
    USUAL,
    Activity,
    charged,
    marks_frame,
    queue_of,
    run,
    trace_of,
)


def main_cause(trace: Trace, phase: str) -> str:
    """The cause that took at least nine tenths of what was lost in a phase."""
    found = charged(trace, phase)
    assert found, f"nothing was lost in {phase}"
    cause, seconds = max(found.items(), key=lambda item: item[1])
    assert seconds >= 0.9 * sum(found.values()), found
    return cause


def no_sm(samples: pl.DataFrame) -> pl.DataFrame:
    return samples.with_columns(pl.lit(None, pl.Float64).alias("sm_active"))


def test_a_barrier_is_prep_barrier() -> None:
    plan = run(10)
    for call in plan:
        call.prep = call.pre_lock + call.ntt_h + 900.0
    assert all(call.barrier > 500 for call in plan)
    for n, call in enumerate(plan):
        call.start += 1000.0 * n
        call.lock += 1000.0 * n
    assert main_cause(trace_of(plan, USUAL), "barrier_wait") == "prep-barrier"


@pytest.mark.parametrize("phase", ["d_b_alloc", "msm_init", "msm_dtor"])
def test_allocating_on_the_device_is_device_allocation(phase: str) -> None:
    assert main_cause(trace_of(run(10, lengths={phase: 600.0}), USUAL), phase) == "device-allocation"


def test_allocating_on_the_device_while_the_host_pins_is_a_stall() -> None:
    plan = run(10, d_b_alloc=600.0)
    trace = trace_of(plan, USUAL, allocations_ms=np.arange(500.0, plan[-1].end, 400.0).tolist())
    assert main_cause(trace, "d_b_alloc") == "pinned-alloc-stall"


@pytest.mark.parametrize("pinned", [False, None])
def test_a_slow_copy_from_unpinned_memory_is_pageable(pinned: bool | None) -> None:
    plan = run(10, ntt_kernels=3000.0)
    for call in plan:
        call.pinned = pinned
    trace = trace_of(plan, USUAL)
    assert main_cause(trace, "ntt_kernels") == "pageable-h2d"
    assert diagnose(trace).hypotheses[0].id == "pageable-h2d"


def test_a_slow_copy_from_pinned_memory_is_not_pageable() -> None:
    plan = run(10, ntt_kernels=3000.0)
    for call in plan:
        call.pinned = True
    assert "pageable-h2d" not in charged(trace_of(plan, USUAL))


def test_a_copy_at_line_rate_is_line_rate() -> None:
    activity = {**USUAL, "ntt_kernels": Activity(0.9 * LINE_RATE, 0.02)}
    assert main_cause(trace_of(run(10), activity), "ntt_kernels") == "line-rate-copy"


def test_no_copy_at_all_is_launch_overhead() -> None:
    activity = {**USUAL, "ntt_kernels": Activity(0.0, 0.02)}
    assert main_cause(trace_of(run(10), activity), "ntt_kernels") == "launch-overhead"


def test_a_copy_that_stands_still_while_the_host_pins_is_a_stall() -> None:
    plan = run(10, ntt_kernels=3000.0)
    activity = {**USUAL, "ntt_kernels": Activity(0.0, 0.02)}
    trace = trace_of(plan, activity, allocations_ms=np.arange(500.0, plan[-1].end, 400.0).tolist())
    assert main_cause(trace, "ntt_kernels") == "pinned-alloc-stall"


def test_kernels_that_do_not_fill_the_gpu_are_kernel_phase_idle() -> None:
    activity = {**USUAL, "msm_invoke": Activity(1e8, 0.5)}
    assert main_cause(trace_of(run(10), activity), "msm_invoke") == "kernel-phase-idle"


def test_kernels_that_wait_for_a_copy_at_line_rate_are_line_rate() -> None:
    activity = {**USUAL, "batch_add": Activity(LINE_RATE, 0.3)}
    assert main_cause(trace_of(run(10, batch_add=900.0), activity), "batch_add") == "line-rate-copy"


def test_kernels_much_longer_than_usual_while_the_host_pins_are_stalled() -> None:
    plan = run(12, msm_invoke=600.0)
    slow = plan[-2]
    # The last but one takes three times as long, while buffers are allocated, and its SMs stand still.
    slow.msm_invoke *= 3.0
    for call in plan[-1:]:
        call.start += 2.0 / 3.0 * slow.msm_invoke
        call.lock += 2.0 / 3.0 * slow.msm_invoke
    start, end = slow.edges["msm_invoke"]
    trace = trace_of(plan, {**USUAL, "msm_invoke": Activity(1e9, 0.4)}, allocations_ms=[start + 100.0, end - 100.0])
    blame = diagnose(trace).blame.filter((pl.col("phase") == "msm_invoke") & (pl.col("call") == len(plan) - 2))
    assert set(blame["cause"]) == {"pinned-alloc-stall"}
    others = diagnose(trace).blame.filter((pl.col("phase") == "msm_invoke") & (pl.col("call") < 5))
    assert set(others["cause"]) == {"kernel-phase-idle"}


def test_freeing_while_work_is_queued_is_release_abc() -> None:
    plan = run(10, release=800.0)
    # The next partition is queued all the while.
    trace = trace_of(plan, USUAL, queue=[(0.0, plan[-1].end)])
    assert main_cause(trace, "release_abc") == "release-abc"


def test_freeing_while_nothing_is_queued_is_no_work() -> None:
    plan = run(10, release=800.0)
    trace = trace_of(plan, USUAL, queue=[(call.start - 0.5, call.start) for call in plan])
    assert charged(trace, "release_abc") == {}
    assert main_cause(trace, "no_work") == "no-work-queued"


def test_an_empty_queue_is_no_work_queued() -> None:
    plan = run(10, between_ms=1500.0)
    trace = trace_of(plan, USUAL, queue=[(call.start - 1.0, call.start - 0.5) for call in plan])
    assert main_cause(trace, "no_work") == "no-work-queued"
    assert charged(trace)["no-work-queued"] == pytest.approx(9 * 1.5, rel=0.05)


def test_a_long_time_without_work_has_a_row_for_ten_seconds_but_for_its_ends() -> None:
    plan = run(2, between_ms=60_000.0)
    trace = trace_of(plan, USUAL, queue=[(call.start - 1.0, call.start - 0.5) for call in plan])
    diagnosis = diagnose(trace)
    idle = diagnosis.blame.filter(pl.col("cause") == "no-work-queued")
    lengths = idle.select((pl.col("end_ns") - pl.col("start_ns")) / 1e9).to_series()
    assert lengths.max() == pytest.approx(10.0)
    assert lengths[:40].max() == lengths[-40:].max() == pytest.approx(0.1)
    # But for half a millisecond in which something was queued, they follow each other.
    assert ((idle["start_ns"][1:] - idle["end_ns"][:-1]).abs() <= 0.5 * MS).all()
    assert idle["idle_s"].sum() == pytest.approx(60.0, abs=0.2)
    assert diagnosis.blame["idle_s"].sum() == pytest.approx(diagnosis.states["idle_s"].sum())


def test_a_worker_that_does_not_take_what_is_queued_is_the_host() -> None:
    plan = run(10, between_ms=1500.0)
    trace = trace_of(plan, USUAL, queue=[(call.start - 1480.0, call.start) for call in plan])
    assert main_cause(trace, "pickup") == "host-hot-path"


def test_a_long_way_to_the_lock_is_the_host() -> None:
    plan = run(10, pre_lock=900.0)
    assert main_cause(trace_of(plan, USUAL, queue=queue_of(plan)), "pre_lock") == "host-hot-path"


def test_between_calls_of_a_log_without_a_queue_nothing_is_claimed() -> None:
    plan = run(10, between_ms=1500.0)
    assert main_cause(trace_of(plan, USUAL), "between_calls") == UNEXPLAINED


def hold_longer(trace: Trace, by_ms: int) -> Trace:
    """Puts time between the phases and the lock that no line explains."""
    trace.calls = trace.calls.with_columns(pl.col("lock_ns") - by_ms * 1_000_000)
    return trace


def test_held_time_that_no_phase_explains_is_unexplained() -> None:
    trace = hold_longer(trace_of(run(10, between_ms=700.0), USUAL), 600)
    assert main_cause(trace, "mutex_held") == UNEXPLAINED


def test_in_a_first_call_it_is_device_allocation() -> None:
    trace = hold_longer(trace_of(run(10, between_ms=700.0), USUAL, warmup=frozenset(range(10))), 600)
    assert main_cause(trace, "mutex_held") == "device-allocation"


@pytest.mark.parametrize(("pinned", "cause"), [(False, "pageable-h2d"), (None, UNEXPLAINED), (True, UNEXPLAINED)])
def test_without_a_trace_the_logs_word_must_do(pinned: bool | None, cause: str) -> None:
    plan = run(10, ntt_kernels=3000.0)
    for call in plan:
        call.pinned = pinned
    assert main_cause(trace_of(plan), "ntt_kernels") == cause


def test_without_sm_readings_kernel_phases_lose_nothing() -> None:
    trace = trace_of(run(10), USUAL, change_samples=no_sm)
    diagnosis = diagnose(trace)
    assert diagnosis.gpus[0].state_source == "inferred from phases"
    assert "kernel-phase-idle" not in charged(trace)
    assert main_cause(trace, "ntt_kernels") == "pageable-h2d"


def test_without_a_log_nothing_is_claimed() -> None:
    trace = trace_of(run(10), USUAL)
    bare = Trace(samples=trace.samples, gpus=trace.gpus)
    assert set(diagnose(bare).blame["cause"]) == {UNEXPLAINED}
    assert marks_frame().height == 1
