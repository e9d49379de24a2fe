"""Cuts time at every edge of samples and segments, and fits what each kind of segment does to what was sampled.

A sample is longer than many phases, so what a phase copied cannot be read off: it is found for all kinds of phases
together, by non-negative least squares over all samples. Long phases then take the bytes of the samples they cover,
each sample's bytes being divided in the proportions of the fit, so that no byte is lost or counted twice.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.spans import in_order

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pieces:
    """Elementary stretches of one GPU: each lies in one sample and in at most one segment (-1: none)."""

    seconds: Floats
    sample: Ints
    segment: Ints

    @classmethod
    def cut(cls, samples: pl.DataFrame, segments: pl.DataFrame) -> "Pieces":
        """Both frames must be sorted by start_ns and belong to one GPU; segments must not overlap.

        Where samples overlap, time belongs to the later one.
        """
        s0, s1 = samples["start_ns"].to_numpy(), samples["end_ns"].to_numpy()
        g0, g1 = segments["start_ns"].to_numpy(), segments["end_ns"].to_numpy()
        s1 = np.minimum(s1, np.append(s0[1:], s1[-1:]))
        edges = in_order(g0, g1)
        # Every edge inside of a sample divides it; the pieces are then in order of time.
        holder = np.searchsorted(s0, edges, side="left") - 1
        divides = (holder >= 0) & (edges < s1[np.maximum(holder, 0)]) if len(s0) else np.zeros(len(edges), dtype=bool)
        edges, holder = edges[divides], holder[divides]
        low, high = np.insert(s0, holder + 1, edges), np.insert(s1, holder, edges)
        sample = np.repeat(np.arange(len(s0)), 1 + np.bincount(holder, minlength=len(s0)))
        # A segment's pieces are those from its start on, up to the next one's.
        first = np.searchsorted(low, g0)
        segment = np.repeat(np.arange(-1, len(g0)), np.diff(first, prepend=0, append=len(low)))
        in_segment = (segment >= 0) & (low < g1[segment]) if len(g0) else segment >= 0
        segment[~in_segment] = -1
        if (empty := high <= low).any():
            low, high, sample, segment = (one[~empty] for one in (low, high, sample, segment))
        return cls((high - low) / 1e9, sample, segment)


@dataclass(frozen=True)
class Fit:
    """One value per kind; `kinds` are their names, `error` the standard error of each (nan where unknown)."""

    kinds: list[str]
    value: Floats
    error: Floats

    def of(self, kind: str) -> float:
        """The fitted value of a kind, 0 if it was never seen."""
        return float(self.value[self.kinds.index(kind)]) if kind in self.kinds else 0.0

    def error_of(self, kind: str) -> float:
        """Standard error of a kind's value."""
        return float(self.error[self.kinds.index(kind)]) if kind in self.kinds else float("nan")


def fit_kinds(
    weights: Floats, sample: Ints, kind: Ints, kinds: list[str], observed: Floats, highest: float = np.inf
) -> Fit:
    """Least squares of `observed[sample] = sum(weights * value[kind])`, 0 <= value <= highest.

    Pieces are in order of their samples. Samples whose observation is nan are left out. Works on the normal equations,
    so its size is that of the kinds.
    """
    # A log without a trace has nothing to fit, and these take a fifth of a second to import.
    from scipy.optimize import lsq_linear
    from scipy.sparse import coo_array

    seen = ~np.isnan(observed)
    target = np.where(seen, observed, 0.0)
    use = seen[sample] & (kind >= 0)
    if not use.all():
        weights, sample, kind = weights[use], sample[use], kind[use]
    # Of the many samples with one piece nothing but squares comes in: only the others need a matrix.
    differs = np.diff(sample) != 0
    several = np.flatnonzero(~(np.append(True, differs) & np.append(differs, True)))
    crossed = coo_array((weights[several], (sample[several], kind[several])), shape=(len(observed), len(kinds))).tocsr()
    squares = weights * weights
    squares[several] = 0.0
    gram = (crossed.T @ crossed).toarray() + np.diag(np.bincount(kind, squares, len(kinds)))
    moment = np.bincount(kind, weights * target[sample], len(kinds))
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-30))
    scaled = gram / np.outer(scale, scale) + 1e-9 * np.eye(len(kinds))
    root = np.linalg.cholesky(scaled).T
    right = np.linalg.solve(root.T, moment / scale)
    value = lsq_linear(root, right, (0.0, np.maximum(highest * scale, 1e-12))).x / scale
    # What is too small to show in any sample is a zero of the solver.
    value = np.where(value * scale < 1e-9 * np.linalg.norm(target), 0.0, value)
    residual = target - np.bincount(sample, weights * value[kind], len(observed))
    used = int(seen.sum())
    variance = float(residual[seen] @ residual[seen]) / max(1, used - len(kinds))
    error = np.sqrt(np.diag(np.linalg.inv(scaled)) * variance) / scale
    return Fit(kinds, value, error)


def divide(total: Floats, sample: Ints, weights: Floats, seconds: Floats) -> Floats:
    """Each sample's total over its pieces, in proportion to `weights` (to `seconds` where all weights are 0).

    The parts of a sample add up to its total; nan totals give 0.
    """
    size = len(total)
    amount = np.nan_to_num(total)
    by_weight = np.bincount(sample, weights, size)
    # What one unit of weight, or where there is none one second, gets of its sample.
    weighted = by_weight > 0
    unit = amount / np.where(
        weighted, np.maximum(by_weight, 1e-300), np.maximum(np.bincount(sample, seconds, size), 1e-30)
    )
    return np.asarray(unit[sample] * np.where(weighted[sample], weights, seconds))
