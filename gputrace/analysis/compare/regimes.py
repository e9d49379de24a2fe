"""Regimes of one side matched to those of the other: by label, then by how alike their phases are."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from gputrace.analysis.compare.side import Span

# Another label costs as much as medians that differ by this factor: labels decide unless phases contradict them badly.
_OTHER_LABEL_FACTOR = 10.0
# Phases shorter than this say little about how alike two regimes are.
_LEAST_MS = 5.0


def match(before: Sequence[Span], after: Sequence[Span]) -> list[tuple[Span | None, Span | None]]:
    """Pairs at the smallest total distance, in the order of `before`; what has no partner comes last."""
    if not before or not after:
        return [*((span, None) for span in before), *((None, span) for span in after)]
    cost = np.array([[_distance(one, other) for other in after] for one in before])
    rows, columns = linear_sum_assignment(cost)
    pairs: list[tuple[Span | None, Span | None]] = [
        (before[i], after[j]) for i, j in sorted(zip(rows.tolist(), columns.tolist(), strict=True))
    ]
    pairs += [(span, None) for i, span in enumerate(before) if i not in rows]
    return pairs + [(None, span) for j, span in enumerate(after) if j not in columns]


def _distance(one: Span, other: Span) -> float:
    away = 0.0 if one.label == other.label else math.log(_OTHER_LABEL_FACTOR)
    return away + _unlike(one.phase_medians_ms, other.phase_medians_ms)


def _unlike(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Mean absolute log ratio of the medians that both know, weighted by their length."""
    shared = sorted(set(one) & set(other))
    if not shared:
        return 0.0
    pairs = np.array([(max(one[name], _LEAST_MS), max(other[name], _LEAST_MS)) for name in shared])
    return float(np.average(np.abs(np.log(pairs[:, 0] / pairs[:, 1])), weights=pairs.sum(axis=1)))
