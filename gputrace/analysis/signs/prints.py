"""What the prover's own prints under the GPU mutex cost.

Three differences of printed durations hold nothing but bookkeeping and prints (`fprintf` to stderr, under the mutex):

    difference                                               prints in it
    ntt_msm_h - total of the CUZK_NTT_H lines                one CUZK_NTT_H line a circuit
    gpu_total - (ntt_msm_h + barrier + batch_add + tail)     the lines of ntt_msm_h, barrier_wait and batch_add
    mutex_held - gpu_total                                   the lines of the lock and of tail_msm

On the real captures they are 0-2, 0-4 and 0-9 ms, three MSM destructors included. A log sink that blocks makes all
three grow, in proportion to their prints; nothing else does.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.analysis.thresholds import (
    MIN_CALLS,
    PRINT_BALANCE,
    PRINT_STALL_MS,
    PRINT_STALLS,
    SLOW_PRINT_MS,
)
from gputrace.rows import Floats, Ints, Places, where, with_values
from gputrace.trace import Trace

PLACES = ("ntt", "gpu", "hold")
_NTT = ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor")
_GPU = ("barrier_wait", "batch_add", "tail_msm")
_PRINTED_IN_GPU = ("ntt_msm_h", "barrier_wait", "batch_add")
_PRINTS_IN_HOLD = 2


@dataclass(frozen=True)
class PrintCost:
    """Mean milliseconds a print by place, over `calls` calls; places that a build does not show are missing.

    `stalls` counts calls by place whose difference exceeds `PRINT_STALL_MS`; `total_s` is all of it together.
    """

    calls: int
    per_print_ms: dict[str, float]
    stalls: dict[str, int]
    total_s: float

    @property
    def known(self) -> bool:
        """Whether enough is printed to tell prints from other bookkeeping."""
        return self.calls >= MIN_CALLS and len(self.per_print_ms) > 1

    @property
    def slow(self) -> bool:
        """Whether prints are slow: everywhere alike, or stalled now and then in more than one place."""
        if not self.known:
            return False
        low, high = min(self.per_print_ms.values()), max(self.per_print_ms.values())
        alike = low >= SLOW_PRINT_MS and high <= PRINT_BALANCE * low
        places = sum(count > 0 for count in self.stalls.values())
        return alike or (places > 1 and sum(self.stalls.values()) >= PRINT_STALLS)


def print_costs(trace: Trace, bursts: pl.DataFrame) -> PrintCost:
    """The cost of prints over complete calls, less warm-up calls and those during `bursts` of pinned allocations."""
    table = _differences(trace, bursts)
    per_print, stalls, total_ms = {}, {}, 0.0
    for place in PLACES:
        own = with_values(where(table[[place, f"{place}_prints"]], table[f"{place}_prints"] > 0))
        if own.is_empty():
            continue
        per_print[place] = max(0.0, float(own[place].sum()) / float(own[f"{place}_prints"].sum()))
        stalls[place] = int((own[place] > PRINT_STALL_MS).sum())
        total_ms += max(0.0, float(own[place].sum()))
    return PrintCost(table.height, per_print, stalls, total_ms / 1e3)


def _differences(trace: Trace, bursts: pl.DataFrame) -> pl.DataFrame:
    """call and, per place, the difference in ms (null where a line is missing) and the number of prints in it."""
    calls = where(trace.calls, trace.calls["complete"] & ~trace.calls["warmup"])
    for start_ns, end_ns in bursts.select("start_ns", "end_ns").iter_rows():
        beside = (pl.col("lock_ns") < end_ns) & (pl.col("unlock_ns") > start_ns)
        calls = calls.filter(~beside.fill_null(False))

    calls = where(calls, np.isin(calls["call"].to_numpy(), trace.phases["call"].to_numpy()))
    places, phases = Places(calls["call"]), trace.named_phases

    def total_ms(names: tuple[str, ...]) -> Floats:
        """Of each call the sum of these phases."""
        own = phases.any_of(names)
        return places.sums(own["call"], own["duration_ms"])

    def number(names: tuple[str, ...]) -> Ints:
        return places.counts(phases.any_of(names)["call"])

    # NaN where a line is missing.
    ntt_msm_h, gpu_total, held = (
        calls[name].cast(pl.Float64).to_numpy() for name in ("ntt_msm_h_ms", "gpu_total_ms", "mutex_held_ms")
    )
    ntt_prints, tails, holds = number(("ntt_kernels",)), number(("tail_msm",)), number(("mutex_held",))
    # Without a barrier line the wait for prep_msm hides in this difference.
    barrier = phases.of("barrier_wait").height > 0
    differences = {
        "ntt": np.where(ntt_prints > 0, ntt_msm_h - total_ms(_NTT), np.nan),
        "gpu": np.where((tails > 0) & barrier, gpu_total - ntt_msm_h - total_ms(_GPU), np.nan),
        "hold": np.where(holds > 0, held - gpu_total, np.nan),
    }
    prints = {"ntt": ntt_prints, "gpu": number(_PRINTED_IN_GPU), "hold": holds * _PRINTS_IN_HOLD}
    columns = [pl.Series(place, values, nan_to_null=True) for place, values in differences.items()]
    return calls[["call"]].hstack([*columns, *(pl.Series(f"{place}_prints", n) for place, n in prints.items())])
