"""How far a report can be trusted, in words: the clock, the tries behind "stable", and what stayed open."""

from collections.abc import Iterator
from dataclasses import dataclass

from gputrace.analysis.diagnosis import Diagnosis, HypothesisFinding
from gputrace.analysis.headline import main_cause
from gputrace.analysis.outlook import remedy_of
from gputrace.analysis.pipeline.busy import IN_WORDS
from gputrace.render import units
from gputrace.trace import Clock, Trace

CLOCK_METHODS = {
    "timeline+tracing": "Some log lines print the time of day, others count from the engine's start; lines that tell "
    "of the same moment tie the two together.",
    "wrapper": "Whatever kept the log (docker, journald, Kubernetes, ...) stamped every line with the time of day.",
    "receipt": "The recorder noted when each line arrived.",
    "correlation": "No line has a time of day. The log was laid over the GPU trace where the copies that it tells of "
    "fit the measured ones best.",
    "none": "Nothing in the log tells the time of day. Times count from the engine's start, and a GPU trace cannot be "
    "laid beside them.",
}

THRESHOLDS = {
    "copy_link_share": "traffic that counts as copying, as a share of the link",
    "gap_compute": "computing below which a stretch is a gap, as a share of the SMs",
    "gap_smoothing_s": "time over which computing is averaged before gaps are looked for",
    "supported_share": "share of the lost seconds that a cause must take",
    "staged_share": "share of the link's best rate below which a copy counts as slow",
}


# Below this share of what is lost to a cause, the card on it says why so little comes back.
_LITTLE_BACK = 0.5


@dataclass(frozen=True)
class OpenQuestion:
    """Something that this run's inputs do not settle: why not, and which input or measurement would."""

    question: str
    why: str
    allowed_by: str
    hypothesis: str | None = None


def clock_meaning(clock: Clock) -> str:
    """What the clock's uncertainty means for a reader of times."""
    if clock.method == "none":
        return "Durations hold all the same; only when something happened in the day is unknown."
    if clock.uncertainty_s is None:
        return "By how much a time may be off is not known."
    off_ms = clock.uncertainty_s * 1e3
    said = f"A time taken from the log may be off by up to {off_ms:.1f} ms against the GPU trace"
    twice = "" if clock.unique or clock.method != "correlation" else " Another placement fits nearly as well."
    return f"{said}; durations that the log prints are not touched by that.{twice}"


def threshold_value(name: str, value: float) -> str:
    """A threshold with its unit."""
    return f"{value:g} s" if name.endswith("_s") else f"{value:.1%}".replace(".0%", "%")


def open_questions(trace: Trace, diagnosis: Diagnosis) -> Iterator[OpenQuestion]:
    """What could not be concluded: inputs that are missing first, then every hypothesis that is undetermined."""
    logs = any(item.kind == "log" for item in trace.inputs)
    if not logs:
        yield OpenQuestion(
            "Why the GPU was idle", "No prover log was given.", "The prover's stdout and stderr (CUZK_TIMING lines)."
        )
    elif trace.phases.filter("under_mutex").is_empty():
        yield OpenQuestion(
            "What calls did while they held the GPU",
            "The log has no line of the GPU code.",
            "The prover's stderr (CUZK_TIMING and CUZK_NTT_H lines).",
        )
    if trace.samples.is_empty():
        yield OpenQuestion(
            "What was copied, and whether the GPU really computed",
            "No GPU trace was given: states are inferred from the phases.",
            "A trace recorded beside the prover: gputrace record, or nvidia-smi dmon.",
        )
    elif trace.clock.method == "none" and logs:
        yield OpenQuestion(
            "What the GPU did in each phase",
            "Nothing ties the log's times to the GPU trace's.",
            "A log with times of day: the prover's stdout with its tracing lines, or docker logs --timestamps.",
        )
    if diagnosis.what_if_missing:
        yield OpenQuestion(
            "What a fix is worth",
            diagnosis.what_if_missing.capitalize() + ".",
            "A log that shows whole calls, with the times of pickup, lock and unlock.",
        )
    for finding in diagnosis.hypotheses:
        if finding.verdict == "undetermined":
            seen = next((item.text for item in finding.evidence), "")
            yield OpenQuestion(
                f"Whether {finding.title}",
                seen or "Nothing in the inputs speaks for it or against it.",
                finding.next_step,
                finding.id,
            )


def headline_rests_on(diagnosis: Diagnosis) -> str:
    """Whether the headline's cause is the same under every other threshold that was tried."""
    tries = len(diagnosis.variations)
    same = sum(variation.same for variation in diagnosis.variations)
    if main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses) is None:
        return f"The headline names no cause; {units.count(same)} of {units.count(tries)} tries gave none either."
    return f"{units.count(same)} of {units.count(tries)} tries gave the headline's cause."


def charged_only(diagnosis: Diagnosis) -> list[str]:
    """Causes that lost seconds are charged to though they are refuted, in the order of the charges."""
    refuted = {finding.id for finding in diagnosis.hypotheses if finding.verdict == "refuted"}
    return [total.cause for total in diagnosis.gaps.by_cause if total.cause in refuted]


def run_s(diagnosis: Diagnosis) -> float | None:
    """Wall-clock seconds from the first lock to the last unlock; None where the window is that, or has no clock."""
    window = diagnosis.window
    if window.start_ns is None or window.end_ns is None or window.duration_s is None:
        return None
    wall_s = (window.end_ns - window.start_ns) / 1e9
    return wall_s if len(diagnosis.gpus) > 1 or wall_s > 1.01 * window.duration_s else None


def little_back(diagnosis: Diagnosis) -> dict[str, str]:
    """By supported cause whose removal brings back far less than is lost to it: why, as the model of the run says."""
    found = {}
    for finding in diagnosis.hypotheses:
        said = _why_little(finding, diagnosis)
        if said:
            found[finding.id] = said
    return found


def _why_little(finding: HypothesisFinding, diagnosis: Diagnosis) -> str:
    effect = remedy_of(finding.id, diagnosis.what_if)
    if effect is None or not effect.limited_by or finding.recoverable_s is None or not finding.lost_s:
        return ""
    if finding.recoverable_s >= _LITTLE_BACK * finding.lost_s:
        return ""
    limit = IN_WORDS.get(effect.limited_by, effect.limited_by)
    return f"Removing it alone brings back little of what is lost to it: {limit} sets the rate then."
