"""Who waits for the GPU mutex, for whom, and what the holder was doing meanwhile.

A wait is a symptom: its seconds are divided among the causes of the holder's own lost seconds, and what remains the
GPU computed for the holder.
"""

import numpy as np
import polars as pl

from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.rows import Places, ordered, repeated, where, with_values
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
    calls = with_values(trace.calls, "lock_ns").select("call", "gpu", waited.alias("asked_ns"), "lock_ns")
    return where(calls, calls["asked_ns"] < calls["lock_ns"])


def waits(trace: Trace, blame: pl.DataFrame, whole_process: bool = False) -> pl.DataFrame:
    """The WAITS frame: seconds of each waiting call by the holder's cause; they add up to the wait.

    `blame` is that of the diagnosis. With `whole_process` the mutex is one for all GPUs. Time in which nobody held it
    has the cause `not held` and no holder.
    """
    waiting = asked(trace)
    pairs = _pairs(waiting, trace, whole_process)
    lost = pl.DataFrame(
        {
            "holder": blame["call"],
            "cause": blame["cause"],
            "start_ns": blame["start_ns"],
            "end_ns": blame["end_ns"],
            "s": blame["copy_only_s"] + blame["idle_s"],
        }
    )
    # A call waits for each other once: a row of `pairs`.
    rows = pairs.with_row_index("pair").join(lost, on="holder")
    low, high = (rows[name].to_numpy() for name in ("low", "high"))
    start_ns, end_ns, s = (rows[name].to_numpy() for name in ("start_ns", "end_ns", "s"))
    both = np.minimum(high, end_ns) - np.maximum(low, start_ns)
    wait_s = s * np.maximum(both, 0) / np.maximum(end_ns - start_ns, 1)
    charged = where(rows[["gpu", "waiter", "holder", "cause"]].hstack([pl.Series("wait_s", wait_s)]), both > 0)
    whole_s = (pairs["high"] - pairs["low"]).to_numpy() / 1e9
    lost_s = np.bincount(rows["pair"].to_numpy(), wait_s, pairs.height)
    computing = pairs[["gpu", "waiter", "holder"]].hstack(
        [repeated("cause", COMPUTING, pairs.height), pl.Series("wait_s", np.maximum(whole_s - lost_s, 0.0))]
    )
    held_s = Places(waiting["call"]).sums(pairs["waiter"], pl.Series(whole_s))
    waited_s = (waiting["lock_ns"] - waiting["asked_ns"]).to_numpy() / 1e9
    unheld = pl.DataFrame(
        {
            "gpu": waiting["gpu"],
            "waiter": waiting["call"],
            "holder": repeated("holder", None, waiting.height, pl.UInt32),
            "cause": repeated("cause", UNHELD, waiting.height),
            "wait_s": np.maximum(waited_s - held_s, 0.0),
        }
    )
    by_cause = charged.group_by("gpu", "waiter", "holder", "cause").agg(pl.col("wait_s").sum())
    every = pl.concat([by_cause, computing, unheld])
    return where(every, every["wait_s"] > 0).sort("waiter", "holder", "cause")


def _pairs(waiting: pl.DataFrame, trace: Trace, whole_process: bool) -> pl.DataFrame:
    """gpu, waiter, holder, low, high: every stretch in which a call waits and another holds the mutex."""
    held = ordered(with_values(trace.calls, "lock_ns", "unlock_ns"), "lock_ns")
    parts = []
    for gpu in [None] if whole_process else waiting["gpu"].unique().to_list():
        own = waiting if gpu is None else where(waiting, waiting["gpu"] == gpu)
        holds = held if gpu is None else where(held, held["gpu"] == gpu)
        if holds.is_empty():
            continue
        # Holds follow one another; clock error may make them overlap by a little.
        unlocked_ns = np.maximum.accumulate(holds["unlock_ns"].to_numpy())
        first = np.searchsorted(unlocked_ns, own["asked_ns"].to_numpy(), side="right")
        last = np.searchsorted(holds["lock_ns"].to_numpy(), own["lock_ns"].to_numpy(), side="left")
        count = np.maximum(0, last - first)
        row = np.repeat(np.arange(own.height), count)
        hold = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        waiter, holder = own[row], holds[["call", "lock_ns", "unlock_ns"]][hold]
        low = np.maximum(waiter["asked_ns"].to_numpy(), holder["lock_ns"].to_numpy())
        high = np.minimum(waiter["lock_ns"].to_numpy(), holder["unlock_ns"].to_numpy())
        pairs = pl.DataFrame(
            {"gpu": waiter["gpu"], "waiter": waiter["call"], "holder": holder["call"], "low": low, "high": high}
        )
        parts.append(where(pairs, (high > low) & (pairs["waiter"] != pairs["holder"]).to_numpy()))
    empty = {"gpu": pl.Int32, "waiter": pl.UInt32, "holder": pl.UInt32, "low": pl.Int64, "high": pl.Int64}
    return pl.concat(parts) if parts else pl.DataFrame(schema=empty)


def whole_call_mutex(trace: Trace) -> bool:
    """Whether one mutex covers whole calls, for all GPUs of the process, as in the first builds.

    Then a call's first line (split_vectors) never comes between another's first and last (tail_msm), although workers
    are at the door meanwhile (GPU_START). Later builds print it before they wait.
    """
    marks = trace.marks[["source", "line", "event"]]
    marks = where(marks, marks["event"].is_in(["split_vectors", "tail_msm", "GPU_START"])).sort("source", "line")
    begins, ends = marks["event"] == "split_vectors", marks["event"] == "tail_msm"
    if int(begins.sum()) < MIN_CALLS or int(ends.sum()) < MIN_CALLS:
        return False
    open_calls = begins.cast(pl.Int64).cum_sum() - ends.cast(pl.Int64).cum_sum()
    alone = float((open_calls.filter(begins) <= 1).mean() or 0.0)  # type: ignore[arg-type]
    # A call's own GPU_START comes before its first line.
    at_the_door = int(((open_calls > 0) & (marks["event"] == "GPU_START")).sum())
    return alone >= _ALONE and at_the_door >= _AT_THE_DOOR * int(begins.sum())
