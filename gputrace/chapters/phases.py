"""Kinds of phases over chapters: how long they took and what they copied, added up."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gputrace.analysis.diagnosis import Diagnosis, Driver, PhaseFinding
from gputrace.analysis.durations import Durations
from gputrace.analysis.phases import classify, p_value
from gputrace.chapters.spread import Spread
from gputrace.rows import where, with_values
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

    def plus(self, other: "PhaseSpread") -> "PhaseSpread":
        """Both together, under this one's finding."""
        return PhaseSpread(
            self.found,
            Spread.sum([self.duration_ms, other.duration_ms]),
            Spread.sum([self.typical_ms, other.typical_ms]),
            Spread.sum([self.rx_bytes_per_s, other.rx_bytes_per_s]),
            Spread.sum([self.rx_bytes, other.rx_bytes]),
            Spread.sum([self.sm_share, other.sm_share]),
        )


def phase_spreads(trace: Trace, diagnosis: Diagnosis, durations: Mapping[str, Durations]) -> dict[str, PhaseSpread]:
    """The kinds of phases of a chapter, by name; `durations` are those of its complete calls."""
    copied = diagnosis.call_bytes
    if any(_sampled(phase) for phase in diagnosis.phases):
        copied = copied.join(where(trace.calls, trace.calls["complete"]), on="call", how="semi")
    found = {}
    for phase in diagnosis.phases:
        own = durations[phase.name]
        moved = where(copied, copied["name"] == phase.name) if _sampled(phase) else copied.clear()
        told = with_values(moved, "rx_payload_bytes")
        found[phase.name] = PhaseSpread(
            phase,
            Spread.of(own.values_ms),
            Spread.of(own.typical_ms),
            Spread.of(told["rx_bytes_per_s"].to_numpy()),
            Spread.of(told["rx_payload_bytes"].to_numpy()),
            Spread.of(moved["sm_share"].to_numpy()),
        )
    return found


def _sampled(phase: PhaseFinding) -> bool:
    return phase.sm_share_median is not None or phase.rx_method is not None


@dataclass(frozen=True)
class Told:
    """What one chapter says of a kind of phase: its finding, and the median of its typical calls, ms."""

    found: PhaseFinding
    typical_median_ms: float


@dataclass
class PhasesOfRun:
    """Kinds of phases, chapter after chapter: values are added up, of a chapter only what it concludes is kept."""

    sums: dict[str, PhaseSpread] = field(default_factory=dict)
    told: dict[str, list[Told]] = field(default_factory=dict)

    def add(self, chapter: dict[str, PhaseSpread]) -> None:
        """Takes the kinds of phases of one more chapter."""
        for name, own in chapter.items():
            before = self.sums.get(name)
            self.sums[name] = own if before is None else before.plus(own)
            self.told.setdefault(name, []).append(Told(own.found, own.typical_ms.quantiles(0.5)[0]))

    def findings(self) -> tuple[PhaseFinding, ...]:
        """One finding per kind of phase over all chapters, in the order of a call."""
        held = self.sums["mutex_held"].duration_ms if "mutex_held" in self.sums else Spread.of(np.empty(0))
        held_median_ms = held.quantiles(0.5)[0] if held.count else 0.0
        named = [name for name in PHASE_NAMES if name in self.sums]
        return tuple(_joined(self.sums[name], self.told[name], held.total, held_median_ms) for name in named)


def _joined(sums: PhaseSpread, told: Sequence[Told], held_total_ms: float, held_median_ms: float) -> PhaseFinding:
    first, durations = sums.found, sums.duration_ms
    low, middle, high = durations.quantiles(0.05, 0.5, 0.95)
    kind, reason = _class(sums, told, held_median_ms)
    rates, sm = sums.rx_bytes_per_s, sums.sm_share
    p10, rate, p90 = rates.quantiles(0.1, 0.5, 0.9)
    findings = [one.found for one in told]
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
        share_of_mutex_held=durations.total / held_total_ms if held_total_ms and first.under_mutex else None,
        rx_bytes_per_s={"p10": p10, "median": rate, "p90": p90} if rates.count else None,
        rx_bytes_per_call_median=sums.rx_bytes.quantiles(0.5)[0] if rates.count else None,
        rx_method=_most([(one.rx_method, one.count) for one in findings]) if rates.count else None,
        sm_share_median=sm.quantiles(0.5)[0] if sm.count else None,
        transfer=_most([(one.transfer, one.count) for one in findings]) or "unknown",
        drivers=_drivers(sums, findings) if kind == "variable" else (),
    )


def _most(told: Sequence[tuple[str | None, int]]) -> str | None:
    """What most calls say."""
    votes: Counter[str] = Counter()
    for word, count in told:
        if word is not None:
            votes[word] += count
    return votes.most_common(1)[0][0] if votes else None


def _class(sums: PhaseSpread, told: Sequence[Told], held_median_ms: float) -> tuple[str, str]:
    """Variable where it is so within chapters that have most of the calls; what only differs from one to the next is
    constant, and the reason says so."""
    whole = classify(_thinned(sums.typical_ms), held_median_ms)
    within = [one for one in told if one.found.phase_class != "insufficient"]
    kind = _most([(one.found.phase_class, one.found.count) for one in within])
    if kind is None or kind == whole[0]:
        return whole
    alike = [one for one in within if one.found.phase_class == kind]
    if kind == "constant" and whole[0] == "variable":
        medians = [one.typical_median_ms for one in alike]
        return kind, f"constant within chapters (medians {min(medians):.0f} to {max(medians):.0f} ms)"
    longest = max(alike, key=lambda one: one.found.count)
    return kind, f"in {len(alike)} of {len(told)} chapters, as: {longest.found.class_reason}"


def _thinned(spread: Spread) -> np.ndarray:
    """Values with the same quantiles, fewer where there are many."""
    count = min(spread.count, _MOST_CLASSIFIED)
    return np.array(spread.quantiles(*np.linspace(0.0, 1.0, count))) if count else np.empty(0)


def _drivers(sums: PhaseSpread, findings: Sequence[PhaseFinding]) -> tuple[Driver, ...]:
    """Rank correlations within chapters, averaged over all calls; a chapter that shows none counts as 0."""
    calls = sums.typical_ms.count
    names = sorted({driver.name for one in findings for driver in one.drivers})
    found = []
    for name in names:
        told = [driver for one in findings for driver in one.drivers if driver.name == name]
        rank = sum(driver.spearman * driver.n for driver in told) / max(calls, 1)
        found.append(Driver(name, rank, p_value(rank, calls), calls))
    return tuple(sorted(found, key=lambda driver: -abs(driver.spearman)))
