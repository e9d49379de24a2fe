"""Gaps worth listing, and the lost seconds by cause (all of them, listed or not)."""

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import CauseTotal, Gap, Gaps
from gputrace.analysis.thresholds import Thresholds
from gputrace.ingest.samples import samples_of

MOST_LISTED = 1000


def causes(blame: pl.DataFrame) -> tuple[CauseTotal, ...]:
    """Lost seconds by cause, most first."""
    table = (
        blame.group_by("cause")
        .agg(pl.col("copy_only_s").sum(), pl.col("idle_s").sum())
        .with_columns((pl.col("copy_only_s") + pl.col("idle_s")).alias("total_s"))
        .sort("total_s", "cause", descending=[True, False])
    )
    total = float(table["total_s"].sum())
    return tuple(
        CauseTotal(cause, lost_s, lost_s / total if total else 0.0, copy_s, idle_s)
        for cause, copy_s, idle_s, lost_s in table.iter_rows()
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
        inside = _within(stretches, own.select("start_ns", "end_ns", "copy_only_s", "idle_s", "rx_bytes_per_s"))
        lost_listed += float((inside["copy_only_s"] + inside["idle_s"]).sum())
        count += len(stretches)
        # Of each GPU no more can be among the longest of all.
        longest = sorted(sorted(range(len(stretches)), key=lambda n: stretches[n][0] - stretches[n][1])[:MOST_LISTED])
        listed = [stretches[n] for n in longest]
        found.extend(_describe(gpu, listed, inside, blame.filter(pl.col("gpu") == gpu)))
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
    middle = ((frame["start_ns"] + frame["end_ns"]) // 2).to_numpy()
    gap = np.searchsorted(starts, middle, side="right") - 1
    inside = (gap >= 0) & (middle < ends[np.maximum(gap, 0)])
    return frame.filter(pl.Series(inside)).with_columns(pl.Series("gap", gap[inside]))


def _first_of_most(charged: pl.DataFrame, *keys: str) -> dict[int, tuple[object, ...]]:
    """For each gap the values of `keys` that lost most."""
    totals = charged.group_by("gap", *keys).agg(pl.col("lost_s").sum())
    most = totals.sort("gap", "lost_s", *keys, descending=[False, True, *[False] * len(keys)])
    first = most.group_by("gap", maintain_order=True).first()
    return {row[0]: row[1 : 1 + len(keys)] for row in first.select("gap", *keys).iter_rows()}


def _describe(gpu: int, stretches: list[tuple[int, int]], states: pl.DataFrame, charged: pl.DataFrame) -> list[Gap]:
    """The gaps of one GPU, one a stretch."""
    inside = _within(stretches, charged).with_columns((pl.col("copy_only_s") + pl.col("idle_s")).alias("lost_s"))
    main = _first_of_most(inside, "cause")
    causes_frame = pl.DataFrame(
        [(gap, cause[0]) for gap, cause in main.items()], schema={"gap": pl.Int64, "cause": pl.String}, orient="row"
    )
    parts: dict[int, dict[str, float]] = {}
    by_cause = inside.group_by("gap", "cause").agg(pl.col("lost_s").sum())
    for gap, cause, seconds in by_cause.sort("gap", "lost_s", "cause", descending=[False, True, False]).iter_rows():
        parts.setdefault(gap, {})[cause] = seconds
    where = _first_of_most(inside.join(causes_frame, on=["gap", "cause"]), "phase", "call")
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
    for gap, copy_s, idle_s, rate, is_known in sums.sort("gap").iter_rows():
        start_ns, end_ns = stretches[gap]
        phase, call = where.get(gap, (None, None))
        found.append(
            Gap(
                gpu=gpu,
                start_ns=start_ns,
                end_ns=end_ns,
                duration_ms=(end_ns - start_ns) / 1e6,
                state="copy-only" if copy_s > idle_s else "idle",
                cause=str(main.get(gap, ("unexplained",))[0]),
                phase=None if phase is None else str(phase),
                call=None if call is None else int(str(call)),
                rx_bytes_per_s=float(rate) if is_known else None,
                causes=parts.get(gap, {}),
            )
        )
    return found
