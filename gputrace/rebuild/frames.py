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
    rows = []
    for number, call in enumerate(calls):
        block, attempt = call.block, call.attempt
        key = (attempt.job, attempt.partition) if attempt else (None, None)
        flags = pinned.get(key, [])
        ms = block.ms if block else {}
        complete = block is not None and block.complete
        rows.append(
            {
                "call": number,
                "source": block.source if block else attempt.source if attempt else None,
                "restart": block.restart if block else attempt.restart if attempt else 0,
                "gpu": call.gpu,
                "worker": attempt.worker if attempt else None,
                "job": attempt.job if attempt else None,
                "partition": attempt.partition if attempt else None,
                "kind": attempt.kind if attempt else None,
                "pinned": (flags.pop(0) if len(flags) > 1 else flags[0]) if flags else None,
                "complete": complete,
                "failed": key in failed and (not complete or attempt is None or attempt.finish_ns is None),
                "missing": (", ".join(block.missing) or None) if block else "all",
                "warmup": block is not None and block.warmup,
                "start_ns": _whole(call.entry_ns),
                "lock_ns": _whole(call.lock_ns),
                "unlock_ns": _whole(call.unlock_ns),
                "end_ns": _whole(call.end_ns),
                "finish_ns": attempt.finish_ns if attempt else None,
                "uncertainty_ms": call.uncertainty_ms,
                "residual_ms": call.residual_ms if attempt and block else None,
                "num_circuits": call.b_g2.extra
                if call.b_g2
                else len(block.circuits)
                if block and block.circuits
                else None,
                "prep_msm_ms": call.prep.ms if call.prep else None,
                "b_g2_msm_ms": call.b_g2.ms if call.b_g2 else None,
                "release_abc_ms": call.release_abc_ms,
                "gpu_ms": attempt.gpu_ms if attempt else None,
                "first_line": min(block.lines.values()) if block else attempt.line if attempt else None,
                "last_line": max(block.lines.values()) if block else None,
                **{
                    name: ms.get(name)
                    for name in (
                        "pre_lock_cpu_ms",
                        "mutex_wait_ms",
                        "mutex_held_ms",
                        "gpu_total_ms",
                        "ntt_msm_h_ms",
                        "total_start_fn_ms",
                    )
                },
            }
        )
    return schema.CALLS.fit(pl.DataFrame(rows, infer_schema_length=None)) if rows else schema.CALLS.empty()


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
