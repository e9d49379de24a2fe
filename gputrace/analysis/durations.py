"""How long each phase of each complete call took, as arrays by phase: what summaries of a run and its regimes need."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.rows import Places, where
from gputrace.schema import PHASE_NAMES
from gputrace.trace import Trace

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Durations:
    """One kind of phase: of each complete call its number, milliseconds, whether it is a warm-up, and its regime.

    `regime` counts from 0, -1: in none.
    """

    under_mutex: bool
    call: npt.NDArray[np.uint32]
    values_ms: Floats
    warmup: Bools
    regime: Ints

    @property
    def typical_ms(self) -> Floats:
        """Milliseconds of the calls that are no warm-up."""
        return np.asarray(self.values_ms[~self.warmup])

    def in_regime(self, number: int) -> "Durations":
        """Those of one regime."""
        inside = self.regime == number
        return Durations(
            self.under_mutex,
            self.call[inside],
            self.values_ms[inside],
            self.warmup[inside],
            self.regime[inside],
        )


def durations_of(trace: Trace, complete: pl.DataFrame, regimes: Sequence[pl.Series]) -> dict[str, Durations]:
    """The durations of each phase that the log shows, in the order of a call; those of several circuits added up."""
    places = Places(complete["call"])
    warmup = complete["warmup"].to_numpy()
    regime_of = np.full(complete.height, -1, dtype=np.int64)
    for number, calls in enumerate(regimes):
        inside = places.of(calls)
        regime_of[inside[inside >= 0]] = number
    found = {}
    for name in PHASE_NAMES:
        told = trace.named_phases.of(name)
        place = places.of(told["call"])
        own, place = where(told, place >= 0), place[place >= 0]
        if own.is_empty():
            continue
        values_ms = np.nan_to_num(own["duration_ms"].cast(pl.Float64).to_numpy())
        if own["call"].n_unique() < own.height:
            place, values_ms = _added_up(place, values_ms)
        found[name] = Durations(
            bool(own["under_mutex"][0]),
            complete["call"].to_numpy()[place],
            values_ms,
            warmup[place],
            regime_of[place],
        )
    return found


def _added_up(place: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Each place once, in the order in which it came first, with the sum of its values."""
    distinct, first, index = np.unique(place, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return distinct[order], np.bincount(index, values)[order].astype(np.float64)
