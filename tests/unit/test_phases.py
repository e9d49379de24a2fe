"""Constant or variable, how many ran beside it, and what its length goes with."""

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import PhaseFinding
from gputrace.analysis.phases import classify, concurrent, p_value, with_transfer
from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.schema import CONTAINS_OTHERS, HOST, PHASE_NAMES
from gputrace.trace import Trace
from tests.unit.prover import Planned
from tests.unit.support import MS, frame_of, spans
from tests.unit.traces import ns, queue_frame, trace_of

HELD_MS = 2000.0


def kind(values: list[float], held_ms: float = HELD_MS) -> str:
    return classify(np.array(values, dtype=np.float64), held_ms)[0]


# --- classes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([400.0] * 20, "constant"),
        ([390.0, 400.0, 410.0] * 10, "constant"),
        ([300.0, 8900.0, 2200.0, 5000.0] * 5, "variable"),
        # One outlier in forty lies outside p5..p95.
        ([400.0] * 39 + [9000.0], "constant"),
        ([400.0] * 30 + [900.0] * 10, "variable"),
        # 12 % of the median: not over 15 %.
        ([1000.0] * 10 + [1120.0] * 10, "constant"),
        # Half of the median, but under 5 ms.
        ([30.0, 33.0] * 10, "constant"),
        ([0.0] * 20, "negligible"),
        ([0.0, 1.0, 4.0] * 10, "negligible"),
        # 1 % of a hold of 2 s is 20 ms.
        ([10.0, 19.0] * 10, "negligible"),
        ([10.0, 21.0] * 10, "variable"),
        ([0.0] * 12 + [500.0] * 8, "variable"),
    ],
)
def test_classes(values: list[float], expected: str) -> None:
    assert kind(values) == expected


@pytest.mark.parametrize(
    ("count", "expected"), [(MIN_CALLS - 1, "insufficient"), (MIN_CALLS, "constant"), (0, "insufficient")]
)
def test_too_few_calls_have_no_class(count: int, expected: str) -> None:
    assert kind([400.0] * count) == expected


def test_without_a_known_hold_nothing_is_negligible() -> None:
    assert kind([3.0] * 20, held_ms=0.0) == "constant"


def test_the_reason_names_the_numbers() -> None:
    _, reason = classify(np.array([300.0] * 10 + [900.0] * 10), HELD_MS)
    assert "600 ms" in reason and "100%" in reason
    _, few = classify(np.array([300.0] * 3), HELD_MS)
    assert few.startswith("3 calls") and str(MIN_CALLS) in few


@given(
    values=st.lists(st.floats(20.5, 1e5), min_size=MIN_CALLS, max_size=60),
    factor=st.sampled_from([1.0, 2.0, 10.0]),
)
def test_longer_runs_of_the_same_shape_are_of_the_same_class(values: list[float], factor: float) -> None:
    # All times longer alike: what was variable stays so (the 5 ms are passed all the sooner).
    if kind(values) == "variable":
        assert kind([value * factor for value in values], HELD_MS * factor) == "variable"


@given(values=st.lists(st.floats(0, 1e5), min_size=MIN_CALLS, max_size=40))
def test_order_does_not_matter(values: list[float]) -> None:
    assert classify(np.array(values), HELD_MS) == classify(np.array(values[::-1]), HELD_MS)


# --- how many ran beside it ----------------------------------------------------------------------------------------

intervals = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 3000)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


@given(running=intervals, start=st.integers(0, 6000), length=st.integers(1, 2500), base=st.sampled_from([0, 10**18]))
def test_concurrency_against_counting(running: list[tuple[int, int]], start: int, length: int, base: int) -> None:
    ms = [(base + a * MS, base + b * MS) for a, b in running]
    low, high = np.array([base + start * MS]), np.array([base + (start + length) * MS])
    overlap = sum(max(0, min(b, start + length) - max(a, start)) for a, b in running)
    got = concurrent(spans(ms), low, high)
    # Float64 keeps a nanosecond of today to 128 ns or so.
    assert got[0] == pytest.approx(overlap / length, abs=2e-3)


def test_concurrency_of_several_intervals_at_once() -> None:
    running = spans([(0, 100), (50, 150), (60, 70)])
    got = concurrent(running, np.array([0, 50, 200]), np.array([50, 100, 300]))
    assert got.tolist() == pytest.approx([1.0, 2.2, 0.0])


