"""Calls put together to the CALLS frame of a `Trace`, and how many marks found a place in time."""

import polars as pl

from gputrace import schema
from gputrace.rebuild.calls import Call
from gputrace.rebuild.sequence import Sequence
from gputrace.trace import Quality


def calls_frame(calls: list[Call], syntheses: pl.DataFrame, failed: set[tuple[str | None, int | None]]) -> pl.DataFrame:
    """The CALLS frame. `failed` has job and partition of what the prover reported an error for."""
    pinned: dict[tuple[str | None, int | None], list[bool | None]] = {}
    for job, partition, value in syntheses.select("job", "partition", "pinned").iter_rows():
        pinned.setdefault((job, partition), []).append(value)
    attempts, blocks = [call.attempt for call in calls], [call.block for call in calls]
    keys = [(attempt.job, attempt.partition) if attempt else (None, None) for attempt in attempts]
    columns: dict[str, list[object]] = {
        "call": list(range(len(calls))),
        "source": [
            block.source if block else attempt.source if attempt else None
            for block, attempt in zip(blocks, attempts, strict=True)
        ],
        "restart": [
            block.restart if block else attempt.restart if attempt else 0
            for block, attempt in zip(blocks, attempts, strict=True)
        ],
        "gpu": [call.gpu for call in calls],
        **{
            name: [getattr(attempt, name) if attempt else None for attempt in attempts]
            for name in ("worker", "job", "partition", "kind", "finish_ns", "gpu_ms")
        },
        "pinned": [_next_of(pinned.get(key, [])) for key in keys],
        "complete": [block is not None and block.complete for block in blocks],
        "failed": [
            key in failed and (block is None or not block.complete or attempt is None or attempt.finish_ns is None)
            for key, block, attempt in zip(keys, blocks, attempts, strict=True)
        ],
        "missing": [(", ".join(block.missing) or None) if block else "all" for block in blocks],
        "warmup": [block is not None and block.warmup for block in blocks],
        "start_ns": [_whole(call.entry_ns) for call in calls],
        "lock_ns": [_whole(call.lock_ns) for call in calls],
        "unlock_ns": [_whole(call.unlock_ns) for call in calls],
        "end_ns": [_whole(call.end_ns) for call in calls],
        "uncertainty_ms": [call.uncertainty_ms for call in calls],
        "residual_ms": [call.residual_ms if call.attempt and call.block else None for call in calls],
        "num_circuits": [_num_circuits(call) for call in calls],
        "prep_msm_ms": [call.prep.ms if call.prep else None for call in calls],
        "b_g2_msm_ms": [call.b_g2.ms if call.b_g2 else None for call in calls],
        "release_abc_ms": [call.release_abc_ms for call in calls],
        "first_line": [
            min(block.lines.values()) if block else attempt.line if attempt else None
            for block, attempt in zip(blocks, attempts, strict=True)
        ],
        "last_line": [max(block.lines.values()) if block else None for block in blocks],
        **{name: [block.ms.get(name) if block else None for block in blocks] for name in _PRINTED},
    }
    return pl.DataFrame(columns, schema_overrides=schema.CALLS.polars()).select(list(schema.CALLS.columns))


_PRINTED = (
    "pre_lock_cpu_ms", "mutex_wait_ms", "mutex_held_ms", "gpu_total_ms", "ntt_msm_h_ms", "total_start_fn_ms",
)  # fmt: skip


def _next_of(flags: list[bool | None]) -> bool | None:
    """The flags of one partition, one a call; the last is for all that are left."""
    return None if not flags else flags.pop(0) if len(flags) > 1 else flags[0]


def _num_circuits(call: Call) -> int | None:
    if call.b_g2:
        return call.b_g2.extra
    return len(call.block.circuits) if call.block and call.block.circuits else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def count_placed(quality: Quality, calls: list[Call], sequence: Sequence) -> None:
    """A mark is placed when it has a time of its own or belongs to a call that has one."""
    own = sequence.frame.filter(
        pl.col("log_ns").is_not_null() | pl.col("arrival_ns").is_not_null() | pl.col("offset_ms").is_not_null()
    ).height
    tied = 0
    for call in calls:
        if call.entry_ns is None and call.lock_ns is None:
            continue
        floating = [f for f in (call.split, call.prep, call.b_g2, call.dealloc) if f and f.arrival_ns is None]
        tied += len(floating)
        if call.block is not None and not call.block.arrivals:
            tied += len(call.block.lines) + max(0, len(call.block.circuits) - 1)
    quality.marks_placed = min(quality.marks, own + tied)
    quality.marks_unplaced = quality.marks - quality.marks_placed
