"""How long each phase of each complete call took, as arrays by phase: what summaries of a run and its regimes need."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

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
    regime_of = pl.DataFrame(
        {"call": pl.concat(list(regimes)), "regime": np.repeat(np.arange(len(regimes)), list(map(len, regimes)))}
        if regimes
        else {},
        schema={"call": pl.UInt32, "regime": pl.Int64},
    )
    calls = complete.select("call", "warmup").join(regime_of, on="call", how="left", maintain_order="left")
    told = trace.phases.select(
        "call",
        pl.col("name").cast(pl.Enum(PHASE_NAMES), strict=False),
        pl.col("duration_ms").fill_null(0),
        "under_mutex",
    ).join(calls.with_columns(pl.col("regime").fill_null(-1)), on="call", maintain_order="left")
    named = {str(key[0]): own for key, own in told.partition_by("name", as_dict=True).items()}
    found = {}
    for name in PHASE_NAMES:
        if name not in named:
            continue
        own = named[name]
        if own["call"].n_unique() < own.height:
            others = pl.col("under_mutex", "warmup", "regime").first()
            own = own.group_by("call", maintain_order=True).agg(pl.col("duration_ms").sum(), others)
        found[name] = Durations(
            bool(own["under_mutex"][0]),
            own["call"].to_numpy(),
            own["duration_ms"].cast(pl.Float64).to_numpy(),
            own["warmup"].to_numpy(),
            own["regime"].to_numpy(),
        )
    return found
