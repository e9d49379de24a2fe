"""Writing the log holds the mutex."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis
from gputrace.analysis.thresholds import SLOW_PRINT_MS

_WHERE = {
    "ntt": "ntt_msm_h less the parts of CUZK_NTT_H",
    "gpu": "gpu_total less ntt_msm_h, barrier_wait, batch_add and tail_msm",
    "hold": "mutex_held less gpu_total",
}


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    cost = case.signs.prints
    if not cost.known:
        return case.finding(
            hypothesis,
            "undetermined",
            [],
            "this log does not divide a hold so finely: use a build that prints barrier_wait and mutex_held, and "
            "time the writes of its stderr (strace -T -e write)",
        )
    slow = cost.slow
    evidence = [case.charge_evidence(hypothesis.id)] if slow else []
    for place, ms in cost.per_print_ms.items():
        evidence.append(
            Evidence(
                f"{ms:.1f} ms a print in {_WHERE[place]}"
                + (f", {cost.stalls[place]} stalls" if cost.stalls[place] else ""),
                ms,
                "ms",
                ms >= SLOW_PRINT_MS or (slow and cost.stalls[place] > 0),
            )
        )
    if not slow:
        evidence.append(case.charge_evidence(hypothesis.id))
    decided = Decided(min(cost.per_print_ms.values()), SLOW_PRINT_MS, cost.calls)
    if slow and case.weighs(hypothesis.id):
        return case.finding(hypothesis, "supported", evidence)
    return case.finding(hypothesis, "refuted", evidence, decided=None if slow else decided)


HYPOTHESIS = Hypothesis(
    id="slow-log-sink",
    title="writing the log holds the mutex",
    brief="prints under the mutex that a slow log sink holds up",
    knob=(
        "write the log to a local file or a pipe that is always read (no synchronous journal or network sink). "
        "Risk: lines may be lost in a crash where they are buffered"
    ),
    next_step="run once with stderr to a file on tmpfs: the times between the phases should vanish",
    overturned_by="the times between phases stay with stderr written to tmpfs, or grow in one place only",
    revived_by="times between phases that grow with the number of prints in them, in all places alike",
    judge_with=_judge,
)
