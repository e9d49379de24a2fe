"""SM activity where the run's own calls leave the SMs idle: whose is it?

Looked at are the middles of barrier waits, of pageable copies and of the time between calls, a step away from anything
that computes. In barrier waits and between calls the real captures read 0-6 %, single samples included. A copy has the
first two NTTs in it: 33 ms each of 400 ms and more at 2^25, so its mean counts, not its samples. What else runs there
is not this prover's.

A run that leaves no such time shows another process only by its kernels: beside it they take longer. That is compared
where the trace says when other processes were there; else by the pace of the calls, where all kinds of kernels change
it together.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.thresholds import FOREIGN_SM_SHARE, MIN_CALLS
from gputrace.trace import Trace

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_IDLE = ("barrier_wait", "no_work", "release_abc", "pickup", "between_calls", "pre_lock", "d_b_alloc")
_KERNELS = ("msm_invoke", "tail_msm", "coset_intt_sync", "batch_add")
_PACED = ("msm_invoke", "tail_msm")
# The run's own NTTs make up at most this share of a copy.
_OWN_SHARE = 0.16
# Foreign stretches less than this apart are one.
_JOIN_NS = 1_000_000_000
# Fewer calls than this are not compared with.
_FEW_CALLS = 3


@dataclass(frozen=True)
class Pace:
    """How kernels of different kinds kept pace, call by call, each against its own three fastest.

    `stretch` by which share they took longer in all, `stretched_s` by how many seconds; `lockstep` the correlation of
    msm_invoke and tail_msm: near 1 where something outside them sets the pace.
    """

    stretch: float
    stretched_s: float
    lockstep: float


@dataclass(frozen=True)
class ForeignActivity:
    """One GPU. `quiet_s` was looked at; `busy_s` of it had SMs active above the threshold, `sm_share` is its mean.

    `processes` is the most other processes seen at once, `present_share` the share of samples with any; None where
    the trace does not count them. `kernels_s` is how long this run's kernel phases lasted beside it, `stretched_s` by
    how much longer than else: measured by medians of calls apart from it (`compared`), or, where there are none, by the
    share of the SMs that it takes in quiet time. Both None where nothing foreign was seen.
    """

    gpu: int
    quiet_s: float = 0.0
    busy_s: float = 0.0
    sm_share: float | None = None
    processes: int | None = None
    present_share: float | None = None
    kernels_s: float | None = None
    stretched_s: float | None = None
    compared: bool = False
    pace: Pace | None = None

    @property
    def busy_share(self) -> float:
        """Share of the quiet time in which somebody computed."""
        return self.busy_s / self.quiet_s if self.quiet_s else 0.0

    @property
    def stretch(self) -> float:
        """By which share kernels took longer beside it."""
        own = (self.kernels_s or 0.0) - (self.stretched_s or 0.0)
        return (self.stretched_s or 0.0) / own if own > 0 else 0.0


def foreign_activity(view: GpuView, trace: Trace) -> ForeignActivity:
    """What one GPU did where its own calls left it idle, and what happened to their kernels meanwhile."""
    samples = view.samples
    if not view.sampled or view.segments.is_empty():
        return ForeignActivity(view.info.gpu)
    processes = present = None
    listed = np.zeros(samples.height, dtype=bool)
    if samples["other_processes"].count():
        count = samples["other_processes"].fill_null(strategy="forward").fill_null(0).to_numpy()
        listed = count > 0
        processes, present = int(count.max()), float(listed.mean())
    quiet = busy = np.zeros(samples.height, dtype=bool)
    active = samples["sm_active"].cast(pl.Float64).to_numpy()
    if view.sm_measured:
        quiet, busy = _quiet_and_busy(view, active, trace)
    quiet_s = float(view.seconds[quiet].sum())
    share = float((active[quiet] * view.seconds[quiet]).sum()) / quiet_s if quiet_s else None
    there = listed if listed.any() else busy
    kernels_s, stretched_s, compared = _stretched(view, there, share or 0.0) if there.any() else (None, None, False)
    return ForeignActivity(
        view.info.gpu,
        quiet_s,
        float(view.seconds[busy].sum()),
        share,
        processes,
        present,
        kernels_s,
        stretched_s,
        compared,
        _pace(view, trace),
    )


def _pace(view: GpuView, trace: Trace) -> Pace | None:
    """The pace of complete calls after the first, apart from pinned allocations; None for too few."""
    calls = trace.calls.filter(pl.col("complete") & ~pl.col("warmup") & (pl.col("gpu") == view.info.gpu))["call"]
    apart = view.segments.filter(
        pl.col("call").is_in(calls.implode()) & ~pl.col("bursting").any().over("call") & pl.col("name").is_in(_PACED)
    )
    seconds = (
        apart.group_by("call", "name")
        .agg(((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9).alias("seconds"))
        .pivot("name", index="call", values="seconds")
        .drop_nulls()
    )
    if seconds.height < MIN_CALLS or not set(_PACED) <= set(seconds.columns):
        return None
    took = seconds.select(_PACED).to_numpy()
    fastest = np.sort(took, axis=0)[_FEW_CALLS - 1]
    longer = np.maximum(0.0, took - fastest)
    lockstep = float(seconds.select(pl.corr("msm_invoke", "tail_msm")).item())
    return Pace(
        # What only one kind of kernels shows has its reason there.
        float(np.min(longer.sum(axis=0) / (fastest * len(took)))),
        float(longer.sum()),
        lockstep if np.isfinite(lockstep) else 0.0,
    )


def _quiet_and_busy(view: GpuView, active: npt.NDArray[np.float64], trace: Trace) -> tuple[Bools, Bools]:
    """Samples in time that the run leaves idle, and those of them in which the SMs are busy all the same."""
    # Where holds are known to a few hundred ms only, so is what lies between them.
    unsure_ms = trace.calls.filter(pl.col("gpu") == view.info.gpu)["uncertainty_ms"].median() or 0.0
    margin_ns = int(max(float(np.median(view.seconds)) * 1e9, 2e6 * float(unsure_ms)))  # type: ignore[arg-type]
    pinned = trace.calls.filter(pl.col("pinned"))["call"].implode()
    pageable = (pl.col("name") == "ntt_kernels") & (pl.col("mode") == "in-ntt") & ~pl.col("call").is_in(pinned)
    known = ~np.isnan(active)
    idle = known & (_stretches(view, pl.col("name").is_in(_IDLE), margin_ns) >= 0)
    copy = _stretches(view, pageable, margin_ns)
    copying = known & (copy >= 0) & ~idle
    busy = idle & (active > FOREIGN_SM_SHARE)
    if copying.any():
        weight = np.bincount(copy[copying], view.seconds[copying])
        mean = np.bincount(copy[copying], view.seconds[copying] * active[copying]) / np.maximum(weight, 1e-9)
        own = min(float(np.quantile(mean[weight > 0], 0.25)), _OWN_SHARE)
        busy[copying] = mean[copy[copying]] > own + FOREIGN_SM_SHARE
    return idle | copying, busy


def _joined(starts: Ints, ends: Ints, apart_ns: int) -> tuple[Ints, Ints]:
    """Sorted spans with those less than `apart_ns` apart made one."""
    new = np.concatenate([[True], starts[1:] > ends[:-1] + apart_ns])
    return starts[new], ends[np.concatenate([np.flatnonzero(new)[1:] - 1, [len(ends) - 1]])]


def _stretches(view: GpuView, which: pl.Expr, margin_ns: int) -> Ints:
    """Per sample, the stretch of such segments in which it lies with a margin on either side; -1 where in none."""
    own = view.segments.filter(which).sort("start_ns")
    if own.is_empty():
        return np.full(len(view.seconds), -1, dtype=np.int64)
    first, last = _joined(own["start_ns"].to_numpy(), own["end_ns"].to_numpy(), 1_000_000)
    s0, s1 = view.samples["start_ns"].to_numpy(), view.samples["end_ns"].to_numpy()
    index = np.searchsorted(first + margin_ns, s0, side="right") - 1
    inside = (index >= 0) & (s1 <= last[np.maximum(index, 0)] - margin_ns)
    return np.where(inside, index, -1)


def _stretched(view: GpuView, there: Bools, sm_share: float) -> tuple[float, float, bool]:
    """Seconds of kernel phases while somebody else was there, by how much longer they took, and if that is measured.

    Contexts take turns on the SMs in even slices: without calls apart from it, kernels are taken to have run at half
    their pace while it worked, which it did for its share of quiet time.
    """
    at = view.samples.filter(pl.Series(there))
    first, last = _joined(at["start_ns"].to_numpy(), at["end_ns"].to_numpy(), _JOIN_NS)
    kernels = (
        view.segments.filter(pl.col("name").is_in(_KERNELS))
        .group_by("call", "name", "mode")
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            ((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9).alias("seconds"),
        )
    )
    total = longer = 0.0
    compared = False
    for _, own in kernels.group_by("name", "mode"):
        middle = ((own["start_ns"] + own["end_ns"]) // 2).to_numpy()
        index = np.searchsorted(first, middle, side="right") - 1
        inside = (index >= 0) & (middle < last[np.maximum(index, 0)])
        seconds = own["seconds"].to_numpy()
        total += float(seconds[inside].sum())
        if inside.any() and (~inside).sum() >= _FEW_CALLS:
            longer += float((seconds[inside] - np.median(seconds[~inside])).sum())
            compared = True
    return total, max(0.0, longer) if compared else 0.5 * sm_share * total, compared
