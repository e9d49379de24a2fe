"""A `Trace` and a moment to what a screen shows of it. Pure: no clock, no files.

`Board.of(trace)` does once what does not depend on the moment; `Board.at(now_ns)` is cheap enough for every frame. Of
what the trace holds, only what has happened by the moment is shown; of a call under way in an old run, though, the
phase that it is in is known from the lines printed later.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.account import gpu_views
from gputrace.analysis.segments import Windows, alloc_bursts, build_segments
from gputrace.analysis.thresholds import Thresholds
from gputrace.ingest.samples import WIRE_PER_PAYLOAD
from gputrace.live.workers import Syntheses, WorkerNow, Workers
from gputrace.schema import CONTAINS_OTHERS, PHASE_NAMES
from gputrace.trace import GpuInfo, Trace

# Rates are means over this, states over the longer one: a call of a GPU prover takes from half a second to some.
RATE_S, RECENT_S = 1.0, 10.0
STRIP_CELLS = 20
STATES = ("compute", "copy-only", "idle")
# A reading this old says nothing about now.
STALE_S = 5.0

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GpuNow:
    """One GPU around a moment. Shares are of the readings of the last `RECENT_S` seconds and add up to 1.

    Rates are payload bytes a second over the last `RATE_S`; `rx_link_share` is of the link's raw rate, headers
    included. `strip` has the state of each slice of the last `RECENT_S`, oldest first: C, c (copy-only), . (idle) or
    a blank where there is no reading. `state` is None without a reading in the last `STALE_S` seconds.
    """

    gpu: int
    info: GpuInfo
    state: str | None = None
    compute_share: float | None = None
    copy_only_share: float | None = None
    idle_share: float | None = None
    sm_share: float | None = None
    rx_bytes_per_s: float | None = None
    tx_bytes_per_s: float | None = None
    rx_link_share: float | None = None
    tx_link_share: float | None = None
    strip: str = ""
    age_s: float | None = None
    source: str = ""


@dataclass(frozen=True)
class PhaseNow:
    """One kind of phase over the complete calls that ended in the window; milliseconds."""

    name: str
    count: int
    min_ms: float
    median_ms: float
    p95_ms: float
    max_ms: float
    total_ms: float


@dataclass(frozen=True)
class Moment:
    """Everything that the frames say about one moment."""

    now_ns: int
    gpus: tuple[GpuNow, ...] = ()
    workers: tuple[WorkerNow, ...] = ()
    phases: tuple[PhaseNow, ...] = ()
    calls_ended: int = 0
    calls_per_s: float | None = None
    syntheses_running: int | None = None
    queued: int | None = None


@dataclass(frozen=True)
class _Account:
    """One GPU's states as arrays over its readings; nan is unknown."""

    info: GpuInfo
    start_ns: _Ints
    end_ns: _Ints
    parts_s: _Floats
    rx: _Floats
    tx: _Floats
    sampled: bool
    source: str


class Board:
    """A trace, made ready to be asked about moments. `absolute`: they are wall-clock times."""

    def __init__(self, trace: Trace, thresholds: Thresholds | None = None) -> None:
        if not is_clocked(trace) and trace.calls.is_empty() and not trace.samples.is_empty():
            # The log's first lines do not say when they were written: until some do, there are the readings.
            trace = replace(trace, marks=trace.marks.clear(), syntheses=trace.syntheses.clear())
        self.absolute = is_clocked(trace)
        self.start_ns, self.end_ns = _extent(trace)
        self._accounts = _accounts(trace, thresholds or Thresholds())
        self._workers = Workers(trace)
        self._phases = _ended_phases(trace)
        self._unlocks = np.sort(trace.calls.filter("complete")["unlock_ns"].drop_nulls().to_numpy())
        self._syntheses = Syntheses(trace)
        self._table: tuple[tuple[int, int], tuple[PhaseNow, ...]] = ((-1, -1), ())

    def at(self, now_ns: int, window_s: float = 300.0) -> Moment:
        """What is known at `now_ns`; the phase table looks back over `window_s` seconds."""
        begin_ns = now_ns - round(window_s * 1e9)
        low, high = np.searchsorted(self._unlocks, [begin_ns, now_ns], side="right")
        unlocks = self._unlocks[low:high]
        span_s = float(unlocks[-1] - unlocks[0]) / 1e9 if len(unlocks) > 1 else 0.0
        running, queued = self._syntheses.at(now_ns)
        return Moment(
            now_ns=now_ns,
            gpus=tuple(_gpu_now(gpu, account, now_ns) for gpu, account in sorted(self._accounts.items())),
            workers=self._workers.at(now_ns, queued),
            phases=self._phase_table(begin_ns, now_ns),
            calls_ended=int(high - low),
            calls_per_s=(len(unlocks) - 1) / span_s if span_s > 0 else None,
            syntheses_running=running,
            queued=queued,
        )

    def _phase_table(self, begin_ns: int, now_ns: int) -> tuple[PhaseNow, ...]:
        ended = self._phases["ended_ns"].to_numpy()
        span = (int(np.searchsorted(ended, begin_ns, side="right")), int(np.searchsorted(ended, now_ns, side="right")))
        if self._table[0] != span:
            self._table = span, _summary(self._phases.slice(span[0], span[1] - span[0]))
        return self._table[1]