def test_what_has_not_ended_runs_on() -> None:
    running = pl.DataFrame(
        {"start_ns": [0, 40, None], "end_ns": [None, 60, 80]}, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}
    )
    assert concurrent(running, np.array([50]), np.array([100])).tolist() == pytest.approx([1.2])


def test_nothing_running() -> None:
    assert concurrent(spans([]), np.array([0]), np.array([10])).tolist() == [0.0]


# --- drivers -------------------------------------------------------------------------------------------------------


def plan_of(lengths: list[float], workers: int = 1) -> list[Planned]:
    """Calls whose ntt_kernels takes as long as given."""
    plan: list[Planned] = []
    at = 1000.0
    for n, length in enumerate(lengths):
        call = Planned(n % workers, n, start=at, prep=100.0, ntt_kernels=length, release=5.0)
        call.lock = call.asks
        plan.append(call)
        at = call.end + 1.0
    return plan


def drivers(trace: Trace) -> dict[str, float]:
    ntt = next(phase for phase in diagnose(trace).phases if phase.name == "ntt_kernels")
    assert ntt.phase_class == "variable"
    return {driver.name: driver.spearman for driver in ntt.drivers}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_phase_that_grows_with_the_syntheses_is_found_to(sign: int) -> None:
    rng = random.Random(2)
    beside = [rng.randint(0, 9) for _ in range(40)]
    plan = plan_of([2500.0 + sign * 200.0 * count + rng.uniform(0, 30) for count in beside])
    trace = trace_of(plan)
    busy = [(ns(c.lock), ns(c.unlock)) for c, count in zip(plan, beside, strict=True) for _ in range(count)]
    trace.syntheses = queue_frame([(0.0, 1.0)] * len(busy)).with_columns(
        pl.Series("start_ns", [a for a, _ in busy]), pl.Series("end_ns", [b for _, b in busy])
    )
    found = drivers(trace)
    assert found["concurrent syntheses"] * sign > 0.9
    assert "order in the run" not in found
    assert next(iter(found)) == "concurrent syntheses"


def test_a_phase_that_grows_with_the_hosts_load_is_found_to() -> None:
    rng = random.Random(3)
    load = [rng.uniform(0.1, 0.9) for _ in range(40)]
    plan = plan_of([1000.0 + 3000.0 * share for share in load])
    trace = trace_of(plan)
    trace.host = frame_of(
        HOST,
        [
            {"start_ns": ns(c.lock), "end_ns": ns(c.unlock), "cpu_share": share}
            for c, share in zip(plan, load, strict=True)
        ],
    )
    assert drivers(trace)["host CPU"] > 0.95


def test_a_phase_that_grows_over_the_run_is_found_to() -> None:
    plan = plan_of([1000.0 + 40.0 * n for n in range(40)])
    assert drivers(trace_of(plan)) == {"order in the run": pytest.approx(1.0)}


def test_a_phase_that_depends_on_the_memory_is_found_to() -> None:
    plan = plan_of([3000.0 + 10 * n if n % 2 else 300.0 + 10 * n for n in range(40)])
    for n, call in enumerate(plan):
        call.pinned = n % 2 == 0
    trace = trace_of(plan)
    # The flag is the call's; without it there is no such driver.
    assert drivers(trace)["pinned buffers"] < -0.8
    trace.calls = trace.calls.with_columns(pl.lit(None, pl.Boolean).alias("pinned"))
    assert "pinned buffers" not in drivers(trace)


def test_noise_goes_with_nothing_but_by_chance() -> None:
    # Three candidates at p < 0.01 over 20 runs: more than four hits would be (p < 0.001) more than chance.
    hits = 0
    for seed in range(20):
        rng = random.Random(seed)
        plan = plan_of([rng.uniform(500.0, 5000.0) for _ in range(30)], workers=2)
        trace = trace_of(plan)
        trace.host = frame_of(
            HOST, [{"start_ns": ns(c.lock), "end_ns": ns(c.unlock), "cpu_share": rng.random()} for c in plan]
        )
        hits += len(drivers(trace))
    assert hits <= 4


