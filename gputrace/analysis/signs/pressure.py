"""When syntheses were short of memory, as the log tells it.

The engine's memory budget says at level debug when a synthesis waits for it; at level info only evictions and loads of
what had been evicted show. A synthesis that was held up reaches the GPU late by as much: pressure that begins with such
a line reaches until the first synthesis that starts after it has ended.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.evidence import Cited, cited
from gputrace.analysis.records import value_of
from gputrace.rows import ordered, where, with_values
from gputrace.trace import Trace

_AT = ["log_ns", "source", "line"]
EVICTIONS = ("evicted", "srs_evicted", "pce_evicted", "pinned_freed")
_TELLING = ("budget_wait", "budget_acquired", "srs_loaded", "engine_start", *EVICTIONS)


@dataclass(frozen=True)
class MemoryPressure:
    """`spans`: start_ns, end_ns, sorted and disjoint. Counts of the lines behind them, and those lines."""

    spans: pl.DataFrame
    waits: int
    evictions: int
    reloads: int
    told: bool
    cited: Cited

    @property
    def seen(self) -> bool:
        """Whether any line tells of it."""
        return bool(self.waits or self.evictions or self.reloads)

    def covers(self, at_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these times lie in a span."""
        if self.spans.is_empty():
            return np.zeros(len(at_ns), dtype=bool)
        starts, ends = self.spans["start_ns"].to_numpy(), self.spans["end_ns"].to_numpy()
        index = np.searchsorted(starts, at_ns, side="right") - 1
        return np.asarray((index >= 0) & (at_ns < ends[np.maximum(index, 0)]))


def memory_pressure(trace: Trace) -> MemoryPressure:
    """The pressure that a trace's log tells of; `told` is whether it has any budget line at all (level debug)."""
    marks = where(trace.marks, trace.marks["event"].is_in(_TELLING))
    marks = with_values(marks, "log_ns")
    waits = where(marks, marks["event"] == "budget_wait")
    evictions = where(marks, marks["event"].is_in(EVICTIONS))
    reloads = _reloads(marks)
    cause = pl.concat([waits[_AT], evictions[_AT], reloads]).sort("log_ns")
    told = bool(waits.height or (marks["event"] == "budget_acquired").any())
    return MemoryPressure(
        _spans(cause["log_ns"].to_numpy(), trace.syntheses),
        waits.height,
        evictions.height,
        reloads.height,
        told,
        cited(cause.head(3)),
    )


def _reloads(marks: pl.DataFrame) -> pl.DataFrame:
    """log_ns (of the load's begin), source and line of loads of an SRS that was loaded before, since the last start."""
    is_load = marks["event"] == "srs_loaded"
    loads = where(marks, is_load)
    if loads.height < 2:
        return marks[_AT].clear()
    run = np.cumsum((marks["event"] == "engine_start").to_numpy())[is_load.to_numpy()]
    circuit, ms = value_of(loads["values"], "circuit_id"), value_of(loads["values"], "elapsed_ms")
    loads = loads.with_columns(
        pl.Series("run", run), circuit.alias("circuit"), ms.cast(pl.Float64, strict=False).alias("ms")
    )
    again = loads.with_columns(pl.int_range(pl.len()).over("run", "circuit").alias("nth")).filter(pl.col("nth") > 0)
    return again.select((pl.col("log_ns") - (pl.col("ms").fill_null(0.0) * 1e6).cast(pl.Int64)), "source", "line")


def _spans(begins_ns: npt.NDArray[np.int64], syntheses: pl.DataFrame) -> pl.DataFrame:
    """Each begin to the end of the first synthesis that starts after it (of the last, where none does), merged."""
    schema = {"start_ns": pl.Int64, "end_ns": pl.Int64}
    timed = ordered(with_values(syntheses, "start_ns", "end_ns"), "start_ns") if len(begins_ns) else syntheses.clear()
    if timed.is_empty():
        return pl.DataFrame(schema=schema)
    starts, ends = timed["start_ns"].to_numpy(), timed["end_ns"].to_numpy()
    after = np.searchsorted(starts, begins_ns, side="right")
    until = np.where(after < len(starts), ends[np.minimum(after, len(starts) - 1)], ends.max())
    until = np.maximum.accumulate(np.maximum(until, begins_ns))
    new = np.concatenate([[True], begins_ns[1:] > until[:-1]])
    last = np.concatenate([np.flatnonzero(new)[1:] - 1, [len(until) - 1]])
    return pl.DataFrame({"start_ns": begins_ns[new], "end_ns": until[last]}, schema=schema)
