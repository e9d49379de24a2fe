"""The report for an issue or a chat: what a reader needs to act on it, short, in GitHub's Markdown.

Names and texts of a log are anybody's words: they cannot break a table, close a code span, put in HTML or a link, or
call anybody (`@name`, `#1`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gputrace import __version__
from gputrace.analysis.diagnosis import Diagnosis, Evidence, HypothesisFinding
from gputrace.render import units
from gputrace.render.prospect import change, prospect
from gputrace.trace import Trace

_MOST_CAUSES = 6
_MOST_EVIDENCE = 6
_MOST_LINES = 3
_MOST_NOTICES = 8
# GitHub looks for mentions and references in what is shown: only a sign between breaks them.
_BREAK = "\N{ZERO WIDTH SPACE}"
# Within a word an underscore means nothing.
_MARKUP = re.compile(r"[\\`*\[\]<>|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_CALLS_SOMEBODY = re.compile(r"@|(?<!&)#")
_LINKS = re.compile(r"://|\bwww(?=\.)", re.IGNORECASE)


@dataclass(frozen=True)
class MarkdownRenderer:
    """The same trace and diagnosis always give the same text."""

    extension: str = "md"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The report as Markdown."""
        return "\n".join(_lines(trace, diagnosis)) + "\n"


def escaped(text: str) -> str:
    """`text` as itself in running text or a table, on one line."""
    plain = _MARKUP.sub(_as_itself, " ".join(text.split()))
    quiet = _CALLS_SOMEBODY.sub(lambda found: found.group() + _BREAK, plain)
    return _LINKS.sub(lambda found: found.group()[0] + _BREAK + found.group()[1:], quiet)


