"""Verdicts of chapters put together: by the seconds that each is about."""

from collections.abc import Sequence
from dataclasses import replace

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding, Verdict
from gputrace.analysis.hypotheses import ALL, in_order
from gputrace.chapters.chapter import Chapter

# The verdict of the run is that of the chapters with more than this share of the seconds that it is about.
_MOST = 0.5
_WORDS: dict[Verdict, str] = {
    "supported": "supported",
    "refuted": "refuted (or too small to matter)",
    "undetermined": "left open",
}


def joined_verdicts(chapters: Sequence[Chapter]) -> tuple[HypothesisFinding, ...]:
    """One finding per hypothesis. Its first evidence says in how many chapters it holds; the rest is that of the
    chapter with the most seconds at stake."""
    charged = [{total.cause: total.total_s for total in chapter.diagnosis.gaps.by_cause} for chapter in chapters]
    found = []
    for hypothesis in ALL:
        told = [
            next(finding for finding in chapter.diagnosis.hypotheses if finding.id == hypothesis.id)
            for chapter in chapters
        ]
        seconds = [
            lost.get(hypothesis.id, 0.0) + (finding.stretched_s or 0.0)
            for lost, finding in zip(charged, told, strict=True)
        ]
        found.append(_joined(told, seconds, [chapter.diagnosis.window.duration_s or 0.0 for chapter in chapters]))
    return in_order(found)


def _joined(
    told: Sequence[HypothesisFinding], at_stake_s: Sequence[float], window_s: Sequence[float]
) -> HypothesisFinding:
    """`at_stake_s`: by chapter, what is charged to the cause or stretched by it; where nothing is, time decides."""
    of_loss = sum(at_stake_s) > 0
    weights = at_stake_s if of_loss else window_s
    total = sum(weights) or 1.0
    shares = {
        verdict: sum(weight for finding, weight in zip(told, weights, strict=True) if finding.verdict == verdict)
        / total
        for verdict in _WORDS
    }
    verdict: Verdict = next((verdict for verdict, share in shares.items() if share > _MOST), "undetermined")
    alike = [n for n, finding in enumerate(told) if finding.verdict == verdict]
    if not alike:
        # No chapter leaves it open, but they disagree.
        alike = list(range(len(told)))
    most = max(alike, key=lambda n: weights[n])
    example, supported = told[most], [finding for finding in told if finding.verdict == "supported"]
    stretched = [finding.stretched_s for finding in told if finding.stretched_s is not None]
    lost = [finding.lost_s for finding in supported if finding.lost_s is not None]
    agreed = sum(told[n].confidence * weights[n] for n in alike) / (sum(weights[n] for n in alike) or 1.0)
    return replace(
        example,
        verdict=verdict,
        # As sure as the chapters that say so, less what the others hold.
        confidence=min(agreed * shares[verdict], example.confidence),
        lost_s=sum(lost) if verdict == "supported" and lost else None,
        recoverable_s=None,
        evidence=(
            _agreement(told, shares, verdict, of_loss, sum(weights)),
            *(replace(item, text=f"chapter {most + 1}: {item.text}") for item in example.evidence),
        ),
        stretched_s=sum(stretched) if stretched else None,
        next_step=example.next_step or _disagree(verdict),
    )


def _disagree(verdict: Verdict) -> str:
    return "chapters disagree: look at one with --from and --to" if verdict == "undetermined" else ""


def _agreement(
    told: Sequence[HypothesisFinding], shares: dict[Verdict, float], verdict: Verdict, of_loss: bool, total_s: float
) -> Evidence:
    counts = {one: sum(finding.verdict == one for finding in told) for one in _WORDS}
    said = ", ".join(f"{_WORDS[one]} in {count}" for one, count in counts.items() if count)
    what = f"of the {total_s:.1f} s at stake" if of_loss else "of the time"
    return Evidence(
        f"of {len(told)} chapters: {said}; {_WORDS[verdict]} for {shares[verdict]:.0%} {what}",
        shares["supported"],
        "share",
        verdict == "supported",
    )
