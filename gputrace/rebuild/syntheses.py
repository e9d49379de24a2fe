"""Syntheses: when each ran, when it was queued, when a worker took it, and into which memory it went."""

import polars as pl

from gputrace import schema
from gputrace.rebuild.clock import Epoch
from gputrace.rebuild.sequence import Sequence

_IDS = ("job", "partition")
_KEYS = [*_IDS, "nth"]


def _nth(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.int_range(pl.len()).over("job", "partition").alias("nth"))


def collect_syntheses(sequence: Sequence, epochs: dict[int, Epoch]) -> pl.DataFrame:
    """The SYNTHESES frame, from TIMELINE where it is there, else from tracing lines."""
    zero = Epoch(0.0, 0.0)
    table = pl.DataFrame(
        [(r, e.epoch_ns, e.drift) for r, e in (epochs or {0: zero}).items()],
        schema={"restart": pl.UInt16, "epoch_ns": pl.Float64, "drift": pl.Float64},
        orient="row",
    )

    def timed(event: str, name: str, *keep: str) -> pl.DataFrame:
        at_ns = (
            pl.col("epoch_ns").fill_null(0.0) + pl.col("offset_ms") * 1e6 * (1.0 + pl.col("drift").fill_null(0.0))
        ).cast(pl.Int64)
        columns = (*_IDS, "restart", "offset_ms", *keep)
        marks = _nth(sequence.of(event, columns=columns)).join(table, on="restart", how="left")
        return marks.select(*_KEYS, "restart", at_ns.alias(name), *keep)

    queued_event = "GPU_QUEUE" if sequence.of("GPU_QUEUE", columns=_IDS).height else "CHAN_SEND"
    starts = timed("SYNTH_START", "start_ns", "line")
    ends = timed("SYNTH_END", "end_ns", "synth_ms")
    spoken = _nth(
        sequence.of("pushed_to_queue", "sent_to_gpu", columns=(*_IDS, "log_ns", "synth_ms", "restart"))
    ).select(*_KEYS, "restart", pl.col("log_ns").alias("spoken_ns"), pl.col("synth_ms").alias("spoken_ms"))
    pinned = _nth(
        sequence.of("partition_synthesised", "snap_partition_synthesised", columns=(*_IDS, "is_pinned"))
    ).select(*_KEYS, pl.col("is_pinned").alias("pinned"))
    frame = starts.join(ends.drop("restart"), on=_KEYS, how="full", coalesce=True, nulls_equal=True)
    frame = frame.join(
        spoken.rename({"restart": "spoken_restart"}), on=_KEYS, how="full", coalesce=True, nulls_equal=True
    )
    for other in (
        timed(queued_event, "queued_ns").drop("restart"),
        timed("GPU_PICKUP", "picked_up_ns").drop("restart"),
        pinned,
    ):
        frame = frame.join(other, on=_KEYS, how="left", nulls_equal=True)
    frame = frame.with_columns(
        pl.coalesce("restart", "spoken_restart").alias("restart"),
        pl.coalesce("synth_ms", "spoken_ms").alias("synth_ms"),
        pl.coalesce("end_ns", "spoken_ns").alias("end_ns"),
        pl.coalesce("queued_ns", "spoken_ns").alias("queued_ns"),
    ).with_columns(
        pl.coalesce("start_ns", pl.col("end_ns") - pl.col("synth_ms") * 1_000_000).alias("start_ns"),
    )
    return schema.SYNTHESES.fit(frame.sort("start_ns", nulls_last=True, maintain_order=True))
