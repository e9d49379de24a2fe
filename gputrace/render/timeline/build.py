"""Builds the report's timeline: packs what each GPU did, within the page's budget, and makes the panels for it.

The budgets keep a day of eight GPUs, read every 0.1 s, under 12 MB of page, and an hour of one under 3 MB. What fits
is kept as it is; what does not is told in the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import Diagnosis, Gap
from gputrace.render.charts import timeline as charts
from gputrace.render.charts.timeline import TimeAxis
from gputrace.render.timeline.bars import Held, hold, lane_names, leaves
from gputrace.render.timeline.columns import Columns, Packed, round_up, tick_s
from gputrace.render.timeline.figures import READ, FigureBuilder, GpuReadings, readings_of, sum_names
from gputrace.render.timeline.view import command_of, is_clocked, regime_colours, time_axis
from gputrace.schema import PHASE_NAMES
from gputrace.trace import Trace


@dataclass(frozen=True)
class Budget:
    """What a page may hold: bars, values of readings, and cells of sums (bins times kinds)."""

    bars: int = 300_000
    values: int = 2_400_000
    cells: int = 4_000_000
    finest_sum_s: float = 0.05


@dataclass(frozen=True)
class Panel:
    """One chart: `kind` is regimes, phases, lost, link or compute; `key` names its element in the page."""

    key: str
    kind: str
    spec: charts.Spec


@dataclass(frozen=True)
class Figure:
    """All panels of one GPU, and what they draw from.

    Rates in payload bytes per second; `compute_source` says what the share of SMs is taken from, `states` which can be
    told apart. `store` has the packed columns, `told` what the page's script must know of them.
    """

    gpu: int
    panels: tuple[Panel, ...]
    line_rate_bytes_per_s: float | None
    link_limit_bytes_per_s: float | None
    compute_source: str
    states: tuple[str, ...]
    store: Packed
    told: dict[str, Any]


@dataclass(frozen=True)
class Timeline:
    """The figures of all GPUs on one axis, what their colours mean, and how finely the page holds them.

    `values_bin_s` is None where every reading is there; `bars_omitted` counts phases that are only in the sums.
    """

    axis: TimeAxis
    figures: tuple[Figure, ...]
    phases: tuple[str, ...]
    causes: tuple[str, ...]
    jobs: tuple[str, ...]
    bars: int
    bars_omitted: int
    values_bin_s: float | None
    sums_bin_s: float
    sums_bins: int
    tick_s: float
    samples_unplaced: bool
    command: str


def build_timeline(
    trace: Trace, diagnosis: Diagnosis, colours: dict[str, Any], budget: Budget | None = None
) -> Timeline | None:
    """The timeline of a trace, or None where nothing in it has a time."""
    room = budget or Budget()
    axis = time_axis(trace, diagnosis)
    if axis is None:
        return None
    drawable = leaves(trace.phases, axis)
    numbers = sorted(
        {*drawable["gpu"].unique(), *(gpu.gpu for gpu in trace.gpus), *(gpu.gpu for gpu in diagnosis.gpus)}
    )
    read = trace.samples if is_clocked(trace) else trace.samples.clear()
    samples, states = _by_gpu(read.select(READ), numbers), _by_gpu(diagnosis.states, numbers)
    readings = {gpu: readings_of(gpu, samples[gpu], states[gpu], trace, diagnosis, axis) for gpu in numbers}
    values_bin_s = _values_bin_s(readings, axis, room)
    own, lost = _by_gpu(drawable, numbers), _by_gpu(diagnosis.blame, numbers)
    kinds = sum(len(sum_names(own[gpu], readings[gpu], lost[gpu])) for gpu in numbers)
    span_s = axis.end_s - axis.start_s
    sums_bin_s = round_up(max(span_s * kinds / room.cells, room.finest_sum_s))
    held = hold(drawable, diagnosis, axis, room.bars)
    seen = set(drawable["name"].unique())
    phases = (*(name for name in PHASE_NAMES if name in seen), *sorted(seen - set(PHASE_NAMES)))
    calls = _calls(trace, held)
    builder = FigureBuilder(
        diagnosis=diagnosis,
        axis=axis,
        colours=colours,
        regimes=regime_colours(diagnosis, colours),
        phases=phases,
        tick_s=tick_s(span_s),
        values_bin_s=values_bin_s,
        peak_gb_per_s=max((own.peak_gb_per_s for own in readings.values()), default=0.0),
        edges_s=axis.start_s + sums_bin_s * np.arange(int(np.ceil(span_s / sums_bin_s - 1e-9)) + 1, dtype=np.float64),
    )
    figures = tuple(
        figure
        for gpu in numbers
        if (figure := _figure(builder, gpu, own[gpu], readings[gpu], lost[gpu], held, calls)) is not None
    )
    if not figures:
        return None
    shaded = {gap.cause for gap in diagnosis.gaps.list}
    charged = {total.cause: total.total_s for total in diagnosis.gaps.by_cause}
    return Timeline(
        axis=axis,
        figures=figures,
        phases=phases,
        causes=tuple(cause for cause, lost_s in charged.items() if lost_s > 0 or cause in shaded),
        jobs=tuple(calls["job"].drop_nulls().unique().sort()),
        bars=held.bars.height,
        bars_omitted=drawable.height - held.bars.height,
        values_bin_s=values_bin_s,
        sums_bin_s=sums_bin_s,
        sums_bins=len(builder.edges_s) - 1,
        tick_s=builder.tick_s,
        samples_unplaced=trace.samples.height > 0 and not is_clocked(trace),
        command=command_of(trace),
    )


def _by_gpu(frame: pl.DataFrame, numbers: Sequence[int]) -> dict[int, pl.DataFrame]:
    """The rows of each GPU; without rows, whatever the frame's columns."""
    parts = frame.partition_by("gpu", as_dict=True) if frame.height else {}
    return {gpu: parts.get((gpu,), frame.clear()) for gpu in numbers}


