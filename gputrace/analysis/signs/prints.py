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

import polars as pl

from gputrace.analysis.thresholds import (
    MIN_CALLS,
    PRINT_BALANCE,
    PRINT_STALL_MS,
    PRINT_STALLS,
    SLOW_PRINT_MS,
)
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
        own = table.filter(pl.col(f"{place}_prints") > 0).select(place, f"{place}_prints").drop_nulls()
        if own.is_empty():
            continue
        per_print[place] = max(0.0, float(own[place].sum()) / float(own[f"{place}_prints"].sum()))
        stalls[place] = int((own[place] > PRINT_STALL_MS).sum())
        total_ms += max(0.0, float(own[place].sum()))
    return PrintCost(table.height, per_print, stalls, total_ms / 1e3)


def _differences(trace: Trace, bursts: pl.DataFrame) -> pl.DataFrame:
    """call and, per place, the difference in ms (null where a line is missing) and the number of prints in it."""
    calls = trace.calls.filter(pl.col("complete") & ~pl.col("warmup"))
    for start_ns, end_ns in bursts.select("start_ns", "end_ns").iter_rows():
        beside = (pl.col("lock_ns") < end_ns) & (pl.col("unlock_ns") > start_ns)
        calls = calls.filter(~beside.fill_null(False))

    def of(names: tuple[str, ...]) -> pl.Expr:
        return pl.col("duration_ms").filter(pl.col("name").is_in(names)).sum()

    def number(names: tuple[str, ...]) -> pl.Expr:
        return pl.col("name").is_in(names).sum().cast(pl.Int64)

    parts = trace.phases.group_by("call").agg(
        of(_NTT).alias("ntt_parts"),
        number(("ntt_kernels",)).alias("ntt_prints"),
        of(_GPU).alias("gpu_parts"),
        number(_PRINTED_IN_GPU).alias("gpu_prints"),
        number(("tail_msm",)).alias("tails"),
        number(("mutex_held",)).alias("holds"),
    )
    ntt_known = (pl.col("ntt_prints") > 0) & pl.col("ntt_msm_h_ms").is_not_null()
    gpu_known = (pl.col("tails") > 0) & pl.col("gpu_total_ms").is_not_null() & pl.col("ntt_msm_h_ms").is_not_null()
    # Without a barrier line the wait for prep_msm hides in this difference.
    barrier = trace.phases.filter(pl.col("name") == "barrier_wait").height > 0
    hold_known = (pl.col("holds") > 0) & pl.col("gpu_total_ms").is_not_null() & pl.col("mutex_held_ms").is_not_null()
    return calls.join(parts, on="call").select(
        "call",
        pl.when(ntt_known).then(pl.col("ntt_msm_h_ms") - pl.col("ntt_parts")).alias("ntt"),
        "ntt_prints",
        pl.when(gpu_known & barrier)
        .then(pl.col("gpu_total_ms") - pl.col("ntt_msm_h_ms") - pl.col("gpu_parts"))
        .alias("gpu"),
        "gpu_prints",
        pl.when(hold_known).then(pl.col("mutex_held_ms") - pl.col("gpu_total_ms")).alias("hold"),
        (pl.col("holds") * _PRINTS_IN_HOLD).alias("hold_prints"),
    )
