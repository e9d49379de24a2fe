"""What each call took: durations, time since the call before it, and its part of the GPU's account.

A call's part of the window reaches from the unlock before it on its GPU (its own lock, for the first) to its own
unlock, so that the parts add up to the window and whole calls can be resampled with all that belongs to them.
"""

from typing import Any

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.segments import timed_holds
from gputrace.schema import PHASE_NAMES
from gputrace.trace import Trace

ACCOUNT = ("since_s", "held_s", "window_s", "compute_s", "copy_only_s", "idle_s")
LOST = "lost_s."
BOTH_COPIES = "ntt_plus_coset"


def duration_column(phase: str) -> str:
    """The column of a phase's duration."""
    return f"{phase}_ms"


def per_call(trace: Trace, diagnosis: Diagnosis) -> pl.DataFrame:
    """One row per call, in order of restart and unlock.

    Columns: call, restart, gpu, complete, failed, warmup, lock_ns, unlock_ns; `PHASE_ms` for every phase (Float64, null
    for calls that are not complete) and their sum `ntt_plus_coset_ms`; the account: since_s (unlock to unlock, within a
    restart, all GPUs), held_s, window_s (its part of the window), compute_s, copy_only_s, idle_s, and `lost_s.CAUSE`;
    null where unknown.
    """
    calls = trace.calls.select(
        "call", "restart", "gpu", "complete", "failed", "warmup", "lock_ns", "unlock_ns"
    ).with_columns(pl.col("warmup", "failed").fill_null(False))
    durations = (
        trace.phases.join(calls.filter("complete").select("call"), on="call")
        .filter(pl.col("duration_ms").is_not_null())
        .group_by("call", "name")
        .agg(pl.col("duration_ms").sum().cast(pl.Float64))
        .with_columns(
            pl.col("name").replace_strict({name: duration_column(name) for name in PHASE_NAMES}, default=None)
        )
        .drop_nulls("name")
    )
    if durations.height:
        calls = calls.join(durations.pivot("name", index="call", values="duration_ms"), on="call", how="left")
    return order_calls(with_sum(_accounted(calls, trace, diagnosis)))


def order_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """In order of time; calls whose unlock is unknown last, in order of the log."""
    return calls.sort("restart", "unlock_ns", "call", nulls_last=True)


def with_sum(calls: pl.DataFrame) -> pl.DataFrame:
    """With `ntt_plus_coset_ms`: pinned memory moves the copy of a/b/c from the one phase to the other."""
    parts = [duration_column(name) for name in ("ntt_kernels", "coset_intt_sync")]
    if not set(parts) <= set(calls.columns):
        return calls
    return calls.with_columns((pl.col(parts[0]) + pl.col(parts[1])).alias(duration_column(BOTH_COPIES)))


def _accounted(calls: pl.DataFrame, trace: Trace, diagnosis: Diagnosis) -> pl.DataFrame:
    finished = calls.filter(pl.col("complete") & pl.col("unlock_ns").is_not_null()).sort("restart", "unlock_ns")
    since = finished.select(
        "call", (pl.col("unlock_ns").diff().over("restart").cast(pl.Float64) / 1e9).alias("since_s")
    )
    calls = calls.join(since, on="call", how="left").with_columns(
        ((pl.col("unlock_ns") - pl.col("lock_ns")).cast(pl.Float64) / 1e9).alias("held_s")
    )
    calls = calls.join(_states_of_calls(trace, diagnosis), on="call", how="left")
    blame = diagnosis.blame
    if blame.is_empty():
        return calls
    lost = (
        blame.drop_nulls("call")
        .group_by("call", "cause")
        .agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("lost_s"))
        .sort("call", "cause")
        .with_columns((pl.lit(LOST) + pl.col("cause")).alias("cause"))
    )
    if lost.is_empty():
        return calls
    wide = lost.pivot("cause", index="call", values="lost_s")
    known = pl.col("compute_s").is_not_null()
    return calls.join(wide, on="call", how="left").with_columns(
        pl.when(known).then(pl.col(name).fill_null(0.0)).alias(name) for name in wide.columns if name != "call"
    )


def _states_of_calls(trace: Trace, diagnosis: Diagnosis) -> pl.DataFrame:
    """call, window_s, compute_s, copy_only_s, idle_s of every timed hold and the time before it.

    Without PCIe readings copy-only and idle cannot be told apart: both are null.
    """
    columns = ("call", "window_s", "compute_s", "copy_only_s", "idle_s")
    holds = timed_holds(trace).select(
        "call",
        "gpu",
        pl.coalesce(pl.col("unlock_ns").shift(1).over("gpu", "restart"), "lock_ns").alias("from_ns"),
        "unlock_ns",
    )
    told_apart = {gpu.gpu: gpu.copy_only_share is not None for gpu in diagnosis.gpus}
    found = []
    for (gpu,), own in holds.group_by("gpu", maintain_order=True):
        states = diagnosis.states.filter(pl.col("gpu") == gpu)
        if states.is_empty():
            continue
        begin, end = own["from_ns"].to_numpy(), own["unlock_ns"].to_numpy()
        compute, copy, idle = (_sum_over(states, name, begin, end) for name in columns[2:])
        part = pl.DataFrame(
            {
                "call": own["call"],
                "window_s": compute + copy + idle,
                "compute_s": compute,
                "copy_only_s": copy,
                "idle_s": idle,
            }
        )
        unknown = not told_apart.get(int(str(gpu)), False)
        found.append(part.with_columns(pl.lit(None, pl.Float64).alias(n) for n in columns[3:]) if unknown else part)
    return (
        pl.concat(found)
        if found
        else pl.DataFrame(schema={"call": pl.UInt32, **dict.fromkeys(columns[1:], pl.Float64)})
    )


def _sum_over(
    states: pl.DataFrame, column: str, begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """The seconds of one state in each interval; a state that an edge cuts is divided by length."""
    starts, ends = states["start_ns"].to_numpy(), states["end_ns"].to_numpy()
    base = starts[0]
    knots = np.ravel(np.column_stack([starts - base, ends - base])).astype(np.float64)
    sums = np.cumsum(np.ravel(np.column_stack([np.zeros(len(starts)), states[column].to_numpy()])))
    return np.asarray(np.interp(end - base, knots, sums) - np.interp(begin - base, knots, sums))
