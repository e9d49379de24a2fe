"""Syntheses wait for memory, or SRS and PCE are evicted and loaded again."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    pressure = case.signs.pressure
    if not case.has_stdout:
        return case.finding(
            hypothesis, "undetermined", [], "add the prover's stdout: evictions, loads and budget lines are there"
        )
    starved_s = case.charged_s.get("no-work-queued", 0.0)
    evidence = [case.charge_evidence(hypothesis.id)]
    for count, what in (
        (pressure.waits, "'waiting for budget' lines"),
        (pressure.evictions, "evictions of SRS, PCE or buffers"),
        (pressure.reloads, "loads of an SRS that had been loaded before"),
    ):
        if count:
            evidence.append(Evidence(f"{count} {what}", float(count), "lines", True, *pressure.cited))
    if case.weighs(hypothesis.id):
        return case.finding(hypothesis, "supported", evidence)
    if not pressure.seen:
        told = ", no wait for the budget" if pressure.told else ""
        evidence.insert(0, Evidence(f"no eviction, no second load of an SRS{told}", 0.0, "lines", False))
    idle_for_work = starved_s >= case.thresholds.supported_share * case.lost_s > 0
    if idle_for_work and not pressure.told:
        return case.finding(
            hypothesis,
            "undetermined",
            evidence,
            f"record with RUST_LOG=debug: {starved_s:.1f} s pass without work, and only debug lines tell a wait for "
            "the memory budget from a lack of cores or jobs",
        )
    return case.finding(hypothesis, "refuted", evidence)


HYPOTHESIS = Hypothesis(
    id="memory-budget",
    title="syntheses wait for memory",
    brief="syntheses that waited for memory",
    knob=(
        "raise the memory budget, keep one circuit type on a host (one SRS), or let fewer partitions be in flight. "
        "Risk: swapping or the OOM killer, if the budget exceeds what the host has free"
    ),
    next_step="record with RUST_LOG=debug: 'waiting for budget' has needed_gib and available_gib",
    overturned_by="the GPU is as short of work in a run without a wait for the budget and without evictions",
    revived_by="'waiting for budget' or 'evicted for memory pressure' before stretches without work",
    judge_with=_judge,
)
