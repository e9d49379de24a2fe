"""How sure a figure of a run is, from its own calls, which depend on each other.

Whole calls are drawn in blocks of consecutive ones (circular block bootstrap, Politis and Romano 1992). The block's
length follows from the autocorrelation (Politis and White 2004, corrected by Patton, Politis and White 2009), and is at
least the cube root of the number of calls.
Blocks cut dependence at their ends, so the standard error comes out small in short runs; it is widened to the largest
of several estimates of the long-run variance: the blocks' own, the flat-top kernel's (Politis and Romano 1995), that of
a first-order autoregression with its bias removed (Kendall 1954) and, unless neighbours are plainly correlated
negatively, that of independent calls.

Degrees of freedom follow from the effective number of calls, calls x variance / long-run variance: half of it, less
one. The half is calibrated: with it, the false alarms of whole comparisons stay near 5 % in short runs too
(docs/comparing.md has the table).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from gputrace.analysis.compare.figures import Figure

Floats = npt.NDArray[np.float64]

RESAMPLES = 1000
_LEAST_RESAMPLES = 200
# Values drawn in all for one figure; long runs are resampled less often, never under `_LEAST_RESAMPLES` times.
_MOST_DRAWN = 4_000_000
_CHUNK = 2_000_000
# Of more calls, quantiles are not resampled themselves but the share of calls above them: the same, and quick.
_MANY_CALLS = 2000
_MOST_PHI = 0.95
_FREEDOM_PER_EFFECTIVE_CALL = 1 / 2
_LEAST_FREEDOM = 2.0
# Standard errors of a correlation of independent values.
_PLAINLY_NEGATIVE = 3.0


@dataclass(frozen=True)
class Estimate:
    """A figure's value in one run. `standard_error` and `freedom` are nan where nothing says how sure it is.

    `calls` is the number of calls that it rests on, `block` the length of the blocks in calls.
    """

    value: float
    standard_error: float = math.nan
    freedom: float = math.nan
    calls: int = 0
    block: int = 0

    @property
    def has_interval(self) -> bool:
        """Whether its uncertainty is known."""
        return math.isfinite(self.standard_error)


def estimate(
    figure: Figure, numerator: Floats, denominator: Floats | None = None, resamples: int = RESAMPLES
) -> Estimate:
    """The figure over calls in their order, with its standard error.

    `numerator` has one value per call; `denominator`, for rates and shares, what its sum is divided by. Extremes have
    no standard error: the bootstrap is not consistent for them.
    """
    n = len(numerator)
    if denominator is not None:
        total = float(denominator.sum())
        value = float(numerator.sum()) / total if total > 0 else math.nan
        influence = (numerator - value * denominator) * (n / total if total > 0 else math.nan)
    elif figure.kind == "quantile":
        value = float(np.quantile(numerator, figure.quantile))
        influence = (numerator > value).astype(np.float64)
    elif figure.kind == "extreme":
        return Estimate(float(numerator.min() if figure.statistic == "min" else numerator.max()), calls=n)
    else:
        value = float(numerator.mean())
        influence = numerator
    if n < 2 or not math.isfinite(value):
        return Estimate(value, calls=n)
    block, widening, effective = _dependence(influence)
    freedom = max(_FREEDOM_PER_EFFECTIVE_CALL * effective - 1.0, _LEAST_FREEDOM)
    rounds = max(_LEAST_RESAMPLES, min(resamples, _MOST_DRAWN // n))
    if figure.kind == "quantile" and n > _MANY_CALLS:
        error = _woodruff(figure, numerator, influence, block, rounds) * widening
    else:
        error = float(np.std(_resampled(figure, numerator, denominator, block, rounds), ddof=1)) * widening
    if figure.kind == "quantile":
        # Durations are printed in whole milliseconds: a quantile is no surer than that.
        error = max(error, 1.0 / math.sqrt(12.0))
    scale = n if figure.kind == "total" else 1
    return Estimate(value * scale, error * scale, freedom, n, block)


def _dependence(series: Floats) -> tuple[int, float, float]:
    """Block length in calls, the factor by which the blocks' standard error is too small, the effective calls."""
    n = len(series)
    centred = series - series.mean()
    variance = float(centred @ centred) / n
    longest = max(1, math.ceil(n / 3))
    least = min(math.ceil(n ** (1 / 3)), longest)
    if variance <= 1e-24 * max(1.0, float(np.abs(series).max()) ** 2):
        return least, 1.0, float(n)
    lags = min(math.ceil(math.sqrt(n)) + 2 * _quiet_lags(n), n - 2)
    covariance = np.array([centred[: n - lag] @ centred[lag:] / n for lag in range(max(lags, 0) + 1)])
    optimal, flat_top = _politis_white(covariance, n)
    block = int(min(max(math.ceil(optimal), least), longest))
    around = np.concatenate([centred, centred[:block]])
    wrapped = np.array([centred @ around[lag : lag + n] / n for lag in range(block)])
    weights = 1.0 - np.arange(block) / block
    of_blocks = max(2.0 * float(weights @ wrapped) - wrapped[0], 1e-12 * variance)
    demeaned = of_blocks * n / (n - block) if n > block else of_blocks
    independent = variance * n / (n - 1)
    long_run = max(demeaned, flat_top, _autoregressive(covariance, n))
    if len(covariance) < 2 or covariance[1] > -_PLAINLY_NEGATIVE / math.sqrt(n) * variance:
        # Calls that only seem to make up for each other by chance do not make the figure surer.
        long_run = max(long_run, independent)
    return block, math.sqrt(long_run / of_blocks), n * min(1.0, independent / long_run)


