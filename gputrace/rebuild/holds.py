"""One mutex has one holder: where the calls of a GPU say otherwise, some of them are put together wrongly."""

import polars as pl

from gputrace.trace import Trace

# Two holds may seem to overlap by as much as their ends are unknown, and by a rounded millisecond each.
_ROUNDING_MS = 2.0


def check_holds(trace: Trace) -> None:
    """A notice if calls of one GPU held its mutex at the same time."""
    held = trace.calls.drop_nulls(["gpu", "lock_ns", "unlock_ns"]).sort("gpu", "restart", "lock_ns")
    before = pl.col("unlock_ns").cum_max().shift(1).over("gpu", "restart")
    allowed_ms = pl.col("uncertainty_ms").fill_null(0.0) * 2 + _ROUNDING_MS
    overlap_ms = (before - pl.col("lock_ns")) / 1e6
    wrong = held.filter(overlap_ms > allowed_ms)
    if wrong.height:
        gpus = ", ".join(map(str, wrong["gpu"].unique().sort()))
        trace.quality.notice(
            "holds-overlap",
            f"calls hold the mutex of GPU {gpus} while others do: some are put together wrongly, and what is said of "
            "single calls and workers there is unsure; a log whose lines carry their time tells them apart",
            wrong.height,
        )
