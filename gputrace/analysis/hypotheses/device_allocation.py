"""Device memory is allocated or freed under the mutex, again and again."""

import polars as pl

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.evidence import cited
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis
from gputrace.rows import Places, where, with_values

# d_b_alloc is stream-ordered: under 5 ms once the pool is warm, on every real capture.
_LONG_MS = 20


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.lost_s:
        return case.finding(hypothesis, "undetermined", [], "no lost second is known: add log and GPU trace")
    warm = case.trace.calls["call"].filter(case.trace.calls["warmup"])
    own = with_values(where(case.blame, case.blame["cause"] == hypothesis.id), "call")
    later = where(own, Places(warm).of(own["call"]) < 0)
    later_s = float((later["copy_only_s"] + later["idle_s"]).sum())
    share = later_s / case.lost_s
    supported = case.enough(later_s)
    evidence = [
        Evidence(
            f"{later_s:.1f} s of {case.lost_s:.1f} s lost GPU time are charged to it after each GPU's first call "
            f"({share:.0%})",
            later_s,
            "s",
            supported,
            *case.lines_of(hypothesis.id),
        )
    ]
    if case.tells:
        evidence += _allocations(case, warm, supported)
    return case.finding(
        hypothesis,
        "supported" if supported else "refuted",
        evidence,
        decided=Decided(share, case.thresholds.supported_share, case.complete_calls),
    )


def _allocations(case: Case, warm: pl.Series, supported: bool) -> list[Evidence]:
    """How long d_b_alloc takes after each GPU's first call (`warm`), and how often d_a is allocated."""
    evidence = []
    every = with_values(case.trace.named_phases.of("d_b_alloc"), "duration_ms")
    allocs = where(every, Places(warm).of(every["call"]) < 0)
    if allocs.height:
        long = where(allocs, allocs["duration_ms"] > _LONG_MS)
        evidence.append(
            Evidence(
                f"d_b_alloc takes {float(allocs['duration_ms'].median() or 0):.0f} ms (median) after the first call; "  # type: ignore[arg-type]
                f"over {_LONG_MS} ms in {long.height} of {allocs.height} calls",
                float(long.height),
                "calls",
                supported and long.height > 0,
                *cited(with_values(long, "line").head(3)),
            )
        )
    repeated = case.marks("d_a_allocated")
    usual = len(warm)
    if repeated.height:
        more = repeated.height - usual
        evidence.append(
            Evidence(
                f"{repeated.height} d_a_cache lines for {usual} first calls: "
                + ("circuits of different sizes take turns" if more > 0 else "allocated once, then reused"),
                float(repeated.height),
                "lines",
                more > 0,
                *cited(repeated.head(3)),
            )
        )
    return evidence


HYPOTHESIS = Hypothesis(
    id="device-allocation",
    title="device memory is allocated or freed under the mutex",
    brief="allocating or freeing device memory under the mutex",
    knob="keep circuits of one size on one GPU, so that buffers are reused. Risk: less even load",
    next_step="look for repeated d_a_cache lines and d_b_alloc after the first call",
    overturned_by="d_b_alloc near 0 and no new d_a_cache line once each GPU has had its first call",
    revived_by="long d_b_alloc or d_a_cache lines after a GPU's first call, with no pinned buffers being allocated",
    judge_with=_judge,
)
