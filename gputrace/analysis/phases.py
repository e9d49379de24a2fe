"""Constant or variable: every kind of phase over the complete calls, what it copied, and what its length goes with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtr

from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.diagnosis import Driver, PhaseFinding
from gputrace.analysis.thresholds import (
    MIN_CALLS,
    NEGLIGIBLE_SHARE_OF_HELD,
    VARIABLE_SPREAD_MS,
    VARIABLE_SPREAD_SHARE,
)
from gputrace.schema import CONTAINS_OTHERS, LEAVES_UNDER_MUTEX, PHASE_NAMES
from gputrace.trace import Trace

# A phase in which the SMs are busy more than this copies beside its kernels.
_MIXED_SM_SHARE = 0.5
_DRIVER_P_VALUE = 0.01


def summarise_phases(
    trace: Trace,
    moved: list[Transfers],
    bursts: pl.DataFrame,
    regimes: Sequence[pl.Series] = (),
    with_drivers: bool = True,
) -> tuple[PhaseFinding, ...]:
    """One finding per phase that the log shows, in the order of a call; their transfer class is still unknown.

    `regimes` are the numbers of the calls of each: a phase is variable if it is so within one of them. What a phase's
    length goes with takes half of the time: `with_drivers` says whether it is wanted.
    """
    complete = trace.calls_in_focus.filter("complete")
    phases = trace.phases.join(complete.select("call", "warmup"), on="call")
    phases = phases.group_by("call", "name", maintain_order=True).agg(
        pl.col("duration_ms").sum(), pl.col("under_mutex").first(), pl.col("warmup").first()
    )
    named = {str(name): own for (name,), own in phases.group_by("name", maintain_order=True)}
    held = named.get("mutex_held", phases.clear())
    held_total = float(held["duration_ms"].sum())
    held = held.filter(~pl.col("warmup"))
    held_median = float(complete["mutex_held_ms"].median() or 0.0)  # type: ignore[arg-type]
    instances = _instances(moved, complete)
    context = driver_context(trace, complete, bursts) if with_drivers else pl.DataFrame()
    found = []
    for name in PHASE_NAMES:
        own = named.get(name)
        if own is None:
            continue
        typical = own.filter(~pl.col("warmup"))
        kind, reason = _classify_within(typical, held, regimes, held_median)
        values = own["duration_ms"].cast(pl.Float64).to_numpy()
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        found.append(
            PhaseFinding(
                name=name,
                contains_others=name in CONTAINS_OTHERS,
                count=len(values),
                min_ms=float(values.min()),
                p5_ms=float(low),
                median_ms=float(middle),
                mean_ms=float(values.mean()),
                p95_ms=float(high),
                max_ms=float(values.max()),
                phase_class=kind,
                class_reason=reason,
                under_mutex=bool(own["under_mutex"][0]),
                share_of_mutex_held=float(values.sum()) / held_total if held_total and own["under_mutex"][0] else None,
                drivers=_drivers(own, context) if with_drivers and kind == "variable" else (),
                **_copied(instances.get(name)),
            )
        )
    return tuple(found)


def _classify_within(
    own: pl.DataFrame, held: pl.DataFrame, regimes: Sequence[pl.Series], held_median_ms: float
) -> tuple[str, str]:
    """The class over the whole run where there is one regime; else variable if it is so in one of them.

    Regimes with too few calls say nothing; where all have, the whole run decides.
    """
    whole = classify(_milliseconds(own), held_median_ms)
    if len(regimes) < 2:
        return whole
    medians, classes = [], []
    for number, calls in enumerate(regimes, 1):
        inside = pl.col("call").is_in(calls.implode())
        durations = _milliseconds(own.filter(inside))
        kind, reason = classify(durations, float(held.filter(inside)["duration_ms"].median() or 0.0))  # type: ignore[arg-type]
        if kind == "variable":
            return kind, f"in regime {number} {reason}"
        if kind != "insufficient":
            medians.append(f"{np.median(durations):.0f}")
            classes.append(kind)
    if not classes:
        return whole
    if whole[0] == "variable":
        return "constant", f"constant within each regime (medians {', '.join(medians)} ms): it only steps between them"
    return whole


def _milliseconds(own: pl.DataFrame) -> np.ndarray:
    return own["duration_ms"].cast(pl.Float64).to_numpy()


def classify(durations_ms: np.ndarray, held_median_ms: float) -> tuple[str, str]:
    """constant, variable, negligible or insufficient, with the reason in words. Warm-up calls must be left out."""
    if len(durations_ms) < MIN_CALLS:
        return "insufficient", f"{len(durations_ms)} calls; at least {MIN_CALLS} are needed"
    low, high = np.quantile(durations_ms, [0.05, 0.95])
    median = float(np.median(durations_ms))
    spread = float(high - low)
    if held_median_ms and high < max(VARIABLE_SPREAD_MS, NEGLIGIBLE_SHARE_OF_HELD * held_median_ms):
        return "negligible", f"p95 is {high:.0f} ms, under 1 % of a hold of {held_median_ms:.0f} ms"
    if spread > VARIABLE_SPREAD_SHARE * median and spread > VARIABLE_SPREAD_MS:
        share = f"{spread / median:.0%} of the median" if median else "with a median of 0"
        return "variable", f"p5 to p95 spans {spread:.0f} ms, {share}"
    return "constant", f"p5 to p95 spans {spread:.0f} ms around {median:.0f} ms"


def _instances(moved: list[Transfers], complete: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What each phase of the complete calls copied, by name; nothing where nothing was sampled."""
    if not moved:
        return {}
    whole = pl.concat([m.instances for m in moved]).join(complete.select("call"), on="call", how="semi")
    told = whole.filter(pl.col("sm_share").is_not_null() | pl.col("rx_payload_bytes").is_not_null())
    names = whole["name"].unique().to_list()
    own = {str(name): part for (name,), part in told.group_by("name", maintain_order=True)}
    return {name: own.get(name, told.clear()) for name in names if name in LEAVES_UNDER_MUTEX}


