"""Syntheses: when each ran, when it was queued, when a worker took it, and into which memory it went."""

import polars as pl

from gputrace import schema
from gputrace.rebuild.clock import Epoch, written_ns
from gputrace.rebuild.columns import rows_at
from gputrace.rebuild.pairing import in_order, nth_keys, places
from gputrace.rebuild.sequence import Sequence

_IDS = ("job", "partition")
_KEYS = ("job_number", "partition")


def collect_syntheses(sequence: Sequence, epochs: dict[int, Epoch]) -> pl.DataFrame:
    """The SYNTHESES frame, from TIMELINE where it is there, else from tracing lines."""

    def timed(event: str, *columns: str) -> pl.DataFrame:
        marks = sequence.of(event, columns=(*_IDS, *_KEYS[:1], "restart", "offset_ms", *columns))
        return marks.with_columns(written_ns(marks, epochs).alias("at_ns"))

    queued_event = "GPU_QUEUE" if len(sequence.rows_of("GPU_QUEUE")) else "CHAN_SEND"
    sides = (
        timed("SYNTH_START", "line"),
        timed("SYNTH_END", "synth_ms"),
        sequence.of("pushed_to_queue", "sent_to_gpu", columns=(*_IDS, *_KEYS[:1], "log_ns", "synth_ms", "restart")),
        timed(queued_event),
        timed("GPU_PICKUP"),
        sequence.of("partition_synthesised", "snap_partition_synthesised", columns=(*_KEYS, "is_pinned")),
    )
    keys = nth_keys(*(side[list(_KEYS)] for side in sides))
    own = in_order(keys[:3])
    start, end, spoken, queued, picked_up, pinned = (
        rows_at(side, places(side_keys, own)) for side, side_keys in zip(sides, keys, strict=True)
    )
    told = [spoken["log_ns"], spoken["synth_ms"]]
    frame = pl.DataFrame(
        {name: _first_told(start[name], end[name], spoken[name]) for name in _IDS}
        | {
            "restart": _first_told(start["restart"], spoken["restart"]),
            "start_ns": start["at_ns"],
            "end_ns": _first_told(end["at_ns"], told[0]),
            "queued_ns": _first_told(queued["at_ns"], told[0]),
            "picked_up_ns": picked_up["at_ns"],
            "synth_ms": _first_told(end["synth_ms"], told[1]),
            "pinned": pinned["is_pinned"],
            "line": start["line"],
        }
    ).with_columns(pl.coalesce("start_ns", pl.col("end_ns") - pl.col("synth_ms") * 1_000_000).alias("start_ns"))
    return schema.SYNTHESES.fit(frame.sort("start_ns", nulls_last=True, maintain_order=True))


def _first_told(*told: pl.Series) -> pl.Series:
    """Each entry from the first column that has it."""
    first, *others = told
    for other in others:
        first = first.zip_with(first.is_not_null(), other) if first.null_count() else first
    return first