def code(text: str) -> str:
    """`text` in a code span, also in a table; there nothing in it means anything."""
    plain = " ".join(text.split()).replace("|", "\N{BROKEN BAR}")
    longest = max(map(len, re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    room = " " if longest else ""
    return f"{fence}{room}{plain}{room}{fence}" if plain else "(no name)"


def _as_itself(found: re.Match[str]) -> str:
    sign = found.group()
    return f"&#{ord(sign)};" if sign in "<>&|`" else f"\\{sign}"


def _lines(trace: Trace, diagnosis: Diagnosis) -> Iterator[str]:
    yield f"**{escaped(diagnosis.headline)}**"
    yield ""
    if not diagnosis.headline_stable:
        yield "Undetermined: the main cause changes when a threshold is halved or doubled."
        yield ""
    yield from _numbers(diagnosis)
    yield from _causes(diagnosis)
    supported = [finding for finding in diagnosis.hypotheses if finding.verdict == "supported"]
    if supported:
        yield "#### Supported"
        yield ""
        for finding in supported:
            yield from _verdict(finding, trace)
        yield ""
    yield from _worth(diagnosis)
    open_questions = [finding for finding in diagnosis.hypotheses if finding.verdict == "undetermined"]
    if open_questions:
        yield "#### Undetermined"
        yield ""
        for finding in open_questions:
            yield f"- {code(finding.id)}: {escaped(finding.main_reason) or 'not said why'}"
        yield ""
    yield from _made(trace, diagnosis)


def _numbers(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.gpus:
        yield "| GPU | compute | copying only | idle | mutex held | copied in | line rate |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for gpu in diagnosis.gpus:
            shares = (gpu.compute_share, gpu.copy_only_share, gpu.idle_share, gpu.mutex_held_share)
            cells = [f"{gpu.gpu}: {escaped(gpu.name or 'name unknown')}", *map(units.share, shares)]
            cells += [units.size(gpu.rx_payload_bytes), units.rate(gpu.line_rate_bytes_per_s)]
            yield f"| {' | '.join(cells)} |"
        yield ""
    calls = diagnosis.calls
    if calls.count:
        failed = f", {calls.failed} failed" if calls.failed else ""
        rate = "" if calls.per_s is None else f", {units.per_second(calls.per_s)} a second"
        span = "" if diagnosis.window.duration_s is None else f" in {units.seconds(diagnosis.window.duration_s)}"
        yield f"{calls.complete} complete calls of {calls.count}{failed}{span}{rate}."
        yield ""


def _causes(diagnosis: Diagnosis) -> Iterator[str]:
    gaps = diagnosis.gaps
    if not gaps.by_cause:
        return
    verdicts = {finding.id: finding.verdict for finding in diagnosis.hypotheses}
    yield f"#### Lost: {units.seconds(gaps.total_s)}, {units.share(gaps.share_of_window)} of the window"
    yield ""
    yield "| cause | lost | share | verdict |"
    yield "|---|---:|---:|---|"
    for total in gaps.by_cause[:_MOST_CAUSES]:
        verdict = verdicts.get(total.cause, "")
        yield f"| {code(total.cause)} | {units.seconds(total.total_s)} | {units.share(total.share)} | {verdict} |"
    rest = gaps.by_cause[_MOST_CAUSES:]
    if rest:
        lost_s, share = sum(total.total_s for total in rest), sum(total.share for total in rest)
        yield f"| {len(rest)} others | {units.seconds(lost_s)} | {units.share(share)} | |"
    yield ""


def _verdict(finding: HypothesisFinding, trace: Trace) -> Iterator[str]:
    told = [f"confidence {finding.confidence:.2f}"]
    if finding.lost_s:
        told.insert(0, f"{units.seconds(finding.lost_s)} lost")
    if finding.stretched_s:
        told.insert(0, f"{units.seconds(finding.stretched_s)} longer")
    yield f"- **{code(finding.id)}** ({', '.join(told)}): {escaped(finding.title)}"
    # What speaks against it is never left out.
    against = [item for item in finding.evidence if not item.supports]
    kept = [item for item in finding.evidence if item.supports][: max(1, _MOST_EVIDENCE - len(against))]
    for item in finding.evidence:
        if item in kept or not item.supports:
            yield f"  - {'' if item.supports else 'against: '}{escaped(item.text)}{_where(item, trace)}"
    omitted = len(finding.evidence) - len(kept) - len(against)
    if omitted > 0:
        yield f"  - {omitted} more"
    if finding.changes_mind:
        yield f"  - refuted by: {escaped(finding.changes_mind)}"
    if finding.knob:
        yield f"  - to do: {escaped(finding.knob)}"


def _where(item: Evidence, trace: Trace) -> str:
    """The first log lines that show it; with their input where there is more than one log."""
    if not item.lines:
        return ""
    several = sum(info.kind == "log" and info.used for info in trace.inputs) > 1
    named = [
        f"{line} of {code(trace.inputs[source].path)}" if several and source < len(trace.inputs) else str(line)
        for source, line in item.cited[:_MOST_LINES]
    ]
    return f" (log line{'s' if len(named) > 1 else ''} {', '.join(named)})"


def _worth(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.what_if:
        if diagnosis.what_if_missing:
            yield f"What a fix is worth cannot be said: {escaped(diagnosis.what_if_missing)}"
            yield ""
        return
    levels = sorted({scenario.level for scenario in diagnosis.what_if})
    level = ", ".join(units.share(value) for value in levels)
    yield "#### What a change is worth"
    yield ""
    yield f"| change | calls a second | interval, {level} | | these calls sooner by |"
    yield "|---|---:|---:|---:|---|"
    for scenario in diagnosis.what_if:
        rate = scenario.calls_per_s
        saved = (scenario.saved_s_low, scenario.saved_s_high)
        sooner = " to ".join(map(units.signed_seconds, saved)) if None not in saved else units.UNKNOWN
        yield (
            f"| {code(scenario.scenario)} | {units.per_second(rate.now)} → {units.per_second(rate.predicted)} "
            f"| {units.per_second(rate.low)} to {units.per_second(rate.high)} | {units.signed_share(change(rate))} "
            f"| {sooner}: {prospect(scenario)} |"
        )
    yield ""


def _made(trace: Trace, diagnosis: Diagnosis) -> Iterator[str]:
    quality, clock = trace.quality, trace.clock
    yield "<details><summary>How this was made</summary>"
    yield ""
    for info in trace.inputs:
        if info.used and info.kind != "metadata":
            yield f"- {code(info.path)}: {escaped(info.format)}, {units.count(info.rows)} rows"
    sure = "" if clock.uncertainty_s is None else f", within {clock.uncertainty_s * 1e3:.1f} ms"
    yield f"- clock: {escaped(clock.method)}{sure}" if clock.method != "none" else "- clock: none; times are relative"
    yield (
        f"- {units.count(quality.lines)} log lines, {units.count(quality.marks)} records, {quality.marks_unplaced} "
        f"without a place in time, {quality.torn_lost} torn and lost; {units.count(quality.samples)} samples, "
        f"{quality.samples_missing} missing"
    )
    for gpu in diagnosis.gpus:
        yield f"- GPU {gpu.gpu}: SM activity {escaped(units.known(gpu.state_source))}"
    for notice in quality.notices[:_MOST_NOTICES]:
        times = f" ({notice.count})" if notice.count > 1 else ""
        yield f"- {escaped(notice.text)}{times}"
    if len(quality.notices) > _MOST_NOTICES:
        yield f"- {len(quality.notices) - _MOST_NOTICES} more notices"
    yield f"- gputrace {__version__}; definitions of every number are in its docs/definitions.md"
    yield ""
    yield "</details>"
