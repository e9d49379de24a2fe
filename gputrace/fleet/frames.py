"""Summaries -> frames: a row for each capture, GPU and day, and a row for each cause of it.

days     host  gpu  model  capture  deploy  start_ns  end_ns  day  window_s  compute_s  lost_s  calls
losses   host  gpu  model  capture  day  cause  lost_s  supported
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from gputrace.errors import UsageError
from gputrace.fleet.summary import CaptureSummary

DAYS = {
    "host": pl.String,
    "gpu": pl.Int32,
    "model": pl.String,
    "capture": pl.String,
    "deploy": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "day": pl.String,
    "window_s": pl.Float64,
    "compute_s": pl.Float64,
    "lost_s": pl.Float64,
    "calls": pl.Int64,
}
LOSSES = {
    "host": pl.String,
    "gpu": pl.Int32,
    "model": pl.String,
    "capture": pl.String,
    "day": pl.String,
    "cause": pl.String,
    "lost_s": pl.Float64,
    "supported": pl.Boolean,
}


@dataclass(frozen=True)
class HostNames:
    """What a capture's host is called: by a pattern on its path, by its meta.json, or by its folder's name."""

    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, pattern: str | None) -> "HostNames":
        """Raises `UsageError` unless the pattern is a regular expression with one group."""
        if pattern is None:
            return cls()
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"--host-pattern: {error}") from error
        if compiled.groups != 1:
            raise UsageError("--host-pattern: one group is needed, the host's name, as 'fleet/([^/]+)/'")
        return cls(compiled)

    def of_capture(self, summary: CaptureSummary) -> tuple[str, bool]:
        """The host's name, and whether it is a guess from the folder's name."""
        if self.pattern is not None and (found := self.pattern.search(summary.capture)) and found[1]:
            return found[1], False
        if summary.host is not None:
            return summary.host, False
        return posixpath.basename(summary.capture.rstrip("/")), True


def to_frames(
    summaries: Iterable[CaptureSummary], names: HostNames
) -> tuple[pl.DataFrame, pl.DataFrame, Sequence[str]]:
    """`days`, `losses`, and the captures whose host is guessed."""
    days: list[dict[str, object]] = []
    losses: list[dict[str, object]] = []
    guessed: list[str] = []
    for summary in summaries:
        host, guess = names.of_capture(summary)
        if guess:
            guessed.append(summary.capture)
        for row in summary.days:
            told = {"host": host, "gpu": row.gpu, "model": summary.gpus.get(row.gpu), "capture": summary.capture}
            days.append(
                {
                    **told,
                    "deploy": summary.deploy,
                    "start_ns": summary.start_ns,
                    "end_ns": summary.end_ns,
                    "day": row.day,
                    "window_s": row.window_s,
                    "compute_s": row.compute_s,
                    "lost_s": row.lost_s,
                    "calls": row.calls,
                }
            )
            losses.extend(
                {
                    **told,
                    "day": row.day,
                    "cause": cause,
                    "lost_s": lost_s,
                    "supported": summary.verdicts.get(cause) == "supported",
                }
                for cause, lost_s in row.lost_by_cause_s.items()
            )
    return pl.DataFrame(days, schema=DAYS), pl.DataFrame(losses, schema=LOSSES), guessed


def overlaps(days: pl.DataFrame) -> pl.DataFrame:
    """Captures of one GPU that overlap in time, so that seconds count twice: host, gpu, capture, other, seconds."""
    spans = days.select("host", "gpu", "capture", "start_ns", "end_ns").drop_nulls().unique()
    before = ["host", "gpu"]
    return (
        spans.sort("host", "gpu", "start_ns", "capture")
        .with_columns(
            pl.col("capture").shift(1).over(before).alias("other"),
            pl.col("end_ns").cum_max().shift(1).over(before).alias("until_ns"),
        )
        .filter(pl.col("until_ns") > pl.col("start_ns"))
        .select(
            *before,
            "capture",
            "other",
            ((pl.min_horizontal("until_ns", "end_ns") - pl.col("start_ns")) / 1e9).alias("seconds"),
        )
    )
