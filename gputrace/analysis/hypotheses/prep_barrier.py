"""The GPU waits at the barrier for prep_msm, which the CPU has not finished."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    barrier = case.phases.get("barrier_wait")
    if barrier is None:
        return case.finding(
            hypothesis, "undetermined", [], "this build prints no barrier_wait: use a build of 2026-03-13 or later"
        )
    evidence = [case.charge_evidence(hypothesis.id)]
    waits = case.trace.phases.filter(
        (case.trace.phases["name"] == "barrier_wait") & (case.trace.phases["duration_ms"] > 0)
    )
    evidence.append(
        Evidence(
            f"{waits.height} of {barrier.count} calls wait at the barrier, up to {barrier.max_ms:.0f} ms",
            float(waits.height),
            "calls",
            waits.height > 0,
        )
    )
    prep = case.phases.get("prep_msm")
    if prep is not None:
        evidence.append(
            Evidence(
                f"prep_msm takes {prep.median_ms:.0f} ms (median), up to {prep.max_ms:.0f} ms, on the CPU",
                prep.median_ms,
                "ms",
                waits.height > 0,
            )
        )
    if barrier.sm_share_median is not None and case.has_sm and waits.height:
        evidence.append(
            Evidence(
                f"SMs are active {barrier.sm_share_median:.0%} of barrier_wait, and nothing is copied",
                barrier.sm_share_median,
                "share",
                barrier.sm_share_median < 0.3 and barrier.transfer in ("none", "unknown"),
            )
        )
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


HYPOTHESIS = Hypothesis(
    id="prep-barrier",
    title="the GPU waits for prep_msm on the CPU",
    brief="waiting at the barrier for prep_msm on the CPU",
    knob=(
        "give prep_msm the CPU: fewer syntheses at once, or more threads for the C++ pool (gpus.gpu_threads). "
        "Risk: fewer syntheses may leave the GPU without work; more threads slow the syntheses"
    ),
    next_step="run with fewer concurrent syntheses and see whether barrier_wait goes",
    judge_with=_judge,
)
