"""Who waits for the GPU mutex, for whom, and what the holder was doing meanwhile.

A wait is a symptom: its seconds are divided among the causes of the holder's own lost seconds, and what remains the
GPU computed for the holder.
"""

import numpy as np
import polars as pl

from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.trace import Trace

COMPUTING, UNHELD = "computing", "not held"

WAITS = {
    "gpu": pl.Int32,
    "waiter": pl.UInt32,
    "holder": pl.UInt32,
    "cause": pl.String,
    "wait_s": pl.Float64,
}
# A line may be torn or lost.
_ALONE = 0.98
# Nobody needs a mutex where nobody comes.
_AT_THE_DOOR = 0.25


def asked(trace: Trace) -> pl.DataFrame:
    """call, gpu, asked_ns, lock_ns of calls that waited: by mutex_wait_ms, else from the entry where that is known."""
    waited = pl.coalesce(pl.col("lock_ns") - pl.col("mutex_wait_ms") * 1_000_000, pl.col("start_ns"))
    return (
        trace.calls.filter(pl.col("lock_ns").is_not_null())
        .select("call", "gpu", waited.alias("asked_ns"), "lock_ns")
        .filter(pl.col("asked_ns") < pl.col("lock_ns"))
    )


def waits(trace: Trace, blame: pl.DataFrame, whole_process: bool = False) -> pl.DataFrame:
    """The WAITS frame: seconds of each waiting call by the holder's cause; they add up to the wait.

    `blame` is that of the diagnosis. With `whole_process` the mutex is one for all GPUs. Time in which nobody held it
    has the cause `not held` and no holder.
    """
    waiting = asked(trace)
    pairs = _pairs(waiting, trace, whole_process)
    lost = blame.select(
        pl.col("call").alias("holder"),
        "cause",
        "start_ns",
        "end_ns",
        (pl.col("copy_only_s") + pl.col("idle_s")).alias("s"),
    )
    charged = (
        pairs.join(lost, on="holder")
        .with_columns(
            (pl.min_horizontal("high", "end_ns") - pl.max_horizontal("low", "start_ns")).alias("both"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("length"),
        )
        .filter(pl.col("both") > 0)
        .group_by("gpu", "waiter", "holder", "cause")
        .agg((pl.col("s") * pl.col("both") / pl.col("length")).sum().alias("wait_s"))
    )
    lost_s = charged.group_by("waiter", "holder").agg(pl.col("wait_s").sum().alias("lost_s"))
    whole = pairs.with_columns(((pl.col("high") - pl.col("low")) / 1e9).alias("whole_s"))
    computing = whole.join(lost_s, on=["waiter", "holder"], how="left").select(
        "gpu",
        "waiter",
        "holder",
        pl.lit(COMPUTING).alias("cause"),
        (pl.col("whole_s") - pl.col("lost_s").fill_null(0.0)).clip(0.0).alias("wait_s"),
    )
    covered = whole.group_by("waiter").agg(pl.col("whole_s").sum())
    unheld = waiting.join(covered, left_on="call", right_on="waiter", how="left").select(
        "gpu",
        pl.col("call").alias("waiter"),
        pl.lit(None, pl.UInt32).alias("holder"),
        pl.lit(UNHELD).alias("cause"),
        ((pl.col("lock_ns") - pl.col("asked_ns")) / 1e9 - pl.col("whole_s").fill_null(0.0)).clip(0.0).alias("wait_s"),
    )
    return (
        pl.concat([part.select(list(WAITS)).cast(WAITS) for part in (charged, computing, unheld)])  # type: ignore[arg-type]
        .filter(pl.col("wait_s") > 0)
        .sort("waiter", "holder", "cause")
    )


def _pairs(waiting: pl.DataFrame, trace: Trace, whole_process: bool) -> pl.DataFrame:
    """gpu, waiter, holder, low, high: every stretch in which a call waits and another holds the mutex."""
    held = trace.calls.filter(pl.col("lock_ns").is_not_null() & pl.col("unlock_ns").is_not_null()).sort("lock_ns")
    parts = []
    for gpu in [None] if whole_process else waiting["gpu"].unique().to_list():
        own = waiting if gpu is None else waiting.filter(pl.col("gpu") == gpu)
        holds = held if gpu is None else held.filter(pl.col("gpu") == gpu)
        if holds.is_empty():
            continue
        # Holds follow one another; clock error may make them overlap by a little.
        first = np.searchsorted(holds["unlock_ns"].cum_max().to_numpy(), own["asked_ns"].to_numpy(), side="right")
        last = np.searchsorted(holds["lock_ns"].to_numpy(), own["lock_ns"].to_numpy(), side="left")
        count = np.maximum(0, last - first)
        row = np.repeat(np.arange(own.height), count)
        hold = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        waiter, holder = own[row], holds[hold]
        parts.append(
            pl.DataFrame(
                {
                    "gpu": waiter["gpu"],
                    "waiter": waiter["call"],
                    "holder": holder["call"],
                    "low": np.maximum(waiter["asked_ns"].to_numpy(), holder["lock_ns"].to_numpy()),
                    "high": np.minimum(waiter["lock_ns"].to_numpy(), holder["unlock_ns"].to_numpy()),
                }
            ).filter((pl.col("high") > pl.col("low")) & (pl.col("waiter") != pl.col("holder")))
        )
    empty = {"gpu": pl.Int32, "waiter": pl.UInt32, "holder": pl.UInt32, "low": pl.Int64, "high": pl.Int64}
    return pl.concat(parts) if parts else pl.DataFrame(schema=empty)


def whole_call_mutex(trace: Trace) -> bool:
    """Whether one mutex covers whole calls, for all GPUs of the process, as in the first builds.

    Then a call's first line (split_vectors) never comes between another's first and last (tail_msm), although workers
    are at the door meanwhile (GPU_START). Later builds print it before they wait.
    """
    marks = trace.marks.filter(pl.col("event").is_in(["split_vectors", "tail_msm", "GPU_START"])).sort("source", "line")
    begins, ends = marks["event"] == "split_vectors", marks["event"] == "tail_msm"
    if int(begins.sum()) < MIN_CALLS or int(ends.sum()) < MIN_CALLS:
        return False
    open_calls = begins.cast(pl.Int64).cum_sum() - ends.cast(pl.Int64).cum_sum()
    alone = float((open_calls.filter(begins) <= 1).mean() or 0.0)  # type: ignore[arg-type]
    # A call's own GPU_START comes before its first line.
    at_the_door = int(((open_calls > 0) & (marks["event"] == "GPU_START")).sum())
    return alone >= _ALONE and at_the_door >= _AT_THE_DOOR * int(begins.sum())
