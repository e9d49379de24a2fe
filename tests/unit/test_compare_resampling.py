"""The uncertainty of one figure: intervals hold what they promise, whatever the dependence between calls."""

import math

import numpy as np
import pytest

from benchmarks.compare_rates import autoregressive
from gputrace.analysis.compare.changes import difference, spread
from gputrace.analysis.compare.figures import CALLS_PER_S, duration, find
from gputrace.analysis.compare.resampling import Estimate, critical_t, estimate

MEAN, MEDIAN = duration("mutex_held", "mean"), duration("mutex_held", "median")


@pytest.mark.parametrize(("calls", "phi"), [(20, 0.0), (20, 0.6), (40, -0.5), (100, 0.3), (100, 0.6)])
def test_intervals_of_the_difference_hold_nineteen_times_in_twenty(calls: int, phi: float) -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(300):
        before, after = (estimate(MEAN, 1000 + 80 * autoregressive(rng, calls, phi), resamples=200) for _ in range(2))
        uncertain = spread(before, after)
        assert uncertain is not None
        missed += abs(after.value - before.value) > uncertain.half_width()
    # 5 % of 300, give or take 2.5 standard deviations of that count. In short runs, and where calls make up for each
    # other, intervals may hold more often.
    assert missed <= 15 + 10
    assert missed >= 5 or phi < 0 or calls < 40


def test_blocks_grow_with_dependence_and_errors_with_them() -> None:
    rng = np.random.default_rng(5)
    loose, tied = (estimate(MEAN, 1000 + 80 * autoregressive(rng, 400, phi)) for phi in (0.0, 0.8))
    assert loose.block < tied.block
    # The standard error of a mean grows by sqrt((1 + phi) / (1 - phi)), which is 3 here.
    assert 2.0 < tied.standard_error / loose.standard_error < 4.5
    assert loose.freedom > 120 > 60 > tied.freedom


def test_the_error_of_an_independent_mean_is_the_textbook_one() -> None:
    for seed in range(10):
        values = np.random.default_rng(seed).normal(1000, 80, 300)
        textbook = values.std(ddof=1) / math.sqrt(300)
        assert 0.9 * textbook < estimate(MEAN, values).standard_error < 1.5 * textbook


def test_calls_that_make_up_for_each_other_make_a_mean_surer() -> None:
    values = 1000 + 80 * autoregressive(np.random.default_rng(1), 300, -0.7)
    assert estimate(MEAN, values).standard_error < 0.7 * values.std() / math.sqrt(300)


def test_the_error_of_a_median_is_larger_than_that_of_a_mean_of_normal_values() -> None:
    ratios = []
    for seed in range(20):
        values = np.random.default_rng(seed).normal(1000, 80, 300)
        ratios.append(estimate(MEDIAN, values).standard_error / estimate(MEAN, values).standard_error)
    assert np.median(ratios) == pytest.approx(math.sqrt(math.pi / 2), rel=0.1)


def test_a_rate_is_calls_by_seconds_and_a_total_is_scaled() -> None:
    seconds = np.random.default_rng(4).uniform(0.9, 1.1, 50)
    rate = estimate(CALLS_PER_S, np.ones(50), seconds)
    assert rate.value == pytest.approx(50 / seconds.sum())
    total, mean = estimate(find("lost_s"), seconds), estimate(find("lost_s_per_call"), seconds)
    assert total.value == pytest.approx(seconds.sum())
    assert total.standard_error == pytest.approx(50 * mean.standard_error)


def test_the_same_calls_give_the_same_error() -> None:
    values = np.random.default_rng(6).normal(1000, 80, 60)
    assert estimate(MEDIAN, values) == estimate(MEDIAN, values.copy())


def test_extremes_have_no_interval() -> None:
    longest = estimate(duration("mutex_held", "max"), np.array([3.0, 9.0, 4.0] * 5))
    assert longest.value == 9.0
    assert not longest.has_interval


def test_constant_durations_are_no_surer_than_a_printed_millisecond() -> None:
    assert estimate(MEDIAN, np.full(50, 33.0)).standard_error == pytest.approx(1 / math.sqrt(12))


def test_a_ratio_whose_base_may_be_nothing_has_no_interval() -> None:
    change = difference(MEAN, Estimate(10.0, 9.0, 20.0, 30, 3), Estimate(50.0, 9.0, 20.0, 30, 3))
    assert change.relative == 4.0
    assert change.relative_low is None
    assert change.difference_low is not None


def test_the_ratio_excludes_no_change_exactly_where_the_difference_does() -> None:
    edge = critical_t(0.05, 40.0) * math.hypot(10.0, 10.0)
    for after, excluded in ((1000.0 + 1.001 * edge, True), (1000.0 + 0.999 * edge, False)):
        change = difference(MEAN, Estimate(1000.0, 10.0, 20.0, 30, 3), Estimate(after, 10.0, 20.0, 30, 3))
        assert change.difference_low is not None and change.relative_low is not None
        assert (change.difference_low > 0) == (change.relative_low > 0) == excluded


def test_quantiles_of_long_runs_are_as_sure_as_by_resampling_them() -> None:
    values = 1000 + 80 * autoregressive(np.random.default_rng(8), 4000, 0.4)
    long_run = estimate(MEDIAN, values)
    short = [estimate(MEDIAN, values[i : i + 1000]).standard_error / 2 for i in range(0, 4000, 1000)]
    assert long_run.standard_error == pytest.approx(np.median(short), rel=0.25)
