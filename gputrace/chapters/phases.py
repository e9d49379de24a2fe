"""Kinds of phases over chapters: how long they took and what they copied, added up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import Diagnosis, Driver, PhaseFinding
from gputrace.analysis.phases import classify, p_value
from gputrace.chapters.spread import Spread
from gputrace.schema import PHASE_NAMES
from gputrace.trace import Trace

# More values than these tell no more of how constant a phase is.
_MOST_CLASSIFIED = 10_000


@dataclass(frozen=True)
class PhaseSpread:
    """One kind of phase in one chapter: its finding there, and the values that the finding sums up.

    `typical_ms` is without warm-up calls. `sm_share` and what was copied: empty where nothing was sampled.
    """

    found: PhaseFinding
    duration_ms: Spread
    typical_ms: Spread
    rx_bytes_per_s: Spread
    rx_bytes: Spread
    sm_share: Spread


def phase_spreads(trace: Trace, diagnosis: Diagnosis) -> dict[str, PhaseSpread]:
    """The kinds of phases of a chapter, by name."""
    complete = trace.calls.filter("complete").select("call", "warmup")
    durations = (
        trace.phases.join(complete, on="call")
        .group_by("call", "name")
        .agg(pl.col("duration_ms").sum(), pl.col("warmup").first())
    )
    copied = diagnosis.call_bytes.join(complete, on="call", how="semi")
    found = {}
    for phase in diagnosis.phases:
        own = durations.filter(pl.col("name") == phase.name)
        moved = (
            copied.filter(pl.col("name") == phase.name)
            if phase.sm_share_median is not None or phase.rx_method
            else copied.clear()
        )
        told = moved.filter(pl.col("rx_payload_bytes").is_not_null())
        found[phase.name] = PhaseSpread(
            phase,
            _spread(own["duration_ms"]),
            _spread(own.filter(~pl.col("warmup"))["duration_ms"]),
            _spread(told["rx_bytes_per_s"]),
            _spread(told["rx_payload_bytes"]),
            _spread(moved["sm_share"]),
        )
    return found


def _spread(values: pl.Series) -> Spread:
    return Spread.of(values.drop_nulls().cast(pl.Float64).to_numpy())


def joined_phases(chapters: Sequence[dict[str, PhaseSpread]]) -> tuple[PhaseFinding, ...]:
    """One finding per kind of phase over all chapters, in the order of a call."""
    of_name = {name: [own[name] for own in chapters if name in own] for name in PHASE_NAMES}
    held = Spread.sum(one.duration_ms for one in of_name["mutex_held"])
    held_median = held.quantiles(0.5)[0] if held.count else 0.0
    return tuple(_joined(own, held.total, held_median) for own in of_name.values() if own)


def _joined(own: Sequence[PhaseSpread], held_total_ms: float, held_median_ms: float) -> PhaseFinding:
    first = own[0].found
    durations = Spread.sum(one.duration_ms for one in own)
    low, middle, high = durations.quantiles(0.05, 0.5, 0.95)
    kind, reason = _class(own, held_median_ms)
    rates, sm = Spread.sum(one.rx_bytes_per_s for one in own), Spread.sum(one.sm_share for one in own)
    p10, rate, p90 = rates.quantiles(0.1, 0.5, 0.9)
    share = durations.total / held_total_ms if held_total_ms and first.under_mutex else None
    return PhaseFinding(
        name=first.name,
        contains_others=first.contains_others,
        count=durations.count,
        min_ms=float(durations.values[0]),
        p5_ms=low,
        median_ms=middle,
        mean_ms=durations.mean,
        p95_ms=high,
        max_ms=float(durations.values[-1]),
        phase_class=kind,
        class_reason=reason,
        under_mutex=first.under_mutex,
        share_of_mutex_held=share,
        rx_bytes_per_s={"p10": p10, "median": rate, "p90": p90} if rates.count else None,
        rx_bytes_per_call_median=Spread.sum(one.rx_bytes for one in own).quantiles(0.5)[0] if rates.count else None,
        rx_method=_most([(one.found.rx_method, one.rx_bytes_per_s.count) for one in own]) if rates.count else None,
        sm_share_median=sm.quantiles(0.5)[0] if sm.count else None,
        transfer=_most([(one.found.transfer, one.duration_ms.count) for one in own]) or "unknown",
        drivers=_drivers(own) if kind == "variable" else (),
    )


def _most(told: Sequence[tuple[str | None, int]]) -> str | None:
    """What most calls say."""
    votes: Counter[str] = Counter()
    for word, count in told:
        if word is not None:
            votes[word] += count
    return votes.most_common(1)[0][0] if votes else None


def _class(own: Sequence[PhaseSpread], held_median_ms: float) -> tuple[str, str]:
    """Variable where it is so within chapters that have most of the calls; what only differs from one to the next is
    constant, and the reason says so."""
    typical = Spread.sum(one.typical_ms for one in own)
    whole = classify(_thinned(typical), held_median_ms)
    within = [one for one in own if one.found.phase_class != "insufficient"]
    kind = _most([(one.found.phase_class, one.duration_ms.count) for one in within])
    if kind is None or kind == whole[0]:
        return whole
    alike = [one for one in within if one.found.phase_class == kind]
    if kind == "constant" and whole[0] == "variable":
        medians = [one.typical_ms.quantiles(0.5)[0] for one in alike]
        return kind, f"constant within chapters (medians {min(medians):.0f} to {max(medians):.0f} ms)"
    longest = max(alike, key=lambda one: one.duration_ms.count)
    return kind, f"in {len(alike)} of {len(own)} chapters, as: {longest.found.class_reason}"


def _thinned(spread: Spread) -> np.ndarray:
    """Values with the same quantiles, fewer where there are many."""
    count = min(spread.count, _MOST_CLASSIFIED)
    return np.array(spread.quantiles(*np.linspace(0.0, 1.0, count))) if count else np.empty(0)


def _drivers(own: Sequence[PhaseSpread]) -> tuple[Driver, ...]:
    """Rank correlations within chapters, averaged over all calls; a chapter that shows none counts as 0."""
    calls = sum(one.typical_ms.count for one in own)
    names = sorted({driver.name for one in own for driver in one.found.drivers})
    found = []
    for name in names:
        told = [driver for one in own for driver in one.found.drivers if driver.name == name]
        rank = sum(driver.spearman * driver.n for driver in told) / max(calls, 1)
        found.append(Driver(name, rank, p_value(rank, calls), calls))
    return tuple(sorted(found, key=lambda driver: -abs(driver.spearman)))
