"""Synthesis cannot feed the GPU: no partition waits when a worker is free."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    syntheses = case.trace.syntheses
    if not syntheses["queued_ns"].count() or not syntheses["picked_up_ns"].count():
        return case.finding(
            hypothesis, "undetermined", [], "add the TIMELINE lines (stderr): GPU_QUEUE and GPU_PICKUP show the queue"
        )
    waits_s = ((syntheses["picked_up_ns"] - syntheses["queued_ns"]) / 1e9).drop_nulls()
    median_s = float(waits_s.median() or 0.0)  # type: ignore[arg-type]
    evidence = [
        case.charge_evidence(hypothesis.id),
        Evidence(
            f"a synthesised partition waits {median_s:.1f} s (median) for a worker: "
            + ("work is queued" if median_s > 0.1 else "the queue is empty"),
            median_s,
            "s",
            median_s <= 0.1,
        ),
    ]
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


HYPOTHESIS = Hypothesis(
    id="no-work-queued",
    title="no work is queued: synthesis cannot feed the GPU",
    brief="having no synthesised partition to work on",
    knob=(
        "more syntheses at once (pipeline.max_parallel_synthesis), more memory or cores. "
        "Risk: more syntheses slow the copies and prep_msm"
    ),
    next_step="see whether syntheses wait for memory, cores or the dispatcher (RUST_LOG=debug prints budget lines)",
    judge_with=_judge,
)
