"""Tiles each GPU's window with segments: which phase of which call the GPU was in, or what kept it between calls.

    gpu  start_ns  end_ns  call  name          part  mode      bursting
    0    ...       ...     7     ntt_kernels         in-ntt    false    inside a hold of the mutex: the phase
    0    ...       ...     7     msm_invoke    head  in-ntt    false    ... its first 25 ms, where it fills its buffers
    0    ...       ...     7     mutex_held          in-ntt    false    ... a part of the hold that no phase explains
    0    ...       ...     8     release_abc         in-ntt    false    between holds: why the next call did not start

Segments of one GPU do not overlap and leave no hole between first lock and last unlock.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.analysis.spans import covers, merged
from gputrace.analysis.thresholds import ALLOC_BURST_GAP_S, COPY_IN_SYNC_SHARE
from gputrace.rows import where, with_values
from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

# Phases in which kernels run; used where no sampler says what the SMs did.
COMPUTE_PHASES = ("coset_intt_sync", "msm_invoke", "batch_add", "tail_msm")

# Names of segments in which nobody holds the mutex.
BETWEEN_HOLDS = ("no_work", "release_abc", "pickup", "pre_lock", "between_calls")

# A streaming MSM first fills its buffers at line rate. Without a kind of its own for that, the fit puts these bytes
# into the short phase before: measured on an H200, 0.7-0.9 GB in a 33 ms coset_intt_sync that copies nothing.
HEAD_MS = 25

SEGMENTS = {
    "gpu": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "call": pl.UInt32,
    "name": pl.String,
}


@dataclass(frozen=True)
class Windows:
    """Per GPU and restart, first lock to last unlock: gpu, restart, start_ns, end_ns."""

    frame: pl.DataFrame

    @property
    def total_s(self) -> float:
        """GPU seconds in all windows."""
        return float((self.frame["end_ns"] - self.frame["start_ns"]).sum()) / 1e9


def timed_holds(trace: Trace) -> pl.DataFrame:
    """Calls with the times of their hold of the mutex, sorted, not overlapping.

    A log without C++ lines shows no mutex: there, whatever lies between entry and return of any call counts as held.
    """
    held = trace.calls.filter(pl.col("lock_ns").is_not_null() & pl.col("unlock_ns").is_not_null()).sort("lock_ns")
    if held.is_empty():
        held = trace.calls.filter(pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null()).with_columns(
            pl.col("start_ns").alias("lock_ns"), pl.col("end_ns").alias("unlock_ns")
        )
        held = held.sort("lock_ns")
    # Clock error may make holds overlap by a millisecond; the mutex says that they do not.
    return held.with_columns(
        pl.max_horizontal("lock_ns", pl.col("unlock_ns").cum_max().shift(1).over("gpu")).alias("lock_ns")
    ).filter(pl.col("unlock_ns") > pl.col("lock_ns"))


def windows(trace: Trace) -> Windows:
    """The windows of a trace: of its calls; of its samples where no log was given."""
    frame = (
        timed_holds(trace)
        .group_by("gpu", "restart", maintain_order=True)
        .agg(pl.col("lock_ns").min().alias("start_ns"), pl.col("unlock_ns").max().alias("end_ns"))
    )
    if trace.marks.is_empty():
        frame = trace.samples.group_by("gpu", maintain_order=True).agg(
            pl.lit(0, pl.UInt16).alias("restart"), pl.col("start_ns").min(), pl.col("end_ns").max()
        )
    frame = frame.sort("gpu", "start_ns")
    if trace.goes_on_from_ns:
        frame = frame.with_columns(pl.coalesce(_goes_on_from(trace), "start_ns").alias("start_ns"))
    return Windows(frame)


def _goes_on_from(trace: Trace) -> pl.Expr:
    """On the first row of each GPU when its mutex was given back before this part of a run; null elsewhere."""
    first = pl.int_range(pl.len()).over("gpu") == 0
    given_back_ns = pl.col("gpu").replace_strict(trace.goes_on_from_ns, default=None, return_dtype=pl.Int64)
    return pl.when(first).then(given_back_ns)


def call_modes(trace: Trace) -> pl.DataFrame:
    """Where each call's copy of a/b/c is: call, mode.

    `in-sync`: ntt_kernels takes next to nothing, so the DMA ran in coset_intt_sync (pinned memory). `in-ntt`: the
    copies blocked the host inside ntt_kernels (pageable memory).
    """
    parts = (
        trace.phases.filter(pl.col("name").is_in(["ntt_kernels", "coset_intt_sync"]))
        .group_by("call")
        .agg(
            pl.col("duration_ms").filter(pl.col("name") == "ntt_kernels").sum().alias("ntt"),
            pl.col("duration_ms").sum().alias("both"),
        )
    )
    in_sync = pl.col("ntt") < COPY_IN_SYNC_SHARE * pl.col("both")
    return parts.select("call", pl.when(in_sync).then(pl.lit("in-sync")).otherwise(pl.lit("in-ntt")).alias("mode"))


def alloc_bursts(trace: Trace) -> pl.DataFrame:
    """Stretches in which pinned buffers were being allocated: start_ns, end_ns, buffers.

    The log prints an allocation when it is done and not how long it took: a burst begins one usual distance before
    its first line.
    """
    at = trace.marks.filter(pl.col("event") == "pinned_alloc")["log_ns"].drop_nulls().sort().to_numpy()
    if len(at) == 0:
        return pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "buffers": pl.UInt32})
    breaks = np.flatnonzero(np.diff(at) > ALLOC_BURST_GAP_S * 1e9) + 1
    groups = np.split(at, breaks)
    usual = int(np.median(np.diff(at))) if len(at) > 1 else 0
    lead = min(usual, int(ALLOC_BURST_GAP_S * 1e9))
    return pl.DataFrame(
        {
            "start_ns": [int(g[0]) - lead for g in groups],
            "end_ns": [int(g[-1]) for g in groups],
            "buffers": [len(g) for g in groups],
        },
        schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "buffers": pl.UInt32},
    )


def build_segments(trace: Trace, bursts: pl.DataFrame) -> pl.DataFrame:
    """All segments of all GPUs, in order; columns as in the module's example."""
    calls = timed_holds(trace)
    tiles = _split_heads(pl.concat([_inside(trace, calls), _between(trace, calls)])).sort("gpu", "start_ns")
    tiles = tiles.join(call_modes(trace), on="call", how="left").with_columns(pl.col("mode").fill_null("unknown"))
    return tiles.with_columns(_overlaps(tiles, bursts).alias("bursting"))


