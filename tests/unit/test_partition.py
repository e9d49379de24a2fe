"""The exact search for cuts and the rank test against the libraries that have them too."""

import numpy as np
import pytest
from ruptures import KernelCPD
from scipy.stats import mannwhitneyu

from gputrace.analysis.regimes.change_points import chance
from gputrace.analysis.regimes.partition import best_cuts


def _stepped(n: int, columns: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    levels = rng.normal(0.0, 2.0, (rng.integers(1, 8), columns))
    return np.asarray(np.clip(levels[np.sort(rng.integers(0, len(levels), n))] + rng.normal(size=(n, columns)), -5, 5))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("n", "columns", "smallest"), [(16, 1, 8), (17, 3, 8), (120, 4, 8), (400, 12, 2)])
def test_the_cuts_are_those_of_ruptures(n: int, columns: int, smallest: int, seed: int) -> None:
    z, penalty = _stepped(n, columns, seed), 1.5 * (columns + 1) * np.log(n)
    peer = KernelCPD(kernel="linear", min_size=smallest).fit(z).predict(pen=penalty)[:-1]
    assert best_cuts(z, penalty, smallest) == peer


@pytest.mark.parametrize("sizes", [(8, 8), (8, 40), (9, 9), (40, 300), (2000, 1500)])
@pytest.mark.parametrize("distinct", [3, 30, None])
def test_chance_is_mann_and_whitneys(sizes: tuple[int, int], distinct: int | None) -> None:
    rng = np.random.default_rng(sum(sizes))
    both = [rng.normal(size=n) if distinct is None else rng.integers(0, distinct, n).astype(float) for n in sizes]
    assert chance(both[0], both[1] + 0.3) == pytest.approx(mannwhitneyu(both[0], both[1] + 0.3).pvalue, rel=1e-9)
    assert chance(both[0], both[1]) == pytest.approx(mannwhitneyu(both[0], both[1]).pvalue, rel=1e-9)


def test_values_all_alike_differ_by_chance() -> None:
    assert chance(np.ones(20), np.ones(30)) == 1.0
