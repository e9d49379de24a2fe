"""Freeing pageable a/b/c after the mutex keeps the worker from the next partition."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis
from gputrace.rows import where, with_values


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    release = case.phases.get("release_abc")
    if release is None:
        return case.finding(
            hypothesis,
            "undetermined",
            [],
            "add the prover's stdout: the release shows in 'GPU_TIMING spawn_blocking prove_start' beside mutex_held",
        )
    evidence = [
        case.charge_evidence(hypothesis.id),
        Evidence(
            f"freeing a/b/c after the unlock takes {release.median_ms:.0f} ms (median), up to {release.max_ms:.0f} ms",
            release.median_ms,
            "ms",
            release.median_ms > 10,
        ),
    ]
    workers = case.trace.calls["worker"].drop_nulls().n_unique()
    if workers > 1:
        evidence.append(
            Evidence(
                f"{workers} workers share the GPU: while one frees, another may hold the mutex",
                float(workers),
                "workers",
                False,
            )
        )
    else:
        evidence.append(Evidence("one worker: while it frees, nobody uses the GPU", 1.0, "workers", True))
    if case.tells:
        evidence += _pinned_against_pageable(case)
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


def _pinned_against_pageable(case: Case) -> list[Evidence]:
    """Pinned buffers go back to the pool: with both kinds in one run the release must differ."""
    calls = with_values(where(case.trace.calls, case.trace.calls["complete"]), "pinned", "release_abc_ms")
    pinned, pageable = (calls["release_abc_ms"].filter(calls["pinned"] == kind) for kind in (True, False))
    if pinned.is_empty() or pageable.is_empty():
        return []
    freed, returned = float(pageable.median() or 0), float(pinned.median() or 0)  # type: ignore[arg-type]
    return [
        Evidence(
            f"it takes {freed:.0f} ms from pageable memory and {returned:.0f} ms from pinned (medians)",
            freed - returned,
            "ms",
            freed > 2 * returned,
        )
    ]


HYPOTHESIS = Hypothesis(
    id="release-abc",
    title="freeing a/b/c after the mutex keeps the worker from its next partition",
    brief="workers freeing a/b/c before they take the next partition",
    knob=(
        "pinned buffers go back to the pool instead of being freed; or a second worker a GPU. "
        "Risk: pinned memory, or one more partition in memory"
    ),
    next_step="run with two workers a GPU, or pinned, and compare the gaps between calls",
    overturned_by="no gap after the unlock with work queued, or one as long from pinned memory",
    revived_by="prove_start_ms - total_start_fn_ms of 0.2 s and more while a partition is queued and the mutex is free",
    judge_with=_judge,
)
