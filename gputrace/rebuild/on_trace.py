"""Puts a log that lacks wall-clock times on the clock of the GPU trace, and says where the two do not meet."""

import numpy as np
import polars as pl

from gputrace.rebuild.align import align
from gputrace.rebuild.calls import Calls
from gputrace.rebuild.elastic import Placement, holds_of, place
from gputrace.trace import Clock, Trace


def place_without_times(calls: Calls, samples: pl.DataFrame) -> Clock | None:
    """Times calls of a log without any time by the samples they fit; None (and no times) where no place is unique."""
    held_ms = calls.of_blocks(calls.blocks.held_ms)
    placed = np.flatnonzero(~np.isnan(held_ms))
    if samples.is_empty() or not np.isnan(calls.lock_ns[placed]).all():
        return None
    holds = holds_of(calls.blocks)
    found = [placement for own in _by_gpu(samples).values() if (placement := place(holds, own)) is not None]
    best: Placement | None = max(found, key=lambda placement: placement.explained, default=None)
    if best is None or not best.believed:
        return None
    lock_ns = np.array(best.lock_ns, dtype=np.float64)
    calls.set_lock(placed, lock_ns, np.full(len(placed), best.uncertainty_s * 1e3))
    return Clock(method="correlation", unique=True, uncertainty_s=best.uncertainty_s, runner_up_margin=best.margin)


def align_with_samples(trace: Trace) -> None:
    """Finds the log's clock in the GPU trace; where that is not unique, the log stays on its own clock."""
    if trace.samples.is_empty() or trace.calls.is_empty():
        return
    found = None
    if trace.calls["lock_ns"].count():
        found = align(_by_gpu(trace.phases.filter("under_mutex")), _by_gpu(trace.samples))
    if found is None or not found.believed:
        quality = "" if found is None else f" (correlation {found.correlation:.2f}, {found.margin:.2f} over the next)"
        trace.quality.notice(
            "not-aligned",
            f"the log has no wall-clock time and does not fit the GPU trace in one place only{quality}; "
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


def _by_gpu(frame: pl.DataFrame) -> dict[int, pl.DataFrame]:
    return {int(str(gpu)): own for (gpu,), own in frame.group_by("gpu", maintain_order=True)}


def _bring_together(trace: Trace, apart_s: float) -> None:
    """Moves a GPU trace of another time onto the log where it fits in one place only; else leaves it unused."""
    found = align(_by_gpu(trace.phases.filter("under_mutex")), _by_gpu(trace.samples))
    if found is None or not found.believed:
        trace.quality.notice(
            "no-overlap",
            f"the GPU trace and the log's calls lie {apart_s:.0f} s apart: the trace was not used. "
            "Give a trace of the same run; if its clock was wrong, correct its times",
        )
        return
    moved = pl.col("start_ns", "end_ns") - found.offset_ns
    trace.samples, trace.host = trace.samples.with_columns(moved), trace.host.with_columns(moved)
    trace.copies = trace.copies.with_columns(moved)
    trace.quality.notice(
        "trace-clock-moved",
        f"the GPU trace's clock is {found.offset_ns / 1e9:+.1f} s off the log's: the trace was moved to the one place "
        f"where it fits (correlation {found.correlation:.2f}, {found.margin:.2f} over the next, within "
        f"{found.uncertainty_s * 1e3:.0f} ms)",
    )


def check_overlap(trace: Trace) -> None:
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
        _bring_together(trace, apart_s)
    elif begin > first or end < last:
        missing_s = max(0, begin - first) / 1e9 + max(0, last - end) / 1e9
        if missing_s > 1.0:
            trace.quality.notice("part-unsampled", f"{missing_s:.1f} s of the log's calls lie outside the GPU trace")
