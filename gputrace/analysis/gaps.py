"""Gaps worth listing, and the lost seconds by cause (all of them, listed or not)."""

import numpy as np
import polars as pl

from gputrace.analysis.blame import UNEXPLAINED
from gputrace.analysis.diagnosis import CauseTotal, Gap, Gaps
from gputrace.analysis.thresholds import Thresholds
from gputrace.ingest.samples import samples_of
from gputrace.rows import where

MOST_LISTED = 1000


def causes(blame: pl.DataFrame) -> tuple[CauseTotal, ...]:
    """Lost seconds by cause, most first."""
    table = blame.group_by("cause").agg(pl.col("copy_only_s").sum(), pl.col("idle_s").sum())
    sums = sorted(table.iter_rows(), key=lambda row: (-(row[1] + row[2]), row[0]))
    total = sum(copy_s + idle_s for _, copy_s, idle_s in sums)
    return tuple(
        CauseTotal(cause, copy_s + idle_s, (copy_s + idle_s) / total if total else 0.0, copy_s, idle_s)
        for cause, copy_s, idle_s in sums
    )


def find_gaps(states: pl.DataFrame, blame: pl.DataFrame, threshold_ms: float, thresholds: Thresholds) -> Gaps:
    """The gaps of all GPUs over the threshold, with main cause; sums by cause cover every lost second."""
    found: list[Gap] = []
    lost_listed, count = 0.0, 0
    for gpu in states["gpu"].unique(maintain_order=True).to_list():
        own = samples_of(states, gpu)
        stretches = [s for s in _stretches(own, thresholds) if (s[1] - s[0]) / 1e6 >= threshold_ms]
        if not stretches:
            continue
        own = own[["start_ns", "end_ns", "copy_only_s", "idle_s", "rx_bytes_per_s"]]
        inside = _within(stretches, own)
        lost_listed += float((inside["copy_only_s"] + inside["idle_s"]).sum())
        count += len(stretches)
        # Of each GPU no more can be among the longest of all.
        longest = sorted(sorted(range(len(stretches)), key=lambda n: stretches[n][0] - stretches[n][1])[:MOST_LISTED])
        listed = [stretches[n] for n in longest]
        found.extend(_describe(gpu, listed, own, where(blame, blame["gpu"] == gpu)))
    lost_s = float((states["copy_only_s"] + states["idle_s"]).sum()) if states.height else 0.0
    window_s = float((states["end_ns"] - states["start_ns"]).sum()) / 1e9 if states.height else 0.0
    found.sort(key=lambda gap: -gap.duration_ms)
    return Gaps(
        threshold_ms=threshold_ms,
        count=count,
        total_s=lost_s,
        below_threshold_s=max(0.0, lost_s - lost_listed),
        share_of_window=lost_s / window_s if window_s else None,
        by_cause=causes(blame),
        list=tuple(found[:MOST_LISTED]),
    )


def _stretches(states: pl.DataFrame, thresholds: Thresholds) -> list[tuple[int, int]]:
    """Stretches in which the compute share, smoothed, stays below the threshold."""
    starts, ends = states["start_ns"].to_numpy(), states["end_ns"].to_numpy()
    seconds = (ends - starts) / 1e9
    total = np.concatenate([[0.0], np.cumsum(states["compute_s"].to_numpy())])
    edges = np.concatenate([starts[:1], ends]).astype(np.float64)
    # The mean over a window of the smoothing time around each interval's middle.
    middle = (starts + ends) / 2
    half = np.maximum(thresholds.gap_smoothing_s / 2, seconds / 2) * 1e9
    low, high = np.maximum(middle - half, edges[0]), np.minimum(middle + half, edges[-1])
    smooth = (np.interp(high, edges, total) - np.interp(low, edges, total)) / np.maximum((high - low) / 1e9, 1e-9)
    quiet = smooth < thresholds.gap_compute
    # A hole between windows (a restart) ends a gap.
    joined = np.concatenate([[False], starts[1:] - ends[:-1] < 1_000_000])
    at = np.flatnonzero(quiet)
    begins = ~(joined[at] & quiet[at - 1])
    begins[:1] = True
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(at))[: len(first)] - 1
    return list(zip(starts[at[first]].tolist(), ends[at[last]].tolist(), strict=True))


def _within(stretches: list[tuple[int, int]], frame: pl.DataFrame) -> pl.DataFrame:
    """Rows whose middle lies in a stretch, with the stretch's index as `gap`."""
    starts = np.array([start for start, _ in stretches], dtype=np.int64)
    ends = np.array([end for _, end in stretches], dtype=np.int64)
    middle = (frame["start_ns"] + frame["end_ns"]).to_numpy() // 2
    gap = np.searchsorted(starts, middle, side="right") - 1
    inside = (gap >= 0) & (middle < ends[np.maximum(gap, 0)])
    return where(frame, inside).hstack([pl.Series("gap", gap[inside])])


def _most_first(charged: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """gap, `keys` and lost_s: of each gap what lost most first."""
    totals = charged.group_by("gap", *keys).agg(pl.col("lost_s").sum())
    return totals.sort("gap", "lost_s", *keys, descending=[False, True, *[False] * len(keys)])


def _describe(gpu: int, stretches: list[tuple[int, int]], states: pl.DataFrame, charged: pl.DataFrame) -> list[Gap]:
    """The gaps of one GPU, one a stretch."""
    inside = _within(stretches, charged)
    inside = inside.hstack([(inside["copy_only_s"] + inside["idle_s"]).alias("lost_s")])
    parts: dict[int, dict[str, float]] = {}
    for gap, cause, seconds in _most_first(inside, "cause").rows():
        parts.setdefault(gap, {})[cause] = seconds
    main = {gap: next(iter(causes_of)) for gap, causes_of in parts.items()}
    where_most: dict[int, tuple[str | None, int | None]] = {}
    for gap, cause, phase, call, _ in _most_first(inside, "cause", "phase", "call").rows():
        if cause == main[gap]:
            where_most.setdefault(gap, (phase, call))
    length = pl.col("end_ns") - pl.col("start_ns")
    known = pl.col("rx_bytes_per_s").is_not_null()
    sums = (
        _within(stretches, states)
        .group_by("gap")
        .agg(
            pl.col("copy_only_s").sum(),
            pl.col("idle_s").sum(),
            ((pl.col("rx_bytes_per_s") * length).sum() / length.filter(known).sum()).alias("rate"),
            known.any().alias("known"),
        )
    )
    found = []
    for gap, copy_s, idle_s, rate, is_known in sums.sort("gap").rows():
        start_ns, end_ns = stretches[gap]
        phase, call = where_most.get(gap, (None, None))
        found.append(
            Gap(
                gpu=gpu,
                start_ns=start_ns,
                end_ns=end_ns,
                duration_ms=(end_ns - start_ns) / 1e6,
                state="copy-only" if copy_s > idle_s else "idle",
                cause=main.get(gap, UNEXPLAINED),
                phase=phase,
                call=call,
                rx_bytes_per_s=float(rate) if is_known else None,
                causes=parts.get(gap, {}),
            )
        )
    return found
