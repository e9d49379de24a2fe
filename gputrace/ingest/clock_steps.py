"""Rows of a recorder in order of time, where its wall clock was set while it recorded."""

import polars as pl

from gputrace.trace import Quality

# Wall and monotonic clock differ by so much more from row to row only where one was set.
_CLOCK_STEP_NS = 50e6


def in_clock_order(rows: pl.DataFrame, quality: Quality) -> pl.DataFrame:
    """Rows in order of time. Where they have a monotonic time, too, it tells when the wall clock was set: what was
    measured across such a step is a hole, and rows whose time was there before are left out."""
    clock = "mono_ns" if "mono_ns" in rows.columns else "time_ns"
    ordered = rows if rows[clock].is_sorted() else rows.sort(clock)
    if clock == "time_ns":
        return ordered
    again = (ordered["time_ns"] <= ordered["time_ns"].cum_max().shift(1)).fill_null(False)
    drift = ordered["time_ns"].diff().cast(pl.Float64) - ordered["mono_ns"].diff()
    moved = (drift.abs() > _CLOCK_STEP_NS).fill_null(False)
    if steps := int(moved.sum()):
        quality.notice(
            "clock-step",
            f"the recorder's wall clock was set while it recorded; {int(again.sum())} rows whose time had "
            "been there before were not used",
            steps,
        )
        # The first row that is used after a step is as far from the one before as the step says, whatever passed.
        set_back = again.shift(1).fill_null(False) & ~again
        hole = pl.col("hole").cast(pl.Float64).fill_null(0.0) if "hole" in ordered.columns else pl.lit(0.0)
        ordered = ordered.with_columns(pl.when(moved | set_back).then(1.0).otherwise(hole).alias("hole"))
    return ordered.filter(~again) if again.any() else ordered
