"""Charges every lost second to one cause.

A sample's lost time (what is not compute) is divided among the segments it covers, in proportion to their own lost
time: their length times the share in which their kind leaves the SMs idle. Each part is then charged by the first
rule that fits. Parts of a sample add up to its lost time, so nothing is lost or counted twice.
"""

import numpy as np
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.pieces import divide
from gputrace.analysis.segments import COMPUTE_PHASES
from gputrace.analysis.thresholds import STALLED_FACTOR, Thresholds
from gputrace.ingest.samples import WIRE_PER_PAYLOAD

UNEXPLAINED = "unexplained"

BLAME = {
    "gpu": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "call": pl.UInt32,
    "phase": pl.String,
    "cause": pl.String,
    "copy_only_s": pl.Float64,
    "idle_s": pl.Float64,
}


def _rules(copy_floor: float, line_floor: float | None) -> list[tuple[pl.Expr, str]]:
    """Condition and cause, in order; the first that holds decides.

    Columns: name, mode, bursting, stalled, pinned, warmup, copying (the sample), rate (payload bytes/s of the phase
    instance, null without a trace).
    """
    name, rate = pl.col("name"), pl.col("rate")
    moves = (rate > copy_floor).fill_null(False)
    at_line_rate = (rate >= line_floor).fill_null(False) if line_floor else pl.lit(False)
    not_pinned = ~pl.col("pinned").fill_null(False)
    in_ntt = name == "ntt_kernels"
    kernels = name.is_in(COMPUTE_PHASES)
    return [
        (name == "barrier_wait", "prep-barrier"),
        ((name == "d_b_alloc") & pl.col("bursting"), "pinned-alloc-stall"),
        (name.is_in(["d_b_alloc", "msm_init", "msm_dtor"]), "device-allocation"),
        # The copy stops while the driver pins memory: no traffic inside a copying phase.
        (in_ntt & pl.col("bursting") & ~pl.col("copying"), "pinned-alloc-stall"),
        # A copy that stands still without a known allocation: the log may lack the lines that would explain it.
        (in_ntt & moves & not_pinned & ~pl.col("copying"), UNEXPLAINED),
        (in_ntt & moves & not_pinned & ~at_line_rate, "pageable-h2d"),
        (in_ntt & moves, "line-rate-copy"),
        # Without a trace, the log's own word that the buffers are pageable must do.
        (in_ntt & rate.is_null() & (pl.col("pinned") == False) & (pl.col("mode") == "in-ntt"), "pageable-h2d"),  # noqa: E712
        (in_ntt & rate.is_null(), UNEXPLAINED),
        (in_ntt, "launch-overhead"),
        (kernels & pl.col("stalled") & pl.col("bursting"), "pinned-alloc-stall"),
        (kernels & pl.col("copying") & at_line_rate, "line-rate-copy"),
        (kernels, "kernel-phase-idle"),
        (name == "release_abc", "release-abc"),
        (name == "no_work", "no-work-queued"),
        (name.is_in(["pre_lock", "pickup"]), "host-hot-path"),
        ((name == "mutex_held") & pl.col("warmup"), "device-allocation"),
    ]


def lost_pieces(view: GpuView, moved: Transfers, calls: pl.DataFrame) -> pl.DataFrame:
    """The lost seconds of one GPU, piece by piece in order of time, with what the rules look at; no thresholds yet.

    After: gpu, sample, start_ns, end_ns, call, name, lost_s and the columns that `_rules` names less `copying`.
    """
    pieces, segments = view.pieces, view.segments
    inside = pieces.segment >= 0
    idle_share = np.ones(len(pieces.seconds))
    if len(moved.kind_of):
        if moved.sm is not None:
            busy = moved.sm.value[moved.kind_of]
        else:
            busy = segments["name"].is_in(COMPUTE_PHASES).cast(float).to_numpy()
        idle_share = np.where(inside, 1.0 - busy[pieces.segment], 1.0)
    lost_s = divide(view.seconds - view.compute_s, pieces.sample, pieces.seconds * idle_share, pieces.seconds)
    usual = pl.col("seconds").filter(~pl.col("bursting")).median().over("name", "mode")
    instances = moved.instances.select(
        "call",
        "name",
        pl.col("rx_bytes_per_s").alias("rate"),
        (pl.col("seconds") > STALLED_FACTOR * usual).fill_null(True).alias("stalled"),
    )
    table = (
        segments.join(instances, on=["call", "name"], how="left", maintain_order="left")
        .join(calls.select("call", "pinned", "warmup"), on="call", how="left", maintain_order="left")
        .with_row_index("segment")
        .with_columns(pl.col("segment").cast(pl.Int64))
        .drop("gpu")
    )
    rows = pl.DataFrame(
        {
            "segment": pieces.segment,
            "sample": pieces.sample,
            "sample_start": view.samples["start_ns"].to_numpy()[pieces.sample],
            "sample_end": view.samples["end_ns"].to_numpy()[pieces.sample],
            "lost_s": lost_s,
        }
    ).filter(pl.col("lost_s") > 0)
    return rows.join(table, on="segment", how="left", maintain_order="left").with_columns(
        pl.lit(view.info.gpu).alias("gpu"),
        pl.max_horizontal("start_ns", "sample_start").alias("start_ns"),
        pl.min_horizontal("end_ns", "sample_end").alias("end_ns"),
    )


def charge(lost: pl.DataFrame, view: GpuView, moved: Transfers, thresholds: Thresholds) -> pl.DataFrame:
    """The BLAME frame of one GPU: each row of `lost_pieces` with its cause."""
    copying = view.copying(thresholds)[lost["sample"].to_numpy()]
    copy_floor = thresholds.copy_link_share * view.limit_wire_bytes_per_s / WIRE_PER_PAYLOAD
    cause = pl.lit(UNEXPLAINED)
    for condition, name in reversed(_rules(copy_floor, moved.line_floor(thresholds))):
        cause = pl.when(condition.fill_null(False)).then(pl.lit(name)).otherwise(cause)
    return (
        lost.with_columns(pl.Series("copying", copying))
        .select(
            "gpu",
            "start_ns",
            "end_ns",
            "call",
            pl.col("name").alias("phase"),
            cause.alias("cause"),
            pl.when("copying").then("lost_s").otherwise(0.0).alias("copy_only_s"),
            pl.when("copying").then(0.0).otherwise("lost_s").alias("idle_s"),
        )
        .cast(BLAME)  # type: ignore[arg-type]
    )
