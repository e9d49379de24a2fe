"""GPU clocks are held down."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis
from gputrace.analysis.signs.clocks import ClockState
from gputrace.analysis.thresholds import LOW_CLOCK_SHARE

_RECORD = "record clocks_event_reasons.active and clocks.max.sm beside clocks.sm (nvidia-smi --query-gpu)"


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    clocks = [clock for clock in case.signs.clocks.values() if clock.active]
    if not clocks:
        return case.finding(hypothesis, "undetermined", [], _RECORD)
    evidence = [item for clock in clocks for item in _evidence(clock, len(clocks) > 1)]
    slowed_s, compute_s = sum(clock.slowed_s for clock in clocks), sum(clock.compute_s for clock in clocks)
    share = slowed_s / compute_s if compute_s else 0.0
    decided = Decided(share, case.thresholds.supported_share, sum(clock.active for clock in clocks))
    weighs = share >= case.thresholds.supported_share
    evidence.append(
        Evidence(
            f"kernels would have taken {slowed_s:.1f} s less of {compute_s:.1f} s compute at full clock ({share:.0%}; "
            "compute time, not lost seconds)",
            slowed_s,
            "s",
            weighs,
        )
    )
    held = any(clock.held_share >= case.thresholds.supported_share for clock in clocks)
    told = all(clock.reasons is not None for clock in clocks)
    low = any((clock.ratio or 1.0) < LOW_CLOCK_SHARE for clock in clocks)
    if weighs and (held or (low and not told)):
        return case.finding(hypothesis, "supported", evidence, decided=decided, stretched_s=slowed_s)
    if told or all(clock.knows_full and (clock.ratio or 0.0) >= LOW_CLOCK_SHARE for clock in clocks):
        return case.finding(hypothesis, "refuted", evidence, decided=decided)
    return case.finding(hypothesis, "undetermined", evidence, _RECORD)


def _evidence(clock: ClockState, several: bool) -> list[Evidence]:
    where = f"GPU {clock.gpu}: " if several else ""
    full = "its maximum" if clock.knows_full else "the highest of this run"
    ratio = clock.ratio or 0.0
    found = [
        Evidence(
            f"{where}the SM clock is {clock.median_mhz or 0:.0f} MHz (median of {clock.active} samples with SMs "
            f"active), {ratio:.0%} of {full}, {clock.full_mhz or 0:.0f} MHz",
            clock.median_mhz,
            "MHz",
            ratio < LOW_CLOCK_SHARE,
        )
    ]
    if clock.reasons is not None:
        said = ", ".join(f"{word} {share:.0%}" for word, share in clock.reasons.items()) or "none"
        found.append(
            Evidence(
                f"{where}clocks held down in {clock.held_share:.0%} of these samples: {said}",
                clock.held_share,
                "share",
                clock.held_share > 0,
            )
        )
    return found


HYPOTHESIS = Hypothesis(
    id="throttled",
    title="GPU clocks are held down",
    brief="clocks that were held down",
    knob=(
        "cooling, the power limit (nvidia-smi -pl) and the power supply, by the reason named. "
        "Risk: more power means more heat, and a limit above what the board is built for shortens its life"
    ),
    next_step="watch temperature and power beside the clock: which of them reaches its limit",
    overturned_by="SM clock at its maximum under load, or event reasons that name none of power, heat and brake",
    revived_by="event reasons of power or heat while SMs are active, with the clock below its maximum",
    judge_with=_judge,
)