def _copied(own: pl.DataFrame | None) -> dict[str, Any]:
    """rx figures and SM share of one kind of phase; empty where nothing was sampled."""
    if own is None:
        return {}
    busy = own["sm_share"].drop_nulls()
    sm_share = float(busy.median()) if len(busy) else None  # type: ignore[arg-type]
    moved = own.filter(pl.col("rx_payload_bytes").is_not_null())
    if moved.is_empty():
        return {"sm_share_median": sm_share}
    low, middle, high = np.quantile(moved["rx_bytes_per_s"].to_numpy(), [0.1, 0.5, 0.9])
    return {
        "rx_bytes_per_s": {"p10": float(low), "median": float(middle), "p90": float(high)},
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


def _drivers(own: pl.DataFrame, context: pl.DataFrame) -> tuple[Driver, ...]:
    """Candidates that go with the phase's duration, strongest first: rank correlation, p < 0.01."""
    table = own.filter(~pl.col("warmup")).join(context, on="call")
    found = []
    for name in context.columns:
        if name == "call":
            continue
        pair = table.select("duration_ms", name).drop_nulls()
        if pair.height < MIN_CALLS or pair[name].n_unique() < 2 or pair["duration_ms"].n_unique() < 2:
            continue
        rank = float(pair.select(pl.corr("duration_ms", name, method="spearman")).item())
        chance = p_value(rank, pair.height)
        if chance < _DRIVER_P_VALUE:
            found.append(Driver(name, rank, chance, pair.height))
    return tuple(sorted(found, key=lambda driver: -abs(driver.spearman)))


def p_value(rank: float, n: int) -> float:
    """Two-sided p of a Spearman correlation, by Student's t with n-2 degrees of freedom."""
    t = abs(rank) * np.sqrt((n - 2) / max(1e-12, 1.0 - rank * rank))
    return float(2.0 * stdtr(n - 2, -t))
