"""Marks and samples to a `Trace`: calls, phases and syntheses on one clock."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from gputrace import schema
from gputrace.ingest.inputs import Ingested
from gputrace.rebuild.align import align
from gputrace.rebuild.attempts import collect_attempts, failed_partitions
from gputrace.rebuild.blocks import collect_blocks
from gputrace.rebuild.calls import Call, assemble, timeline_bounds
from gputrace.rebuild.clock import clock_of, fit_epochs
from gputrace.rebuild.floating import attach_floating
from gputrace.rebuild.phases import Row, phases_of
from gputrace.rebuild.sequence import Sequence, to_sequence
from gputrace.rebuild.syntheses import collect_syntheses
from gputrace.trace import Clock, Trace


def rebuild(ingested: Ingested) -> Trace:
    """A `Trace` of everything that was read.

    Where no line ties the log to the wall clock, times count from the engine's start and `clock.method` is none.
    """
    trace = Trace(
        inputs=ingested.inputs,
        marks=ingested.marks,
        samples=ingested.samples,
        host=ingested.host,
        gpus=ingested.gpus,
        quality=ingested.quality,
    )
    if ingested.marks.is_empty():
        return trace
    with _without_collector():
        _rebuild_log(trace, ingested)
    return trace


@contextmanager
def _without_collector() -> Iterator[None]:
    """Hundreds of thousands of small objects are made here and none in a cycle: looking for cycles costs a tenth."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _rebuild_log(trace: Trace, ingested: Ingested) -> None:
    sequence = to_sequence(ingested.marks)
    epochs = fit_epochs(sequence)
    attempts = collect_attempts(sequence, epochs)
    blocks = collect_blocks(sequence)
    bounds = timeline_bounds(sequence, epochs)
    calls = assemble(blocks, attempts, bounds)
    attach_floating(sequence, calls, bounds)
    trace.clock = clock_of(epochs)
    if not epochs:
        trace.clock = _clock_without_pairs(sequence)
    trace.syntheses = collect_syntheses(sequence, epochs)
    trace.calls = _calls_frame(calls, trace.syntheses, failed_partitions(sequence))
    trace.phases = _phases_frame(calls, trace.calls)
    _count_placed(trace, calls, sequence)
    if trace.clock.method == "none":
        _align_with_samples(trace)
    _check_overlap(trace)


def _align_with_samples(trace: Trace) -> None:
    """Finds the log's clock in the GPU trace; where that is not unique, the log stays on its own clock."""
    if trace.samples.is_empty() or trace.calls["lock_ns"].null_count() == trace.calls.height:
        return
    gpu = trace.samples["gpu"][0]
    found = align(trace.phases.filter("under_mutex"), trace.samples.filter(pl.col("gpu") == gpu))
    if found is None or not found.believed:
        quality = "" if found is None else f" (correlation {found.correlation:.2f}, {found.margin:.2f} over the next)"
        trace.quality.notice(
            "not-aligned",
            f"the log has no wall-clock time and does not fit the GPU trace at one offset only{quality}; "
            "add the prover's stdout, or record both together",
        )
        return
    trace.clock = Clock(
        method="correlation",
        unique=True,
        offset_s=found.offset_ns / 1e9,
        uncertainty_s=found.uncertainty_s,
        runner_up_margin=found.margin,
    )
    moved = pl.selectors.ends_with("_ns") + found.offset_ns
    trace.calls, trace.phases = trace.calls.with_columns(moved), trace.phases.with_columns(moved)
    trace.syntheses = trace.syntheses.with_columns(moved)


def _check_overlap(trace: Trace) -> None:
    """Says so where log and samples do not share any time."""
    ends = trace.calls.select(
        pl.min_horizontal("start_ns", "lock_ns").min(), pl.max_horizontal("end_ns", "unlock_ns").max()
    )
    first, last = ends.row(0)
    if trace.samples.is_empty() or trace.clock.method == "none" or first is None or last is None:
        return
    begin, end = int(trace.samples["start_ns"].min()), int(trace.samples["end_ns"].max())  # type: ignore[arg-type]
    if begin > last or end < first:
        apart_s = (begin - last if begin > last else first - end) / 1e9
        trace.quality.notice(
            "no-overlap",
            f"the GPU trace and the log's calls lie {apart_s:.0f} s apart: the trace was not used. "
            "Give a trace of the same run; if its clock was wrong, correct its times",
        )
    elif begin > first or end < last:
        missing_s = max(0, begin - first) / 1e9 + max(0, last - end) / 1e9
        if missing_s > 1.0:
            trace.quality.notice("part-unsampled", f"{missing_s:.1f} s of the log's calls lie outside the GPU trace")


def _clock_without_pairs(sequence: Sequence) -> Clock:
    if sequence.frame["arrival_ns"].count():
        return Clock(method="wrapper", unique=True, uncertainty_s=0.005)
    if sequence.frame["log_ns"].count() and not sequence.of("SYNTH_START", "GPU_START").height:
        # Tracing lines alone carry their own times.
        return Clock(method="timeline+tracing", unique=True, uncertainty_s=0.001)
    return Clock()


def _calls_frame(
    calls: list[Call], syntheses: pl.DataFrame, failed: set[tuple[str | None, int | None]]
) -> pl.DataFrame:
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
                "gpu": attempt.gpu if attempt and attempt.gpu is not None else 0,
                "worker": attempt.worker if attempt else None,
                "job": attempt.job if attempt else None,
                "partition": attempt.partition if attempt else None,
                "kind": attempt.kind if attempt else None,
                "pinned": (flags.pop(0) if len(flags) > 1 else flags[0]) if flags else None,
                "complete": complete,
                "failed": not complete and key in failed,
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


def _phases_frame(calls: list[Call], frame: pl.DataFrame) -> pl.DataFrame:
    owners = frame.select("call", "gpu", "worker").iter_rows()
    rows = [owner + row for call, owner in zip(calls, owners, strict=True) for row in phases_of(call)]
    columns = schema.PHASES.polars()
    order = ["call", "gpu", "worker", *Row._fields]
    return schema.PHASES.fit(pl.DataFrame(rows, schema={name: columns[name] for name in order}, orient="row"))


def _count_placed(trace: Trace, calls: list[Call], sequence: Sequence) -> None:
    """A mark is placed when it has a time of its own or belongs to a call that has one."""
    quality = trace.quality
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
