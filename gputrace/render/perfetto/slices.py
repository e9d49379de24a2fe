"""Rows of a trace and its diagnosis as slices: names, times to the nanosecond, arguments."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.render.perfetto.lanes import Slice
from gputrace.schema import CONTAINS_OTHERS, PHASE_NAMES
from gputrace.trace import Trace

CALLS = "calls"
# Tracks of one worker: its calls, its way through the GPU mutex, and what runs beside that on CPU threads.
WORKER_TRACKS = {
    CALLS: (),
    "GPU": tuple(
        name for name in PHASE_NAMES if name not in ("split_vectors", "prep_msm", "b_g2_msm", "async_dealloc")
    ),
    "prep": ("split_vectors", "prep_msm"),
    "G2": ("b_g2_msm",),
    "dealloc": ("async_dealloc",),
}
_RANK = {name: rank for rank, name in enumerate(("pre_lock", "mutex_wait", *CONTAINS_OTHERS), 1)}
_INNERMOST = len(_RANK) + 1
_CALL_ARGS = (
    "call", "worker", "partition", "job", "kind", "complete", "failed", "warmup", "pinned", "restart",
    "uncertainty_ms", "residual_ms", "first_line", "last_line",
)  # fmt: skip
_PHASE_ARGS = ("call", "job", "partition", "duration_ms", "uncertainty_ms", "line", "under_mutex")
_SYNTHESIS_ARGS = ("job", "partition", "restart", "synth_ms", "pinned", "line")


def placed(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with a start and an end that is not before it; the others cannot be drawn."""
    return frame.filter((pl.col("end_ns") >= pl.col("start_ns")).fill_null(False))


def worker_slices(trace: Trace, gpu: int | None, worker: int | None) -> dict[str, list[Slice]]:
    """By the name of the track (`WORKER_TRACKS`) what one worker did on one GPU."""
    mine = pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int32)) & pl.col("worker").eq_missing(pl.lit(worker, pl.Int32))
    paths = dict(enumerate(info.path for info in trace.inputs))
    file = pl.col("source").replace_strict(paths, default=None, return_dtype=pl.String).alias("file")
    calls = trace.calls.with_columns(file)
    phases = placed(trace.phases.filter(mine)).with_columns(file)
    phases = phases.join(calls.select("call", "job", "partition"), on="call")
    kept = {
        track: [_slice(row["name"], row, (*_PHASE_ARGS, "file")) for row in own.iter_rows(named=True)]
        for track, names in WORKER_TRACKS.items()
        if (own := phases.filter(pl.col("name").is_in(names))).height
    }
    flows = synthesis_of_call(trace)
    own_calls = [
        _slice("call", row, (*_CALL_ARGS, "file"), flow=row["call"] + 1 if row["call"] in flows else None)
        for row in placed(calls.filter(mine)).iter_rows(named=True)
    ]
    if own_calls:
        kept[CALLS] = own_calls
    return {name: kept[name] for name in WORKER_TRACKS if name in kept}


def syntheses(trace: Trace) -> Iterator[Slice]:
    """Syntheses; each that a call used begins the flow to it."""
    calls = {synthesis: call for call, synthesis in synthesis_of_call(trace).items()}
    for row in placed(trace.syntheses.with_row_index("number")).iter_rows(named=True):
        call = calls.get(row["number"])
        args = {name: row[name] for name in _SYNTHESIS_ARGS} | {
            "call": call,
            "waited_for_gpu_ms": _ms(row["end_ns"], row["picked_up_ns"]),
        }
        flow = None if call is None else call + 1
        yield Slice("synthesis", row["start_ns"], row["end_ns"], args, flow=flow)


def synthesis_of_call(trace: Trace) -> dict[int, int]:
    """The row of `syntheses` that each call used: the last one of its job and partition that was over by its start.

    Only where both can be drawn. A job that is tried again has several of both.
    """
    keys = ["restart", "job", "partition"]
    slack_ns = (pl.col("uncertainty_ms").fill_null(0.0) * 1e6).cast(pl.Int64) + 1_000_000
    calls = placed(trace.calls).filter(pl.col("job").is_not_null())
    calls = calls.select("call", *keys, (pl.col("start_ns") + slack_ns).alias("by_ns"))
    made = placed(trace.syntheses.with_row_index("number")).select("number", *keys, pl.col("end_ns").alias("made_ns"))
    pairs = calls.join(made, on=keys, nulls_equal=True).filter(pl.col("made_ns") <= pl.col("by_ns"))
    last = pairs.sort("made_ns", "number").group_by("call", maintain_order=True).last()
    once = last.sort("call").unique("number", keep="first", maintain_order=True)
    return dict(once.select("call", "number").iter_rows())


def gaps(diagnosis: Diagnosis, gpu: int | None) -> Iterator[Slice]:
    """The listed gaps of one GPU, named by their cause."""
    for gap in diagnosis.gaps.list:
        if gap.gpu == gpu:
            args = {
                "duration_ms": gap.duration_ms,
                "state": gap.state,
                "phase": gap.phase,
                "call": gap.call,
                "rx_payload_bytes_per_s": gap.rx_bytes_per_s,
                **{f"lost_s {cause}": seconds for cause, seconds in gap.causes.items()},
            }
            yield Slice(gap.cause, gap.start_ns, gap.end_ns, args)


def regimes(diagnosis: Diagnosis) -> Iterator[Slice]:
    """The regimes, named by their label."""
    for number, regime in enumerate(diagnosis.regimes, 1):
        args = {
            "number": number,
            "calls": regime.calls,
            "begins": regime.reason,
            "main_cause": regime.main_cause,
            "lost_s": regime.lost_s,
            **{f"median_ms {name}": value for name, value in regime.phase_medians_ms.items()},
        }
        yield Slice(regime.label, regime.start_ns, regime.end_ns, args)


def copies(trace: Trace, gpu: int | None) -> Iterator[Slice]:
    """Single copies that a profiler recorded."""
    for row in placed(trace.copies.filter(pl.col("gpu") == gpu)).iter_rows(named=True):
        yield _slice(row["kind"] or "copy", row, ("bytes", "source_memory", "target_memory"))


def _slice(name: str, row: dict[str, Any], args: tuple[str, ...], flow: int | None = None) -> Slice:
    told = {arg: row[arg] for arg in args}
    return Slice(
        name, row["start_ns"], row["end_ns"], told, _RANK.get(name, _INNERMOST), flow, flow_ends=flow is not None
    )


def _ms(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e6
