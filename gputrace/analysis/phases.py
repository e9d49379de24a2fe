"""Constant or variable: every kind of phase over the complete calls, what it copied, and what its length goes with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
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
from gputrace.rows import Bools, Places, ordered, where, with_values
from gputrace.schema import CONTAINS_OTHERS, LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

# A phase in which the SMs are busy more than this copies beside its kernels.
_MIXED_SM_SHARE = 0.5
_DRIVER_P_VALUE = 0.01


def summarise_phases(
    trace: Trace,
    moved: list[Transfers],
    bursts: pl.DataFrame,
    regimes: Sequence[pl.Series] = (),
    durations: Mapping[str, Durations] | None = None,
) -> tuple[PhaseFinding, ...]:
    """One finding per phase that the log shows, in the order of a call; their transfer class is still unknown.

    `regimes` are the numbers of the calls of each: a phase is variable if it is so within one of them. `durations` are
    those of the complete calls in focus, where they have been looked up already.
    """
    complete = where(trace.calls_in_focus, trace.calls_in_focus["complete"])
    if durations is None:
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
    usable = with_values(spans[["start_ns", "end_ns"]], "start_ns")
    begun = np.sort(usable["start_ns"].to_numpy()).astype(np.float64)
    ends = usable["end_ns"]
    if ends.null_count():
        # A span that has not ended in the log runs on.
        ends = ends.fill_null(int(end_ns.max()) if len(end_ns) else 0)
    ended = np.sort(ends.to_numpy()).astype(np.float64)

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
    timed = with_values(complete, "lock_ns", "unlock_ns")
    start, end = timed["lock_ns"].to_numpy(), timed["unlock_ns"].to_numpy()
    columns: dict[str, object] = {"call": timed["call"], "order in the run": np.arange(timed.height, dtype=np.float64)}
    if trace.syntheses["start_ns"].count() and timed.height:
        columns["concurrent syntheses"] = concurrent(trace.syntheses, start, end)
    host = ordered(with_values(trace.host, "cpu_share"), "start_ns")
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
        self._places = Places(context["call"])
        self._values = {name: context[name].to_numpy() for name in context.columns[1:]}
        self._calls: npt.NDArray[np.uint32] = np.empty(0, dtype=np.uint32)
        self._at = self._places.of(pl.Series(self._calls))
        self._ranks: dict[str, Floats] = {}

    def ask(self, calls: npt.NDArray[np.uint32]) -> Bools:
        """Whether anything is known of each of these calls. What is asked for next is about those of which it is."""
        if not np.array_equal(calls, self._calls):
            self._calls, self._ranks = calls, {}
            self._at = self._places.of(pl.Series(calls))
        return np.asarray(self._at >= 0)

    def values(self) -> Iterator[tuple[str, Floats]]:
        """Each candidate and its values; NaN where a call does not tell it."""
        own = self._at[self._at >= 0]
        for name, values in self._values.items():
            yield name, values[own]

    def ranks(self, name: str, values: Floats) -> Floats:
        """Ranks of a candidate that every call tells."""
        if name not in self._ranks:
            self._ranks[name] = mean_ranks(values)
        return self._ranks[name]


def _drivers(own: Durations, candidates: _Candidates) -> tuple[Driver, ...]:
    """Candidates that go with the phase's duration, strongest first: rank correlation, p < 0.01."""
    calls, durations = own.call[~own.warmup], own.typical_ms
    durations = durations[candidates.ask(calls)]
    ranks = mean_ranks(durations)
    found = []
    for name, values in candidates.values():
        told = ~np.isnan(values)
        if told.all():
            pair = (ranks, candidates.ranks(name, values))
        else:
            pair = (mean_ranks(durations[told]), mean_ranks(values[told]))
        n = len(pair[0])
        if n < MIN_CALLS or any(np.ptp(side) == 0 for side in pair):
            continue
        rank = float(np.corrcoef(*pair)[0, 1])
        chance = p_value(rank, n)
        if chance < _DRIVER_P_VALUE:
            found.append(Driver(name, rank, chance, n))
    return tuple(sorted(found, key=lambda driver: -abs(driver.spearman)))


def mean_ranks(values: Floats) -> Floats:
    """The rank of each value from 1; equal ones share the mean of theirs."""
    _, group, ties = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(ties) - (ties - 1) / 2.0)[group])


def p_value(rank: float, n: int) -> float:
    """Two-sided p of a Spearman correlation, by Student's t with n-2 degrees of freedom."""
    t = abs(rank) * np.sqrt((n - 2) / max(1e-12, 1.0 - rank * rank))
    return 2.0 * student.cumulative(n - 2, -t)
