"""Constant or variable: every kind of phase over the complete calls, what it copied, and what its length goes with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from gputrace.analysis import student
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.diagnosis import Driver, PhaseFinding
from gputrace.analysis.durations import Durations, Floats, durations_of
from gputrace.analysis.thresholds import (
    MIN_CALLS,
    NEGLIGIBLE_SHARE_OF_HELD,
    VARIABLE_SPREAD_MS,
    VARIABLE_SPREAD_SHARE,
)
from gputrace.schema import CONTAINS_OTHERS, LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

# A phase in which the SMs are busy more than this copies beside its kernels.
_MIXED_SM_SHARE = 0.5
_DRIVER_P_VALUE = 0.01


def summarise_phases(
    trace: Trace, moved: list[Transfers], bursts: pl.DataFrame, regimes: Sequence[pl.Series] = ()
) -> tuple[PhaseFinding, ...]:
    """One finding per phase that the log shows, in the order of a call; their transfer class is still unknown.

    `regimes` are the numbers of the calls of each: a phase is variable if it is so within one of them.
    """
    complete = trace.calls_in_focus.filter("complete")
    durations = durations_of(trace, complete, regimes)
    candidates = _Candidates(driver_context(trace, complete, bursts))
    return _findings(durations, complete, moved, len(regimes), candidates)


def summarise_regime(
    durations: Mapping[str, Durations], complete: pl.DataFrame, moved: list[Transfers]
) -> tuple[PhaseFinding, ...]:
    """The phases of one regime, whose durations, complete calls and transfers these are; without drivers."""
    return _findings(durations, complete, moved, 0, None)


def _findings(
    durations: Mapping[str, Durations],
    complete: pl.DataFrame,
    moved: list[Transfers],
    regimes: int,
    candidates: "_Candidates | None",
) -> tuple[PhaseFinding, ...]:
    held = durations.get("mutex_held")
    held_total = float(held.values_ms.sum()) if held else 0.0
    held_medians = [_median(held.in_regime(number).typical_ms) if held else 0.0 for number in range(regimes)]
    held_median = float(complete["mutex_held_ms"].median() or 0.0)  # type: ignore[arg-type]
    instances = _instances(moved, complete)
    found = []
    for name, own in durations.items():
        kind, reason = _classify_within(own, held_medians, held_median)
        ordered = np.sort(own.values_ms)
        found.append(
            PhaseFinding(
                name=name,
                contains_others=name in CONTAINS_OTHERS,
                count=len(ordered),
                min_ms=float(ordered[0]),
                p5_ms=quantile(ordered, 0.05),
                median_ms=quantile(ordered, 0.5),
                mean_ms=float(ordered.mean()),
                p95_ms=quantile(ordered, 0.95),
                max_ms=float(ordered[-1]),
                phase_class=kind,
                class_reason=reason,
                under_mutex=own.under_mutex,
                share_of_mutex_held=float(ordered.sum()) / held_total if held_total and own.under_mutex else None,
                drivers=_drivers(own, candidates) if candidates and kind == "variable" else (),
                **_copied(instances.get(name)),
            )
        )
    return tuple(found)


def quantile(ordered: Floats, share: float) -> float:
    """As `np.quantile`, of values in order: that takes a hundred times as long, which counts where regimes are many."""
    at = (len(ordered) - 1) * share
    before = int(at)
    low, high = float(ordered[before]), float(ordered[min(before + 1, len(ordered) - 1)])
    part = at - before
    # From the nearer of the two, as numpy does.
    return high - (high - low) * (1.0 - part) if part >= 0.5 else low + (high - low) * part


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _classify_within(own: Durations, held_medians_ms: Sequence[float], held_median_ms: float) -> tuple[str, str]:
    """The class over the whole run where there is one regime; else variable if it is so in one of them.

    Regimes with too few calls say nothing; where all have, the whole run decides. `held_medians_ms` has the median hold
    of each regime.
    """
    whole = classify(own.typical_ms, held_median_ms)
    if len(held_medians_ms) < 2:
        return whole
    medians, classes = [], []
    for number, held_ms in enumerate(held_medians_ms):
        inside = own.in_regime(number).typical_ms
        kind, reason = classify(inside, held_ms)
        if kind == "variable":
            return kind, f"in regime {number + 1} {reason}"
        if kind != "insufficient":
            medians.append(f"{np.median(inside):.0f}")
            classes.append(kind)
    if not classes:
        return whole
    if whole[0] == "variable":
        return "constant", f"constant within each regime (medians {', '.join(medians)} ms): it only steps between them"
    return whole


def classify(durations_ms: Floats, held_median_ms: float) -> tuple[str, str]:
    """constant, variable, negligible or insufficient, with the reason in words. Warm-up calls must be left out."""
    if len(durations_ms) < MIN_CALLS:
        return "insufficient", f"{len(durations_ms)} calls; at least {MIN_CALLS} are needed"
    ordered = np.sort(durations_ms)
    low, median, high = (quantile(ordered, share) for share in (0.05, 0.5, 0.95))
    spread = high - low
    if held_median_ms and high < max(VARIABLE_SPREAD_MS, NEGLIGIBLE_SHARE_OF_HELD * held_median_ms):
        return "negligible", f"p95 is {high:.0f} ms, under 1 % of a hold of {held_median_ms:.0f} ms"
    if spread > VARIABLE_SPREAD_SHARE * median and spread > VARIABLE_SPREAD_MS:
        share = f"{spread / median:.0%} of the median" if median else "with a median of 0"
        return "variable", f"p5 to p95 spans {spread:.0f} ms, {share}"
    return "constant", f"p5 to p95 spans {spread:.0f} ms around {median:.0f} ms"


def _instances(moved: list[Transfers], complete: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What each phase of the complete calls copied, by name; nothing where nothing was sampled."""
    known = pl.col("sm_share").is_not_null() | pl.col("rx_payload_bytes").is_not_null()
    sampled = [own.instances.filter(known) for own in moved if own.volume is not None or own.sm is not None]
    if not sampled:
        return {}
    told = pl.concat(sampled).join(complete.select("call"), on="call", how="semi")
    return {name: part for (name,), part in told.group_by("name", maintain_order=True) if name in LEAVES_UNDER_MUTEX}


