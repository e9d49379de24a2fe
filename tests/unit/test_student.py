"""Student's t, held against scipy's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr, stdtrit

from gputrace.analysis.student import cumulative, quantile

FREEDOM = st.one_of(st.integers(1, 1_000_000), st.floats(0.1, 1000.0))


@given(FREEDOM, st.floats(-100.0, 100.0))
def test_cumulative_is_scipys(freedom: float, t: float) -> None:
    assert cumulative(freedom, t) == pytest.approx(stdtr(freedom, t), rel=1e-7, abs=1e-290)


@given(FREEDOM, st.floats(0.001, 0.999))
def test_quantile_is_scipys(freedom: float, probability: float) -> None:
    assert quantile(freedom, probability) == pytest.approx(stdtrit(freedom, probability), rel=1e-7, abs=1e-9)


def test_what_is_no_distribution_has_none() -> None:
    assert all(found != found for found in (cumulative(0, 1.0), cumulative(3, float("nan")), quantile(5, 1.0)))
