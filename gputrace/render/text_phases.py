"""The terminal report's sections on gaps and phases."""

from collections.abc import Iterator

import numpy as np
import polars as pl
from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from gputrace.analysis.diagnosis import Diagnosis, PhaseFinding
from gputrace.render.text_gpus import gb
from gputrace.render.text_parts import percent, sparkline, title
from gputrace.trace import Trace

_INDENT = (0, 0, 0, 2)
_MOST_GAPS = 5
# Phases that are always 0 or contained in others say nothing in a table for people; the JSON has them.
_SKIPPED_CLASSES = ("negligible",)
_COLUMNS = (
    ("phase", "left"), ("min", "right"), ("median", "right"), ("p95", "right"), ("max", "right"),
    ("class", "left"), ("rx GB", "right"), ("GB/s", "right"), ("SM", "right"), ("copy", "left"),
)  # fmt: skip
# What goes first where there is no room for all.
_DISPENSABLE = ("SM", "copy", "min", "class", "rx GB")
_LONGEST_NAME = 22
_SPREAD = "min to max"
_MOST_BINS = 24
_FEWEST_BINS = 6


def gaps(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """The longest gaps, and what is not listed."""
    found = diagnosis.gaps
    if not found.total_s:
        return
    yield title(f"Gaps of {found.threshold_ms:g} ms or more: {found.count}")
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column()
    begin = diagnosis.window.start_ns or 0
    for gap in found.list[:_MOST_GAPS]:
        rate = "" if gap.rx_bytes_per_s is None else f"rx {gb(gap.rx_bytes_per_s)} GB/s"
        where = f"call {gap.call}, {gap.phase}" if gap.call is not None else "between calls"
        if len(diagnosis.gpus) > 1:
            where = f"GPU {gap.gpu}, {where}"
        table.add_row(
            f"{gap.duration_ms / 1e3:.1f} s at {(gap.start_ns - begin) / 1e9:.1f} s",
            gap.cause,
            where,
            f"{gap.state} {rate}",
        )
    yield Padding(table, _INDENT)
    rest = found.count - min(found.count, _MOST_GAPS)
    if rest or found.below_threshold_s:
        more = f"{rest} more; " if rest else ""
        yield Padding(f"{more}{found.below_threshold_s or 0.0:.1f} s are lost in shorter gaps", _INDENT)
    yield ""


def phases(trace: Trace, diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    """How long each phase takes, and how its durations are spread where there is room to draw it."""
    shown = [phase for phase in diagnosis.phases if phase.phase_class not in _SKIPPED_CLASSES]
    if not shown:
        return
    yield title(f"Phases of {diagnosis.calls.complete} complete calls, ms")
    yield Padding(_table(trace, shown, width - 2), _INDENT)
    for phase in shown:
        if phase.drivers and phase.phase_class == "variable" and not phase.contains_others and phase.under_mutex:
            said = ", ".join(f"{driver.name} ({driver.spearman:+.2f})" for driver in phase.drivers[:3])
            yield Padding(f"{phase.name} goes with {said}", _INDENT)
    yield ""


def _table(trace: Trace, shown: list[PhaseFinding], width: int) -> Table:
    rows = [_row(phase) for phase in shown]
    widths = {name: min(max(len(name), *(cell_len(row[name]) for row in rows)), _LONGEST_NAME) for name, _ in _COLUMNS}
    for name in _DISPENSABLE:
        if sum(widths.values()) + len(widths) - 1 > width:
            del widths[name]
    bins = min(width - sum(widths.values()) - len(widths), _MOST_BINS)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name, justify in _COLUMNS:
        if name in widths:
            table.add_column(name, justify=justify, no_wrap=True, max_width=widths[name])  # type: ignore[arg-type]
    spread = bins >= _FEWEST_BINS
    if spread:
        table.add_column(_SPREAD if bins >= len(_SPREAD) else "spread", no_wrap=True, width=bins)
    for phase, row in zip(shown, rows, strict=True):
        drawn = [_spread(trace, phase, bins)] if spread else []
        table.add_row(*(row[name] for name in widths), *drawn)
    return table


def _row(phase: PhaseFinding) -> dict[str, str]:
    copied = phase.rx_bytes_per_s is not None and phase.transfer != "none"
    return {
        "phase": f"{phase.name}{'*' if phase.contains_others else ''}",
        "min": _ms(phase.min_ms),
        "median": _ms(phase.median_ms),
        "p95": _ms(phase.p95_ms),
        "max": _ms(phase.max_ms),
        "class": phase.phase_class,
        "rx GB": gb(phase.rx_bytes_per_call_median, 2) if copied else "",
        "GB/s": gb(phase.rx_bytes_per_s["median"]) if copied and phase.rx_bytes_per_s else "",
        "SM": "" if phase.sm_share_median is None else percent(phase.sm_share_median),
        "copy": "" if phase.transfer == "unknown" else phase.transfer,
    }


def _ms(value: float) -> str:
    return f"{value:.0f}"


def _spread(trace: Trace, phase: PhaseFinding, bins: int) -> str:
    """How often a duration lies in each of equal bins from the shortest to the longest, as heights; blank for never.

    Only for phases that vary: a constant one would show the noise of its last digit.
    """
    if phase.phase_class != "variable" or phase.max_ms <= phase.min_ms:
        return ""
    durations = trace.phases.filter(pl.col("name") == phase.name)["duration_ms"].drop_nulls().to_numpy()
    counts, _ = np.histogram(durations, bins, (phase.min_ms, phase.max_ms))
    most = counts.max()
    return sparkline([None if not count else count / most for count in counts]) if most else ""