def test_a_constant_phase_has_no_drivers() -> None:
    plan = plan_of([1000.0 + n for n in range(40)])
    ntt = next(phase for phase in diagnose(trace_of(plan)).phases if phase.name == "ntt_kernels")
    assert (ntt.phase_class, ntt.drivers) == ("constant", ())


@given(seed=st.integers(0, 10_000), n=st.integers(MIN_CALLS, 80), strength=st.floats(0.0, 2.0), ties=st.booleans())
@settings(max_examples=60)
def test_p_values_are_scipys(seed: int, n: int, strength: float, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    y = strength * x + rng.standard_normal(n)
    if ties:
        x, y = np.round(x), np.round(y)
    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return
    rank, chance = spearmanr(x, y)
    assert p_value(float(rank), n) == pytest.approx(float(chance), rel=1e-6, abs=1e-12)
    polars_rank = pl.DataFrame({"x": x, "y": y}).select(pl.corr("x", "y", method="spearman")).item()
    assert polars_rank == pytest.approx(float(rank), abs=1e-9)


@pytest.mark.parametrize("rank", [1.0, -1.0])
def test_a_perfect_correlation_has_a_p_value_of_nothing(rank: float) -> None:
    assert 0.0 <= p_value(rank, 10) < 1e-12


# --- findings ------------------------------------------------------------------------------------------------------


def test_findings_come_in_the_order_of_a_call_and_cover_complete_calls_only() -> None:
    plan = plan_of([1000.0] * 12)
    trace = trace_of(plan)
    trace.calls = trace.calls.with_columns((pl.col("call") != 11).alias("complete"))
    found = diagnose(trace).phases
    names = [phase.name for phase in found]
    assert names == [name for name in PHASE_NAMES if name in names]
    assert {phase.count for phase in found} == {11}
    assert {phase.name for phase in found if phase.contains_others} == set(CONTAINS_OTHERS) & set(names)


def test_warmup_calls_are_counted_but_have_no_say_in_the_class() -> None:
    plan = plan_of([9000.0, *[1000.0] * 11])
    found = {phase.name: phase for phase in diagnose(trace_of(plan, warmup=frozenset({0}))).phases}
    ntt = found["ntt_kernels"]
    assert (ntt.count, ntt.max_ms, ntt.phase_class) == (12, 9000.0, "constant")


def test_quantiles_are_those_of_the_durations() -> None:
    lengths = [100.0 * n + 0.7 for n in range(1, 21)]
    ntt = next(p for p in diagnose(trace_of(plan_of(lengths))).phases if p.name == "ntt_kernels")
    floored = np.floor(lengths)
    assert (ntt.min_ms, ntt.median_ms, ntt.max_ms) == (floored.min(), np.median(floored), floored.max())
    assert ntt.mean_ms == pytest.approx(floored.mean())
    assert [ntt.p5_ms, ntt.p95_ms] == pytest.approx(np.quantile(floored, [0.05, 0.95]))


def finding(rate: float | None, sm: float | None = None) -> PhaseFinding:
    rates = None if rate is None else {"p10": rate, "median": rate, "p90": rate}
    return PhaseFinding(
        "ntt_kernels", False, 9, 1, 1, 1, 1, 1, 1, "constant", "", True, rx_bytes_per_s=rates, sm_share_median=sm
    )


@pytest.mark.parametrize(
    ("rate", "sm", "expected"),
    [
        (None, 0.0, "unknown"),
        (0.5e9, 0.0, "none"),
        (0.6e9, 0.0, "none"),
        (3e9, 0.05, "staged"),
        (3e9, None, "staged"),
        (3e9, 0.8, "mixed"),
        (24.9e9, 0.05, "staged"),
        (25e9, 0.05, "line-rate"),
        (48e9, 0.9, "line-rate"),
    ],
)
def test_transfer_classes(rate: float | None, sm: float | None, expected: str) -> None:
    (got,) = with_transfer((finding(rate, sm),), copy_floor=0.6e9, line_floor=25e9)
    assert got.transfer == expected


def test_without_a_line_rate_nothing_is_at_it() -> None:
    (got,) = with_transfer((finding(48e9),), copy_floor=0.6e9, line_floor=None)
    assert got.transfer == "staged"


def test_without_a_trace_no_transfer_class() -> None:
    (got,) = with_transfer((finding(3e9),), copy_floor=None, line_floor=None)
    assert got.transfer == "unknown"
