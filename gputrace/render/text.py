"""The report in a terminal: readable from 60 columns on, plain where it is not a terminal.

It is in the order of an argument: what the GPU did, what its time was lost to, what a fix is worth, when it happened,
the verdicts with their evidence, and what all of it rests on. The answer is in the first 24 lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.printable import printable_values
from gputrace.render.screen import Colors, Screen
from gputrace.render.text_gpus import causes, gpus, regimes, timelines
from gputrace.render.text_outlook import bounds, what_if
from gputrace.render.text_parts import as_text, title
from gputrace.render.text_phases import gaps, phases
from gputrace.render.text_verdicts import verdicts
from gputrace.render.text_workers import interleaving
from gputrace.trace import Trace

_MOST_NOTICES = 12
_MOST_NOTICES_BRIEFLY = 3


@dataclass(frozen=True)
class TextRenderer:
    """What the screen can show is given, so that the same diagnosis always reads the same.

    `full` adds gaps, phases, bounds, interleaving and all evidence to what answers the question.
    """

    width: int = 80
    colors: Colors = "none"
    ascii: bool = False
    full: bool = True
    extension: str = "txt"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The report as text, ANSI codes only with `colors`; nothing that the log says acts on a terminal."""
        trace, diagnosis = printable_values(trace), printable_values(diagnosis)
        parts = _parts(trace, diagnosis, self.width) if self.full else _brief(trace, diagnosis, self.width)
        return as_text(parts, Screen(self.width, self.colors, self.ascii))


@dataclass(frozen=True)
class WhatIfTextRenderer:
    """Only what fixes are worth and what bounds them, for who asks about scenarios of their own."""

    width: int = 80
    colors: Colors = "none"
    ascii: bool = False
    extension: str = "txt"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The sections as text, ANSI codes only with `colors`."""
        diagnosis = printable_values(diagnosis)
        parts = [*what_if(diagnosis), *bounds(diagnosis, self.width)]
        return as_text(parts, Screen(self.width, self.colors, self.ascii))


def _parts(trace: Trace, diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    yield from _answer(diagnosis, width, full=True)
    yield from gaps(diagnosis)
    yield from verdicts(diagnosis, full=True)
    yield from bounds(diagnosis, width)
    yield from phases(trace, diagnosis, width)
    yield from interleaving(diagnosis)
    yield from _quality(trace, diagnosis)


def _brief(trace: Trace, diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    yield from _answer(diagnosis, width, full=False)
    yield from verdicts(diagnosis, full=False)
    yield from _trust(trace, diagnosis)


def _answer(diagnosis: Diagnosis, width: int, full: bool) -> Iterator[RenderableType]:
    yield Text(diagnosis.headline, style="bold")
    if not diagnosis.headline_stable:
        yield Text("Undetermined: the main cause changes when a threshold is halved or doubled.", style="caution")
    yield ""
    yield from gpus(diagnosis, width)
    yield from causes(diagnosis, width, full)
    yield from what_if(diagnosis, full)
    yield from timelines(diagnosis, width, full)
    yield from regimes(diagnosis, full)


def _trust(trace: Trace, diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """What the answer rests on, in a few lines, and where the rest is."""
    quality, calls = trace.quality, diagnosis.calls
    said = [f"{calls.complete} of {calls.count} calls complete"]
    if calls.failed:
        said.append(f"{calls.failed} failed")
    said.append(_clock(trace))
    for count, what in (
        (quality.marks_unplaced, "records without a place in time"),
        (quality.torn_lost, "torn records lost"),
        (quality.unrecognised_of_known_family, "lines not recognised"),
        (quality.samples_missing, "samples missing"),
    ):
        if count:
            said.append(f"{count} {what}")
    yield Text.assemble(("Data: ", "bold"), "; ".join(said))
    for notice in quality.notices[:_MOST_NOTICES_BRIEFLY]:
        yield Padding(f"{notice.text}{f' ({notice.count})' if notice.count > 1 else ''}", (0, 0, 0, 2))
    rest = len(quality.notices) - _MOST_NOTICES_BRIEFLY
    yield Text(
        f"{f'{rest} more notices, ' if rest > 0 else ''}all evidence, gaps, phases and bounds: --full; "
        "to explore: --html FILE",
        style="dim",
    )


def _clock(trace: Trace) -> str:
    if trace.clock.method == "none":
        return "no wall clock" if trace.quality.marks else "no log"
    sure = trace.clock.uncertainty_s
    return f"clock {trace.clock.method}" + ("" if sure is None else f", within {sure * 1e3:.1f} ms")


def _quality(trace: Trace, diagnosis: Diagnosis) -> Iterator[RenderableType]:
    quality, clock = trace.quality, trace.clock
    yield title("Data")
    table = Table.grid(padding=(0, 1))
    table.add_column(width=8)
    table.add_column(overflow="fold")
    calls = diagnosis.calls
    rate = "" if calls.per_s is None else f", {calls.per_s:.2f} a second"
    failed = f", {calls.failed} failed" if calls.failed else ""
    table.add_row("calls", f"{calls.complete} complete of {calls.count}{failed}, {calls.warmup} warm-up{rate}")
    table.add_row(
        "log",
        f"{quality.lines} lines, {quality.marks} records, {quality.marks_unplaced} without a place in time; "
        f"{quality.torn_repaired} torn and repaired, {quality.torn_lost} lost, "
        f"{quality.unrecognised_of_known_family} not recognised",
    )
    table.add_row(
        "samples",
        f"{quality.samples}, {quality.samples_missing} missing; "
        f"{quality.counter_wraps} counter wraps, {quality.counter_ambiguous} ambiguous steps",
    )
    sure = "" if clock.uncertainty_s is None else f", within {clock.uncertainty_s * 1e3:.1f} ms"
    table.add_row("clock", f"{clock.method}{sure}")
    for item in trace.inputs:
        if item.used and item.kind != "metadata":
            table.add_row("input", f"{item.path} ({item.format})")
    for notice in quality.notices[:_MOST_NOTICES]:
        count = f" ({notice.count})" if notice.count > 1 else ""
        table.add_row("notice", f"{notice.text}{count}")
    if len(quality.notices) > _MOST_NOTICES:
        table.add_row("notice", f"{len(quality.notices) - _MOST_NOTICES} more; the JSON report has all")
    yield Padding(table, (0, 0, 0, 2))
