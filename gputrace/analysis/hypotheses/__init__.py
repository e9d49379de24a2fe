"""Candidate explanations, one module each; a new one is a module with a `HYPOTHESIS` added to `ALL`."""

from collections.abc import Iterable
from dataclasses import replace

from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.hypotheses import (
    device_allocation,
    host_hot_path,
    host_memory_contention,
    kernel_phase_idle,
    launch_overhead,
    line_rate_copy,
    link_degraded,
    memory_budget,
    mutex_contention,
    no_work_queued,
    other_process,
    pageable_h2d,
    pinned_alloc_stall,
    prep_barrier,
    release_abc,
    slow_log_sink,
    throttled,
)
from gputrace.analysis.hypotheses.case import Case, Hypothesis

ALL: tuple[Hypothesis, ...] = tuple(
    module.HYPOTHESIS
    for module in (
        pageable_h2d,
        pinned_alloc_stall,
        host_memory_contention,
        mutex_contention,
        prep_barrier,
        no_work_queued,
        host_hot_path,
        memory_budget,
        launch_overhead,
        device_allocation,
        link_degraded,
        throttled,
        other_process,
        release_abc,
        slow_log_sink,
        line_rate_copy,
        kernel_phase_idle,
    )
)

# What a GPU trace tells by itself.
_OF_THE_GPU = frozenset({"link-degraded", "throttled", "other-process"})

__all__ = ["ALL", "Case", "Hypothesis", "in_order", "judge_all"]


def judge_all(case: Case) -> tuple[HypothesisFinding, ...]:
    """Verdicts on all hypotheses, in order. Without a log, what is not the GPU's own can neither be said nor denied."""
    found = [hypothesis.judge(case) for hypothesis in ALL]
    if case.trace.calls.is_empty() and not case.trace.quality.marks:
        found = [finding if finding.id in _OF_THE_GPU else _without_log(finding) for finding in found]
    return in_order(found)


def _without_log(finding: HypothesisFinding) -> HypothesisFinding:
    if finding.verdict != "refuted":
        return finding
    said = "give the prover's log beside the GPU trace: seconds are charged by its phases"
    return replace(finding, verdict="undetermined", confidence=0.0, evidence=(), next_step=said)


def in_order(found: Iterable[HypothesisFinding]) -> tuple[HypothesisFinding, ...]:
    """Supported ones first, by the seconds at stake, then undetermined, then refuted."""
    order = {"supported": 0, "undetermined": 1, "refuted": 2}
    return tuple(sorted(found, key=lambda finding: (order[finding.verdict], -finding.at_stake_s, finding.id)))
