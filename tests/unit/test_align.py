"""A log without wall-clock times is put on the GPU trace's clock where that is unique, and nowhere else."""

import random

import numpy as np
import polars as pl
import pytest

from gputrace.ingest.inputs import Ingested
from gputrace.rebuild.align import Alignment, align
from gputrace.rebuild.rebuild import rebuild
from tests.unit.prover import EPOCH_NS, Planned, print_log
from tests.unit.support import MS, marks_of
from tests.unit.traces import BEGIN_NS, USUAL, phases_frame, sampled

OFFSET_NS = 86_400_000_000_000


def aperiodic(count: int = 25, seed: int = 1) -> list[Planned]:
    """Calls of one worker; lengths and pauses differ as they do in a real run."""
    rng = random.Random(seed)
    plan: list[Planned] = []
    at = 1000.0
    for n in range(count):
        call = Planned(0, n, start=at, prep=100.0, ntt_kernels=rng.uniform(300.0, 4000.0), release=20.0)
        call.lock = call.asks
        plan.append(call)
        at = call.end + rng.choice([1.0, 5.0, 700.0, 2500.0])
    return plan


def periodic(count: int = 25) -> list[Planned]:
    """The same call over and over."""
    plan: list[Planned] = []
    at = 1000.0
    for n in range(count):
        call = Planned(0, n, start=at, prep=100.0, release=20.0)
        call.lock = call.asks
        plan.append(call)
        at = call.end + 280.0
    return plan


def moved(samples: pl.DataFrame, by_ns: int) -> pl.DataFrame:
    return samples.with_columns(pl.col("start_ns") + by_ns, pl.col("end_ns") + by_ns)


def noisy(samples: pl.DataFrame, seed: int) -> pl.DataFrame:
    """As a sampler sees it: rates off by a fifth, SM shares by a twentieth, one sample in ten missing."""
    rng = np.random.default_rng(seed)
    n = samples.height
    return samples.with_columns(
        pl.col("rx_wire_bytes") * pl.Series(rng.uniform(0.8, 1.2, n)),
        (pl.col("sm_active") + pl.Series(rng.normal(0, 0.05, n))).clip(0.0, 1.0),
    ).filter(pl.Series(rng.random(n) > 0.1))


def found(plan: list[Planned], samples: pl.DataFrame) -> Alignment:
    result = align({0: phases_frame(plan).filter("under_mutex")}, {0: samples})
    assert result is not None
    return result


@pytest.mark.parametrize("seed", range(6))
def test_an_aperiodic_run_is_found_within_its_uncertainty(seed: int) -> None:
    plan = aperiodic(seed=seed)
    shift_ns = OFFSET_NS + seed * 37 * MS
    result = found(plan, noisy(moved(sampled(plan, USUAL), shift_ns), seed))
    assert result.believed
    assert abs(result.offset_ns - shift_ns) <= result.uncertainty_s * 1e9


def test_of_two_gpus_in_the_trace_the_right_one_is_taken() -> None:
    plan, other = aperiodic(), aperiodic(seed=77)
    phases = {0: phases_frame(plan).filter("under_mutex")}
    traces = {3: moved(sampled(other, USUAL, gpu=3), OFFSET_NS), 5: moved(sampled(plan, USUAL, gpu=5), OFFSET_NS)}
    result = align(phases, traces)
    assert result is not None and result.believed
    assert abs(result.offset_ns - OFFSET_NS) <= result.uncertainty_s * 1e9


def test_without_sm_readings_the_bytes_must_do() -> None:
    plan = aperiodic()
    samples = moved(sampled(plan, USUAL), OFFSET_NS).with_columns(pl.lit(None, pl.Float64).alias("sm_active"))
    result = found(plan, samples)
    assert result.believed
    assert abs(result.offset_ns - OFFSET_NS) <= result.uncertainty_s * 1e9


@pytest.mark.parametrize("part", ["begins later", "ends earlier"])
def test_a_trace_of_part_of_the_run_is_found(part: str) -> None:
    plan = aperiodic(40)
    samples = sampled(plan, USUAL)
    third = samples.height // 3
    kept = samples[third:] if part == "begins later" else samples[: 2 * third]
    result = found(plan, moved(kept, OFFSET_NS))
    assert result.believed
    assert abs(result.offset_ns - OFFSET_NS) <= result.uncertainty_s * 1e9


