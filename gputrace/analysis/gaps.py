"""Gaps worth listing, and the lost seconds by cause (all of them, listed or not)."""

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import CauseTotal, Gap, Gaps
from gputrace.analysis.thresholds import Thresholds

_MOST_LISTED = 1000


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
    lost_listed = 0.0
    for (gpu,), own in states.group_by("gpu", maintain_order=True):
        charged = blame.filter(pl.col("gpu") == gpu).sort("start_ns")
        for start_ns, end_ns in _stretches(own, thresholds):
            if (end_ns - start_ns) / 1e6 < threshold_ms:
                continue
            gap, lost_s = _describe(int(str(gpu)), start_ns, end_ns, own, charged)
            lost_listed += lost_s
            found.append(gap)
    lost_s = float((states["copy_only_s"] + states["idle_s"]).sum()) if states.height else 0.0
    window_s = float((states["end_ns"] - states["start_ns"]).sum()) / 1e9 if states.height else 0.0
    found.sort(key=lambda gap: -gap.duration_ms)
    return Gaps(
        threshold_ms=threshold_ms,
        count=len(found),
        total_s=lost_s,
        below_threshold_s=max(0.0, lost_s - lost_listed),
        share_of_window=lost_s / window_s if window_s else None,
        by_cause=causes(blame),
        list=tuple(found[:_MOST_LISTED]),
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
    stretches: list[tuple[int, int]] = []
    for i in np.flatnonzero(quiet):
        if stretches and joined[i] and stretches[-1][1] == ends[i - 1]:
            stretches[-1] = (stretches[-1][0], int(ends[i]))
        else:
            stretches.append((int(starts[i]), int(ends[i])))
    return stretches


def _describe(gpu: int, start_ns: int, end_ns: int, states: pl.DataFrame, charged: pl.DataFrame) -> tuple[Gap, float]:
    inside = charged.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns)).with_columns(
        (pl.col("copy_only_s") + pl.col("idle_s")).alias("lost_s")
    )
    samples = states.filter((pl.col("start_ns") >= start_ns) & (pl.col("end_ns") <= end_ns))
    copy_s, idle_s = float(samples["copy_only_s"].sum()), float(samples["idle_s"].sum())
    cause = phase = None
    call: int | None = None
    if inside.height:
        cause = inside.group_by("cause").agg(pl.col("lost_s").sum()).sort("lost_s", descending=True)["cause"][0]
        main = (
            inside.filter(pl.col("cause") == cause)
            .group_by("phase", "call")
            .agg(pl.col("lost_s").sum())
            .sort("lost_s", descending=True)
        )
        phase, call = main["phase"][0], main["call"][0]
    length = pl.col("end_ns") - pl.col("start_ns")
    rate = samples.select((pl.col("rx_bytes_per_s") * length).sum() / length.sum())["rx_bytes_per_s"][0]
    known = samples["rx_bytes_per_s"].count() > 0
    return (
        Gap(
            gpu=gpu,
            start_ns=start_ns,
            end_ns=end_ns,
            duration_ms=(end_ns - start_ns) / 1e6,
            state="copy-only" if copy_s > idle_s else "idle",
            cause=cause or "unexplained",
            phase=phase,
            call=call,
            rx_bytes_per_s=float(rate) if known and rate is not None else None,
        ),
        copy_s + idle_s,
    )
