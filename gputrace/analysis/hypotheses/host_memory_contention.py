"""Host memory bandwidth is short: the copy goes slower the more runs beside it.

It is told apart from `pageable-h2d`: that is the mechanism (the copy against the line rate), this the modulator (the
copy against itself at the lightest load seen). The seconds stay charged to the mechanism; those that the lightest load
would have saved are given as `stretched_s`.
"""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis, gb
from gputrace.analysis.signs.contention import MIN_COPIES, Relation

# The copy must be slower by this under the heaviest fifth of the load than under the lightest.
_EFFECT = 0.15
# A load that does not double shows nothing by not mattering.
_VARIED = 2.0
_GOES_WITH = 0.3
_SURE = 0.05


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.has_trace or case.rx_is_dead:
        return case.finding(
            hypothesis,
            "undetermined",
            [],
            "record a GPU trace beside the log: the copy's rate against the number of concurrent syntheses decides",
        )
    found = case.signs.contention
    sync = case.phases.get("coset_intt_sync")
    if not found.copied_s and sync is not None and sync.transfer == "line-rate" and sync.rx_bytes_per_s:
        return case.finding(
            hypothesis,
            "refuted",
            [
                Evidence(
                    f"a/b/c are copied from pinned memory at {gb(sync.rx_bytes_per_s['median'])}, at the link's pace",
                    sync.rx_bytes_per_s["median"],
                    "bytes/s",
                    False,
                )
            ],
            decided=Decided(sync.rx_bytes_per_s["median"], max(case.line_floor, 1.0), sync.count),
        )
    if not found.copy:
        return case.finding(
            hypothesis,
            "undetermined",
            [],
            f"record at least {MIN_COPIES} pageable copies under a load that changes (1 synthesis, then many), with "
            "the TIMELINE lines",
        )
    best = found.copy[0]
    effect = 1.0 - best.heavy / best.light if best.light else 0.0
    evidence = [_sentence(relation) for relation in found.copy]
    evidence.append(
        Evidence(
            f"at the rate of the lightest load {found.excess_s:.1f} s of {found.copied_s:.1f} s of copying would have "
            "been saved (they stay charged to pageable-h2d)",
            found.excess_s,
            "s",
            found.excess_s >= case.thresholds.supported_share * case.lost_s,
        )
    )
    for name, relation in found.preparation.items():
        evidence.append(
            Evidence(
                f"{name} goes with {relation.load} ({relation.spearman:+.2f}, p {relation.p_value:.2g}): "
                f"{relation.light:.0f} ms at the lightest, {relation.heavy:.0f} ms at the heaviest",
                relation.spearman,
                "rank correlation",
                relation.spearman > _GOES_WITH and relation.heavy > relation.light,
            )
        )
    decided = Decided(max(effect, 0.0), _EFFECT, best.n)
    if best.falls and effect >= _EFFECT:
        return case.finding(hypothesis, "supported", evidence, decided=decided, stretched_s=found.excess_s)
    varied = any(relation.load_heavy >= _VARIED * relation.load_light for relation in found.copy)
    if varied and effect < _EFFECT:
        return case.finding(hypothesis, "refuted", evidence, decided=decided)
    low, high = best.spearman_interval
    return case.finding(
        hypothesis,
        "undetermined",
        evidence,
        "record longer, under a load that changes more (1 synthesis, then many): here "
        + (
            f"{best.load} goes only from {best.load_light:.3g} to {best.load_heavy:.3g}"
            if not varied
            else f"{best.n} calls leave the correlation between {low:+.2f} and {high:+.2f}"
        ),
    )


def _sentence(relation: Relation) -> Evidence:
    slope = (
        f"; {relation.slope / 1e9:+.2f} GB/s a synthesis ({relation.slope_low / 1e9:+.2f} to "
        f"{relation.slope_high / 1e9:+.2f})"
        if relation.load == "concurrent syntheses"
        else ""
    )
    falls = relation.spearman < -_GOES_WITH and relation.p_value <= _SURE
    low, high = relation.spearman_interval
    return Evidence(
        f"the copy's rate goes with {relation.load} ({relation.spearman:+.2f}, {low:+.2f} to {high:+.2f}, "
        f"p {relation.p_value:.2g}): {gb(relation.light)} at the lightest, "
        f"{gb(relation.heavy)} at the heaviest{slope}",
        relation.spearman,
        "rank correlation",
        high < 0 or falls,
    )


HYPOTHESIS = Hypothesis(
    id="host-memory-contention",
    title="host memory bandwidth is short",
    brief="copies slowed by others' use of host memory",
    knob=(
        "fewer syntheses at once (pipeline.max_parallel_synthesis), or syntheses on the GPU's own NUMA node kept off "
        "its copies. Risk: fewer syntheses may leave the GPU without work"
    ),
    next_step="run with half as many syntheses and compare the copy's rate, prep_msm and b_g2_msm",
    overturned_by="the copy as slow with one synthesis as with many",
    revived_by="the copy's rate falling as syntheses are added, prep_msm and b_g2_msm growing with it",
    judge_with=_judge,
)
