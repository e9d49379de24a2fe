"""Somebody else computes on the GPU."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis
from gputrace.analysis.signs.foreign import ForeignActivity, Pace
from gputrace.analysis.thresholds import FOREIGN_SM_SHARE

# Less than this of quiet time says nothing of who computes in it.
_ENOUGH_S = 1.0
_BUSY_SHARE = 0.05
# Kernels this much longer while other processes are listed than while none is.
_STRETCH = 0.1
_PACE_STRETCH = 0.1
_LOCKSTEP = 0.75
# Clocks that cost less than this of compute do not set the pace.
_STEADY = 0.02


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    found = list(case.signs.foreign.values())
    counted = [one for one in found if one.processes is not None]
    quiet_s, busy_s = sum(one.quiet_s for one in found), sum(one.busy_s for one in found)
    evidence = [item for one in found for item in _evidence(one, len(found) > 1)]
    share = busy_s / quiet_s if quiet_s else 0.0
    samples = round(quiet_s)
    absent = bool(counted) and len(counted) == len(found) and all(not one.processes for one in counted)
    stretched_s = sum(one.stretched_s or 0.0 for one in found)
    if quiet_s >= _ENOUGH_S and share >= _BUSY_SHARE and not absent:
        decided = Decided(share, _BUSY_SHARE, samples)
        return case.finding(hypothesis, "supported", evidence, decided=decided, stretched_s=stretched_s)
    beside = max((one for one in counted if one.processes and one.compared), key=lambda one: one.stretch, default=None)
    if beside is not None and beside.stretch >= _STRETCH:
        decided = Decided(beside.stretch, _STRETCH, case.complete_calls)
        return case.finding(hypothesis, "supported", evidence, decided=decided, stretched_s=stretched_s)
    paced = _sets_the_pace(case)
    if paced is not None and not absent:
        pace, where = paced
        evidence.append(
            Evidence(
                f"{where}msm_invoke and tail_msm change their pace together (correlation {pace.lockstep:+.2f}), "
                f"{pace.stretch:.0%} slower in all than at their fastest, {pace.stretched_s:.1f} s: circuits of one "
                "size, at a steady clock",
                pace.stretched_s,
                "s",
                True,
            )
        )
        decided = Decided(pace.stretch, _STRETCH, case.complete_calls)
        return case.finding(hypothesis, "supported", evidence, decided=decided, stretched_s=pace.stretched_s)
    if absent or (quiet_s >= _ENOUGH_S and not any(one.processes for one in counted)):
        return case.finding(hypothesis, "refuted", evidence, decided=Decided(share, _BUSY_SHARE, samples))
    return case.finding(
        hypothesis,
        "undetermined",
        evidence,
        "list the GPU's processes during a run (nvidia-smi --query-compute-apps=pid,used_memory) and record SM "
        "activity (GPM)" + (": this run leaves too little quiet time to see another's work" if case.has_sm else "")
        if quiet_s < _ENOUGH_S
        else "another process holds the GPU but was not seen to compute: sample its SM use (nvidia-smi pmon)",
    )


def _sets_the_pace(case: Case) -> tuple[Pace, str] | None:
    """The pace of a GPU whose kernels something outside them slows down, where nothing else explains it."""
    found = list(case.signs.foreign.values())
    if all(one.pace is None for one in found):
        return None
    sizes = case.numbers("capacity_hint", "num_constraints")["value"].n_unique()
    allocated = case.trace.quality.marks_by_event.get("d_a_allocated", 0)
    if sizes != 1 or allocated > int(case.trace.calls["warmup"].sum() or 0):
        return None
    for one in found:
        clock = case.signs.clocks.get(one.gpu)
        steady = clock is not None and clock.active > 0 and clock.slowed_share < _STEADY
        if one.pace is not None and steady and one.pace.lockstep >= _LOCKSTEP and one.pace.stretch >= _PACE_STRETCH:
            return one.pace, f"GPU {one.gpu}: " if len(found) > 1 else ""
    return None


def _evidence(one: ForeignActivity, several: bool) -> list[Evidence]:
    where = f"GPU {one.gpu}: " if several else ""
    found = []
    if one.sm_share is not None and one.quiet_s:
        found.append(
            Evidence(
                f"{where}in {one.quiet_s:.1f} s that the run's own calls leave to waits and copies, SMs are active "
                f"{one.sm_share:.0%}, above {FOREIGN_SM_SHARE:.0%} in {one.busy_s:.1f} s",
                one.busy_s,
                "s",
                one.busy_share >= _BUSY_SHARE,
            )
        )
    if one.processes is not None:
        found.append(
            Evidence(
                f"{where}up to {one.processes} other processes on the GPU, some in {one.present_share or 0.0:.0%} of "
                "samples",
                float(one.processes),
                "processes",
                one.processes > 0,
            )
        )
    if one.stretched_s is not None and (one.compared or one.quiet_s):
        found.append(
            Evidence(
                f"{where}kernel phases took {one.stretched_s:.1f} s longer beside it than without, of "
                f"{one.kernels_s or 0.0:.1f} s ("
                + ("by medians of both" if one.compared else "half of its share of quiet time, nothing to compare")
                + "; compute time)",
                one.stretched_s,
                "s",
                one.stretched_s > 0,
            )
        )
    return found


HYPOTHESIS = Hypothesis(
    id="other-process",
    title="another process uses the GPU",
    brief="another process that computed on the GPU",
    knob="give the prover the GPU alone (exclusive compute mode, another host). Risk: whoever else needs it stops",
    next_step="name it: nvidia-smi pmon -s um while the prover waits",
    overturned_by="a process list that shows the prover alone while SMs are active outside its kernels",
    revived_by="SM activity in barrier waits or between calls, or another compute process that uses SMs",
    judge_with=_judge,
)
