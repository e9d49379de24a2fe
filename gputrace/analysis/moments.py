"""When a cause cost most: the few stretches of the run that a reader should look at first."""

from dataclasses import dataclass

import polars as pl

MOST_MOMENTS = 3
# Rows of one call and cause further apart than this are two moments: between them the GPU worked.
_JOIN_S = 0.25


@dataclass(frozen=True)
class Moment:
    """A stretch of one GPU's time, in one call, in which `lost_s` seconds are charged to one cause.

    `phase` is the one that lost most in it, `source` and `line` the log line that tells of that phase; None where the
    loss lies outside every phase.
    """

    cause: str
    gpu: int
    start_ns: int
    end_ns: int
    lost_s: float
    call: int | None
    phase: str | None
    source: int | None
    line: int | None


def costliest(blame: pl.DataFrame, most: int = MOST_MOMENTS) -> dict[str, tuple[Moment, ...]]:
    """For each cause the at most `most` stretches that lost most to it, most first; `blame` is that of a diagnosis.

    Rows of the same cause, GPU and call are one stretch as long as less than a quarter of a second lies between them.
    """
    if blame.is_empty():
        return {}
    keys = ("cause", "gpu", "call")
    gap_ns = pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1).over(keys)
    rows = (
        blame.with_columns((pl.col("copy_only_s") + pl.col("idle_s")).alias("lost_s"))
        .filter(pl.col("lost_s") > 0)
        .sort("start_ns", "end_ns", "phase")
        .with_columns(((gap_ns > _JOIN_S * 1e9).fill_null(False)).cum_sum().over(keys).alias("part"))
    )
    phases = (
        rows.group_by(*keys, "part", "phase", maintain_order=True)
        .agg(pl.col("lost_s").sum(), pl.col("source", "line").first())
        .sort("lost_s", "phase", descending=[True, False], nulls_last=True)
        .group_by(*keys, "part", maintain_order=True)
        .agg(pl.col("phase", "source", "line").first())
    )
    stretches = (
        rows.group_by(*keys, "part", maintain_order=True)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("lost_s").sum())
        .join(phases, on=[*keys, "part"], how="left", nulls_equal=True)
        .sort("lost_s", "start_ns", "gpu", descending=[True, False, False])
        .group_by("cause", maintain_order=True)
        .head(most)
    )
    found: dict[str, list[Moment]] = {}
    columns = ("cause", "gpu", "start_ns", "end_ns", "lost_s", "call", "phase", "source", "line")
    for row in stretches.select(columns).iter_rows():
        found.setdefault(row[0], []).append(Moment(*row))
    return {cause: tuple(moments) for cause, moments in found.items()}
