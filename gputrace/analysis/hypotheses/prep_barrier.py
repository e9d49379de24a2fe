"""The GPU waits at the barrier for prep_msm, which the CPU has not finished."""

import numpy as np

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis
from gputrace.analysis.phases import concurrent
from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.rows import ordered, where, with_values

# A barrier that one call in ten waits at is more than the first call's warm-up.
_OFTEN = 0.1


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    barrier = case.phases.get("barrier_wait")
    if barrier is None:
        return case.finding(
            hypothesis, "undetermined", [], "this build prints no barrier_wait: use a build of 2026-03-13 or later"
        )
    evidence = [case.charge_evidence(hypothesis.id)]
    waits = int((case.trace.named_phases.of("barrier_wait")["duration_ms"] > 0).sum())
    often = waits >= _OFTEN * barrier.count
    evidence.append(
        Evidence(
            f"{waits} of {barrier.count} calls wait at the barrier, up to {barrier.max_ms:.0f} ms",
            float(waits),
            "calls",
            often,
        )
    )
    prep = case.phases.get("prep_msm")
    if prep is not None:
        g2 = case.phases.get("b_g2_msm")
        beside = "" if g2 is None else f"; b_g2_msm {g2.median_ms:.0f} ms, {g2.p5_ms:.0f} ms at its fastest"
        evidence.append(
            Evidence(
                f"prep_msm takes {prep.median_ms:.0f} ms (median) on the CPU, {prep.p5_ms:.0f} ms at its fastest (p5), "
                f"up to {prep.max_ms:.0f} ms{beside}",
                prep.median_ms / max(prep.p5_ms, 1.0),
                "ratio",
                often,
            )
        )
        if case.tells:
            evidence += _shared_pool(case)
    if barrier.sm_share_median is not None and case.has_sm and waits:
        evidence.append(
            Evidence(
                f"SMs are active {barrier.sm_share_median:.0%} of barrier_wait, and nothing is copied",
                barrier.sm_share_median,
                "share",
                barrier.sm_share_median < 0.3 and barrier.transfer in ("none", "unknown"),
            )
        )
    copies = case.copying_share_under_mutex if case.tells else None
    if not case.weighs(hypothesis.id) and copies is not None and copies > 0.5:
        evidence.append(
            Evidence(
                f"the link carries data in {copies:.0%} of the time lost under the mutex: waiting at the barrier would "
                "show no PCIe traffic",
                copies,
                "share",
                False,
            )
        )
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


def _shared_pool(case: Case) -> list[Evidence]:
    """How much of prep_msm ran beside another call's prep_msm or b_g2_msm: they share the C++ thread pool."""
    timed = with_values(case.trace.named_phases.any_of(["prep_msm", "b_g2_msm"]), "start_ns")
    prep = timed["name"] == "prep_msm"
    preps = ordered(where(timed, prep & (timed["end_ns"] > timed["start_ns"])), "start_ns")
    if preps.height < MIN_CALLS:
        return []
    # Of all that run at once, one is the prep_msm looked at.
    others = concurrent(timed, preps["start_ns"].to_numpy(), preps["end_ns"].to_numpy()) - 1.0
    shared = float((others > 0.5).mean())
    if not (others > 0.5).any():
        return []
    took = preps["duration_ms"].to_numpy()
    alone = np.median(took[others <= 0.5]) if (others <= 0.5).any() else None
    compared = "" if alone is None else f": {np.median(took[others > 0.5]):.0f} ms then, {alone:.0f} ms alone (medians)"
    return [
        Evidence(
            f"{shared:.0%} of prep_msm runs beside another call's prep_msm or b_g2_msm in the same C++ pool{compared}",
            shared,
            "share",
            shared > 0.5,
        )
    ]


HYPOTHESIS = Hypothesis(
    id="prep-barrier",
    title="the GPU waits for prep_msm on the CPU",
    brief="waiting at the barrier for prep_msm on the CPU",
    knob=(
        "give prep_msm the CPU: fewer syntheses at once, or more threads for the C++ pool (gpus.gpu_threads). "
        "Risk: fewer syntheses may leave the GPU without work; more threads slow the syntheses"
    ),
    next_step="run with fewer concurrent syntheses and see whether barrier_wait goes",
    overturned_by="PCIe traffic or busy SMs inside barrier_wait, or prep_msm done before the GPU thread comes to it",
    revived_by="barrier_wait of a good part of a hold, with no PCIe traffic and idle SMs",
    judge_with=_judge,
)