def _quiet_lags(n: int) -> int:
    return max(5, int(math.sqrt(math.log10(n))))


def _politis_white(covariance: Floats, n: int) -> tuple[float, float]:
    """Optimal length of circular blocks, and the long-run variance by the flat-top kernel."""
    quiet = _quiet_lags(n)
    loud = np.abs(covariance[1:]) >= 2.0 * math.sqrt(math.log10(n) / n) * covariance[0]
    # The smallest lag after which `quiet` lags in a row show no correlation.
    last = next((lag for lag in range(len(loud)) if not loud[lag : lag + quiet].any()), len(loud))
    width = min(2 * max(last, 2), len(covariance) - 1)
    if width < 1:
        return 1.0, float(covariance[0])
    lag = np.arange(1, width + 1)
    kernel = np.where(lag / width <= 0.5, 1.0, 2.0 * (1.0 - lag / width)) * covariance[1 : width + 1]
    spectrum = float(covariance[0] + 2.0 * kernel.sum())
    slope = 2.0 * float((lag * kernel).sum())
    longest = math.ceil(min(3.0 * math.sqrt(n), n / 3))
    if spectrum <= 0.0:
        return float(longest), 0.0
    return min((1.5 * (slope / spectrum) ** 2 * n) ** (1 / 3), longest), spectrum


def _autoregressive(covariance: Floats, n: int) -> float:
    if len(covariance) < 2:
        return 0.0
    phi = float(covariance[1] / covariance[0])
    phi = min(phi + (1.0 + 3.0 * phi) / n, _MOST_PHI)
    return float(covariance[0]) * n / (n - 1) * (1.0 + phi) / (1.0 - phi) if phi > 0.0 else 0.0


def _resampled(figure: Figure, numerator: Floats, denominator: Floats | None, block: int, rounds: int) -> Floats:
    """The figure in `rounds` resamples of blocks of consecutive calls. The same input gives the same resamples."""
    n = len(numerator)
    blocks, rest = divmod(n, block)
    starts = np.random.default_rng(n * 1000 + block).integers(0, n, (rounds, blocks + (rest > 0)))
    if figure.kind != "quantile":
        top = _block_sums(numerator, starts, block, rest)
        return np.asarray(top / (n if denominator is None else _block_sums(denominator, starts, block, rest)))
    found = []
    step = max(1, _CHUNK // n)
    for first in range(0, rounds, step):
        index = (starts[first : first + step, :, None] + np.arange(block)).reshape(-1, starts.shape[1] * block)
        found.append(_quantiles(numerator[index[:, :n] % n], figure.quantile))
    return np.concatenate(found)


def _woodruff(figure: Figure, values: Floats, above: Floats, block: int, rounds: int) -> float:
    """The standard error of a quantile by Woodruff (1952): that of the share of calls above it, read off the values."""
    mean = Figure(figure.name, figure.title, figure.unit, "mean", figure.column)
    error = float(np.std(_resampled(mean, above, None, block, rounds), ddof=1))
    low, high = np.quantile(values, np.clip([figure.quantile - error, figure.quantile + error], 0.0, 1.0))
    return float(high - low) / 2.0


def _quantiles(rows: Floats, quantile: float) -> Floats:
    """numpy's quantile of every row, without its overhead."""
    place = quantile * (rows.shape[1] - 1)
    low = min(int(place), rows.shape[1] - 2)
    rows.partition((low, low + 1), axis=1)
    return np.asarray(rows[:, low] + (place - low) * (rows[:, low + 1] - rows[:, low]))


def _block_sums(values: Floats, starts: npt.NDArray[np.int64], block: int, rest: int) -> Floats:
    """Sum over every resample; the last block is cut to `rest` calls, if that is not 0."""
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:block]]))])
    length = np.full(starts.shape[1], block)
    if rest:
        length[-1] = rest
    return np.asarray((sums[starts + length] - sums[starts]).sum(axis=1))


def critical_t(probability: float, freedom: float) -> float:
    """The two-sided critical value of Student's t: exceeded with `probability`."""
    return float(-stdtrit(freedom, probability / 2.0))
