"""The engine's own work, or a starved thread pool, delays the next call."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.evidence import cited
from gputrace.analysis.hypotheses.case import Case, Hypothesis
from gputrace.rows import where

# event, key, what it is
_TOLD = (
    ("prove_start_spawned", "spawn_to_enter_ms", "a blocking thread is found"),
    ("hot_path", "total_overhead_ms", "status, failed-job check and mark_busy"),
    ("finalizer", "lock_wait_ms", "finalizers wait for the job tracker"),
    ("malloc_trim", "malloc_trim_ms", "malloc_trim under the tracker's lock"),
)
_LONG_MS = 20.0


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.lost_s:
        return case.finding(hypothesis, "undetermined", [], "no lost second is known: add log and GPU trace")
    evidence = [case.charge_evidence(hypothesis.id), *case.by_phase_evidence(hypothesis.id)]
    for event, key, what in _TOLD if case.tells else ():
        found = case.numbers(event, key)
        if found.is_empty():
            continue
        high = float(found["value"].quantile(0.95) or 0.0)
        long = where(found, found["value"] > _LONG_MS)
        worst = long.sort("value", "line", descending=[True, False]).head(2) if long.height else long
        evidence.append(
            Evidence(
                f"{key}: {float(found['value'].sum()) / 1e3:.1f} s over {found.height} records, p95 {high:.0f} ms, at "
                f"most {float(found['value'].max() or 0):.0f} ms ({what})",  # type: ignore[arg-type]
                high,
                "ms",
                high > _LONG_MS,
                *cited(worst),
            )
        )
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


HYPOTHESIS = Hypothesis(
    id="host-hot-path",
    title="the engine's own work delays the next call",
    brief="the engine's own work between pickup and lock",
    knob=(
        "more blocking threads for the engine's runtime, or less work under the job tracker's lock (lock_wait_ms, "
        "malloc_trim_ms). Risk: more threads compete with the syntheses"
    ),
    next_step="see spawn_to_enter_ms, status_ms and malloc_trim_ms in the GPU_TIMING and FIN_TIMING lines",
    overturned_by="milliseconds from GPU_QUEUE to GPU_PICKUP and from there to the lock, while a worker is free",
    revived_by="a free worker that takes a queued partition late, or spawn_to_enter_ms of tens of ms and more",
    judge_with=_judge,
)
