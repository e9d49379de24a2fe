"""Which log line stands behind a figure of the report's tables."""

import polars as pl

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.evidence import LogLine
from gputrace.trace import Trace


def phase_lines(trace: Trace) -> dict[str, tuple[LogLine | None, LogLine | None, LogLine | None]]:
    """For each kind of phase the lines of its shortest, its median and its longest call."""
    complete = trace.calls_in_focus.filter("complete").select("call")
    rows = (
        trace.phases.join(complete, on="call", how="semi")
        .group_by("call", "name")
        .agg(pl.col("duration_ms").sum(), pl.col("source", "line").first())
        .sort("name", "duration_ms", "call")
    )
    found = {}
    for (name,), own in rows.group_by("name", maintain_order=True):
        places = [own.row(at, named=True) for at in (0, (own.height - 1) // 2, own.height - 1)]
        low, middle, high = (
            None if row["line"] is None or row["source"] is None else LogLine(row["source"], row["line"])
            for row in places
        )
        found[str(name)] = (low, middle, high)
    return found


def gap_lines(diagnosis: Diagnosis) -> dict[tuple[int | None, str | None], LogLine]:
    """By call and phase, the line that tells of the phase: what a gap's row leads to."""
    if diagnosis.blame.is_empty():
        return {}
    rows = diagnosis.blame.drop_nulls(["source", "line"]).unique(["call", "phase"], keep="first", maintain_order=True)
    return {
        (call, phase): LogLine(source, line)
        for call, phase, source, line in rows.select("call", "phase", "source", "line").iter_rows()
    }


def job_spans(trace: Trace) -> dict[str, tuple[int, int]]:
    """By job, from the first thing that the log shows of it to the last, in nanoseconds."""
    begun = [trace.calls.select("job", pl.col("start_ns").alias("at"))]
    begun += [trace.syntheses.select("job", pl.col("start_ns").alias("at"))]
    ended = [trace.calls.select("job", pl.max_horizontal("end_ns", "finish_ns").alias("at"))]
    ended += [trace.syntheses.select("job", pl.col("end_ns").alias("at"))]
    first = pl.concat(begun).drop_nulls().group_by("job").agg(pl.col("at").min())
    last = pl.concat(ended).drop_nulls().group_by("job").agg(pl.col("at").max().alias("until"))
    return {job: (at, until) for job, at, until in first.join(last, on="job").iter_rows() if until > at}


def call_names(trace: Trace) -> dict[int, str]:
    """What a call is, in words, by its number."""
    named = {}
    for call, worker, partition in trace.calls.select("call", "worker", "partition").iter_rows():
        parts = [
            f"{word} {value}" for word, value in (("worker", worker), ("partition", partition)) if value is not None
        ]
        named[int(call)] = f"call {call}" + (f" ({', '.join(parts)})" if parts else "")
    return named