def _split_heads(tiles: pl.DataFrame) -> pl.DataFrame:
    whole = tiles.with_columns(pl.lit("").alias("part"))
    streams = pl.col("name") == "msm_invoke"
    cut = pl.min_horizontal("end_ns", pl.col("start_ns") + HEAD_MS * 1_000_000)
    head = whole.filter(streams).with_columns(cut.alias("end_ns"), pl.lit("head").alias("part"))
    body = whole.filter(streams).with_columns(cut.alias("start_ns")).filter(pl.col("end_ns") > pl.col("start_ns"))
    return pl.concat([whole.filter(~streams), head, body])


def _overlaps(tiles: pl.DataFrame, bursts: pl.DataFrame) -> pl.Series:
    starts, ends = bursts["start_ns"].to_numpy(), bursts["end_ns"].to_numpy()
    first = np.searchsorted(ends, tiles["start_ns"].to_numpy(), side="right")
    inside = np.zeros(tiles.height, dtype=bool)
    some = first < len(starts)
    inside[some] = starts[first[some]] < tiles["end_ns"].to_numpy()[some]
    return pl.Series("bursting", inside)


def _inside(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    held = calls.select("call", "gpu", "lock_ns", "unlock_ns")
    leaves = (
        trace.phases.filter(pl.col("name").is_in(LEAVES_UNDER_MUTEX) & pl.col("start_ns").is_not_null())
        .select("call", "name", "start_ns", "end_ns")
        .join(held, on="call")
        .sort("call", "start_ns", maintain_order=True)
        .with_columns(
            pl.max_horizontal("start_ns", "lock_ns", pl.col("end_ns").cum_max().shift(1).over("call")).alias(
                "start_ns"
            ),
            pl.min_horizontal("end_ns", "unlock_ns").alias("end_ns"),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )
    before = leaves.with_columns(
        pl.coalesce(pl.col("end_ns").shift(1).over("call"), "lock_ns").alias("from_ns")
    ).select("gpu", pl.col("from_ns").alias("start_ns"), pl.col("start_ns").alias("end_ns"), "call")
    after = (
        held.join(leaves.group_by("call").agg(pl.col("end_ns").max()), on="call", how="left")
        .with_columns(pl.coalesce("end_ns", "lock_ns").alias("start_ns"))
        .select("gpu", "start_ns", pl.col("unlock_ns").alias("end_ns"), "call")
    )
    rest = pl.concat([before, after]).filter(pl.col("end_ns") > pl.col("start_ns"))
    return pl.concat(
        [
            leaves.select(list(SEGMENTS)),
            # Without C++ lines nothing says when the mutex was held.
            rest.with_columns(pl.lit("mutex_held" if leaves.height else "in_call").alias("name")).select(
                list(SEGMENTS)
            ),
        ]
    )


def _between(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Segments between holds, named for what kept the next call: release_abc, no_work, pre_lock, pickup or unknown."""
    given_back_ns = pl.col("unlock_ns").shift(1).over("gpu", "restart")
    if trace.goes_on_from_ns:
        given_back_ns = pl.coalesce(given_back_ns, _goes_on_from(trace))
    gaps = (
        calls.select(
            "gpu",
            given_back_ns.alias("start_ns"),
            pl.col("lock_ns").alias("end_ns"),
            "call",
            "restart",
            pl.col("start_ns").alias("entry_ns"),
        )
        .drop_nulls("start_ns")
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )
    if gaps.is_empty():
        return pl.DataFrame(schema=SEGMENTS)
    queued = merged(trace.syntheses["queued_ns"], trace.syntheses["picked_up_ns"])
    knows_queue = trace.syntheses["queued_ns"].count() > 0 and trace.syntheses["picked_up_ns"].count() > 0
    parts = []
    for (gpu,), own in gaps.group_by("gpu", maintain_order=True):
        of_gpu = where(trace.calls, trace.calls["gpu"] == gpu)
        released = with_values(of_gpu, "release_abc_ms")
        releasing = merged(released["unlock_ns"], released["end_ns"])
        entering = merged(of_gpu["start_ns"], of_gpu["lock_ns"])
        starts, ends = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        edges = np.concatenate([starts, ends, *releasing, *entering, *queued])
        edges = np.unique(edges)
        low, high = edges[:-1], edges[1:]
        middle = (low + high) // 2
        gap = np.searchsorted(starts, middle, side="right") - 1
        inside = (gap >= 0) & (middle < ends[np.maximum(gap, 0)])
        low, high, middle, gap = low[inside], high[inside], middle[inside], gap[inside]
        has_queue = covers(queued, middle) if knows_queue else np.ones(len(middle), dtype=bool)
        is_entering = covers(entering, middle)
        # A worker that frees a/b/c keeps the GPU waiting only while there is work that it could take.
        is_release = covers(releasing, middle) & (has_queue if knows_queue else True)
        names = np.select(
            [is_entering, is_release, ~has_queue, has_queue & knows_queue],
            ["pre_lock", "release_abc", "no_work", "pickup"],
            "between_calls",
        )
        parts.append(
            pl.DataFrame(
                {
                    "gpu": np.full(len(low), gpu),
                    "start_ns": low,
                    "end_ns": high,
                    "call": own["call"].to_numpy()[gap],
                    "name": names,
                },
                schema=SEGMENTS,
            )
        )
    return pl.concat(parts)
