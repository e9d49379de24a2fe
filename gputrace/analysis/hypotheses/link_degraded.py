"""The PCIe link runs below its width or generation, repeats packets, or is shared."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis, gb
from gputrace.analysis.signs.link import LinkState
from gputrace.analysis.thresholds import HEALTHY_LINK_SHARE


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    links = [link for link in case.signs.links.values() if link.limit is not None]
    if not case.has_trace or not links:
        return case.finding(
            hypothesis,
            "undetermined",
            [],
            "record link generation and width under load, with their maxima, and the PCIe byte counters",
        )
    evidence = [item for link in links for item in _evidence(link, len(links) > 1)]
    below = any(link.below_maximum for link in links)
    worst = min((link.reached for link in links if link.reached is not None), default=None)
    slow = any(link.slow for link in links)
    replaying = any(link.replaying for link in links)
    if case.charged_s.get(hypothesis.id):
        evidence.append(case.charge_evidence(hypothesis.id))
    calls = case.complete_calls
    if below:
        shortfall = max(link.shortfall() for link in links)
        return case.finding(hypothesis, "supported", evidence, decided=Decided(shortfall, 0.1, calls))
    if slow or replaying:
        ratio = worst if slow and worst else 1.0
        return case.finding(
            hypothesis,
            "supported",
            evidence,
            "compare with the same GPU alone in the host, and read lspci -vv (LnkSta against LnkCap) of it and its "
            "switch",
            Decided(ratio, HEALTHY_LINK_SHARE, calls),
        )
    if worst is None or worst < HEALTHY_LINK_SHARE:
        return case.finding(
            hypothesis,
            "undetermined",
            evidence,
            "no phase streamed long enough to show what the link carries: copy 2 GB from pinned memory once "
            "(bandwidthTest), or record a larger circuit",
        )
    return case.finding(hypothesis, "refuted", evidence, decided=Decided(worst, HEALTHY_LINK_SHARE, calls))


def _evidence(link: LinkState, several: bool) -> list[Evidence]:
    where = f"GPU {link.gpu}: " if several else ""
    found = []
    most = (
        f", at most Gen{link.gen_max or link.gen} x{link.width_max or link.width}"
        if link.below_maximum is not None
        else "; its maximum was not recorded"
    )
    if link.reached is not None:
        found.append(
            Evidence(
                f"{where}the run reached {gb(link.line_rate or 0.0)}, {link.reached:.0%} of the "
                f"{gb(link.limit or 0.0)} that such a link carries"
                + (f", in {link.streamed_s:.0f} s that stream from pinned memory" if link.streamed_s else ""),
                link.line_rate,
                "bytes/s",
                link.slow,
            )
        )
    found.append(
        Evidence(
            f"{where}the link is Gen{link.gen} x{link.width} under load{most}",
            link.limit,
            "bytes/s",
            bool(link.below_maximum),
        )
    )
    if link.replays is not None:
        found.append(
            Evidence(
                f"{where}the link sent {link.replays} packets again in {link.watched_s:.0f} s",
                float(link.replays),
                "packets",
                link.replaying,
            )
        )
    return found


HYPOTHESIS = Hypothesis(
    id="link-degraded",
    title="the PCIe link runs below its width or generation",
    brief="copies over a PCIe link below its width or generation",
    knob=(
        "reseat the card, take another slot or riser, set the slot's generation in the firmware. "
        "Risk: the host must be stopped; a forced generation on a bad riser gives replays"
    ),
    next_step="read lspci -vv (LnkSta against LnkCap) under load",
    overturned_by="generation and width at their maxima under load, no replays, and a pinned copy at 88 % of the limit",
    revived_by="generation or width below the maximum while data flows, replays that grow, or a pinned copy far below "
    "the link's limit",
    judge_with=_judge,
)
