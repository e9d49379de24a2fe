"""One GPU of the timeline: its readings, what is put into the store of them, and the specifications of its panels."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import Diagnosis, Gap
from gputrace.ingest.samples import WIRE_PER_PAYLOAD_OF
from gputrace.render.charts import timeline as charts
from gputrace.render.charts.timeline import TimeAxis
from gputrace.render.timeline.columns import Columns, Floats
from gputrace.render.timeline.series import Steps, add_extremes, add_steps, extremes, steps_of
from gputrace.render.timeline.sums import Spread, add_counts, count_units
from gputrace.trace import Trace

# Levels of a bin in the store, by the width of its column.
_LEVELS = {"u1": 255, "u2": 65535}
# The columns of samples that are drawn.
READ = ("gpu", "start_ns", "end_ns", "rx_wire_bytes", "tx_wire_bytes", "sm_active", "gpu_util")
# Seconds of each state. Without PCIe readings copying cannot be told from idling: both are "not computing".
_STATES = {"compute": pl.col("compute_s"), "copy-only": pl.col("copy_only_s"), "idle": pl.col("idle_s")}
_UNSPLIT_STATES = {"compute": pl.col("compute_s"), "not computing": pl.col("copy_only_s") + pl.col("idle_s")}


@dataclass(frozen=True)
class GpuReadings:
    """What was read of one GPU. `series`: rx and tx in payload GB/s, sm as a share; `states` and `moved` add up.

    `split` says whether time without computing divides into copy-only and idle.
    """

    series: dict[str, Steps]
    states: pl.DataFrame
    split: bool
    moved: dict[str, Spread]
    compute_source: str
    line_rate_bytes_per_s: float | None
    link_limit_bytes_per_s: float | None

    @property
    def state_names(self) -> tuple[str, ...]:
        """The states that can be told apart; none without an account of them."""
        return tuple(self.state_seconds) if self.states.height else ()

    @property
    def state_seconds(self) -> dict[str, pl.Expr]:
        """Seconds of each state, from the columns of `states`."""
        return _STATES if self.split else _UNSPLIT_STATES

    @property
    def peak_gb_per_s(self) -> float:
        """The highest rate either way; 0 where none is known."""
        traffic = [steps.value for name, steps in self.series.items() if name in WIRE_PER_PAYLOAD_OF]
        return max((float(np.nanmax(values, initial=0.0)) for values in traffic), default=0.0)


def readings_of(
    gpu: int, own: pl.DataFrame, states: pl.DataFrame, trace: Trace, diagnosis: Diagnosis, axis: TimeAxis
) -> GpuReadings:
    """The readings of one GPU that lie on the axis, from its samples (columns `READ`) and states."""
    finding = next((item for item in diagnosis.gpus if item.gpu == gpu), None)
    info = next((item for item in trace.gpus if item.gpu == gpu), None)
    series, moved = {}, {}
    length = pl.col("end_ns") - pl.col("start_ns")
    for name, factor in WIRE_PER_PAYLOAD_OF.items():
        payload = pl.col(f"{name}_wire_bytes") / factor
        read = own.filter(length > 0).select("start_ns", "end_ns", (payload / length).alias("value"))
        if read["value"].count():
            series[name] = steps_of(read, axis)
            known = own.select("start_ns", "end_ns", payload.alias("amount")).drop_nulls("amount")
            moved[name] = _spread(known, axis)
    busy, source = _busy(own, states, finding.state_source if finding else None)
    if busy["value"].count():
        series["sm"] = steps_of(busy, axis)
    raw = (finding.link_limit_bytes_per_s if finding else None) or (info.link_limit_bytes_per_s if info else None)
    return GpuReadings(
        series=series,
        states=states,
        split=finding is not None and finding.copy_only_share is not None and finding.idle_share is not None,
        moved=moved,
        compute_source=source,
        line_rate_bytes_per_s=finding.line_rate_bytes_per_s if finding else None,
        link_limit_bytes_per_s=None if raw is None else raw / WIRE_PER_PAYLOAD_OF["rx"],
    )


def _busy(samples: pl.DataFrame, states: pl.DataFrame, state_source: str | None) -> tuple[pl.DataFrame, str]:
    """start_ns, end_ns, value (share of SMs busy), and what that was taken from."""
    length = pl.col("end_ns") - pl.col("start_ns")
    if states.height:
        value = (pl.col("compute_s") * 1e9 / length).clip(0, 1)
        return states.filter(length > 0).select("start_ns", "end_ns", value.alias("value")), state_source or "unknown"
    for column, source in (("sm_active", "SM activity"), ("gpu_util", "utilization.gpu, which may count copies")):
        if samples[column].count():
            return samples.select("start_ns", "end_ns", pl.col(column).alias("value")), source
    return samples.select("start_ns", "end_ns", pl.lit(None, pl.Float64).alias("value")), "unknown"


def _spread(frame: pl.DataFrame, axis: TimeAxis) -> Spread:
    """start_ns, end_ns, amount."""
    seconds = frame.select(*((pl.col(name) - axis.origin_ns) / 1e9 for name in ("start_ns", "end_ns")), "amount")
    start, end, amount = (seconds[name].to_numpy().astype(np.float64) for name in ("start_ns", "end_ns", "amount"))
    return Spread(start, end, amount)


def sum_names(own: pl.DataFrame, readings: GpuReadings, lost: pl.DataFrame) -> list[tuple[str, str]]:
    """(group, name) of everything that is summed for one GPU: phases by lane, states, causes, bytes."""
    phases = own.select("lane", "name").unique().sort("lane", "name").rows()
    causes = lost["cause"].unique().sort().to_list() if lost.height else []
    return [
        *((str(lane), str(name)) for lane, name in phases),
        *(("state", name) for name in readings.state_names),
        *(("lost to", name) for name in causes),
        *(("bytes", name) for name in readings.moved),
    ]


@dataclass(frozen=True)
class FigureBuilder:
    """Puts one GPU after another into stores and panels that share axes, bins and colours."""

    diagnosis: Diagnosis
    axis: TimeAxis
    colours: dict[str, Any]
    regimes: dict[str, str]
    phases: Sequence[str]
    tick_s: float
    values_bin_s: float | None
    edges_s: Floats
    peak_gb_per_s: float
    _made: dict[str, charts.Spec] = field(default_factory=dict)

    def bars(
        self, columns: Columns, lanes: Sequence[str], bars: pl.DataFrame, calls: pl.DataFrame
    ) -> list[dict[str, Any]]:
        """Stores the bars of each lane in order of time, and the calls that they belong to."""
        number = {name: i for i, name in enumerate(self.phases)}
        known = calls.join(bars, on="call", how="semi").sort("call")
        jobs = {job: i for i, job in enumerate(calls["job"].drop_nulls().unique().sort())}
        columns.add("call.number", "d4", known["call"].to_numpy().astype(np.int64))
        for name in ("worker", "partition"):
            columns.add(f"call.{name}", "d4", (known[name].cast(pl.Int64).fill_null(-1) + 1).to_numpy())
        job = known["job"].replace_strict(jobs, default=None, return_dtype=pl.Int64).fill_null(-1) + 1
        columns.add("call.job", "d4", job.to_numpy())
        told = []
        for i, lane in enumerate(lanes):
            own = bars.filter(pl.col("lane") == lane).sort("start_s", "end_s", "call", "name")
            start = np.rint((own["start_s"].to_numpy() - self.axis.start_s) / self.tick_s).astype(np.int64)
            end = np.rint((own["end_s"].to_numpy() - self.axis.start_s) / self.tick_s).astype(np.int64)
            columns.add(f"lane{i}.start", "d4", start)
            columns.add(f"lane{i}.length", "u4", end - start)
            phase = own["name"].replace_strict(number, return_dtype=pl.Int64).to_numpy()
            columns.add(f"lane{i}.phase", "u1", phase)
            columns.add(f"lane{i}.call", "d4", own["call"].to_numpy().astype(np.int64))
            told.append({"name": lane, "bars": own.height})
        return told

    def series(self, columns: Columns, readings: GpuReadings) -> list[dict[str, Any]]:
        """Stores the readings; those of the same times share them."""
        told: list[dict[str, Any]] = []
        timed: dict[str, Steps] = {}
        for name, steps in readings.series.items():
            if self.values_bin_s is not None:
                bins = int(np.ceil((self.axis.end_s - self.axis.start_s) / self.values_bin_s - 1e-9))
                found = extremes(steps, self.axis.start_s, self.values_bin_s, bins)
                told.append({"name": name, "bin_s": self.values_bin_s, "level": add_extremes(columns, name, found)})
                continue
            same = next((other for other, s in timed.items() if np.array_equal(s.time_s, steps.time_s)), None)
            level = add_steps(columns, name, steps, self.axis, self.tick_s, same)
            timed.setdefault(name, steps)
            told.append({"name": name, "times": same or name, "level": level})
        return told

    def sums(
        self, columns: Columns, own: pl.DataFrame, readings: GpuReadings, lost: pl.DataFrame
    ) -> list[dict[str, Any]]:
        """Stores what adds up, in bins."""
        bin_s = float(self.edges_s[1] - self.edges_s[0])
        told = []
        for i, (group, name, spread) in enumerate(self._spreads(own, readings, lost)):
            kind, whole = ("u2", None) if group == "bytes" else ("u1", bin_s)
            counts = count_units(spread, self.edges_s, _LEVELS[kind], whole)
            told.append({"group": group, "name": name, "unit": add_counts(columns, f"sum{i}", counts, kind)})
        return told

    def _spreads(
        self, own: pl.DataFrame, readings: GpuReadings, lost: pl.DataFrame
    ) -> Iterator[tuple[str, str, Spread]]:
        phases = own.partition_by("lane", "name", as_dict=True)
        for group, name in sum_names(own, readings, lost):
            if group == "bytes":
                yield group, name, readings.moved[name]
            elif group == "state":
                seconds = readings.state_seconds[name].alias("amount")
                yield group, name, _spread(readings.states.select("start_ns", "end_ns", seconds), self.axis)
            elif group == "lost to":
                seconds = (pl.col("copy_only_s") + pl.col("idle_s")).alias("amount")
                rows = lost.filter(pl.col("cause") == name).select("start_ns", "end_ns", seconds)
                yield group, name, _spread(rows, self.axis)
            else:
                bars = phases[(group, name)]
                start, end = bars["start_s"].to_numpy(), bars["end_s"].to_numpy()
                yield group, name, Spread(start, end, end - start)

    def gap_rows(self, gaps: Sequence[Gap]) -> list[dict[str, Any]]:
        """The listed gaps in order of time, as the page tells of them."""
        return [
            {
                "start": round(self.axis.seconds(gap.start_ns), 4),
                "end": round(self.axis.seconds(gap.end_ns), 4),
                "name": gap.cause,
                "phase": gap.phase or "none",
                "call": "none" if gap.call is None else str(gap.call),
                "rx": "unknown" if gap.rx_bytes_per_s is None else f"{gap.rx_bytes_per_s / 1e9:.2f} GB/s",
            }
            for gap in sorted(gaps, key=lambda gap: (gap.start_ns, gap.end_ns))
        ]

    def regime_panel(self) -> charts.Spec | None:
        """The regimes, which are of the whole run."""
        if not self.diagnosis.regimes:
            return None
        bands = [
            {
                "start": round(self.axis.seconds(regime.start_ns), 4),
                "end": round(self.axis.seconds(regime.end_ns), 4),
                "name": regime.label,
                "calls": regime.calls,
                "reason": regime.reason,
                "cause": regime.main_cause or "none supported",
            }
            for regime in self.diagnosis.regimes
        ]
        return self._once(charts.regimes, bands, self.axis, self.regimes)

    def phase_panel(self, lanes: Sequence[str], own: pl.DataFrame) -> charts.Spec | None:
        """What each worker did, lane by lane."""
        if own.is_empty():
            return None
        return self._once(charts.lanes, lanes, self.axis, self._palette("phases", own["name"].unique().to_list()))

    def lost_panel(self, lost: pl.DataFrame, readings: GpuReadings) -> charts.Spec | None:
        """How time divides into states, and what the lost seconds were charged to."""
        if readings.states.is_empty():
            return None
        causes = lost["cause"].unique().to_list() if lost.height else []
        palette = self._palette("states", readings.state_names) | self._palette("causes", causes)
        return self._once(charts.lanes, ["state", "lost to"], self.axis, palette, 30, 1)

    def link_panel(self, readings: GpuReadings) -> charts.Spec | None:
        """What crossed the link, under what it can carry."""
        traffic = [name for name in WIRE_PER_PAYLOAD_OF if name in readings.series]
        if not traffic:
            return None
        rules = [
            (words, rate / 1e9)
            for words, rate in (
                ("link's limit", readings.link_limit_bytes_per_s),
                ("line rate", readings.line_rate_bytes_per_s),
            )
            if rate is not None
        ]
        return self._once(charts.link_traffic, traffic, self.peak_gb_per_s, rules, self.axis, self.colours["series"])

    def compute_panel(self, readings: GpuReadings, gaps: Sequence[Gap]) -> charts.Spec | None:
        """How busy the SMs were, before the gaps."""
        if "sm" not in readings.series:
            return None
        palette = self._palette("causes", sorted({gap.cause for gap in gaps}))
        return self._once(charts.compute_share, self.axis, self.colours["states"], palette)

    def _once(self, make: Callable[..., charts.Spec], *given: Any) -> charts.Spec:
        """The specification for these arguments; GPUs of one run mostly have the same, and making one takes long."""
        key = repr((make.__name__, given))
        if key not in self._made:
            self._made[key] = make(*given)
        return self._made[key]

    def _palette(self, kind: str, names: Sequence[str]) -> dict[str, str]:
        known: dict[str, str] = self.colours[kind]
        return {name: known.get(name, self.colours["other"]) for name in sorted(set(names))}
