"""How values are spread, in a form that can be added up: how often each value occurs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Quantiles of what is not whole milliseconds are good to a thousandth: ten bits of the mantissa are kept.
_KEPT_BITS = 10


@dataclass(frozen=True)
class Spread:
    """Distinct values, ascending, and how often each occurs. Sums are exact, whatever was rounded."""

    values: Floats
    counts: npt.NDArray[np.int64]
    total: float

    @classmethod
    def of(cls, values: Floats) -> "Spread":
        """Whole values as they are, others to a thousandth."""
        known = values[~np.isnan(values)]
        whole = bool((known == np.trunc(known)).all())
        distinct, counts = np.unique(known if whole else _rounded(known), return_counts=True)
        return cls(distinct, counts.astype(np.int64), float(known.sum()))

    @classmethod
    def sum(cls, parts: Iterable["Spread"]) -> "Spread":
        """All parts together."""
        listed = list(parts)
        if not listed:
            return cls.of(np.empty(0))
        distinct, place = np.unique(np.concatenate([part.values for part in listed]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([part.counts for part in listed]), len(distinct))
        return cls(distinct, counts.astype(np.int64), sum(part.total for part in listed))

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Their mean; NaN where there is none."""
        return self.total / self.count if self.count else float("nan")

    def quantiles(self, *shares: float) -> list[float]:
        """The values below which these shares of all lie, as `numpy.quantile` interpolates; NaN where there is none."""
        if not self.count:
            return [float("nan")] * len(shares)
        place = (self.count - 1) * np.array(shares)
        below = np.floor(place).astype(np.int64)
        ends = np.cumsum(self.counts)
        low, high = (self.values[np.searchsorted(ends, at, side="right")] for at in (below, np.ceil(place)))
        found: list[float] = (low + (high - low) * (place - below)).tolist()
        return found


def added_up(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each name's figures, most first."""
    sums: Counter[str] = Counter()
    for part in parts:
        sums.update(part)
    return dict(sorted(sums.items(), key=lambda entry: (-entry[1], entry[0])))


def _rounded(values: Floats) -> Floats:
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 2**_KEPT_BITS), exponent - _KEPT_BITS))
