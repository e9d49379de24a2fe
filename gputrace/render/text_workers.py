"""The terminal report's section on how the workers of a GPU share it."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from gputrace.analysis.diagnosis import Diagnosis, Handovers, Interleaving, WaitsFor
from gputrace.render import units
from gputrace.render.text_parts import hanging, percent, title

_INDENT = (0, 0, 0, 2)
_MOST_PHASES = 3
_MOST_PAIRS = 6


def interleaving(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """One section for each GPU that several workers share."""
    for finding in diagnosis.interleaving:
        yield title(f"Interleaving on GPU {finding.gpu}: workers {', '.join(map(str, finding.workers))}")
        for line in _lines(finding):
            yield Padding(hanging("*", line), _INDENT)
        yield Padding(_waits(finding), _INDENT)
        if len(finding.waits) > _MOST_PAIRS:
            yield Padding(f"{len(finding.waits) - _MOST_PAIRS} more pairs; the JSON report has all", _INDENT)
        yield ""


def _lines(finding: Interleaving) -> Iterator[str]:
    if finding.overlap_efficiency is not None:
        yield (
            f"of the workers' work off the GPU {percent(finding.overlap_efficiency)} was hidden under another's hold, "
            f"the rest kept the GPU waiting; the mutex was held {percent(finding.mutex_utilisation)} of the window"
        )
    handed = [
        _handed(finding.handovers_waited, "to a waiting worker"),
        _handed(finding.handovers_unwaited, "with nobody waiting"),
    ]
    sure = finding.handover_uncertainty_ms
    within = "" if sure is None else f" (each within {sure:.1f} ms)"
    yield f"hand-overs: {'; '.join(part for part in handed if part) or 'none'}{within}"
    if finding.alternation_share is not None:
        yield (
            f"{percent(finding.alternation_share)} of them to another worker; "
            f"at most {finding.longest_run} in a row by one"
        )
    for bound in finding.shortest:
        yield (
            f"at least {units.seconds(bound.shortest_s)} of {units.seconds(finding.window_s)} with {bound.title} "
            f"(by {bound.limited_by}; a bound, no prediction)"
        )
    yield from finding.notes


def _handed(times: Handovers, whom: str) -> str:
    if not times.count:
        return ""
    return f"{times.count} {whom}, median {times.median_ms:.1f} ms, p95 {times.p95_ms:.1f} ms"


def _waits(finding: Interleaving) -> Table:
    """The pairs that waited most."""
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row("waits", units.seconds(finding.waited_s), "while the holder was in")
    for pair in sorted(finding.waits, key=lambda pair: -pair.total_s)[:_MOST_PAIRS]:
        holder = "?" if pair.holder is None else pair.holder
        table.add_row(f"{pair.waiter} for {holder}", units.seconds(pair.total_s), _phases(pair))
    return table


def _phases(pair: WaitsFor) -> str:
    most = list(pair.by_phase_s.items())[:_MOST_PHASES]
    return ", ".join(f"{name} {percent(seconds / pair.total_s)}" for name, seconds in most)
