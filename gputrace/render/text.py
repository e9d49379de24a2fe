"""The report in a terminal: readable at 80 columns, plain where it is not a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputrace.analysis.diagnosis import Diagnosis, HypothesisFinding, PhaseFinding
from gputrace.render.text_outlook import outlook
from gputrace.render.text_parts import as_text, bar, hanging, percent, title
from gputrace.render.text_workers import interleaving
from gputrace.trace import Trace

_STATES = (
    ("compute", "compute_share", "green"),
    ("copy-only", "copy_only_share", "yellow"),
    ("idle", "idle_share", "red"),
)
_VERDICT_STYLE = {"supported": "bold red", "undetermined": "yellow", "refuted": "dim"}
_MOST_GAPS = 5
_MOST_NOTICES = 12
_MOST_REGIMES = 12
# Phases that are always 0 or contained in others say nothing in a table for people; the JSON has them.
_SKIPPED_CLASSES = ("negligible",)


@dataclass(frozen=True)
class TextRenderer:
    """Width and colour are given, so that the same diagnosis always reads the same."""

    width: int = 80
    color: bool = False
    extension: str = "txt"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The report as text, ANSI colours only with `color`."""
        return as_text(_parts(trace, diagnosis, self.width), self.width, self.color)


@dataclass(frozen=True)
class WhatIfTextRenderer:
    """Only what fixes are worth and what bounds them, for who asks about scenarios of their own."""

    width: int = 80
    color: bool = False
    extension: str = "txt"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The sections as text, ANSI colours only with `color`."""
        return as_text(outlook(diagnosis), self.width, self.color)


def _parts(trace: Trace, diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    yield Text(diagnosis.headline, style="bold")
    if not diagnosis.headline_stable:
        yield Text("Undetermined: the main cause changes when a threshold is halved or doubled.", style="yellow")
    yield ""
    yield from _gpus(diagnosis)
    yield from _causes(diagnosis, width)
    yield from _regimes(diagnosis)
    yield from _gaps(diagnosis)
    yield from _phases(diagnosis)
    yield from _verdicts(diagnosis)
    yield from outlook(diagnosis)
    yield from interleaving(diagnosis)
    yield from _quality(trace, diagnosis)


def _gb(value: float | None, digits: int = 1) -> str:
    return "?" if value is None else f"{value / 1e9:.{digits}f}"


def _ms(value: float) -> str:
    return f"{value:.0f}"


def _gpus(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    for gpu in diagnosis.gpus:
        about = [gpu.name or "name unknown"]
        if gpu.link_gen and gpu.link_width:
            about.append(f"PCIe Gen{gpu.link_gen} x{gpu.link_width}")
        if gpu.line_rate_bytes_per_s:
            about.append(f"line rate {_gb(gpu.line_rate_bytes_per_s)} GB/s")
        yield title(f"GPU {gpu.gpu}: {', '.join(about)}")
        table = Table.grid(padding=(0, 1))
        table.add_column(width=10)
        table.add_column(justify="right", width=5)
        table.add_column()
        for label, attribute, style in _STATES:
            share = getattr(gpu, attribute)
            table.add_row(label, percent(share), Text(bar(share or 0.0, 50), style=style))
        yield Padding(table, (0, 0, 0, 2))
        yield Padding(
            f"SM activity: {gpu.state_source}; mutex held {percent(gpu.mutex_held_share)}; "
            f"copied in {_gb(gpu.rx_payload_bytes, 0)} GB, out {_gb(gpu.tx_payload_bytes, 0)} GB",
            (0, 0, 0, 2),
        )
        yield ""


def _causes(diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    gaps = diagnosis.gaps
    if not gaps.by_cause:
        return
    yield title(f"Lost seconds by cause: {gaps.total_s or 0.0:.1f} s, {percent(gaps.share_of_window)} of the window")
    table = Table.grid(padding=(0, 1))
    table.add_column(width=22)
    table.add_column(justify="right", width=8)
    table.add_column(justify="right", width=4)
    table.add_column()
    for cause in gaps.by_cause:
        if cause.share >= 0.0005:
            table.add_row(
                cause.cause, f"{cause.total_s:.1f} s", percent(cause.share), bar(cause.share, max(10, width - 42))
            )
    yield Padding(table, (0, 0, 0, 2))
    yield ""


def _regimes(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    regimes = diagnosis.regimes
    if len(regimes) < 2 and not any(regime.bistable for regime in regimes):
        return
    yield title(f"Regimes: {len(regimes)}, by how the phases behave")
    table = Table.grid(padding=(0, 2))
    for number_column in (True, False, True, False):
        table.add_column(justify="right" if number_column else "left")
    begin = diagnosis.window.start_ns or 0
    for number, regime in enumerate(regimes[:_MOST_REGIMES], 1):
        said: list[RenderableType] = [
            Text(regime.label, style="bold"),
            *([f"begins: {regime.reason}"] if number > 1 else []),
        ]
        if regime.lost_s is not None:
            said.append(f"{regime.lost_s:.1f} s lost" + (f", most to {regime.main_cause}" if regime.main_cause else ""))
        if regime.bistable:
            said.append("short and long holds of the mutex take turns")
        span = f"{(regime.start_ns - begin) / 1e9:.1f}-{(regime.end_ns - begin) / 1e9:.1f} s"
        table.add_row(str(number), span, f"{regime.calls} calls", Group(*said))
    yield Padding(table, (0, 0, 0, 2))
    if len(regimes) > _MOST_REGIMES:
        yield Padding(f"{len(regimes) - _MOST_REGIMES} more; the JSON report has all", (0, 0, 0, 2))
    yield ""


def _gaps(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    gaps = diagnosis.gaps
    if not gaps.total_s:
        return
    yield title(f"Gaps of {gaps.threshold_ms:g} ms or more: {gaps.count}")
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column()
    begin = diagnosis.window.start_ns or 0
    for gap in gaps.list[:_MOST_GAPS]:
        rate = "" if gap.rx_bytes_per_s is None else f"rx {_gb(gap.rx_bytes_per_s)} GB/s"
        where = f"call {gap.call}, {gap.phase}" if gap.call is not None else "between calls"
        if len(diagnosis.gpus) > 1:
            where = f"GPU {gap.gpu}, {where}"
        table.add_row(
            f"{gap.duration_ms / 1e3:.1f} s at {(gap.start_ns - begin) / 1e9:.1f} s",
            gap.cause,
            where,
            f"{gap.state} {rate}",
        )
    yield Padding(table, (0, 0, 0, 2))
    rest = gaps.count - min(gaps.count, _MOST_GAPS)
    if rest or gaps.below_threshold_s:
        more = f"{rest} more; " if rest else ""
        yield Padding(f"{more}{gaps.below_threshold_s or 0.0:.1f} s are lost in shorter gaps", (0, 0, 0, 2))
    yield ""


def _phases(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    shown = [phase for phase in diagnosis.phases if phase.phase_class not in _SKIPPED_CLASSES]
    if not shown:
        return
    yield title(f"Phases of {diagnosis.calls.complete} complete calls, ms")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name, justify in (
        ("phase", "left"), ("min", "right"), ("median", "right"), ("p95", "right"), ("max", "right"),
        ("class", "left"), ("rx GB", "right"), ("GB/s", "right"), ("SM", "right"), ("copy", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for phase in shown:
        table.add_row(*_phase_row(phase))
    yield Padding(table, (0, 0, 0, 2))
    for phase in shown:
        if phase.drivers and phase.phase_class == "variable" and not phase.contains_others and phase.under_mutex:
            said = ", ".join(f"{driver.name} ({driver.spearman:+.2f})" for driver in phase.drivers[:3])
            yield Padding(f"{phase.name} goes with {said}", (0, 0, 0, 2))
    yield ""


def _phase_row(phase: PhaseFinding) -> tuple[str, ...]:
    copied = phase.rx_bytes_per_s is not None and phase.transfer != "none"
    return (
        f"{phase.name}{'*' if phase.contains_others else ''}",
        _ms(phase.min_ms),
        _ms(phase.median_ms),
        _ms(phase.p95_ms),
        _ms(phase.max_ms),
        phase.phase_class,
        _gb(phase.rx_bytes_per_call_median, 2) if copied else "",
        _gb(phase.rx_bytes_per_s["median"]) if copied and phase.rx_bytes_per_s else "",
        "" if phase.sm_share_median is None else percent(phase.sm_share_median),
        "" if phase.transfer == "unknown" else phase.transfer,
    )


def _verdicts(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    if not diagnosis.hypotheses:
        return
    yield title("Verdicts")
    for finding in diagnosis.hypotheses:
        if finding.verdict == "supported":
            yield Padding(_verdict(finding), (0, 0, 0, 2))
    for verdict in ("undetermined", "refuted"):
        found = [finding for finding in diagnosis.hypotheses if finding.verdict == verdict]
        if found:
            yield Padding(_reasons(verdict, found), (0, 0, 0, 2))
    yield ""


def _reasons(verdict: str, found: list[HypothesisFinding]) -> Group:
    """One line or two each: what is missing where undetermined, the main evidence against where refuted."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=22, no_wrap=True)
    table.add_column()
    for finding in found:
        table.add_row(finding.id, finding.main_reason)
    return Group(Text(f"{verdict}:", style=_VERDICT_STYLE[verdict]), Padding(table, (0, 0, 0, 2)))


def _verdict(finding: HypothesisFinding) -> Group:
    lost = f", {finding.lost_s:.1f} s" if finding.lost_s else ""
    if finding.stretched_s:
        lost += f", {finding.stretched_s:.1f} s longer"
    lines: list[RenderableType] = [
        Text.assemble(
            ("supported: ", _VERDICT_STYLE["supported"]),
            (finding.id, "bold"),
            f"{lost}, confidence {finding.confidence:.2f}",
        )
    ]
    for item in finding.evidence:
        where = f" (log lines {', '.join(map(str, item.lines))})" if item.lines else ""
        lines.append(hanging("+" if item.supports else "-", f"{item.text}{where}"))
    if finding.changes_mind:
        lines.append(hanging("?", f"refuted by: {finding.changes_mind}"))
    if finding.knob:
        lines.append(hanging(">", finding.knob))
    return Group(*lines)


def _quality(trace: Trace, diagnosis: Diagnosis) -> Iterator[RenderableType]:
    quality, clock = trace.quality, trace.clock
    yield title("Data")
    table = Table.grid(padding=(0, 1))
    table.add_column(width=8)
    table.add_column()
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