def is_clocked(trace: Trace) -> bool:
    """Whether all of it is on the wall clock."""
    return trace.clock.method != "none" or trace.marks.is_empty()


def _extent(trace: Trace) -> tuple[int, int]:
    """First and last time that anything in the trace has; 0, 0 without any.

    Where nothing ties the log to the wall clock its times count from the engine's start: readings are on another clock.
    """
    clocked = is_clocked(trace)
    times = [
        value
        for frame, columns in (
            (trace.samples if clocked else trace.samples.clear(), ("start_ns", "end_ns")),
            (trace.calls, ("start_ns", "unlock_ns", "end_ns", "finish_ns")),
            # What a line without a time ends was over when it was printed.
            (trace.phases, ("end_ns",)),
            (trace.syntheses, ("start_ns", "end_ns")),
        )
        for column in columns
        for value in (frame[column].min(), frame[column].max())
        if value is not None
    ]
    if clocked:
        stamps = trace.marks.select(pl.coalesce("log_ns", "arrival_ns"))["log_ns"]
        times += [value for value in (stamps.min(), stamps.max()) if value is not None]
    return (int(min(times)), int(max(times))) if times else (0, 0)  # type: ignore[arg-type]


def _accounts(trace: Trace, thresholds: Thresholds) -> dict[int, _Account]:
    """Per GPU its account over all its readings, also before the first call and after the last.

    The states are those of the report (`GpuView.states`), so that a screen and a report never disagree.
    """
    clocked = is_clocked(trace)
    spans = [trace.calls.select("gpu", pl.col("lock_ns").alias("start_ns"), pl.col("unlock_ns").alias("end_ns"))]
    if clocked:
        spans.append(trace.samples.select("gpu", "start_ns", "end_ns"))
    frame = (
        pl.concat(spans)
        .drop_nulls()
        .group_by("gpu")
        .agg(pl.lit(0, pl.UInt16).alias("restart"), pl.col("start_ns").min(), pl.col("end_ns").max())
        .select("gpu", "restart", "start_ns", "end_ns")
        .sort("gpu")
    )
    if frame.is_empty():
        return {}
    segments = build_segments(trace, alloc_bursts(trace))
    found = {}
    for view in gpu_views(trace, segments, Windows(frame)):
        states = view.states(thresholds)
        parts = states.select("compute_s", "copy_only_s", "idle_s").to_numpy().astype(np.float64)
        if not view.knows_compute:
            parts = np.full_like(parts, np.nan)
        found[view.info.gpu] = _Account(
            info=view.info,
            start_ns=states["start_ns"].to_numpy(),
            end_ns=states["end_ns"].to_numpy(),
            parts_s=parts,
            rx=states["rx_bytes_per_s"].cast(pl.Float64).to_numpy(),
            tx=states["tx_bytes_per_s"].cast(pl.Float64).to_numpy(),
            sampled=view.sampled,
            source=view.sm_source if view.sampled else "inferred from phases; no GPU trace",
        )
    return found


