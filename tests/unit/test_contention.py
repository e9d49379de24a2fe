"""The statistics of contention against scipy's, which takes half a second to import."""

import numpy as np
import pytest
from scipy.stats import rankdata, theilslopes

from gputrace.analysis.signs.contention import _ranks, _slope


def _series(n: int, distinct: int | None) -> np.ndarray:
    rng = np.random.default_rng(n)
    return rng.normal(size=n) if distinct is None else rng.integers(0, distinct, n).astype(float)


@pytest.mark.parametrize("n", [16, 41, 600])
@pytest.mark.parametrize("distinct", [None, 3, 12])
def test_ranks_of_draws_are_those_of_each_row(n: int, distinct: int | None) -> None:
    values, rows = _series(n, distinct), np.random.default_rng(1).integers(0, n, (20, n))
    assert (_ranks(values, rows) == rankdata(values[rows], axis=1)).all()


@pytest.mark.parametrize("n", [16, 41, 600])
@pytest.mark.parametrize(("loads", "values"), [(12, None), (None, 4), (5, 3), (None, None)])
def test_the_slope_is_theil_and_sens(n: int, loads: int | None, values: int | None) -> None:
    load, value = _series(n, loads), _series(n + 1, values)[:n]
    peer = theilslopes(value, load, 0.95)
    assert _slope(load, value) == (peer.slope, peer.low_slope, peer.high_slope)
