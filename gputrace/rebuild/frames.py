"""Calls put together to the CALLS frame of a `Trace`, and how many marks found a place in time."""

import numpy as np
import polars as pl

from gputrace import schema
from gputrace.rebuild.calls import FLOATING, Calls
from gputrace.rebuild.columns import first_known, rows_at, whole
from gputrace.rebuild.sequence import Sequence
from gputrace.trace import Quality

_PARTITION = ["job", "partition"]
_PRINTED = (
    "pre_lock_cpu_ms", "mutex_wait_ms", "mutex_held_ms", "gpu_total_ms", "ntt_msm_h_ms", "total_start_fn_ms",
)  # fmt: skip


def calls_frame(calls: Calls, syntheses: pl.DataFrame, failed: set[tuple[str | None, int | None]]) -> pl.DataFrame:
    """The CALLS frame. `failed` has job and partition of what the prover reported an error for."""
    blocks, attempts = calls.blocks, rows_at(calls.attempts.frame, calls.attempt)
    has_block, has_attempt = calls.block >= 0, calls.attempt >= 0
    missing = _missing(calls)
    complete = missing.is_null().to_numpy()
    finished = complete & attempts["finish_ns"].is_not_null().to_numpy()
    named = attempts.select(_PARTITION)
    reported = np.array([key in failed for key in named.iter_rows()] if failed else np.zeros(len(calls)), dtype=bool)
    b_g2_circuits = calls.line_figure("b_g2", "extra")
    counted = calls.of_blocks(np.where(blocks.circuit_count > 0, blocks.circuit_count, np.nan))
    own_b_g2 = calls.own_line["b_g2"] >= 0
    restart = calls.of_blocks(blocks.restart.astype(np.float64))
    source = calls.of_blocks(blocks.source.astype(np.float64))
    lines = [calls.of_blocks(own.line) for own in blocks.lines.values()] or [restart * np.nan]
    columns = {
        "call": pl.int_range(len(calls), dtype=pl.UInt32, eager=True),
        "source": whole(first_known(source, calls.of_attempts("source"))),
        "restart": whole(np.nan_to_num(first_known(restart, calls.of_attempts("restart")))),
        "gpu": pl.Series(calls.gpu),
        **{name: attempts[name] for name in ("worker", "job", "partition", "kind", "finish_ns", "gpu_ms")},
        "pinned": _pinned(named, syntheses),
        "complete": pl.Series(complete),
        "failed": pl.Series(reported & ~finished),
        "missing": missing,
        "warmup": pl.Series(has_block & np.append(blocks.warmup, False)[calls.block]),
        "start_ns": whole(calls.entry_ns),
        "lock_ns": whole(calls.lock_ns),
        "unlock_ns": whole(calls.unlock_ns),
        "end_ns": whole(calls.end_ns),
        "uncertainty_ms": pl.Series(calls.uncertainty_ms, nan_to_null=True),
        "residual_ms": pl.Series(np.where(has_block & has_attempt, calls.residual_ms, np.nan), nan_to_null=True),
        "num_circuits": whole(np.where(own_b_g2, b_g2_circuits, counted)),
        "prep_msm_ms": whole(calls.line_figure("prep", "ms")),
        "b_g2_msm_ms": whole(calls.line_figure("b_g2", "ms")),
        "release_abc_ms": whole(calls.release_abc_ms),
        "first_line": whole(np.where(has_block, np.fmin.reduce(lines), calls.of_attempts("line"))),
        "last_line": whole(np.fmax.reduce(lines)),
        **{name: whole(calls.printed(name)) for name in _PRINTED},
    }
    return schema.CALLS.fit(pl.DataFrame(columns))


def _missing(calls: Calls) -> pl.Series:
    """What calls lack: all, where one has no block."""
    told = rows_at(calls.blocks.missing.to_frame("missing"), calls.block)
    return told.select(pl.when(pl.Series(calls.block < 0)).then(pl.lit("all")).otherwise("missing")).to_series()


def _pinned(named: pl.DataFrame, syntheses: pl.DataFrame) -> pl.Series:
    """Whether each call's vectors were pinned: as its partition's syntheses say, in order; the last for the rest."""
    nth = pl.int_range(pl.len()).over(_PARTITION).alias("nth")
    flags = syntheses.select(*_PARTITION, "pinned", nth)
    if not flags["pinned"].count():
        return pl.Series([None] * named.height, dtype=pl.Boolean)
    known = flags.group_by(_PARTITION).agg((pl.len() - 1).cast(pl.Int64).alias("last"))
    tied = named.with_columns(nth).join(known, on=_PARTITION, how="left", nulls_equal=True, maintain_order="left")
    tied = tied.with_columns(pl.min_horizontal("nth", "last").alias("nth"))
    return tied.join(flags, on=[*_PARTITION, "nth"], how="left", nulls_equal=True, maintain_order="left")["pinned"]


def count_placed(quality: Quality, calls: Calls, sequence: Sequence) -> None:
    """A mark is placed when it has a time of its own or belongs to a call that has one."""
    own = sequence.frame.select(
        pl.any_horizontal(pl.col("log_ns", "arrival_ns", "offset_ms").is_not_null()).sum()
    ).item()
    timed = ~(np.isnan(calls.entry_ns) & np.isnan(calls.lock_ns))
    tied = 0
    for kind in FLOATING:
        has = calls.own_line[kind] >= 0
        tied += int((timed & has & np.isnan(calls.line_figure(kind, "arrival_ns"))).sum())
    blocks = calls.blocks
    told = np.maximum(0, blocks.circuit_count - 1) + sum(~np.isnan(lines.line) for lines in blocks.lines.values())
    unstamped = timed[: len(blocks)] & np.isnan(blocks.latest_arrival_ns)
    tied += int(told[unstamped].sum())
    quality.marks_placed = min(quality.marks, own + tied)
    quality.marks_unplaced = quality.marks - quality.marks_placed
