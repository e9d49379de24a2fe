"""What every hypothesis is judged on, and how a verdict is put together."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.diagnosis import Evidence, HypothesisFinding, PhaseFinding, Verdict
from gputrace.analysis.signs import Signs
from gputrace.analysis.thresholds import Thresholds
from gputrace.trace import Trace

_LINES_NAMED = 3


@dataclass
class Case:
    """The evidence: the trace, what was measured on it, and the seconds charged to each cause."""

    trace: Trace
    window_s: float
    views: list[GpuView]
    moved: list[Transfers]
    bursts: pl.DataFrame
    signs: Signs
    blame: pl.DataFrame
    phases: dict[str, PhaseFinding]
    thresholds: Thresholds

    @cached_property
    def charged_s(self) -> dict[str, float]:
        """Lost seconds by cause."""
        totals = self.blame.group_by("cause").agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("s"))
        return dict(totals.iter_rows())

    @cached_property
    def lost_s(self) -> float:
        """All lost seconds."""
        return sum(self.charged_s.values())

    def share(self, cause: str) -> float:
        """Share of the lost seconds charged to a cause."""
        return self.charged_s.get(cause, 0.0) / self.lost_s if self.lost_s else 0.0

    def weighs(self, cause: str) -> bool:
        """Whether a cause took enough of the lost seconds to be worth a verdict."""
        return self.share(cause) >= self.thresholds.supported_share

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
            self.lines_of(cause),
        )

    def lines_of(self, cause: str) -> tuple[int, ...]:
        """Log lines of the phases that lost most to a cause."""
        worst = (
            self.blame.filter(pl.col("cause") == cause)
            .group_by("call", "phase")
            .agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("s"))
            .sort("s", "call", descending=[True, False])
            .head(_LINES_NAMED)
        )
        phases = self.trace.phases.filter(pl.col("call").is_in(worst["call"].implode()))
        lines = worst.join(
            phases.select("call", pl.col("name").alias("phase"), "line"), on=["call", "phase"], how="left"
        )["line"]
        return tuple(int(line) for line in lines.drop_nulls().unique(maintain_order=True).to_list())

    def finding(
        self,
        hypothesis: "Hypothesis",
        verdict: Verdict,
        evidence: list[Evidence],
        next_step: str | None = None,
    ) -> HypothesisFinding:
        """A finding; the confidence comes from what was measured and how much of the evidence agrees."""
        return HypothesisFinding(
            id=hypothesis.id,
            title=hypothesis.title,
            verdict=verdict,
            confidence=self._confidence(verdict, evidence),
            lost_s=self.charged_s.get(hypothesis.id, 0.0) if verdict == "supported" else None,
            evidence=tuple(evidence),
            knob=hypothesis.knob,
            next_step=next_step if next_step is not None else hypothesis.next_step,
        )

    def _confidence(self, verdict: Verdict, evidence: list[Evidence]) -> float:
        """Share of the evidence that agrees with the verdict, times what the measurement is worth.

        Not a probability. Measured SM activity and PCIe bytes count 1, an inferred one 0.8, none 0.6; an undetermined
        verdict has none.
        """
        if verdict == "undetermined" or not evidence:
            return 0.0
        agree = sum(item.supports == (verdict == "supported") for item in evidence) / len(evidence)
        worth = 1.0 if self.has_trace and self.has_sm else 0.8 if self.has_trace else 0.6
        return round(agree * worth, 2)


@dataclass(frozen=True)
class Hypothesis:
    """One candidate explanation. `brief` completes the sentence "... went to"; `knob` names the risk too."""

    id: str
    title: str
    brief: str
    knob: str
    next_step: str
    judge_with: Callable[["Hypothesis", Case], HypothesisFinding]

    def judge(self, case: Case) -> HypothesisFinding:
        """The verdict on this hypothesis."""
        return self.judge_with(self, case)


def gb(bytes_per_s: float) -> str:
    """Bytes per second as GB/s, for sentences."""
    return f"{bytes_per_s / 1e9:.1f} GB/s"
