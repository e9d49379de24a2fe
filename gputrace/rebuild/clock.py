"""Puts TIMELINE offsets on the wall clock, from pairs of TIMELINE and tracing lines.

TIMELINE counts monotonic milliseconds, floored, from the engine's start; tracing lines carry UTC. Where the code
prints one just before the other, the pair bounds the epoch:

    SYNTH_END <= "pushing to GPU queue" <= GPU_QUEUE          GPU_PICKUP <= "hot_path" <= GPU_START

so epoch lies in (log_ns - (later offset + 1 ms), log_ns - earlier offset].
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.rebuild.columns import ints
from gputrace.rebuild.pairing import nth_keys, places
from gputrace.rebuild.sequence import Sequence
from gputrace.trace import Clock

_MIN_PAIRS_FOR_DRIFT = 20
_MIN_SPAN_FOR_DRIFT_MS = 60_000
_MAX_PAIRS_FOR_DRIFT = 600


@dataclass(frozen=True)
class Epoch:
    """Offset 0 of one run on the wall clock. Wall = epoch_ns + offset_ms * 1e6 * (1 + drift)."""

    epoch_ns: float
    uncertainty_ms: float
    drift: float = 0.0

    def to_ns(self, offset_ms: float) -> int:
        """Wall clock, ns, of a TIMELINE offset."""
        return int(self.epoch_ns + offset_ms * 1e6 * (1.0 + self.drift))

    def all_to_ns(self, offsets_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """`to_ns` of many offsets, as whole numbers."""
        return np.asarray(np.trunc(self.epoch_ns + offsets_ms * 1e6 * (1.0 + self.drift)))


def written_ns(marks: pl.DataFrame, epochs: dict[int, Epoch]) -> pl.Series:
    """When TIMELINE marks (restart, offset_ms) were written; without an epoch, times count from the engine's start."""
    restart, offset_ms = ints(marks["restart"]), ints(marks["offset_ms"])
    at_ns = np.zeros(len(restart))
    for run in np.unique(restart):
        own = restart == run
        at_ns[own] = epochs.get(int(run), Epoch(0.0, 0.0)).all_to_ns(offset_ms[own])
    return pl.Series(at_ns).cast(pl.Int64)


# Earlier TIMELINE event, tracing event, later TIMELINE event, and what ties the three.
_PAIRS = (
    ("SYNTH_END", "pushed_to_queue", "GPU_QUEUE", ("job_number", "partition")),
    ("GPU_PICKUP", "hot_path", "GPU_START", ("job_number", "partition", "worker")),
)


def epoch_bounds(sequence: Sequence) -> pl.DataFrame:
    """Bounds on the epoch: restart, offset_ms, low_ns, high_ns, one row a pair."""
    parts = []
    for earlier, tracing, later, keys in _PAIRS:
        before = sequence.of(earlier, columns=(*keys, "restart", "offset_ms"))
        spoken = sequence.of(tracing, columns=(*keys, "log_ns"))
        after = sequence.of(later, columns=(*keys, "offset_ms"))
        own, *others = nth_keys(*(side[list(keys)] for side in (spoken, before, after)))
        first, last = (places(other, own) for other in others)
        tied = (first >= 0) & (last >= 0)
        log_ns = spoken["log_ns"].filter(tied)
        from_ms, to_ms = before["offset_ms"][first[tied]], after["offset_ms"][last[tied]]
        parts.append(
            pl.DataFrame(
                {
                    "restart": before["restart"][first[tied]],
                    "offset_ms": from_ms,
                    "low_ns": log_ns - (to_ms + 1) * 1_000_000,
                    "high_ns": log_ns - from_ms * 1_000_000,
                }
            )
        )
    return pl.concat(parts)


def fit_epochs(sequence: Sequence) -> dict[int, Epoch]:
    """The epoch of each run that has at least one pair."""
    epochs = {}
    for (restart,), pairs in epoch_bounds(sequence).group_by("restart", maintain_order=True):
        epochs[int(str(restart))] = _fit(pairs)
    for restart, epoch in _epochs_by_arrival(sequence).items():
        epochs.setdefault(restart, epoch)
    anchors = sequence.of("engine_start", columns=("restart", "log_ns")).iter_rows()
    for restart, log_ns in anchors:
        # Printed one statement after the epoch is taken.
        epochs.setdefault(int(restart), Epoch(float(log_ns), 1.0))
    return epochs


