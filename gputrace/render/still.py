"""The timeline as pictures: frames on one time axis, and the panels drawn from them, each with its data."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from gputrace.analysis.diagnosis import Diagnosis, GpuFinding
from gputrace.ingest.samples import WIRE_PER_PAYLOAD_OF
from gputrace.render.charts import still as charts
from gputrace.render.charts.still import TimeAxis
from gputrace.schema import CONTAINS_OTHERS, LEAVES_UNDER_MUTEX, PHASE_NAMES
from gputrace.trace import Trace

MOST_BARS = 8000
MOST_POINTS = 6000
# Samples further apart than this leave a hole in a line.
_HOLE_S = 0.001

# What one worker does one at a time, a lane each; phases of a lane never overlap.
_LANES = {
    "GPU": LEAVES_UNDER_MUTEX,
    "wait": ("pre_lock", "mutex_wait", "release_abc"),
    "prep": ("split_vectors", "prep_msm"),
    "G2": ("b_g2_msm", "async_dealloc"),
}
_OTHER = "other"


@dataclass(frozen=True)
class Panel:
    """One chart: `kind` is regimes, phases, link or compute; `key` names its element in the page."""

    key: str
    kind: str
    spec: charts.Spec


@dataclass(frozen=True)
class Figure:
    """All panels of one GPU. `line_rate` in payload bytes per second; `compute_source` says what the share is."""

    gpu: int
    panels: tuple[Panel, ...]
    line_rate_bytes_per_s: float | None
    compute_source: str


@dataclass(frozen=True)
class Timeline:
    """The figures of all GPUs on one axis, what their colours mean, and what was left out of them."""

    axis: TimeAxis
    figures: tuple[Figure, ...]
    phases: tuple[str, ...]
    causes: tuple[str, ...]
    bars: int
    bars_omitted: int
    samples_unplaced: bool


def build_timeline(trace: Trace, diagnosis: Diagnosis, colours: dict[str, Any]) -> Timeline | None:
    """The timeline of a trace, or None where nothing in it has a time."""
    axis = time_axis(trace, diagnosis)
    if axis is None:
        return None
    drawable = _leaves(trace.phases)
    bars = _longest(drawable.drop_nulls("gpu"))
    seen = set(bars["name"])
    numbers = sorted(
        {*bars["gpu"].drop_nulls(), *(gpu.gpu for gpu in trace.gpus), *(gpu.gpu for gpu in diagnosis.gpus)}
    )
    builder = _Builder(trace, diagnosis, axis, colours, bars)
    figures = tuple(figure for figure in map(builder.figure, numbers) if figure.panels)
    if not figures:
        return None
    causes = [total.cause for total in diagnosis.gaps.by_cause]
    shaded = {gap.cause for gap in diagnosis.gaps.list}
    return Timeline(
        axis=axis,
        figures=figures,
        phases=tuple(name for name in PHASE_NAMES if name in seen),
        causes=tuple(cause for cause in causes if cause in shaded),
        bars=bars.height,
        bars_omitted=drawable.height - bars.height,
        samples_unplaced=trace.samples.height > 0 and not _clocked(trace),
    )


def time_axis(trace: Trace, diagnosis: Diagnosis) -> TimeAxis | None:
    """From the first thing the log shows to the last; zero is the window's start. Without a log, the samples' span."""
    window = diagnosis.window
    starts = [window.start_ns, trace.phases["start_ns"].min(), trace.calls["start_ns"].min()]
    ends = [window.end_ns, trace.phases["end_ns"].max(), trace.calls["end_ns"].max()]
    if window.start_ns is None and trace.phases["start_ns"].count() == 0:
        starts, ends = [trace.samples["start_ns"].min()], [trace.samples["end_ns"].max()]
    known = (
        [int(time) for time in starts if isinstance(time, int)],
        [int(time) for time in ends if isinstance(time, int)],
    )
    if not all(known):
        return None
    start_ns, end_ns = min(known[0]), max(known[1])
    origin_ns = start_ns if window.start_ns is None else window.start_ns
    return TimeAxis(
        origin_ns=origin_ns,
        start_s=round((start_ns - origin_ns) / 1e9, 4),
        end_s=round(max(end_ns - origin_ns, start_ns - origin_ns + 1_000_000) / 1e9, 4),
        utc=_clocked(trace),
    )


def regime_colours(diagnosis: Diagnosis, colours: dict[str, Any]) -> dict[str, str]:
    """A colour for each label of a regime, in the order in which they come; equal labels look the same."""
    labels = list(dict.fromkeys(regime.label for regime in diagnosis.regimes))
    return {label: colours["regimes"][i % len(colours["regimes"])] for i, label in enumerate(labels)}


def decimate(series: pl.DataFrame, most: int = MOST_POINTS) -> pl.DataFrame:
    """time_s, value to at most `most` rows: of every bin of time the lowest, the highest and, if any, a hole."""
    if series.height <= most:
        return series
    bins = most // 3
    start, span = series["time_s"][0], max(series["time_s"][-1] - series["time_s"][0], 1e-9)
    row, value = pl.col("row"), pl.col("value")
    kept = (
        series.with_row_index("row")
        .group_by(((pl.col("time_s") - start) / span * bins).floor().clip(0, bins - 1))
        .agg(
            row.sort_by("value", nulls_last=True).first().alias("low"),
            row.sort_by("value", descending=True, nulls_last=True).first().alias("high"),
            row.filter(value.is_null()).first().alias("hole"),
        )
    )
    rows = pl.concat([kept[name] for name in ("low", "high", "hole")]).drop_nulls().unique().sort()
    return series[rows]


def _clocked(trace: Trace) -> bool:
    """Whether times are times of day: the log lies on the wall clock, or there are only samples."""
    return trace.clock.method != "none" or trace.marks.is_empty()


def _leaves(phases: pl.DataFrame) -> pl.DataFrame:
    """The phases that can be drawn, with the lane of each; those that contain others would hide them."""
    lane_of = {name: lane for lane, names in _LANES.items() for name in names}
    worker = pl.col("worker").cast(pl.String).fill_null("?")
    kind = pl.col("name").replace_strict(lane_of, default=_OTHER, return_dtype=pl.String)
    lasts = (pl.col("end_ns") > pl.col("start_ns")).fill_null(False)
    return phases.filter(lasts & ~pl.col("name").is_in(list(CONTAINS_OTHERS))).with_columns(
        (pl.lit("w") + worker + " " + kind).alias("lane")
    )


def _longest(leaves: pl.DataFrame, most: int = MOST_BARS) -> pl.DataFrame:
    """At most `most` of them, the longest of every lane: by length alone, waits would crowd out the GPU's phases."""
    ordered = leaves.sort("duration_ms", "start_ns", "call", "name", descending=[True, False, False, False])
    ranked = ordered.with_columns(pl.int_range(pl.len()).over("gpu", "lane").alias("rank"))
    return ranked.sort("rank", maintain_order=True).head(most).drop("rank").sort("start_ns", "call", "name")


