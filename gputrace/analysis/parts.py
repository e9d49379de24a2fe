"""Parts of a run: whole calls with what belongs to them."""

from dataclasses import replace

import polars as pl

from gputrace.trace import Trace


def part_of(trace: Trace, calls: pl.Series, start_ns: int, end_ns: int) -> Trace:
    """The trace of these calls (by number), with everything else of it limited to a span of time.

    Samples and host readings on an edge are cut, samples with their bytes in proportion. Syntheses, copies and marks
    are kept where they touch the span; marks without a wall-clock time stay.
    """
    kept = pl.col("call").is_in(calls.implode())
    overlaps = (pl.col("start_ns") < end_ns) & (pl.col("end_ns").fill_null(end_ns) > start_ns)
    stamped = pl.coalesce("log_ns", "arrival_ns")
    return replace(
        trace,
        marks=_kept(trace.marks, stamped.is_between(start_ns, end_ns) | stamped.is_null()),
        calls=_kept(trace.calls, kept),
        phases=_kept(trace.phases, kept),
        syntheses=_kept(trace.syntheses, overlaps | pl.col("picked_up_ns").is_between(start_ns, end_ns)),
        samples=_cut(trace.samples, start_ns, end_ns, "rx_wire_bytes", "tx_wire_bytes"),
        host=_cut(trace.host, start_ns, end_ns),
        copies=_kept(trace.copies, overlaps),
    )


def _kept(frame: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Many a run has no samples, readings or copies: nothing is asked of an empty frame."""
    return frame.filter(condition) if frame.height else frame


def _cut(frame: pl.DataFrame, start_ns: int, end_ns: int, *amounts: str) -> pl.DataFrame:
    if frame.is_empty():
        return frame
    low, high = pl.max_horizontal("start_ns", pl.lit(start_ns)), pl.min_horizontal("end_ns", pl.lit(end_ns))
    share = (high - low) / (pl.col("end_ns") - pl.col("start_ns"))
    return frame.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns)).with_columns(
        low.alias("start_ns"), high.alias("end_ns"), *(pl.col(name) * share for name in amounts)
    )
