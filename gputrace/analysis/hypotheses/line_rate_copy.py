"""Copies run at line rate, but with no kernel beside them."""

from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.has_trace:
        return case.finding(hypothesis, "undetermined", [], "record a GPU trace: it shows the rate of the copies")
    evidence = [case.charge_evidence(hypothesis.id), *case.by_phase_evidence(hypothesis.id)]
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


HYPOTHESIS = Hypothesis(
    id="line-rate-copy",
    title="copies run at line rate but beside no kernel",
    brief="copies that already run at line rate, with no kernel beside them",
    knob="overlap copies with kernels (a second buffer), or copy less. Risk: more GPU memory",
    next_step="see which phase it is: coset_intt_sync (a/b/c) or batch_add (SRS points)",
    overturned_by="SMs active beside these copies, or a rate far below the link's",
    revived_by="phases that copy at the link's rate with SMs idle",
    judge_with=_judge,
)
