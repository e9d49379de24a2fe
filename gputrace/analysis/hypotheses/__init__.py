"""Candidate explanations, one module each; a new one is a module with a `HYPOTHESIS` added to `ALL`."""

from collections.abc import Iterable

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

__all__ = ["ALL", "Case", "Hypothesis", "in_order", "judge_all"]


def judge_all(case: Case) -> tuple[HypothesisFinding, ...]:
    """Verdicts on all hypotheses, in order."""
    return in_order([hypothesis.judge(case) for hypothesis in ALL])


def in_order(found: Iterable[HypothesisFinding]) -> tuple[HypothesisFinding, ...]:
    """Supported ones first, by the seconds at stake, then undetermined, then refuted."""
    order = {"supported": 0, "undetermined": 1, "refuted": 2}
    return tuple(sorted(found, key=lambda finding: (order[finding.verdict], -finding.at_stake_s, finding.id)))
