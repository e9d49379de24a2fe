"""The fleet's statistics against published examples, other implementations, and their own promises."""

import numpy as np
import pytest
from scipy.stats import false_discovery_control, theilslopes

from gputrace.fleet.statistics import LEAST_CUT, holm, modified_z, outlier_cut, paired_difference, trend


def test_modified_z_is_iglewicz_and_hoaglins() -> None:
    values = np.array([3.2, 3.3, 3.1, 3.0, 3.4, 9.0])
    scores = modified_z(values, 0.0)
    # median 3.25, MAD 0.15: their 0.6745 is 1 / 1.4826.
    assert scores[-1] == pytest.approx(0.6745 * (9.0 - 3.25) / 0.15, rel=1e-4)
    assert np.abs(scores[:-1]).max() < 2


def test_where_most_are_alike_the_floor_is_the_scale() -> None:
    scores = modified_z(np.array([0.0] * 9 + [0.02, 0.5]), 0.01)
    assert list(scores[-2:]) == pytest.approx([2.0, 50.0])


@pytest.mark.parametrize("n", [8, 30])
def test_a_fleet_of_alike_gpus_names_an_outlier_in_one_of_twenty(n: int) -> None:
    draws = np.random.default_rng(987).normal(0.4, 0.1, (4000, n))
    cut = outlier_cut(n, 0.05)
    named = np.mean([np.abs(modified_z(row, 0.0)).max() > cut for row in draws])
    assert 0.035 < named < 0.065


def test_the_cut_of_few_is_higher_and_that_of_many_goes_on_evenly() -> None:
    assert outlier_cut(8, 0.05) > outlier_cut(20, 0.05) > outlier_cut(100, 0.05) > LEAST_CUT
    assert outlier_cut(1000, 0.05) == pytest.approx(outlier_cut(1001, 0.05), rel=0.05)
    assert outlier_cut(10, 0.05) == outlier_cut.__wrapped__(10, 0.05)


def test_holm_as_published_and_never_surer_than_false_discovery_control() -> None:
    assert holm([0.01, None, 0.04, 0.03, 0.005]) == pytest.approx([0.03, None, 0.06, 0.06, 0.02])
    p_values = [0.001, 0.2, 0.012, 0.9, 0.04]
    assert all(h >= f for h, f in zip(holm(p_values), false_discovery_control(p_values), strict=True) if h is not None)


def test_the_trend_of_one_series_is_theil_and_sens() -> None:
    rng = np.random.default_rng(4)
    x = np.arange(14.0)
    y = 0.3 + 0.01 * x + rng.normal(0, 0.02, 14)
    found, peer = trend([(x, y)]), theilslopes(y, x)
    assert found.value == pytest.approx(peer.slope)
    assert (found.low, found.high) == pytest.approx((peer.low_slope, peer.high_slope), abs=1e-3)
    assert found.low < 0.01 < found.high
    assert found.p_value < 0.05


def test_other_hosts_on_other_days_make_no_trend() -> None:
    flat = [
        (np.arange(6.0), np.array([0.2, 0.21, 0.2, 0.19, 0.2, 0.21])),
        (np.arange(6.0) + 6, np.array([0.7, 0.69, 0.7, 0.71, 0.7, 0.69])),
    ]
    assert trend(flat).p_value > 0.5
    pooled = trend([(np.concatenate([x for x, _ in flat]), np.concatenate([y for _, y in flat]))])
    assert pooled.p_value < 0.02


def test_the_same_small_drift_on_every_host_is_seen_together() -> None:
    rng = np.random.default_rng(8)
    hosts = [(np.arange(6.0), level + 0.005 * np.arange(6.0) + rng.normal(0, 0.01, 6)) for level in rng.random(20)]
    assert trend(hosts).p_value < 0.001
    assert trend(hosts).low < 0.005 < trend(hosts).high


def test_paired_differences_as_hollander_and_wolfe_have_them() -> None:
    # Nonparametric Statistical Methods, example 3.1: depression scores, theta -0.46, 96.1 % interval -0.786 to -0.010.
    before = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    after = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    found = paired_difference(after - before)
    assert (found.value, found.low, found.high) == pytest.approx((-0.46, -0.786, -0.010), abs=1e-6)
    assert found.p_value == pytest.approx(0.0391, abs=1e-4)


@pytest.mark.parametrize("n", [6, 12, 60])
def test_interval_and_test_of_pairs_say_the_same(n: int) -> None:
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.3, 0.6, 1.0):
        found = paired_difference(rng.normal(shift, 1.0, n))
        assert (found.p_value < 0.05) == (not found.low <= 0.0 <= found.high)
