"""SMs are not busy inside kernel phases."""

from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.has_sm:
        return case.finding(
            hypothesis,
            "undetermined",
            [],
            "record SM utilisation (GPM, Hopper or later): here it is inferred from phases",
        )
    evidence = [case.charge_evidence(hypothesis.id), *case.by_phase_evidence(hypothesis.id)]
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


HYPOTHESIS = Hypothesis(
    id="kernel-phase-idle",
    title="SMs are not busy inside kernel phases (host part of the MSMs, launches, streaming of points)",
    brief="SMs not busy inside msm_invoke, batch_add and tail_msm",
    knob="none from outside: it is the MSM library's own host work and streaming.",
    next_step="profile one call (Nsight Systems): kernels against host reductions in msm_invoke and tail_msm",
    overturned_by="SM activity near 1 in msm_invoke, batch_add and tail_msm, by a profiler",
    revived_by="SM activity well below 1 inside kernel phases that last a good part of the run",
    judge_with=_judge,
)