def _copied(own: pl.DataFrame | None) -> dict[str, Any]:
    """rx figures and SM share of one kind of phase; empty where nothing was sampled."""
    if own is None:
        return {}
    busy = own["sm_share"].drop_nulls()
    sm_share = float(busy.median()) if len(busy) else None  # type: ignore[arg-type]
    moved = own.filter(pl.col("rx_payload_bytes").is_not_null())
    if moved.is_empty():
        return {"sm_share_median": sm_share}
    rates = np.sort(moved["rx_bytes_per_s"].to_numpy())
    return {
        "rx_bytes_per_s": {
            name: quantile(rates, share) for name, share in (("p10", 0.1), ("median", 0.5), ("p90", 0.9))
        },
        "rx_bytes_per_call_median": float(moved["rx_payload_bytes"].median()),  # type: ignore[arg-type]
        "rx_method": str(moved["rx_method"].mode()[0]),
        "sm_share_median": sm_share,
    }


def with_transfer(
    phases: tuple[PhaseFinding, ...], copy_floor: float | None, line_floor: float | None
) -> tuple[PhaseFinding, ...]:
    """The phases with their transfer class: none up to `copy_floor`, line-rate from `line_floor` (payload bytes/s)."""
    return tuple(replace(phase, transfer=_transfer(phase, copy_floor, line_floor)) for phase in phases)


def _transfer(phase: PhaseFinding, copy_floor: float | None, line_floor: float | None) -> str:
    if phase.rx_bytes_per_s is None or copy_floor is None:
        return "unknown"
    rate = phase.rx_bytes_per_s["median"]
    if rate <= copy_floor:
        return "none"
    if line_floor is not None and rate >= line_floor:
        return "line-rate"
    # The SMs are busy while it copies: the copy is beside kernels, not in their way.
    return "mixed" if (phase.sm_share_median or 0.0) >= _MIXED_SM_SHARE else "staged"