def _epochs_by_arrival(sequence: Sequence) -> dict[int, Epoch]:
    """The epoch of each run from the wrapper's stamps on its TIMELINE lines: the earliest that most of them allow.

    A line arrives after it is written, and its offset is floored: arrival - offset lies above the epoch by the delay,
    of which the least tenth is taken for none, and half a millisecond.
    """
    stamped = sequence.frame.filter(pl.col("offset_ms").is_not_null() & pl.col("arrival_ns").is_not_null())
    above = stamped.select("restart", (pl.col("arrival_ns") - pl.col("offset_ms") * 1_000_000).alias("above_ns"))
    found = above.group_by("restart").agg(pl.col("above_ns").quantile(0.1).alias("low"), pl.col("above_ns").median())
    return {
        int(restart): Epoch(low - 0.5e6, max(1.0, (middle - low) / 1e6))
        for restart, low, middle in found.select("restart", "low", "above_ns").iter_rows()
    }


def _fit(pairs: pl.DataFrame) -> Epoch:
    width = (pairs["high_ns"] - pairs["low_ns"]).to_numpy().astype(np.float64)
    offset_ms = pairs["offset_ms"].to_numpy().astype(np.float64)
    # A thread held up between its two prints makes a wide pair: the narrow half says more.
    narrow = width <= np.median(width)
    base = float(pairs["low_ns"][0])
    low = pairs["low_ns"].to_numpy().astype(np.float64)[narrow] - base
    high = pairs["high_ns"].to_numpy().astype(np.float64)[narrow] - base
    offset_ms = offset_ms[narrow]
    middle = (low + high) / 2
    drift = 0.0
    if len(middle) >= _MIN_PAIRS_FOR_DRIFT and np.ptp(offset_ms) >= _MIN_SPAN_FOR_DRIFT_MS:
        pick = np.linspace(0, len(middle) - 1, min(len(middle), _MAX_PAIRS_FOR_DRIFT)).astype(int)
        drift = _slope(offset_ms[pick] * 1e6, middle[pick])
    shift = drift * offset_ms * 1e6
    lowest, highest = np.quantile(low - shift, 0.9), np.quantile(high - shift, 0.1)
    centre = (lowest + highest) / 2
    spread = float(np.median(np.abs(middle - shift - np.median(middle - shift))))
    uncertainty_ms = max(abs(highest - lowest) / 2, spread, 1e5) / 1e6
    return Epoch(base + float(centre), uncertainty_ms, drift)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Theil-Sen slope; 0 where its 95 % interval (Sen 1968, by Kendall's variance) holds 0.

    scipy has it, in a module that takes half a second to import.
    """
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] != x[first]
    slopes = (y[second] - y[first])[apart] / (x[second] - x[first])[apart]
    if not len(slopes):
        return 0.0
    n = len(x)
    reach = 1.96 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    ends = max(0, int((len(slopes) - reach) / 2)), min(len(slopes) - 1, int((len(slopes) + reach) / 2))
    low, high = np.partition(slopes, ends)[list(ends)]
    return float(np.median(slopes)) if low > 0 or high < 0 else 0.0


def clock_of(epochs: dict[int, Epoch], spoken: bool = True, stamped: str = "wrapper") -> Clock:
    """The clock as reports state it, from the first run's epoch. `spoken`: tracing lines anchor it, else stamps."""
    if not epochs:
        return Clock()
    first = epochs[min(epochs)]
    return Clock(
        method="timeline+tracing" if spoken else stamped,
        unique=True,
        offset_s=first.epoch_ns / 1e9,
        uncertainty_s=first.uncertainty_ms / 1e3,
        # Wall time passes faster than TIMELINE counts where drift is positive: then TIMELINE is slow.
        drift_ppm=-first.drift * 1e6,
    )
