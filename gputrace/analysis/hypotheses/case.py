"""What every hypothesis is judged on, and how a verdict is put together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2

import numpy as np
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.diagnosis import CauseTotal, Evidence, HypothesisFinding, PhaseFinding, Verdict
from gputrace.analysis.evidence import Cited
from gputrace.analysis.records import Records, Span
from gputrace.analysis.segments import BETWEEN_HOLDS
from gputrace.analysis.signs.signs import Signs
from gputrace.analysis.thresholds import MIN_WINDOW_SHARE, SLOWEST_COPY_BYTES_PER_S, Thresholds
from gputrace.rows import with_values
from gputrace.trace import Trace

_LINES_NAMED = 3


@dataclass
class Case:
    """The evidence: the trace, what was measured on it, and the seconds charged to each cause.

    `by_cause` sums up `blame`. `span` limits the log's records to a stretch of time, ns; they are asked for here, not
    of the trace. Without `tells` only verdicts are wanted: evidence that no verdict rests on, which takes most of the
    time, is left out.
    """

    trace: Trace
    records: Records
    window_s: float
    views: list[GpuView]
    moved: list[Transfers]
    bursts: pl.DataFrame
    signs: Signs
    blame: pl.DataFrame
    by_cause: Sequence[CauseTotal]
    phases: dict[str, PhaseFinding]
    thresholds: Thresholds
    span: Span | None = None
    tells: bool = True

    @cached_property
    def charged_s(self) -> dict[str, float]:
        """Lost seconds by cause."""
        return {total.cause: total.total_s for total in self.by_cause}

    @cached_property
    def lost_s(self) -> float:
        """All lost seconds."""
        return sum(self.charged_s.values())

    def share(self, cause: str) -> float:
        """Share of the lost seconds charged to a cause."""
        return self.charged_s.get(cause, 0.0) / self.lost_s if self.lost_s else 0.0

    def weighs(self, cause: str) -> bool:
        """Whether a cause took enough of the lost seconds, and of the window, to be worth a verdict."""
        return self.enough(self.charged_s.get(cause, 0.0))

    def enough(self, seconds: float) -> bool:
        """Whether so many seconds are worth a verdict."""
        of_lost = seconds / self.lost_s if self.lost_s else 0.0
        of_window = seconds / self.window_s if self.window_s else 0.0
        return of_lost >= self.thresholds.supported_share and of_window >= MIN_WINDOW_SHARE

    @property
    def has_trace(self) -> bool:
        """Whether any GPU was sampled, on the log's clock, with PCIe figures."""
        return any(view.sampled and bool((view.rx_wire == view.rx_wire).any()) for view in self.views)

    @cached_property
    def rx_is_dead(self) -> bool:
        """Whether rx never rose above the copy threshold in the whole run, although the MSMs stream their points."""
        rates = [view.rx_wire / view.seconds / view.limit_wire_bytes_per_s for view in self.views if view.sampled]
        floor = self.thresholds.copy_link_share
        return self.has_trace and all(not bool((rate > floor).any()) for rate in rates)

    @property
    def has_sm(self) -> bool:
        """Whether SM activity was measured rather than inferred."""
        return any(view.sm_measured for view in self.views)

    @cached_property
    def line_rate(self) -> float | None:
        """The run's own sustained peak, payload bytes/s."""
        rates = [m.line_rate_bytes_per_s for m in self.moved if m.line_rate_bytes_per_s]
        return max(rates) if rates else None

    @cached_property
    def line_floor(self) -> float:
        """Payload bytes/s from which a copy runs at line rate."""
        return max((moved.line_floor(self.thresholds) or 0.0 for moved in self.moved), default=0.0)

    @cached_property
    def copy_floor(self) -> float:
        """Payload bytes/s above which a phase copies something."""
        floors = [self.thresholds.copy_link_share * view.limit_wire_bytes_per_s for view in self.views if view.sampled]
        return min(floors) if floors else float("inf")

    def has(self, *events: str) -> bool:
        """Whether the log has a record of one of these events."""
        counts = self.trace.quality.marks_by_event
        return any(event in counts for event in events)

    def charge_evidence(self, cause: str) -> Evidence:
        """How much of the lost time is charged to a cause."""
        seconds = self.charged_s.get(cause, 0.0)
        return Evidence(
            f"{seconds:.1f} s of {self.lost_s:.1f} s lost GPU time are charged to it ({self.share(cause):.0%})",
            seconds,
            "s",
            self.weighs(cause),
            *self.lines_of(cause),
        )

    def by_phase_evidence(self, cause: str) -> list[Evidence]:
        """In which phases the seconds of a cause lie; nothing where there are none or only verdicts are wanted."""
        if not self.tells:
            return []
        table = (
            self.blame.filter((pl.col("cause") == cause) & pl.col("phase").is_not_null())
            .group_by("phase")
            .agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("s"))
            .sort("s", "phase", descending=[True, False])
        )
        if table.is_empty():
            return []
        said = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in table.head(_LINES_NAMED).iter_rows())
        return [Evidence(f"they lie in {said}", float(table["s"][0]), "s", self.weighs(cause))]

    @cached_property
    def copying_share_under_mutex(self) -> float | None:
        """Share of the lost time inside holds in which the link carries something; None without a trace."""
        held = self.blame.filter(~pl.col("phase").is_in(BETWEEN_HOLDS))
        copied_s, idle_s = float(held["copy_only_s"].sum()), float(held["idle_s"].sum())
        return copied_s / (copied_s + idle_s) if self.has_trace and copied_s + idle_s else None

    @cached_property
    def worth(self) -> float:
        """What the measurement is worth: SM activity and bytes measured, bytes alone, or the log alone."""
        return 1.0 if self.has_trace and self.has_sm else 0.8 if self.has_trace else 0.6

    @cached_property
    def complete_calls(self) -> int:
        """Calls with all of their GPU lines."""
        return int(self.trace.calls["complete"].sum() or 0)

    def marks(self, event: str) -> pl.DataFrame:
        """Records of an event, in order of the log."""
        return self.records.of(event, self.span)

    def numbers(self, event: str, key: str) -> pl.DataFrame:
        """source, line, job, partition and value (Float64) of one key of every record of an event that has it."""
        return self.records.numbers(event, key, self.span)

    @cached_property
    def unresolved_ntt_copy(self) -> Evidence | None:
        """That samples do not tell whether ntt_kernels copies: it is too short for them; None where they do."""
        ntt = self.phases.get("ntt_kernels")
        if ntt is None or not self.has_trace:
            return None
        rate = ntt.rx_bytes_per_s["median"] if ntt.rx_bytes_per_s else None
        if rate is not None and (rate > self.copy_floor or ntt.rx_method != "fit"):
            return None
        fits = [
            moved.volume.value[i] + 2.0 * moved.volume.error[i]
            for moved in self.moved
            if moved.volume is not None
            for i, kind in enumerate(moved.kinds)
            if kind.startswith("ntt_kernels|")
        ]
        most = float(max(fits)) / (ntt.median_ms / 1e3) if fits and ntt.median_ms else None
        if rate is not None and most is not None and most < SLOWEST_COPY_BYTES_PER_S:
            return None
        cadence_ms = max(moved.cadence_s for moved in self.moved) * 1e3
        upto = "" if most is None else f": anything up to {gb(most)} fits"
        return Evidence(
            f"ntt_kernels takes {ntt.median_ms:.0f} ms, too short for readings every {cadence_ms:.0f} ms to tell what "
            f"it copies{upto}",
            most,
            "bytes/s",
            False,
        )

    @cached_property
    def has_stdout(self) -> bool:
        """Whether the log has lines of the prover's stdout."""
        return self.records.spoken(self.span)

    def lines_of(self, cause: str) -> Cited:
        """Log lines of the phases that lost most to a cause, and their inputs; none where only verdicts are wanted."""
        if not self.tells:
            return (), ()
        worst = self._worst_lines
        lines: list[tuple[int, int]] = []
        for row in np.flatnonzero(worst["cause"] == cause).tolist():
            line = (worst["line"][row], worst["source"][row])
            lines += [] if line in lines else [line]
            if len(lines) == _LINES_NAMED:
                break
        return tuple(line for line, _ in lines), tuple(source for _, source in lines)

    @cached_property
    def _worst_lines(self) -> pl.DataFrame:
        """cause, source, line of phases that lost anything, most first."""
        return (
            with_values(self.blame, "source", "line")
            .group_by("cause", "source", "line", "call", "phase")
            .agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("s"))
            .sort("s", "call", descending=[True, False])
        )

    def finding(
        self,
        hypothesis: "Hypothesis",
        verdict: Verdict,
        evidence: list[Evidence],
        next_step: str | None = None,
        decided: "Decided | None" = None,
        stretched_s: float | None = None,
    ) -> HypothesisFinding:
        """A finding. `decided` is the number that the verdict rests on; without it, the share of lost seconds."""
        charged = self.charged_s.get(hypothesis.id, 0.0)
        rests_on = decided or Decided(self.share(hypothesis.id), self.thresholds.supported_share, self.complete_calls)
        return HypothesisFinding(
            id=hypothesis.id,
            title=hypothesis.title,
            verdict=verdict,
            confidence=self._confidence(verdict, evidence, rests_on),
            lost_s=charged if verdict == "supported" else None,
            evidence=tuple(evidence),
            knob=hypothesis.knob,
            next_step=next_step if next_step is not None else hypothesis.next_step,
            stretched_s=stretched_s if verdict == "supported" else None,
            changes_mind=hypothesis.overturned_by if verdict == "supported" else hypothesis.revived_by,
        )

    def _confidence(self, verdict: Verdict, evidence: list[Evidence], decided: "Decided") -> float:
        """How firmly the verdict stands, 0..1: a product, not a probability; `docs/verdicts.md` has the meaning.

        What the measurement is worth x how far the deciding number is from its threshold (1/2 at it, half as far from
        1 with every doubling) x observations, by Laplace's (n + 1) / (n + 2) x how much of the evidence agrees.
        """
        if verdict == "undetermined" or not evidence:
            return 0.0
        agree = sum(item.supports == (verdict == "supported") for item in evidence)
        agreement = (1 + agree) / (1 + len(evidence))
        observed = (decided.observations + 1) / (decided.observations + 2)
        return round(min(0.99, self.worth * decided.firmness * observed * agreement), 2)