def _steps(readings: pl.DataFrame, axis: TimeAxis) -> pl.DataFrame:
    """start_ns, end_ns, value to time_s, value: a value holds until the next row; null where nothing was read."""
    seconds = readings.sort("start_ns").select(
        axis.seconds_of("start_ns").alias("time_s"), axis.seconds_of("end_ns").alias("until_s"), "value"
    )
    following = pl.col("time_s").shift(-1)
    ends = seconds.filter(following.is_null() | (following - pl.col("until_s") > _HOLE_S)).select(
        pl.col("until_s").alias("time_s"), pl.lit(None, pl.Float64).alias("value")
    )
    inside = pl.col("time_s").is_between(axis.start_s, axis.end_s)
    steps = pl.concat([seconds.select("time_s", "value"), ends]).sort("time_s", maintain_order=True)
    return decimate(steps.filter(inside))


@dataclass(frozen=True)
class _Builder:
    """Draws the figure of one GPU after another from the same trace."""

    trace: Trace
    diagnosis: Diagnosis
    axis: TimeAxis
    colours: dict[str, Any]
    bars: pl.DataFrame

    def figure(self, gpu: int) -> Figure:
        finding = next((item for item in self.diagnosis.gpus if item.gpu == gpu), None)
        line_rate = finding.line_rate_bytes_per_s if finding else None
        busy, source = self._compute(gpu, finding)
        specs = {
            "regimes": self._regimes(),
            "phases": self._phases(gpu),
            "link": self._link(gpu, line_rate),
            "compute": self._compute_panel(gpu, busy),
        }
        panels = tuple(Panel(f"gpu{gpu}-{kind}", kind, spec) for kind, spec in specs.items() if spec is not None)
        if all(panel.kind == "regimes" for panel in panels):
            panels = ()
        return Figure(gpu, panels, line_rate, source)

    def _regimes(self) -> charts.Spec | None:
        if not self.diagnosis.regimes:
            return None
        bands = pl.DataFrame(
            [
                {
                    "start_s": round(self.axis.seconds(regime.start_ns), 4),
                    "end_s": round(self.axis.seconds(regime.end_ns), 4),
                    "label": regime.label,
                    "calls": regime.calls,
                    "reason": regime.reason,
                    "cause": regime.main_cause or "none supported",
                }
                for regime in self.diagnosis.regimes
            ]
        )
        return charts.regimes(bands, self.axis, regime_colours(self.diagnosis, self.colours))

    def _phases(self, gpu: int) -> charts.Spec | None:
        own = self.bars.filter(pl.col("gpu") == gpu)
        if own.is_empty():
            return None
        bars = own.select(
            "lane",
            pl.col("name").alias("phase"),
            "call",
            self.axis.seconds_of("start_ns").alias("start_s"),
            self.axis.seconds_of("end_ns").alias("end_s"),
            "duration_ms",
        )
        workers = own["worker"].unique().sort(nulls_last=True).to_list()
        # The lanes of the mutex lie under one another, whoever holds it: there one sees workers take turns.
        holding, *beside = (*_LANES, _OTHER)
        order = [(number, holding) for number in workers] + [(n, lane) for n in workers for lane in beside]
        names = [f"w{'?' if number is None else number} {lane}" for number, lane in order]
        used = set(bars["lane"])
        calls = self.trace.calls.filter(pl.col("call").is_in(own["call"].unique().to_list())).select(
            "call", pl.col("worker", "partition", "job").cast(pl.String).fill_null("unknown")
        )
        lanes = [name for name in names if name in used]
        return charts.gantt(bars, calls, lanes, self.axis, self._palette("phases", bars["phase"]))

    def _link(self, gpu: int, line_rate_bytes_per_s: float | None) -> charts.Spec | None:
        if not _clocked(self.trace):
            return None
        samples = self.trace.samples.filter(pl.col("gpu") == gpu)
        parts = []
        for name in ("rx", "tx"):
            wire = pl.col(f"{name}_wire_bytes")
            gb_per_s = (wire / WIRE_PER_PAYLOAD_OF[name] / (pl.col("end_ns") - pl.col("start_ns"))).round(4)
            readings = samples.select("start_ns", "end_ns", gb_per_s.alias("value"))
            if readings["value"].count():
                parts.append(_steps(readings, self.axis).with_columns(pl.lit(name).alias("series")))
        if not parts:
            return None
        rate = None if line_rate_bytes_per_s is None else line_rate_bytes_per_s / 1e9
        return charts.link_traffic(pl.concat(parts), rate, self.axis, self.colours["series"])

    def _compute(self, gpu: int, finding: GpuFinding | None) -> tuple[pl.DataFrame, str]:
        """start_ns, end_ns, value (share of SMs busy), and what that was taken from."""
        states = self.diagnosis.states
        length = pl.col("end_ns") - pl.col("start_ns")
        if finding is not None and states.height:
            own = states.filter((pl.col("gpu") == gpu) & (length > 0))
            value = (pl.col("compute_s") * 1e9 / length).clip(0, 1).round(4)
            return own.select("start_ns", "end_ns", value.alias("value")), finding.state_source or "unknown"
        samples = (
            self.trace.samples.filter(pl.col("gpu") == gpu) if _clocked(self.trace) else self.trace.samples.clear()
        )
        for column, source in (("sm_active", "SM activity"), ("gpu_util", "utilization.gpu, which may count copies")):
            if samples[column].count():
                return samples.select("start_ns", "end_ns", pl.col(column).round(4).alias("value")), source
        return samples.select("start_ns", "end_ns", pl.lit(None, pl.Float64).alias("value")), "unknown"

    def _compute_panel(self, gpu: int, busy: pl.DataFrame) -> charts.Spec | None:
        if busy["value"].count() == 0:
            return None
        gaps = pl.DataFrame(
            [
                {
                    "start_s": round(self.axis.seconds(gap.start_ns), 4),
                    "end_s": round(self.axis.seconds(gap.end_ns), 4),
                    "duration_ms": round(gap.duration_ms, 1),
                    "cause": gap.cause,
                    "phase": gap.phase or "none",
                    "call": "none" if gap.call is None else str(gap.call),
                    "rx": "unknown" if gap.rx_bytes_per_s is None else f"{gap.rx_bytes_per_s / 1e9:.2f} GB/s",
                }
                for gap in self.diagnosis.gaps.list
                if gap.gpu == gpu
            ]
        )
        names = gaps["cause"] if gaps.height else pl.Series(dtype=pl.String)
        palette = self._palette("causes", names)
        return charts.compute_share(_steps(busy, self.axis), gaps, self.axis, self.colours["states"], palette)

    def _palette(self, kind: str, names: pl.Series) -> dict[str, str]:
        known: dict[str, str] = self.colours[kind]
        return {name: known.get(name, self.colours["other"]) for name in sorted(set(names))}