@pytest.mark.parametrize("trace_is", ["the same", "longer"])
def test_a_strictly_periodic_run_is_not_believed(trace_is: str) -> None:
    plan = periodic()
    shown = plan if trace_is == "the same" else periodic(60)
    result = found(plan, moved(sampled(shown, USUAL), OFFSET_NS))
    # It fits, and it fits as well one period on.
    assert result.correlation > 0.6
    assert not result.believed


@pytest.mark.parametrize("seed", range(6))
def test_the_trace_of_another_run_is_not_believed(seed: int) -> None:
    other = aperiodic(seed=100 + seed)
    assert not found(aperiodic(seed=seed), noisy(moved(sampled(other, USUAL), OFFSET_NS), seed)).believed


def test_a_gpu_that_did_nothing_is_not_believed() -> None:
    plan = aperiodic()
    assert not found(plan, sampled(plan, {})).believed


def test_a_gpu_that_always_did_the_same_is_not_believed() -> None:
    plan = aperiodic()
    flat = sampled(plan, USUAL).with_columns(pl.lit(1e9).alias("rx_wire_bytes"), pl.lit(0.5).alias("sm_active"))
    assert not found(plan, flat).believed


def test_too_little_to_compare_gives_nothing() -> None:
    plan = aperiodic(2)
    phases, samples = phases_frame(plan), sampled(plan, USUAL)
    assert align({}, {0: samples}) is None
    assert align({0: phases}, {}) is None
    assert align({0: phases.clear()}, {0: samples}) is None
    assert align({0: phases}, {0: samples[:40]}) is None
    assert align({0: phases}, {0: samples.with_columns(pl.lit(None, pl.Float64).alias("rx_wire_bytes"))}) is None
    assert align({0: phases_frame(aperiodic(1))}, {0: samples}) is None


# --- in the rebuild ------------------------------------------------------------------------------------------------


def stderr_only(plan: list[Planned], samples: pl.DataFrame) -> Ingested:
    return Ingested(marks=marks_of(*print_log(plan, streams=("stderr",))), samples=samples)


def test_the_rebuild_moves_everything_by_what_was_found() -> None:
    assert BEGIN_NS == EPOCH_NS
    plan = aperiodic()
    trace = rebuild(stderr_only(plan, sampled(plan, USUAL)))
    assert (trace.clock.method, trace.clock.unique) == ("correlation", True)
    assert trace.clock.offset_s == pytest.approx(EPOCH_NS / 1e9, abs=0.11)
    assert trace.clock.runner_up_margin is not None and trace.clock.runner_up_margin >= 0.1
    locks = [(ns - EPOCH_NS) / MS for ns in trace.calls["lock_ns"].to_list()]
    assert locks == pytest.approx([call.lock for call in plan], abs=110)
    phases = trace.phases.drop_nulls(["start_ns"])
    assert min(phases["start_ns"].to_list()) > EPOCH_NS


def test_the_rebuild_says_so_where_it_is_not_unique() -> None:
    plan = periodic()
    trace = rebuild(stderr_only(plan, sampled(plan, USUAL)))
    assert trace.clock.method == "none" and not trace.clock.unique
    assert [notice.code for notice in trace.quality.notices] == ["not-aligned"]
    # The log stays on its own clock: milliseconds since the engine's start.
    assert max(trace.calls["lock_ns"].to_list()) < 1e12


def test_a_log_with_times_of_its_own_keeps_them_and_the_trace_moves() -> None:
    plan = aperiodic()
    samples = moved(sampled(plan, USUAL), OFFSET_NS)
    trace = rebuild(Ingested(marks=marks_of(*print_log(plan)), samples=samples))
    assert trace.clock.method == "timeline+tracing"
    assert [notice.code for notice in trace.quality.notices] == ["trace-clock-moved"]
    off_ns = samples["start_ns"][0] - trace.samples["start_ns"][0] - OFFSET_NS
    assert abs(off_ns) < 110 * 1_000_000


def test_a_trace_of_a_periodic_run_does_not_move() -> None:
    plan = periodic()
    samples = moved(sampled(plan, USUAL), OFFSET_NS)
    trace = rebuild(Ingested(marks=marks_of(*print_log(plan)), samples=samples))
    assert [notice.code for notice in trace.quality.notices] == ["no-overlap"]