def _values_bin_s(readings: dict[int, GpuReadings], axis: TimeAxis, room: Budget) -> float | None:
    """The bins in which readings are kept; None where all of them fit."""
    series = [steps for own in readings.values() for steps in own.series.values()]
    if sum(len(steps.value) for steps in series) <= room.values:
        return None
    return round_up((axis.end_s - axis.start_s) * 2 * len(series) / room.values)


def _calls(trace: Trace, held: Held) -> pl.DataFrame:
    """call, worker, partition, job of the calls that have bars."""
    return trace.calls.select("call", "worker", "partition", "job").join(held.bars, on="call", how="semi").sort("call")


def _figure(
    builder: FigureBuilder,
    gpu: int,
    own: pl.DataFrame,
    readings: GpuReadings,
    lost: pl.DataFrame,
    held: Held,
    calls: pl.DataFrame,
) -> Figure | None:
    columns = Columns()
    lanes = lane_names(own)
    bars = held.bars.filter(pl.col("gpu") == gpu)
    gaps: list[Gap] = [gap for gap in builder.diagnosis.gaps.list if gap.gpu == gpu]
    told = {
        "lanes": builder.bars(columns, lanes, bars, calls),
        "held": None if held.stretches is None else [list(span) for span in held.stretches.get(gpu, ())],
        "series": builder.series(columns, readings),
        "sums": builder.sums(columns, own, readings, lost),
        "gaps": builder.gap_rows(gaps),
    }
    specs = {
        "regimes": builder.regime_panel(),
        "phases": builder.phase_panel(lanes, own),
        "lost": builder.lost_panel(lost, readings),
        "link": builder.link_panel(readings),
        "compute": builder.compute_panel(readings, gaps),
    }
    panels = tuple(Panel(f"gpu{gpu}-{kind}", kind, spec) for kind, spec in specs.items() if spec is not None)
    if all(panel.kind == "regimes" for panel in panels):
        return None
    return Figure(
        gpu=gpu,
        panels=panels,
        line_rate_bytes_per_s=readings.line_rate_bytes_per_s,
        link_limit_bytes_per_s=readings.link_limit_bytes_per_s,
        compute_source=readings.compute_source,
        states=readings.state_names,
        store=columns.pack(),
        told=told,
    )
