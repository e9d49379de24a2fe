"""Device memory is allocated or freed under the mutex, again and again."""

import polars as pl

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.evidence import cited
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis

# d_b_alloc is stream-ordered: under 5 ms once the pool is warm, on every real capture.
_LONG_MS = 20


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.lost_s:
        return case.finding(hypothesis, "undetermined", [], "no lost second is known: add log and GPU trace")
    warm = case.trace.calls.filter("warmup")["call"]
    own = case.blame.filter(pl.col("cause") == hypothesis.id)
    lost = (pl.col("copy_only_s") + pl.col("idle_s")).sum()
    later_s = float(own.filter(~pl.col("call").is_in(warm.implode())).select(lost).item())
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
    allocs = case.trace.phases.filter(
        (pl.col("name") == "d_b_alloc") & ~pl.col("call").is_in(warm.implode()) & pl.col("duration_ms").is_not_null()
    )
    if allocs.height:
        long = allocs.filter(pl.col("duration_ms") > _LONG_MS)
        evidence.append(
            Evidence(
                f"d_b_alloc takes {float(allocs['duration_ms'].median() or 0):.0f} ms (median) after the first call; "  # type: ignore[arg-type]
                f"over {_LONG_MS} ms in {long.height} of {allocs.height} calls",
                float(long.height),
                "calls",
                supported and long.height > 0,
                *cited(long.drop_nulls("line").head(3)),
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