def _mean_over(spans: pl.DataFrame, start_ns: np.ndarray, end_ns: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Time-weighted mean of a step function (start_ns, end_ns, value; sorted, disjoint) over each interval."""
    s0, s1 = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    knots = np.ravel(np.column_stack([s0, s1])).astype(np.float64)
    area = np.ravel(np.column_stack([np.zeros(len(s0)), value * (s1 - s0)])).cumsum()
    keep = np.concatenate([[True], np.diff(knots) > 0])
    total = np.interp(end_ns, knots[keep], area[keep]) - np.interp(start_ns, knots[keep], area[keep])
    return np.asarray(total / np.maximum(end_ns - start_ns, 1))


def concurrent(spans: pl.DataFrame, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Mean number of `spans` (start_ns, end_ns) running during each interval."""
    usable = spans.drop_nulls("start_ns")
    begun = np.sort(usable["start_ns"].to_numpy()).astype(np.float64)
    # A span that has not ended in the log runs on.
    ended = np.sort(usable["end_ns"].fill_null(int(end_ns.max()) if len(end_ns) else 0).to_numpy()).astype(np.float64)

    def time_after(edges: np.ndarray, at: np.ndarray) -> np.ndarray:
        count = np.searchsorted(edges, at)
        return np.asarray(count * at - np.concatenate([[0.0], np.cumsum(edges)])[count])

    low, high = start_ns.astype(np.float64), end_ns.astype(np.float64)
    base = low.min() if len(low) else 0.0
    begun, ended, low, high = begun - base, ended - base, low - base, high - base
    running = (time_after(begun, high) - time_after(begun, low)) - (time_after(ended, high) - time_after(ended, low))
    return np.asarray(running / np.maximum(high - low, 1.0))


def driver_context(trace: Trace, complete: pl.DataFrame, bursts: pl.DataFrame) -> pl.DataFrame:
    """What may drive a phase, per call: call and one Float64 column per candidate; null where unknown."""
    timed = complete.filter(pl.col("lock_ns").is_not_null() & pl.col("unlock_ns").is_not_null())
    start, end = timed["lock_ns"].to_numpy(), timed["unlock_ns"].to_numpy()
    columns: dict[str, object] = {"call": timed["call"], "order in the run": np.arange(timed.height, dtype=np.float64)}
    if trace.syntheses["start_ns"].count() and timed.height:
        columns["concurrent syntheses"] = concurrent(trace.syntheses, start, end)
    host = trace.host.filter(pl.col("cpu_share").is_not_null()).sort("start_ns")
    if host.height and timed.height and trace.clock.method != "none":
        columns["host CPU"] = _mean_over(host, start, end, host["cpu_share"].to_numpy())
    if bursts.height and timed.height:
        columns["allocation bursts"] = concurrent(bursts, start, end)
    if timed["worker"].n_unique() > 1:
        columns["worker"] = timed["worker"].cast(pl.Float64)
    if timed["pinned"].drop_nulls().n_unique() > 1:
        columns["pinned buffers"] = timed["pinned"].cast(pl.Float64)
    return pl.DataFrame(columns)


class _Candidates:
    """What may drive a phase, ranked: most phases have the same calls, so that each candidate is ranked once."""

    def __init__(self, context: pl.DataFrame) -> None:
        self._context = context
        self._calls = pl.Series("call", [], context.schema.get("call", pl.UInt32))
        self._own = context
        self._ranks: dict[str, pl.Series] = {}

    def of(self, calls: pl.Series) -> pl.DataFrame:
        """The candidates of those of the calls that have any, in the calls' order: call and one column each."""
        if not calls.equals(self._calls):
            self._calls, self._ranks = calls, {}
            self._own = calls.to_frame("call").join(self._context, on="call", maintain_order="left")
        return self._own

    def ranks(self, name: str) -> pl.Series:
        """Ranks of a candidate that is known of every call asked for last."""
        if name not in self._ranks:
            self._ranks[name] = self._own[name].rank()
        return self._ranks[name]


def _drivers(own: Durations, candidates: _Candidates) -> tuple[Driver, ...]:
    """Candidates that go with the phase's duration, strongest first: rank correlation, p < 0.01."""
    durations = pl.DataFrame({"call": own.call, "duration_ms": own.values_ms}).filter(~own.warmup)
    context = candidates.of(durations["call"])
    if context.height < durations.height:
        durations = durations.join(context, on="call", how="semi", maintain_order="left")
    ranks = durations["duration_ms"].rank()
    found = []
    for name in context.columns[1:]:
        if context[name].null_count():
            known = context[name].is_not_null()
            pair = (durations["duration_ms"].filter(known).rank(), context[name].filter(known).rank())
        else:
            pair = (ranks, candidates.ranks(name))
        n = len(pair[0])
        if n < MIN_CALLS or any(side.n_unique() < 2 for side in pair):
            continue
        rank = float(pl.select(pl.corr(*pair)).item())
        chance = p_value(rank, n)
        if chance < _DRIVER_P_VALUE:
            found.append(Driver(name, rank, chance, n))
    return tuple(sorted(found, key=lambda driver: -abs(driver.spearman)))


def p_value(rank: float, n: int) -> float:
    """Two-sided p of a Spearman correlation, by Student's t with n-2 degrees of freedom."""
    t = abs(rank) * np.sqrt((n - 2) / max(1e-12, 1.0 - rank * rank))
    return 2.0 * student.cumulative(n - 2, -t)