def _gpu_now(gpu: int, account: _Account, now_ns: int) -> GpuNow:
    last = int(np.searchsorted(account.end_ns, now_ns, side="right"))
    age_s = (now_ns - int(account.end_ns[last - 1])) / 1e9 if last else None
    if age_s is None or age_s > STALE_S:
        return GpuNow(gpu, account.info, age_s=age_s, source=account.source)
    recent = slice(int(np.searchsorted(account.end_ns, now_ns - round(RECENT_S * 1e9), side="right")), last)
    parts = np.asarray(account.parts_s[recent])
    total = float(parts.sum())
    shares = parts.sum(axis=0) / total if total > 0 else np.full(3, np.nan)
    rx, tx, sm = _rates(account, last, now_ns)
    limit = account.info.link_limit_bytes_per_s
    strip = _strip(account, recent, now_ns)
    return GpuNow(
        gpu=gpu,
        info=account.info,
        state={"C": STATES[0], "c": STATES[1], ".": STATES[2]}.get(strip.rstrip()[-1:]),
        compute_share=_known(shares[0]),
        copy_only_share=_known(shares[1]),
        idle_share=_known(shares[2]),
        sm_share=_known(sm),
        rx_bytes_per_s=_known(rx),
        tx_bytes_per_s=_known(tx),
        rx_link_share=_known(rx * WIRE_PER_PAYLOAD / limit) if limit else None,
        tx_link_share=_known(tx * WIRE_PER_PAYLOAD / limit) if limit else None,
        strip=strip,
        age_s=age_s,
        source=account.source,
    )


def _rates(account: _Account, last: int, now_ns: int) -> tuple[float, float, float]:
    """Mean rx, tx and SM share over the last second, or over the last reading where readings are longer."""
    first = min(last - 1, int(np.searchsorted(account.end_ns, now_ns - round(RATE_S * 1e9), side="right")))
    taken = slice(first, last)
    seconds = (account.end_ns[taken] - account.start_ns[taken]) / 1e9
    means = []
    for values in (account.rx[taken], account.tx[taken], account.parts_s[taken, 0] / np.maximum(seconds, 1e-9)):
        known = ~np.isnan(values)
        weight = float(seconds[known].sum())
        means.append(float((values[known] * seconds[known]).sum()) / weight if weight > 0 else float("nan"))
    return means[0], means[1], means[2]


def _strip(account: _Account, recent: slice, now_ns: int) -> str:
    """One letter for each slice of the last seconds: the state that took most of it."""
    cell_ns = round(RECENT_S * 1e9) // STRIP_CELLS
    middle = (account.start_ns[recent] + account.end_ns[recent]) // 2
    cells = STRIP_CELLS - 1 - np.clip((now_ns - middle) // cell_ns, 0, STRIP_CELLS - 1)
    parts = account.parts_s[recent]
    letters = []
    for cell in range(STRIP_CELLS):
        sums = parts[cells == cell].sum(axis=0) if (cells == cell).any() else np.full(3, np.nan)
        letters.append(" " if np.isnan(sums).any() else "Cc."[int(np.argmax(sums))])
    return "".join(letters)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _ended_phases(trace: Trace) -> pl.DataFrame:
    """name, duration_ms, ended_ns (the call's unlock) of the phases of complete calls, by when the call ended."""
    complete = trace.calls.filter("complete").select("call", pl.col("unlock_ns").alias("ended_ns")).drop_nulls()
    return (
        trace.phases.join(complete, on="call")
        .group_by("call", "name", maintain_order=True)
        .agg(pl.col("duration_ms").sum(), pl.col("ended_ns").first())
        .sort("ended_ns", maintain_order=True)
    )


def _summary(phases: pl.DataFrame) -> tuple[PhaseNow, ...]:
    rows = phases.group_by("name").agg(
        pl.len().alias("count"),
        pl.col("duration_ms").min().alias("min"),
        pl.col("duration_ms").median().alias("median"),
        pl.col("duration_ms").quantile(0.95, "linear").alias("p95"),
        pl.col("duration_ms").max().alias("max"),
        pl.col("duration_ms").sum().alias("total"),
    )
    found = {row[0]: PhaseNow(row[0], row[1], *(float(value) for value in row[2:])) for row in rows.iter_rows()}
    return tuple(found[name] for name in PHASE_NAMES if name in found)


def telling(phases: tuple[PhaseNow, ...]) -> tuple[PhaseNow, ...]:
    """The phases worth a line: what took most time first, none that only contains others or is always 0."""
    shown = [phase for phase in phases if phase.name not in CONTAINS_OTHERS and phase.max_ms > 1]
    return tuple(sorted(shown, key=lambda phase: -phase.total_ms))
