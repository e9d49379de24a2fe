"""Change points of a series of per-call vectors, and whether two stretches differ in a way that matters.

Pure numbers: no frames, no names of causes. `docs/definitions.md` (Regimes) gives the thresholds and their reasons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputrace.analysis.regimes.partition import best_cuts
from gputrace.analysis.thresholds import (
    BISTABLE_P_VALUE,
    BISTABLE_RATIO,
    BISTABLE_SHARE,
    MIN_CALLS,
    REGIME_CHANGE_SHARE,
    REGIME_P_VALUE,
)

Floats = npt.NDArray[np.float64]

# A quantity's noise is at least this share of a cycle: what is smaller cannot matter.
_NOISE_FLOOR_SHARE = 0.03
# In units of noise, nothing counts for more than this: one odd call is not a regime.
_CLIP = 5.0
# Quantities that stay within half their noise say nothing and are left out.
_LEAST_SPREAD = 0.5
# A cut costs this many times (quantities + 1) ln(calls). 1 is BIC for independent calls; real calls depend on each
# other (two workers take turns, load comes in waves).
_PENALTY = 1.5
# More calls than this are searched in blocks, then each cut is placed among the calls around it.
_MOST_SEARCHED = 1500
_MOST_TESTED = 2000
# Up to here the distribution of U is computed rather than approximated.
_EXACT_CALLS = 8


@dataclass(frozen=True)
class Change:
    """A quantity that differs between two stretches: typical values (same unit) and the corrected p."""

    name: str
    before: float
    after: float
    p_value: float

    @property
    def size(self) -> float:
        """How much it changed."""
        return abs(self.after - self.before)


def scaled(values: Floats, cycle: float) -> Floats:
    """Columns of one GPU in units of their own noise, clipped about their median.

    Noise is 1.4826 x the median absolute difference of neighbours / sqrt 2, or of calls two apart if that is larger:
    steps do not widen it, alternation does, so that taking turns is not taken for change.
    """

    if len(values) <= 2:
        return np.zeros_like(values)

    def noise(lag: int) -> Floats:
        return np.asarray(np.median(np.abs(values[lag:] - values[:-lag]), axis=0) * 1.4826 / math.sqrt(2.0))

    unit = np.maximum(np.maximum(noise(1), noise(2)), max(_NOISE_FLOOR_SHARE * cycle, 1e-9))
    return np.asarray(np.clip((values - np.median(values, axis=0)) / unit, -_CLIP, _CLIP))


def change_points(z: Floats, smallest: int = MIN_CALLS) -> list[int]:
    """Rows at which a new stretch may begin, by exact search for the best penalised piecewise-constant fit.

    `z` has a row a call and a column a quantity, as `scaled` gives them; columns that hardly move are left out. Up to
    1500 calls are searched one by one, more in blocks of an even number of calls (means), so that time and memory
    stay bounded.
    """
    if len(z) < 2 * smallest:
        return []
    z = z[:, z.std(axis=0) > _LEAST_SPREAD]
    if not z.shape[1]:
        return []
    block = 1 if len(z) <= _MOST_SEARCHED else 2 * math.ceil(len(z) / _MOST_SEARCHED / 2)
    whole = len(z) // block
    coarse = z[: whole * block].reshape(whole, block, -1).mean(axis=1)
    penalty = _PENALTY * (z.shape[1] + 1) * math.log(whole)
    least = max(2, smallest // block)
    cuts = [cut * block for cut in best_cuts(coarse, penalty, least)]
    return cuts if block == 1 else _placed(z, cuts, block)


def _placed(z: Floats, cuts: list[int], block: int) -> list[int]:
    """Each cut moved, by up to a block, to where the calls around it are divided best."""
    edges = [0, *cuts, len(z)]
    moved = []
    for before, cut, after in zip(edges, cuts, edges[2:], strict=False):
        low, high = max(before, cut - 8 * block), min(after, cut + 8 * block)
        own = z[low:high]
        total = np.cumsum(own, axis=0)
        n = np.arange(1, len(own))[:, None]
        # The squares' sum is the same for every cut: what remains is the sum of both sides' squared sums over n.
        gain = (total[:-1] ** 2 / n + (total[-1] - total[:-1]) ** 2 / (len(own) - n)).sum(axis=1)
        near = np.arange(max(0, cut - block - low), min(len(gain), cut + block - low))
        moved.append(low + 1 + int(near[np.argmax(gain[near])]))
    return moved


def typical(values: Floats) -> Floats:
    """Median of the means of neighbours, column by column: where short and long take turns, their average."""
    return np.asarray(np.median((values[1:] + values[:-1]) / 2.0, axis=0) if len(values) > 1 else values[0])


def changes(before: Floats, after: Floats, names: Sequence[str], cycle: float, gpus: int = 1) -> list[Change]:
    """The quantities whose typical value moves by a tenth of a cycle or more, beyond chance; largest first.

    Chance: Mann-Whitney, two-sided, p < 0.01 after Bonferroni over the quantities of all `gpus`. Stretches of more than
    2000 calls are tested on every n-th. Fewer than 8 calls on a side prove nothing.
    """
    if min(len(before), len(after)) < MIN_CALLS:
        return []
    found = []
    lows, highs = typical(before), typical(after)
    for column, name in enumerate(names):
        low, high = float(lows[column]), float(highs[column])
        if abs(high - low) < REGIME_CHANGE_SHARE * cycle:
            continue
        some_before, some_after = (side[:: 1 + len(side) // _MOST_TESTED, column] for side in (before, after))
        p_value = min(1.0, chance(some_before, some_after) * len(names) * gpus)
        if p_value < REGIME_P_VALUE:
            found.append(Change(name, low, high, p_value))
    return sorted(found, key=lambda change: -change.size)


def chance(before: Floats, after: Floats) -> float:
    """Two-sided p of Mann and Whitney's U, by the normal approximation with continuity and correction for ties.

    Few calls without ties: exact, by scipy; it has the rest too, in a module that takes half a second to import.
    """
    n1, n2 = len(before), len(after)
    _, group, ties = np.unique(np.concatenate([before, after]), return_inverse=True, return_counts=True)
    if min(n1, n2) <= _EXACT_CALLS and ties.max() == 1:
        from scipy.stats import mannwhitneyu

        return float(mannwhitneyu(before, after, method="exact").pvalue)
    ranks = (np.cumsum(ties) - (ties - 1) / 2.0)[group]
    u = float(ranks[:n1].sum()) - n1 * (n1 + 1) / 2.0
    n = n1 + n2
    tied = float((ties.astype(np.float64) ** 3 - ties).sum())
    deviation = math.sqrt(n1 * n2 / 12.0 * ((n + 1) - tied / (n * (n - 1))))
    if not deviation:
        return 1.0
    return min(1.0, math.erfc((max(u, n1 * n2 - u) - n1 * n2 / 2.0 - 0.5) / deviation / math.sqrt(2.0)))


def alternates(holds: Floats) -> bool:
    """Whether short and long holds take turns: two groups, and more changes of group than chance would make.

    The groups: the split of the sorted holds that leaves least variance of their logarithms. Medians at least a factor
    1.5 apart, each group a fifth of the calls or more, and Wald and Wolfowitz's runs test, one-sided, p < 0.05.
    """
    if len(holds) < MIN_CALLS:
        return False
    ordered = np.sort(np.log(np.maximum(holds, 1.0)))
    n = np.arange(1, len(ordered))
    total = np.cumsum(ordered)
    between = total[:-1] ** 2 / n + (total[-1] - total[:-1]) ** 2 / (len(ordered) - n)
    split = int(np.argmax(between)) + 1
    short, long = ordered[:split], ordered[split:]
    if min(len(short), len(long)) < BISTABLE_SHARE * len(ordered):
        return False
    if float(np.median(long) - np.median(short)) < math.log(BISTABLE_RATIO):
        return False
    is_long = np.log(np.maximum(holds, 1.0)) >= long[0]
    runs = 1 + int((is_long[1:] != is_long[:-1]).sum())
    return _runs_p_value(runs, len(short), len(long)) < BISTABLE_P_VALUE


def _runs_p_value(runs: int, n1: int, n2: int) -> float:
    """Chance of at least so many runs of two kinds in random order, by the normal approximation with continuity."""
    n = n1 + n2
    mean = 1.0 + 2.0 * n1 * n2 / n
    variance = (mean - 1.0) * (mean - 2.0) / (n - 1)
    return 0.5 * math.erfc((runs - 0.5 - mean) / math.sqrt(2.0 * max(variance, 1e-12)))
