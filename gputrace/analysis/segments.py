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

from gputrace.analysis.spans import Ints, covers, in_order, merged
from gputrace.analysis.thresholds import ALLOC_BURST_GAP_S, COPY_IN_SYNC_SHARE
from gputrace.rows import Places, ordered, repeated, where, with_values
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
    held = ordered(with_values(trace.calls, "lock_ns", "unlock_ns"), "lock_ns")
    if held.is_empty():
        held = with_values(trace.calls, "start_ns", "end_ns").with_columns(
            pl.col("start_ns").alias("lock_ns"), pl.col("end_ns").alias("unlock_ns")
        )
        held = ordered(held, "lock_ns")
    # Clock error may make holds overlap by a millisecond; the mutex says that they do not.
    held = held.with_columns(
        pl.max_horizontal("lock_ns", pl.col("unlock_ns").cum_max().shift(1).over("gpu")).alias("lock_ns")
    )
    return where(held, held["unlock_ns"] > held["lock_ns"])


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
    ntt, sync = (trace.named_phases.of(name) for name in ("ntt_kernels", "coset_intt_sync"))
    calls = pl.Series("call", np.unique(np.concatenate([ntt["call"].to_numpy(), sync["call"].to_numpy()])))
    places = Places(calls)
    ntt_ms, sync_ms = (places.sums(phases["call"], phases["duration_ms"]) for phases in (ntt, sync))
    in_sync = ntt_ms < COPY_IN_SYNC_SHARE * (ntt_ms + sync_ms)
    return pl.DataFrame({"call": calls, "mode": pl.Series(np.where(in_sync, "in-sync", "in-ntt"), dtype=pl.String)})


def alloc_bursts(trace: Trace) -> pl.DataFrame:
    """Stretches in which pinned buffers were being allocated: start_ns, end_ns, buffers.

    The log prints an allocation when it is done and not how long it took: a burst begins one usual distance before
    its first line.
    """
    stamps = trace.marks["log_ns"].filter(trace.marks["event"] == "pinned_alloc")
    at = stamps.drop_nulls().sort().to_numpy()
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
    modes = call_modes(trace)
    place = Places(modes["call"]).of(tiles["call"])
    known_or_not = pl.concat([modes["mode"], pl.Series(["unknown"])])
    mode = known_or_not[np.where(place < 0, modes.height, place)]
    return tiles.hstack([mode.alias("mode"), _overlaps(tiles, bursts)])


def _split_heads(tiles: pl.DataFrame) -> pl.DataFrame:
    streams = tiles["name"] == "msm_invoke"
    streaming = where(tiles, streams)
    start_ns, end_ns = streaming["start_ns"].to_numpy(), streaming["end_ns"].to_numpy()
    cut_ns = np.minimum(end_ns, start_ns + HEAD_MS * 1_000_000)
    head, body = _tiles(streaming, start_ns, cut_ns), _tiles(streaming, cut_ns, end_ns)
    return pl.concat(
        [
            part.hstack([repeated("part", name, part.height)])
            for part, name in ((where(tiles, ~streams), ""), (head, "head"), (body, ""))
        ]
    )


def _tiles(of: pl.DataFrame, start_ns: Ints, end_ns: Ints, name: str | None = None) -> pl.DataFrame:
    """Segments on the GPUs and of the calls of other rows, where any time passes, under their names or another."""
    tiles = pl.DataFrame(
        {
            "gpu": of["gpu"],
            "start_ns": start_ns,
            "end_ns": end_ns,
            "call": of["call"],
            "name": of["name"] if name is None else repeated("name", name, of.height),
        },
        schema=SEGMENTS,
    )
    return where(tiles, end_ns > start_ns)


def _overlaps(tiles: pl.DataFrame, bursts: pl.DataFrame) -> pl.Series:
    starts, ends = bursts["start_ns"].to_numpy(), bursts["end_ns"].to_numpy()
    first = np.searchsorted(ends, tiles["start_ns"].to_numpy(), side="right")
    inside = np.zeros(tiles.height, dtype=bool)
    some = first < len(starts)
    inside[some] = starts[first[some]] < tiles["end_ns"].to_numpy()[some]
    return pl.Series("bursting", inside)


def _inside(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    told = where(trace.phases[["call", "name", "start_ns", "end_ns"]], trace.phases["name"].is_in(LEAVES_UNDER_MUTEX))
    told = with_values(told, "start_ns")
    places = Places(calls["call"])
    place = places.of(told["call"])
    told, place = where(told, place >= 0), place[place >= 0]
    order = np.lexsort((told["start_ns"].to_numpy(), place))
    leaves = told[order].hstack(calls[["gpu", "lock_ns", "unlock_ns"]][place[order]].get_columns())
    leaves = leaves.with_columns(
        pl.max_horizontal("start_ns", "lock_ns", pl.col("end_ns").cum_max().shift(1).over("call")).alias("start_ns"),
        pl.min_horizontal("end_ns", "unlock_ns").alias("end_ns"),
    )
    leaves = where(leaves, leaves["end_ns"] > leaves["start_ns"])
    call, start_ns, end_ns = (leaves[name].to_numpy() for name in ("call", "start_ns", "end_ns"))
    lock_ns, unlock_ns = calls["lock_ns"].to_numpy(), calls["unlock_ns"].to_numpy()
    is_first = np.append(True, call[1:] != call[:-1])[: len(call)]
    left_ns = np.where(is_first, leaves["lock_ns"].to_numpy(), np.append(0, end_ns[:-1])[: len(call)])
    last_ns = lock_ns.copy()
    np.maximum.at(last_ns, places.of(leaves["call"]), end_ns)
    # Without C++ lines nothing says when the mutex was held.
    unexplained = "mutex_held" if leaves.height else "in_call"
    return pl.concat(
        [
            leaves[list(SEGMENTS)],
            _tiles(leaves, left_ns, start_ns, unexplained),
            _tiles(calls, last_ns, unlock_ns, unexplained),
        ]
    )


def _between(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Segments between holds, named for what kept the next call: release_abc, no_work, pre_lock, pickup or unknown."""
    given_back_ns = pl.col("unlock_ns").shift(1).over("gpu", "restart")
    if trace.goes_on_from_ns:
        given_back_ns = pl.coalesce(given_back_ns, _goes_on_from(trace))
    gaps = calls.select("gpu", given_back_ns.alias("start_ns"), pl.col("lock_ns").alias("end_ns"), "call")
    gaps = where(gaps, gaps["end_ns"] > gaps["start_ns"])
    if gaps.is_empty():
        return pl.DataFrame(schema=SEGMENTS)
    queued = merged(trace.syntheses["queued_ns"], trace.syntheses["picked_up_ns"])
    knows_queue = trace.syntheses["queued_ns"].count() > 0 and trace.syntheses["picked_up_ns"].count() > 0
    parts = []
    for gpu in gaps["gpu"].unique():
        own = where(gaps, gaps["gpu"] == gpu)
        of_gpu = where(trace.calls, trace.calls["gpu"] == gpu)
        released = with_values(of_gpu, "release_abc_ms")
        releasing = merged(released["unlock_ns"], released["end_ns"])
        entering = merged(of_gpu["start_ns"], of_gpu["lock_ns"])
        starts, ends = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        edges = in_order(starts, ends, *releasing, *entering, *queued)
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
