"""The one sentence: what the GPU did, what it lost most to, and whether that can be said."""

from collections.abc import Iterable

from gputrace.analysis.blame import UNEXPLAINED
from gputrace.analysis.diagnosis import CauseTotal, Diagnosis, HypothesisFinding
from gputrace.analysis.hypotheses import ALL, Case
from gputrace.analysis.outlook import remedy_of
from gputrace.analysis.pipeline.busy import IN_WORDS
from gputrace.trace import Trace

_BRIEFS = {hypothesis.id: hypothesis.brief for hypothesis in ALL}


def main_cause(by_cause: Iterable[CauseTotal], hypotheses: Iterable[HypothesisFinding]) -> str | None:
    """The supported cause with most lost seconds; None where the most is charged to something not supported."""
    supported = {finding.id for finding in hypotheses if finding.verdict == "supported"}
    first = next(iter(by_cause), None)
    return first.cause if first is not None and first.cause in supported else None


def main_cause_of(case: Case) -> str | None:
    """The main cause of a case. Only the cause with most lost seconds is judged: no other can be it."""
    first = next(iter(case.by_cause), None)
    named = [hypothesis for hypothesis in ALL if first is not None and hypothesis.id == first.cause]
    return main_cause([first] if first else [], [hypothesis.judge(case) for hypothesis in named])


def headline(trace: Trace, diagnosis: Diagnosis) -> str:
    """One sentence with its number; says what is missing where nothing can be concluded."""
    return sentence(diagnosis, not trace.marks.is_empty(), bool(trace.phases["under_mutex"].any()))


def sentence(diagnosis: Diagnosis, has_log: bool, has_phases: bool) -> str:
    """The headline of a run of which no trace is at hand.

    `has_phases`: whether the log shows what was done under the mutex.
    """
    if not diagnosis.gpus:
        return "No call of the log has a time: nothing can be said about the GPU's time."
    spoken = _computed(diagnosis)
    if not has_log:
        return f"{spoken}; no prover log was given, so why it was idle cannot be said."
    if not has_phases:
        return f"{spoken}; add the prover's stderr (CUZK_TIMING lines) to learn where the rest went."
    cause = main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses)
    spoken += _stretched(cause, diagnosis)
    if cause is None:
        return f"{spoken}; {_no_cause(diagnosis)}"
    total = next(item for item in diagnosis.gaps.by_cause if item.cause == cause)
    lost = diagnosis.gaps.total_s or 0.0
    went = f"{total.total_s:.1f} s of the {lost:.1f} s lost ({total.share:.0%}) went to {_BRIEFS[cause]}"
    return f"{spoken}; {went}{_detail(cause, diagnosis)}{_worth(cause, diagnosis)}."


def _stretched(cause: str | None, diagnosis: Diagnosis) -> str:
    """What slowed the GPU down without losing its seconds, where that weighs more than the main cause of lost ones."""
    lost_s = next((item.total_s for item in diagnosis.gaps.by_cause if item.cause == cause), 0.0)
    most = max(diagnosis.hypotheses, key=lambda finding: finding.stretched_s or 0.0, default=None)
    if most is None or (most.stretched_s or 0.0) <= lost_s:
        return ""
    return f", {most.stretched_s:.1f} s less were it not for {_BRIEFS[most.id]}"


def _computed(diagnosis: Diagnosis) -> str:
    seconds = diagnosis.window.duration_s or 0.0
    shares = [gpu.compute_share for gpu in diagnosis.gpus if gpu.compute_share is not None]
    if not shares:
        return f"In {seconds:.0f} s of GPU time the share of computing is unknown"
    inferred = any((gpu.state_source or "").startswith("inferred") for gpu in diagnosis.gpus)
    share = sum(shares) / len(shares)
    what = "The GPU was" if len(shares) == 1 else f"The {len(shares)} GPUs were"
    return f"{what} computing {share:.0%} of {seconds:.1f} s" + (" (inferred from phases)" if inferred else "")


def _no_cause(diagnosis: Diagnosis) -> str:
    first = next(iter(diagnosis.gaps.by_cause), None)
    if first is None:
        return "nothing was lost."
    if first.cause == UNEXPLAINED:
        return f"most of the {diagnosis.gaps.total_s or 0.0:.1f} s lost is unexplained."
    verdict = next((f for f in diagnosis.hypotheses if f.id == first.cause), None)
    if verdict is not None and verdict.verdict == "refuted":
        return (
            f"the largest loss ({first.total_s:.1f} s) is charged to {first.cause}, but the evidence speaks against "
            f"it: {verdict.next_step}."
        )
    return (
        f"the largest loss ({first.total_s:.1f} s) looks like {first.cause}, which is "
        f"{verdict.verdict if verdict else 'not judged'}" + (f": {verdict.next_step}." if verdict else ".")
    )


def _worth(cause: str, diagnosis: Diagnosis) -> str:
    """What taking the cause away is worth, or that it is worth nothing by itself."""
    effect = remedy_of(cause, diagnosis.what_if)
    if effect is None:
        return ""
    rate = effect.calls_per_s
    assert rate.now is not None and rate.predicted is not None and rate.low is not None and rate.high is not None
    then = f"{rate.low:.2f} to {rate.high:.2f} calls a second instead of {rate.now:.2f}"
    limit = f"then {IN_WORDS[effect.limited_by]} sets the rate"
    if not effect.gains:
        return f". Beware: {effect.scenario} alone promises no gain ({then}): {limit}"
    return f". {effect.scenario} would give {then}: {limit}"


def _detail(cause: str, diagnosis: Diagnosis) -> str:
    if cause != "pageable-h2d":
        return ""
    ntt = next((phase for phase in diagnosis.phases if phase.name == "ntt_kernels"), None)
    line = next((gpu.line_rate_bytes_per_s for gpu in diagnosis.gpus if gpu.line_rate_bytes_per_s), None)
    if ntt is None or ntt.rx_bytes_per_s is None or line is None:
        return ""
    return f" at {ntt.rx_bytes_per_s['median'] / 1e9:.1f} GB/s, where the link reached {line / 1e9:.0f} GB/s"
