"""The few statistics of a fleet: what is far off, what drifts, what differs between pairs. All without normality.

Tests are two-sided at 5 %, over everything asked at once (Holm 1979); intervals are 95 % for each figure alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from scipy.stats import kendalltau, wilcoxon

Floats = npt.NDArray[np.float64]

FALSE_ALARMS = 0.05
# MAD x this is the standard deviation of a normal sample.
MAD_TO_SD = 1.4826
# Iglewicz and Hoaglin (1993): modified z scores beyond this are labelled; never less than that here.
LEAST_CUT = 3.5
_DRAWN, _MOST_DRAWS, _SIMULATED_TO = 4_000_000, 20_000, 1000
_EXACT_PAIRS = 50


def modified_z(values: Floats, floor: float) -> Floats:
    """(value - median) / (1.4826 MAD), with the scale no smaller than `floor`, in the values' unit."""
    middle = float(np.median(values))
    scale = max(MAD_TO_SD * float(np.median(np.abs(values - middle))), floor)
    return np.asarray((values - middle) / scale)


@cache
def outlier_cut(n: int, level: float) -> float:
    """What the largest of `n` modified z scores exceeds with chance `level` where all `n` are alike and normal.

    Simulated up to 1000, since the MAD of few is itself uncertain; above that by the normal's tail (Bonferroni). The
    same arguments give the same cut. Never below 3.5.
    """
    if n > _SIMULATED_TO:
        return max(LEAST_CUT, float(-ndtri(level / (2 * n))))
    draws = np.random.default_rng(n).standard_normal((min(_MOST_DRAWS, _DRAWN // n), n))
    off = np.abs(draws - np.median(draws, axis=1, keepdims=True))
    largest = off.max(axis=1) / (MAD_TO_SD * np.median(off, axis=1))
    return max(LEAST_CUT, float(np.quantile(largest, 1.0 - level)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The p values corrected by Holm's method over those that are known, in their order."""
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    worst = 0.0
    for rank, (p, i) in enumerate(order):
        worst = max(worst, min(1.0, p * (len(order) - rank)))
        adjusted[i] = worst
    return adjusted


@dataclass(frozen=True)
class Estimated:
    """A figure with its 95 % interval and the p value of its being nought; `n` is what it rests on."""

    value: float
    low: float
    high: float
    p_value: float
    n: int


def trend(series: Sequence[tuple[Floats, Floats]]) -> Estimated:
    """The slope of y over x within series (x, y), each of 2 points or more; `n` counts the points.

    The median of all slopes between two points of one series (Sen 1968), with Kendall's test; over several series the
    regional Kendall test (Helsel and Frans 2006), which never compares one series with another.
    """
    slopes, score, variance = [], 0.0, 0.0
    for x, y in series:
        first, second = np.triu_indices(len(x), 1)
        apart = x[second] != x[first]
        rise = (y[second] - y[first])[apart]
        slopes.append(rise / (x[second] - x[first])[apart])
        score += float(np.sign(slopes[-1]).sum())
        variance += _kendall_variance(y)
    ordered = np.sort(np.concatenate(slopes))
    if len(series) == 1:
        p_value = float(kendalltau(*series[0]).pvalue)
        p_value = 1.0 if math.isnan(p_value) else p_value
    else:
        # One is taken off for continuity: the score moves in steps of two.
        p_value = 2.0 * float(ndtr(-max(abs(score) - 1.0, 0.0) / math.sqrt(variance))) if variance > 0 else 1.0
    reach = -float(ndtri(FALSE_ALARMS / 2)) * math.sqrt(variance)
    low = max(0, round((len(ordered) - reach) / 2))
    high = min(len(ordered) - 1, round((len(ordered) + reach) / 2) - 1)
    points = sum(len(x) for x, _ in series)
    return Estimated(
        float(np.median(ordered)), float(ordered[min(low, high)]), float(ordered[max(low, high)]), p_value, points
    )


def _kendall_variance(values: Floats) -> float:
    """Of Kendall's score where nothing drifts; equal values lessen it."""
    n = len(values)
    ties = np.unique(values, return_counts=True)[1]
    return float(n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18.0


def paired_difference(differences: Floats) -> Estimated:
    """The middle of paired differences, at least 2: Hodges and Lehmann's, with Wilcoxon's signed-rank test.

    The interval is the test turned round: it leaves 0 out where the test says so (but for ties and zeros).
    """
    n = len(differences)
    first, second = np.triu_indices(n)
    means = np.sort((differences[first] + differences[second]) / 2.0)
    outside = _signed_rank_quantile(n)
    p_value = 1.0 if not differences.any() else float(wilcoxon(differences).pvalue)
    return Estimated(float(np.median(means)), float(means[outside]), float(means[len(means) - 1 - outside]), p_value, n)


def _signed_rank_quantile(n: int) -> int:
    """How many Walsh averages lie outside the interval on each side: P(score <= it) is at most 2.5 %."""
    if n > _EXACT_PAIRS:
        mean, spread = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(mean + float(ndtri(FALSE_ALARMS / 2)) * spread - 0.5))
    ways = np.ones(1)
    for rank in range(1, n + 1):
        wider = np.zeros(len(ways) + rank)
        wider[: len(ways)] += ways
        wider[rank:] += ways
        ways = wider
    below = np.cumsum(ways) / 2.0**n
    return max(0, int(np.searchsorted(below, FALSE_ALARMS / 2, side="right")) - 1)
