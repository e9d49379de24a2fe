"""Workers queue for the GPU mutex. Usually a symptom: the seconds of waiting are the holder's, and so is the cause."""

import polars as pl

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding, Verdict
from gputrace.analysis.evidence import Cited, cited
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis
from gputrace.analysis.signs.waits import COMPUTING, UNHELD, asked, waits
from gputrace.rows import with_values

_NAMED = 4


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    calls = case.trace.calls
    whole_call = case.signs.whole_call_mutex
    workers = calls["worker"].drop_nulls().n_unique()
    if workers == 1:
        one = Evidence("one worker: nothing ever waits for the mutex", 1.0, "workers", False)
        return case.finding(hypothesis, "refuted", [one])
    if calls["lock_ns"].count() == 0 or (workers == 0 and asked(case.trace).is_empty()):
        return case.finding(
            hypothesis, "undetermined", [], "add the prover's stderr: mutex_wait_ms and the holds are printed there"
        )
    if not case.tells:
        told: Verdict = "supported" if case.weighs(hypothesis.id) else "undetermined"
        return case.finding(hypothesis, told if whole_call else "refuted", [])
    waiting = waits(case.trace, case.blame, whole_call)
    total_s = float(waiting["wait_s"].sum())
    by_cause = dict(waiting.group_by("cause").agg(pl.col("wait_s").sum()).iter_rows())
    longest = sorted(by_cause.items(), key=lambda entry: (-entry[1], entry[0]))[:_NAMED]
    said = ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in longest)
    evidence = []
    if whole_call:
        evidence += [
            case.charge_evidence(hypothesis.id),
            Evidence(
                "no call begins while another is under way, though workers are at the door: one mutex covers whole "
                "calls, for all GPUs",
                None,
                None,
                True,
            ),
        ]
    evidence.append(
        Evidence(
            f"workers wait {total_s:.1f} s for the mutex; meanwhile its holder is busy with: {said}"
            if total_s
            else "no worker waits for the mutex",
            total_s,
            "s",
            whole_call and total_s > 0,
            *_longest(case),
        )
    )
    copies = case.copying_share_under_mutex
    if copies is not None and not whole_call:
        evidence.append(
            Evidence(
                f"the link carries data in {copies:.0%} of the time lost under the mutex: contention alone would show "
                "no PCIe traffic"
                if copies > 0.5
                else f"the link carries data in {copies:.0%} of the time lost under the mutex",
                copies,
                "share",
                copies <= 0.5 and total_s == 0,
            )
        )
    if whole_call and case.weighs(hypothesis.id):
        return case.finding(hypothesis, "supported", evidence)
    if whole_call:
        return case.finding(
            hypothesis,
            "undetermined",
            evidence,
            "this build's holds are not divided into phases: use one of 2026-02-27 or later (a mutex for each GPU, "
            "around the CUDA part only)",
        )
    # The mutex itself would lose what passes while nobody holds it, though somebody waits.
    unheld_s, busy_s = (float(by_cause.get(cause, 0.0)) for cause in (UNHELD, COMPUTING))
    explained = (total_s - unheld_s) / total_s if total_s else 1.0
    evidence.append(
        Evidence(
            f"{explained:.0%} of the waiting is explained by what the holder does ({busy_s:.1f} s of it computing)",
            explained,
            "share",
            explained < 0.5,
        )
    )
    decided = Decided(max(unheld_s, 1e-9), max(case.thresholds.supported_share * total_s, 1e-6), case.complete_calls)
    return case.finding(hypothesis, "refuted", evidence, decided=decided)


def _longest(case: Case) -> Cited:
    waited = with_values(case.trace.named_phases.of("mutex_wait"), "line")
    return cited(waited.sort("duration_ms", "line", descending=[True, False]).head(3))


HYPOTHESIS = Hypothesis(
    id="mutex-contention",
    title="workers queue for the GPU mutex",
    brief="a mutex over the whole call, held while this GPU had nothing to do",
    knob="use a build whose mutex is one for each GPU and covers the CUDA part only. Risk: that of an upgrade",
    next_step="see what the holder does: the causes above",
    overturned_by="the GPU computes or copies while the mutex is held, or nobody waits for it",
    revived_by="workers that wait while the holder neither computes, copies nor waits for its own CPU work",
    judge_with=_judge,
)
