"""The terminal report's sections on what each GPU did, what its time was lost to, and when."""

from collections.abc import Callable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputrace.analysis.diagnosis import CauseTotal, Diagnosis, GpuFinding
from gputrace.render import units
from gputrace.render.over_time import Axis, Cells, OverTime, axis_of, lost_share, over_time, regime_lane, regime_mark
from gputrace.render.text_parts import bar, percent, sparkline, title

_INDENT = (0, 0, 0, 2)
_STATES = (("compute", "compute_share"), ("copy-only", "copy_only_share"), ("idle", "idle_share"))
# From this many GPUs on they share a table, a line each.
_MANY = 3
_MOST_CAUSES = 4
_MOST_CAUSES_OVER_TIME = 3
_MOST_REGIMES = 12
_LABEL = 23
# A cause below this share of the lost seconds has no line of its own over time.
_LEAST_SHARE = 0.05


def gpus(diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    """The account of each GPU's window."""
    if len(diagnosis.gpus) >= _MANY:
        yield from _many(diagnosis, width)
        return
    for gpu in diagnosis.gpus:
        yield title(f"GPU {gpu.gpu}: {_about(gpu)}")
        table = Table.grid(padding=(0, 1))
        table.add_column(width=10)
        table.add_column(justify="right", width=5)
        table.add_column()
        for label, attribute in _STATES:
            share = getattr(gpu, attribute)
            table.add_row(label, percent(share), Text(bar(share or 0.0, width - 30), style=label))
        yield Padding(table, _INDENT)
        yield Padding(
            f"SM activity: {gpu.state_source}; mutex held {percent(gpu.mutex_held_share)}; "
            f"copied in {gb(gpu.rx_payload_bytes, 0)} GB, out {gb(gpu.tx_payload_bytes, 0)} GB",
            _INDENT,
        )
        yield ""


def _about(gpu: GpuFinding) -> str:
    about = [gpu.name or "name unknown"]
    if gpu.link_gen and gpu.link_width:
        about.append(f"PCIe Gen{gpu.link_gen} x{gpu.link_width}")
    if gpu.line_rate_bytes_per_s:
        shown = f" (by fit, in {gpu.line_rate_from})" if gpu.line_rate_from not in (None, "sample") else ""
        about.append(f"line rate {gb(gpu.line_rate_bytes_per_s)} GB/s{shown}")
    return ", ".join(about)


def _many(diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    kinds = dict.fromkeys(_about(gpu) for gpu in diagnosis.gpus)
    yield title(f"{len(diagnosis.gpus)} GPUs: {next(iter(kinds))}{' and others' if len(kinds) > 1 else ''}")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in ("GPU", "compute", "copy-only", "idle", "mutex", "in GB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("█ compute ▓ copy-only ░ idle", no_wrap=True)
    for gpu in diagnosis.gpus:
        shares = [getattr(gpu, attribute) for _, attribute in _STATES]
        table.add_row(
            str(gpu.gpu), *map(percent, shares), percent(gpu.mutex_held_share), gb(gpu.rx_payload_bytes, 0),
            _stacked([share or 0.0 for share in shares], max(10, width - 44)),
        )  # fmt: skip
    yield Padding(table, _INDENT)
    sources = ", ".join(dict.fromkeys(str(gpu.state_source) for gpu in diagnosis.gpus))
    yield Padding(f"SM activity: {sources}; mutex: share of the window in which it was held", _INDENT)
    yield ""


def _stacked(shares: list[float], columns: int) -> Text:
    """The states in one bar, by pattern as well as colour."""
    text, reached, drawn = Text(), 0.0, 0
    for (label, _), pattern, share in zip(_STATES, "█▓░", shares, strict=True):
        reached += share
        length = max(0, round(min(reached, 1.0) * columns) - drawn)
        text.append(pattern * length, style=label)
        drawn += length
    return text


def causes(diagnosis: Diagnosis, width: int, full: bool) -> Iterator[RenderableType]:
    """Lost seconds by cause; those after the first few together unless `full`."""
    gaps = diagnosis.gaps
    if not gaps.by_cause:
        return
    yield title(f"Lost seconds by cause: {gaps.total_s or 0.0:.1f} s, {percent(gaps.share_of_window)} of the window")
    shown = [cause for cause in gaps.by_cause if cause.share >= 0.0005]
    # A month of eight GPUs has millions of seconds.
    wide = max([8, *(len(f"{cause.total_s:.1f} s") for cause in shown)])
    table = Table.grid(padding=(0, 1))
    table.add_column(width=22)
    table.add_column(justify="right", width=wide)
    table.add_column(justify="right", width=4)
    table.add_column()
    for row in shown if full else _first(shown):
        table.add_row(row.cause, f"{row.total_s:.1f} s", percent(row.share), bar(row.share, max(10, width - 34 - wide)))
    yield Padding(table, _INDENT)
    yield ""


def _first(causes: list[CauseTotal]) -> list[CauseTotal]:
    rest = causes[_MOST_CAUSES:]
    if len(rest) <= 1:
        return causes
    together = CauseTotal(
        f"{len(rest)} others",
        sum(cause.total_s for cause in rest),
        sum(cause.share for cause in rest),
        sum(cause.copy_only_s for cause in rest),
        sum(cause.idle_s for cause in rest),
    )
    return [*causes[:_MOST_CAUSES], together]


def _length(seconds: float) -> str:
    """Two digits, and never in powers of ten."""
    return f"{seconds:.2g} s" if seconds < 100 else f"{float(f'{seconds:.2g}'):,.0f} s"


def timelines(diagnosis: Diagnosis, width: int, full: bool) -> Iterator[RenderableType]:
    """Compute share, rx rate and lost seconds over the window as sparklines, with the regimes below."""
    axis = axis_of(diagnosis, width - _LABEL - 2)
    if axis is None or not diagnosis.gpus:
        return
    yield title(f"Over time: {_length(axis.cell_s)} a column")
    rows: list[tuple[str, Text | str]] = []
    briefly = len(diagnosis.gpus) >= _MANY and not full
    for gpu in over_time(diagnosis, axis):
        rows += _gpu_rows(gpu, diagnosis, briefly)
    for cause in diagnosis.gaps.by_cause[:_MOST_CAUSES_OVER_TIME]:
        if cause.share >= _LEAST_SHARE:
            rows.append((f"{cause.cause}", sparkline(lost_share(diagnosis, cause.cause, axis))))
    if len(diagnosis.regimes) > 1:
        rows.append(("regime", regime_lane(diagnosis, axis)))
    rows.append(("", _scale(axis)))
    for label, drawn in rows:
        line = Text(f"{label:{_LABEL}.{_LABEL - 1}}", no_wrap=True, overflow="crop")
        yield Padding(line.append_text(drawn) if isinstance(drawn, Text) else line.append(drawn), _INDENT)
    yield Padding(
        Text(
            "high and low: of any sample in a column; mean: of all of it; rows of causes: share lost to each; "
            "full height is 100% or the rate named",
            style="dim",
        ),
        _INDENT,
    )
    yield ""


def _gpu_rows(gpu: OverTime, diagnosis: Diagnosis, briefly: bool) -> Iterator[tuple[str, Text | str]]:
    name = f"GPU {gpu.gpu} " if len(diagnosis.gpus) > 1 else ""
    if briefly:
        yield f"{name}compute", Text(sparkline(gpu.compute.mean), style="compute")
        return
    if any(value is not None for value in gpu.compute.mean):
        yield from _three(f"{name}compute", gpu.compute, 1.0, "compute", percent)
    if gpu.rx is not None:
        finding = next(finding for finding in diagnosis.gpus if finding.gpu == gpu.gpu)
        known = [value for value in gpu.rx.high if value is not None]
        top = max([finding.line_rate_bytes_per_s or 0.0, *known], default=0.0)
        if top > 0:
            yield from _three(f"{name}rx {units.rate(top)}", gpu.rx, top, "copy-only", units.rate)


def _three(
    label: str, cells: Cells, top: float, style: str, write: Callable[[float], str]
) -> Iterator[tuple[str, Text | str]]:
    for place, (name, values) in enumerate((("high", cells.high), ("mean", cells.mean), ("low", cells.low))):
        drawn = sparkline(None if value is None else value / top for value in values)
        known = [value for value in values if value is not None]
        if known and len(set(drawn)) == 1:
            # A row without any change says more in words.
            ends = list(dict.fromkeys(write(value) for value in (min(known), max(known))))
            drawn = f"{' to '.join(ends)} throughout"
        yield f"{label if place == 0 else '':{_LABEL - 6}} {name}", Text(drawn, style=style)


def _scale(axis: Axis) -> str:
    """The ends of the axis and its middle, in seconds from the window's start."""
    span = (axis.end_ns - axis.start_ns) / 1e9
    first, middle, last = "0 s", f"{span / 2:.1f}", f"{span:.1f} s"
    room = axis.cells - len(first) - len(last)
    return first + middle.center(room) + last if room > len(middle) else f"{first} to {last}"


def regimes(diagnosis: Diagnosis, full: bool) -> Iterator[RenderableType]:
    """The stretches in which phases behave alike; nothing where the whole run is one."""
    found = diagnosis.regimes
    if len(found) < 2 and not any(regime.bistable for regime in found):
        return
    yield title(f"Regimes: {len(found)}, by how the phases behave")
    table = Table.grid(padding=(0, 2))
    for number_column in (True, False, True, False):
        table.add_column(justify="right" if number_column else "left")
    begin = diagnosis.window.start_ns or 0
    for index, regime in enumerate(found[:_MOST_REGIMES]):
        said: list[RenderableType] = [Text(regime.label, style="bold")]
        if index and full:
            said.append(f"begins: {regime.reason}")
        if regime.lost_s is not None:
            said.append(f"{regime.lost_s:.1f} s lost" + (f", most to {regime.main_cause}" if regime.main_cause else ""))
        if regime.bistable and full:
            said.append("short and long holds of the mutex take turns")
        span = f"{(regime.start_ns - begin) / 1e9:.1f}-{(regime.end_ns - begin) / 1e9:.1f} s"
        number = str(index + 1)
        mark = regime_mark(index)
        table.add_row(number if mark == number else f"{number} {mark}", span, f"{regime.calls} calls", Group(*said))
    yield Padding(table, _INDENT)
    if len(found) > _MOST_REGIMES:
        yield Padding(f"{len(found) - _MOST_REGIMES} more; the JSON report has all", _INDENT)
    yield ""


def gb(value: float | None, digits: int = 1) -> str:
    """GB without the unit; a question mark where it is not known."""
    return "?" if value is None else f"{value / 1e9:.{digits}f}"
