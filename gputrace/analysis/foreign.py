"""SM activity where the run's own calls leave the SMs idle: whose is it?

Looked at are the middles of barrier waits, of pageable copies and of the time between calls, a step away from anything
that computes. In barrier waits and between calls the real captures read 0-6 %, single samples included. A copy has the
first two NTTs in it: 33 ms each of 400 ms and more at 2^25, so its mean counts, not its samples. What else runs there
is not this prover's.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.thresholds import FOREIGN_SM_SHARE

Ints = npt.NDArray[np.int64]

_IDLE = (
    "barrier_wait", "no_work", "release_abc", "pickup", "between_calls", "pre_lock", "d_b_alloc",
)  # fmt: skip
_KERNELS = ("msm_invoke", "tail_msm", "coset_intt_sync")
# The run's own NTTs make up at most this share of a copy.
_OWN_SHARE = 0.16
# Foreign stretches less than this apart are one.
_JOIN_NS = 1_000_000_000


@dataclass(frozen=True)
class ForeignActivity:
    """One GPU. `quiet_s` was looked at; `busy_s` of it had SMs active above the threshold, `sm_share` is its mean.

    `processes` is the most other processes seen at once, `present_share` the share of samples with any; None where
    the trace does not count them. `stretched_s`: by how much this run's kernels took longer in foreign stretches than
    outside them, by medians; None where there are none to compare.
    """

    gpu: int
    quiet_s: float
    busy_s: float
    sm_share: float | None
    processes: int | None
    present_share: float | None
    stretched_s: float | None

    @property
    def busy_share(self) -> float:
        """Share of the quiet time in which somebody computed."""
        return self.busy_s / self.quiet_s if self.quiet_s else 0.0


def foreign_activity(view: GpuView) -> ForeignActivity:
    """What one GPU did where its own calls left it idle."""
    samples = view.samples
    processes = present = None
    if view.sampled and "other_processes" in samples.columns and samples["other_processes"].count():
        count = samples["other_processes"].drop_nulls()
        processes, present = int(count.max()), float((count > 0).mean() or 0.0)  # type: ignore[arg-type]
    if not view.sampled or not view.sm_measured or view.segments.is_empty():
        return ForeignActivity(view.info.gpu, 0.0, 0.0, None, processes, present, None)
    known = samples["sm_active"].is_not_null().to_numpy()
    active = samples["sm_active"].cast(pl.Float64).to_numpy()
    idle = known & (_stretches(view, pl.col("name").is_in(_IDLE)) >= 0)
    copy = _stretches(view, (pl.col("name") == "ntt_kernels") & (pl.col("mode") == "in-ntt"))
    copying = known & (copy >= 0) & ~idle
    quiet, busy = idle | copying, idle & (active > FOREIGN_SM_SHARE)
    if copying.any():
        weight = np.bincount(copy[copying], view.seconds[copying])
        mean = np.bincount(copy[copying], view.seconds[copying] * active[copying]) / np.maximum(weight, 1e-9)
        own = min(float(np.quantile(mean[weight > 0], 0.25)), _OWN_SHARE)
        busy |= copying & (mean[np.maximum(copy, 0) % len(mean)] > own + FOREIGN_SM_SHARE)
    quiet_s = float(view.seconds[quiet].sum())
    return ForeignActivity(
        gpu=view.info.gpu,
        quiet_s=quiet_s,
        busy_s=float(view.seconds[busy].sum()),
        sm_share=float((active[quiet] * view.seconds[quiet]).sum()) / quiet_s if quiet_s else None,
        processes=processes,
        present_share=present,
        stretched_s=_stretched_s(view, samples.filter(pl.Series(busy))) if busy.any() else None,
    )


def _stretches(view: GpuView, which: pl.Expr) -> Ints:
    """Per sample, the stretch of such segments in which it lies with a step on either side; -1 where in none."""
    own = view.segments.filter(which).sort("start_ns")
    if own.is_empty():
        return np.full(len(view.seconds), -1, dtype=np.int64)
    starts, ends = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    new = np.concatenate([[True], starts[1:] > ends[:-1] + 1_000_000])
    first = starts[new]
    last = ends[np.concatenate([np.flatnonzero(new)[1:] - 1, [len(ends) - 1]])]
    step_ns = int(np.median(view.seconds) * 1e9)
    s0, s1 = view.samples["start_ns"].to_numpy(), view.samples["end_ns"].to_numpy()
    index = np.searchsorted(first + step_ns, s0, side="right") - 1
    inside = (index >= 0) & (s1 <= last[np.maximum(index, 0)] - step_ns)
    return np.where(inside, index, -1)


def _stretched_s(view: GpuView, busy: pl.DataFrame) -> float | None:
    """By how much kernels take longer in foreign stretches than outside, summed; None where one side is missing."""
    b0, b1 = busy["start_ns"].to_numpy(), busy["end_ns"].to_numpy()
    new = np.concatenate([[True], b0[1:] > b1[:-1] + _JOIN_NS])
    first = b0[new] - _JOIN_NS // 2
    last = b1[np.concatenate([np.flatnonzero(new)[1:] - 1, [len(b1) - 1]])] + _JOIN_NS // 2
    total, compared = 0.0, False
    kernels = (
        view.segments.filter(pl.col("name").is_in(_KERNELS))
        .group_by("call", "name", "mode")
        .agg(pl.col("start_ns").min(), ((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9).alias("seconds"))
    )
    for _, own in kernels.group_by("name", "mode"):
        at = own["start_ns"].to_numpy()
        index = np.searchsorted(first, at, side="right") - 1
        inside = (index >= 0) & (at < last[np.maximum(index, 0)])
        seconds = own["seconds"].to_numpy()
        if inside.any() and (~inside).sum() > 2:
            total += float(np.maximum(0.0, seconds[inside] - np.median(seconds[~inside])).sum())
            compared = True
    return total if compared else None
