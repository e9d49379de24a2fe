"""Candidate explanations, one module each; a new one is a module with a `HYPOTHESIS` added to `ALL`."""

from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.hypotheses import (
    accounted,
    no_work_queued,
    pageable_h2d,
    pinned_alloc_stall,
    prep_barrier,
    release_abc,
    unjudged,
)
from gputrace.analysis.hypotheses.case import Case, Hypothesis

ALL: tuple[Hypothesis, ...] = (
    pageable_h2d.HYPOTHESIS,
    pinned_alloc_stall.HYPOTHESIS,
    prep_barrier.HYPOTHESIS,
    release_abc.HYPOTHESIS,
    no_work_queued.HYPOTHESIS,
    *accounted.HYPOTHESES,
    *unjudged.HYPOTHESES,
)

__all__ = ["ALL", "Case", "Hypothesis", "judge_all"]


def judge_all(case: Case) -> tuple[HypothesisFinding, ...]:
    """Verdicts on all hypotheses: supported ones by lost seconds first, then undetermined, then refuted."""
    order = {"supported": 0, "undetermined": 1, "refuted": 2}
    found = [hypothesis.judge(case) for hypothesis in ALL]
    return tuple(sorted(found, key=lambda finding: (order[finding.verdict], -(finding.lost_s or 0.0), finding.id)))
