"""Synthesis cannot feed the GPU: no partition waits when a worker is free."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis
from gputrace.rows import with_values


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    syntheses = case.trace.syntheses
    if not syntheses["queued_ns"].count() or not syntheses["picked_up_ns"].count():
        return case.finding(
            hypothesis, "undetermined", [], "add the TIMELINE lines (stderr): GPU_QUEUE and GPU_PICKUP show the queue"
        )
    waits_s = (syntheses["picked_up_ns"] - syntheses["queued_ns"]) / 1e9
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
    if case.tells:
        evidence += _feeding(case)
    starved_s = case.charged_s.get("memory-budget", 0.0)
    if starved_s:
        evidence.append(
            Evidence(
                f"{starved_s:.1f} s more without work are charged to memory-budget: syntheses waited for memory then",
                starved_s,
                "s",
                case.weighs(hypothesis.id),
            )
        )
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


def _feeding(case: Case) -> list[Evidence]:
    """How many partitions a second syntheses deliver, against what the GPU could take."""
    syntheses, calls = with_values(case.trace.syntheses, "start_ns", "end_ns"), case.trace.calls
    held_ms = calls["mutex_held_ms"].filter(calls["complete"] & ~calls["warmup"])
    gpus = max(1, calls["gpu"].drop_nulls().n_unique())
    if syntheses.height < 2 or not held_ms.count() or not float(held_ms.mean() or 0.0):  # type: ignore[arg-type]
        return []
    took_s = float(((syntheses["end_ns"] - syntheses["start_ns"]) / 1e9).median() or 0.0)  # type: ignore[arg-type]
    start, end = syntheses["start_ns"].to_numpy(), syntheses["end_ns"].to_numpy()
    span_s = float(end.max() - start.min()) / 1e9
    at_once = float((end - start).sum()) / 1e9 / span_s if span_s else 0.0
    delivers, takes = syntheses.height / span_s, gpus * 1e3 / float(held_ms.mean())  # type: ignore[arg-type]
    return [
        Evidence(
            f"{at_once:.1f} syntheses at once (mean), {took_s:.1f} s each, deliver {delivers:.2f} partitions a second; "
            f"the GPU could take {takes:.2f}",
            delivers / takes,
            "ratio",
            delivers < takes,
        )
    ]


HYPOTHESIS = Hypothesis(
    id="no-work-queued",
    title="no work is queued: synthesis cannot feed the GPU",
    brief="having no synthesised partition to work on",
    knob=(
        "more syntheses at once (pipeline.max_parallel_synthesis), more memory or cores. "
        "Risk: more syntheses slow the copies and prep_msm"
    ),
    next_step="see whether syntheses wait for memory, cores or the dispatcher (RUST_LOG=debug prints budget lines)",
    overturned_by="a partition waits in the queue (GPU_QUEUE before GPU_PICKUP) while the GPU stands still",
    revived_by="GPU_PICKUP right after GPU_QUEUE, mutex_wait 0 and idle workers",
    judge_with=_judge,
)