_MOST_DOUBLINGS = 6.0


@dataclass(frozen=True)
class Decided:
    """The number that a verdict rests on, its threshold, and how many independent observations are behind it."""

    value: float
    threshold: float
    observations: int

    @property
    def firmness(self) -> float:
        """1/2 at the threshold; half as far from 1 with every doubling away from it, either way."""
        if self.value <= 0 or self.threshold <= 0:
            return float(1.0 - 2.0 ** -(1.0 + _MOST_DOUBLINGS))
        doublings = min(abs(log2(self.value / self.threshold)), _MOST_DOUBLINGS)
        return float(1.0 - 2.0 ** -(1.0 + doublings))


@dataclass(frozen=True)
class Hypothesis:
    """One candidate explanation. `brief` completes the sentence "... went to"; `knob` names the risk too.

    `overturned_by` says what would refute it once supported, `revived_by` what would support it after all.
    """

    id: str
    title: str
    brief: str
    knob: str
    next_step: str
    overturned_by: str
    revived_by: str
    judge_with: Callable[["Hypothesis", Case], HypothesisFinding]

    def judge(self, case: Case) -> HypothesisFinding:
        """The verdict on this hypothesis."""
        return self.judge_with(self, case)


def gb(bytes_per_s: float) -> str:
    """Bytes per second as GB/s, for sentences."""
    return f"{bytes_per_s / 1e9:.1f} GB/s"
