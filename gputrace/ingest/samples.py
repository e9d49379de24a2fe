"""Readings of one sampler to samples: wire bytes over an interval, whatever the source was.

Sources of PCIe bytes, best first; one is used for a whole input, so that sums stay comparable:

totals     64-bit wire-byte counters since the recorder began, which read the 32-bit ones often enough never to miss a
           wrap. Across a hole (nobody looked) no sample is made: its bytes belong to no moment.
counters   free-running 32-bit wire-byte counters. They wrap every 4.29 GB: 71 ms at Gen5 x16 line rate, so a step of
           0.1 s may hide a wrap. Wraps are added only where the run's total then agrees better with GPM's total
           (choosing them step by step overcounts by up to 20 %, because GPM lags by one to two steps).
copies     single copies as a profiler recorded them: payload, turned into wire bytes.
gpm        a mean rate over the step; reads 0.6 % low and lags.
mean       a mean rate over the step, of DCGM; its lag is taken off when it is read.
metrics    a share of what the link can carry, in whole per cent: Nsight Systems without copies.
window     a 20 ms reading of a rate: coverage 0.2 at 0.1 s steps.

SM activity is GPM's, moved by the lag that makes GPM's PCIe bytes fit the counters best.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace import schema
from gputrace.ingest import gpm
from gputrace.ingest.clock_steps import in_clock_order
from gputrace.ingest.constants import with_constants
from gputrace.ingest.gpm import COUNTER_MODULUS, GPM_PER_COUNTER, LIMIT_TOLERANCE, MOST_APART_NS, column
from gputrace.sampler import link
from gputrace.trace import GpuInfo, Quality

# Payload = wire / factor, (MPS + 20) / MPS at a 256-byte payload; measured 1.0781 on an H200.
WIRE_PER_PAYLOAD = (256 + 20) / 256
# What a GPU sends are writes with 64-bit addresses: a header of four words and not three. Measured 1.0938 on an H200.
TX_WIRE_PER_PAYLOAD = (256 + 24) / 256
WIRE_PER_PAYLOAD_OF = {"rx": WIRE_PER_PAYLOAD, "tx": TX_WIRE_PER_PAYLOAD}
WINDOW_S = 0.020
LANE_BYTES_PER_S = link.LANE_BYTES_PER_S
# Readings that need no conversion: a sample has what was read at its end.
_AS_READ = (
    "gpu_util",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "clock_event_reasons",
    "power_w",
    "memory_used_mib",
    "link_gen",
    "link_width",
    "link_gen_max",
    "link_width_max",
    "pcie_replays",
    "other_processes",
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sampled:
    """What one input's readings became; `cadence_s` is the median step."""

    samples: pl.DataFrame
    host: pl.DataFrame
    gpus: list[GpuInfo]
    cadence_s: float


@dataclass(frozen=True)
class Known:
    """What holds for one GPU's whole recording: highest link generation and width, and whether its totals move."""

    link_gen: int | None
    link_width: int | None
    totals_move: bool


@dataclass(frozen=True)
class Part:
    """Which samples are wanted of readings that reach further: those that overlap [from_ns, to_ns)."""

    from_ns: int
    to_ns: int
    known: dict[int, Known]

    def overlaps(self, start_ns: Ints, end_ns: Ints) -> Bools:
        """Which intervals it has."""
        return np.asarray((end_ns > self.from_ns) & (start_ns < self.to_ns))

    def counts(self, end_ns: Ints) -> Bools:
        """Which intervals are counted here: of parts that lie side by side each in one only."""
        return np.asarray((end_ns > self.from_ns) & (end_ns <= self.to_ns))


def link_limit_bytes_per_s(gen: int | None, width: int | None) -> float | None:
    """What the link carries one way, wire bytes a second; None where generation or width is unknown."""
    lane = LANE_BYTES_PER_S.get(gen or 0)
    return lane * width if lane and width else None


def to_samples(readings: pl.DataFrame, names: dict[int, str], quality: Quality, part: Part | None = None) -> Sampled:
    """Samples, host rows and GPUs of one input, or of a part of it.

    Before: time_ns and canonical reading columns (`gputrace.ingest.tables`), `gpu` absent for one GPU. After: the
    SAMPLES and HOST frames. Counts of wraps, ambiguous steps and holes are added to `quality`.
    """
    if "gpu" not in readings.columns:
        readings = readings.with_columns(pl.lit(0.0).alias("gpu"))
    frames, gpus, cadences = [], [], []
    numbers = readings["gpu"].unique(maintain_order=True).to_list()
    for gpu in numbers:
        rows = readings if len(numbers) == 1 else readings.filter(pl.col("gpu").eq_missing(gpu))
        number = int(float(gpu)) if gpu is not None else 0
        ordered = _without_repeats(in_clock_order(rows, quality))
        frame, info, cadence = _one_gpu(number, ordered, names.get(number), quality, part)
        frames.append(frame)
        gpus.append(info)
        cadences.append(cadence)
    host = schema.HOST.empty()
    if "host_cpu_share" in readings.columns:
        host = to_host(readings.filter(pl.col("gpu").eq_missing(numbers[0])).sort("time_ns"))
        if part is not None:
            host = host.filter((pl.col("end_ns") > part.from_ns) & (pl.col("start_ns") < part.to_ns))
    return Sampled(pl.concat(frames), host, gpus, float(np.median(cadences)))


def samples_of(samples: pl.DataFrame, gpu: int) -> pl.DataFrame:
    """A GPU's samples (or states) in order of time; where they stand together, as they mostly do, nothing is copied."""
    own = (samples["gpu"] == gpu).fill_null(False)
    first, count = own.arg_max() or 0, int(own.sum())
    together = own.slice(first, count).all()
    found = samples.slice(first, count) if together else samples.filter(own)
    return found if found["start_ns"].is_sorted() else found.sort("start_ns")


def _without_repeats(rows: pl.DataFrame) -> pl.DataFrame:
    """Of rows in order of time that share one, the first."""
    repeats = (rows["time_ns"].diff() == 0).fill_null(False)
    return rows.filter(~repeats) if repeats.any() else rows


def _one_gpu(
    gpu: int, rows: pl.DataFrame, name: str | None, quality: Quality, part: Part | None
) -> tuple[pl.DataFrame, GpuInfo, float]:
    time_ns = rows["time_ns"].to_numpy()
    known = part.known[gpu] if part else Known(_highest(rows, "link_gen"), _highest(rows, "link_width"), False)
    limit = link_limit_bytes_per_s(known.link_gen, known.link_width)
    pcie = _choose_pcie(rows, time_ns, limit, quality, known.totals_move)
    start_ns, end_ns = pcie.end_ns[:-1], pcie.end_ns[1:]
    step_s = (end_ns - start_ns) / 1e9
    cadence_s = float(np.median(step_s)) if len(step_s) else 0.0
    holes = _holes(rows, pcie)
    counted = np.ones(len(holes), dtype=bool) if part is None else part.counts(end_ns)
    quality.samples += int((~holes & counted).sum())
    quality.samples_missing += int((holes & counted).sum())
    if cadence_s:
        quality.samples_missing += int(np.sum(np.maximum(0, np.rint(step_s[counted] / cadence_s) - 1)))
    over = np.zeros(len(start_ns), dtype=bool)
    if limit is not None:
        most = limit * LIMIT_TOLERANCE
        for wire in (pcie.rx, pcie.tx):
            bad = wire / np.maximum(step_s, 1e-9) > most
            over |= bad
            wire[bad] = np.nan
    if beyond := int((over & counted).sum()):
        quality.notice("rate-above-link", "readings above what the link can carry were not believed", beyond)
    sm = _sm_active(rows, pcie, time_ns)
    measured = {
        "start_ns": start_ns,
        "end_ns": end_ns,
        "rx_wire_bytes": pcie.rx,
        "tx_wire_bytes": pcie.tx,
        "coverage": pcie.coverage,
        "over_limit": over,
        **({"sm_active": sm} if sm is not None else {}),
    }
    as_read = _as_read(rows, pcie)
    frame = pl.DataFrame([*(pl.Series(name, values, nan_to_null=True) for name, values in measured.items()), *as_read])
    kept = (end_ns > start_ns) & ~holes
    if part is not None:
        kept &= part.overlaps(start_ns, end_ns)
    frame = with_constants(frame if kept.all() else frame.filter(pl.Series(kept)))
    utilised = any(reading.name == "gpu_util" for reading in as_read)
    sm_source = _sm_source(rows) if sm is not None else "utilization.gpu" if utilised else None
    info = GpuInfo(gpu, name, known.link_gen, known.link_width, limit, pcie.source, sm_source)
    return schema.SAMPLES.fit(frame.with_columns(pl.lit(gpu).alias("gpu"))), info, cadence_s


def _as_read(rows: pl.DataFrame, pcie: "_Pcie") -> list[pl.Series]:
    """What each sample has as it was read at its end, where it was read at all."""
    found = [rows[name] for name in _AS_READ if name in rows.columns and rows[name].null_count() < rows.height]
    read = None if pcie.read is None else pl.Series(pcie.read)
    return [(values if read is None else values.filter(read)).slice(1) for values in found]


def _holes(rows: pl.DataFrame, pcie: "_Pcie") -> npt.NDArray[np.bool_]:
    """Which steps were not observed: those that end in, or pass over, a row that says so."""
    marked = column(rows, "hole")
    if marked is None or not np.nanmax(marked) > 0:
        return np.zeros(len(pcie.end_ns) - 1, dtype=bool)
    before = np.cumsum(np.nan_to_num(marked) > 0)
    return np.diff(before if pcie.read is None else before[pcie.read]) > 0


def _sm_source(rows: pl.DataFrame) -> str:
    sources = (("sm_active", "sm active"), ("kernel_active", "kernels running"))
    return next((source for name, source in sources if column(rows, name) is not None), "gpm")


def _highest(rows: pl.DataFrame, name: str) -> int | None:
    # A link falls back to Gen1 when idle: what it reached says what it is.
    return int(rows[name].max()) if name in rows.columns and rows[name].count() else None  # type: ignore[arg-type]


@dataclass
class _Pcie:
    """Bytes per step between consecutive `end_ns` (n+1 of them for n steps); `read` says which rows gave one."""

    source: str | None
    end_ns: Ints
    rx: Floats
    tx: Floats
    coverage: Floats
    lag_s: float = gpm.DEFAULT_LAG_S
    read: npt.NDArray[np.bool_] | None = None


def _choose_pcie(
    rows: pl.DataFrame, time_ns: Ints, limit: float | None, quality: Quality, totals_move: bool = False
) -> _Pcie:
    if (known := _choose_totals(rows, time_ns, totals_move)) is not None:
        if (sent := column(rows, "gpm_tx_bytes_per_s")) is not None:
            known.lag_s = gpm.lag_s(rows, time_ns, known.end_ns, known.tx, sent)
        return known
    rx_counter, tx_counter = column(rows, "rx_counter_bytes"), column(rows, "tx_counter_bytes")
    gpm_rx, gpm_tx = column(rows, "gpm_rx_bytes_per_s"), column(rows, "gpm_tx_bytes_per_s")
    empty = np.full(max(0, len(time_ns) - 1), np.nan)
    if rx_counter is not None and tx_counter is not None and len(np.unique(rx_counter)) > 1:
        stamped = column(rows, "counter_time_ns")
        unread = np.isnan(rx_counter) | np.isnan(tx_counter)
        if stamped is not None:
            unread |= ~_in_order(stamped, time_ns)
        if unread.any():
            # A row in which the counters could not be read: its step and the next are one.
            pcie = _choose_pcie(rows.filter(pl.Series(~unread)), time_ns[~unread], limit, quality)
            pcie.read = _spread_over(~unread, pcie.read)
            return pcie
        end_ns = time_ns if stamped is None else stamped.astype(np.int64)
        rx = np.diff(rx_counter) % COUNTER_MODULUS
        tx = np.diff(tx_counter) % COUNTER_MODULUS
        pcie = _Pcie("counters", end_ns, rx, tx, np.where(np.isnan(rx), np.nan, 1.0))
        if gpm_rx is not None and gpm_tx is not None:
            pcie.lag_s = gpm.lag_s(rows, time_ns, end_ns, tx, gpm_tx)
            pcie.rx = gpm.added_wraps(rx, end_ns, pcie.lag_s, rows, time_ns, gpm_rx, limit, quality)
        elif limit is not None:
            room = limit * np.diff(end_ns) / 1e9 - rx
            quality.counter_ambiguous += int(np.sum(room > COUNTER_MODULUS))
        return pcie
    if (known := _choose_mean(rows, time_ns, limit)) is not None:
        return known
    if rx_counter is not None:
        quality.notice("sensor-dead", "the PCIe byte counters never change: the sensor is dead, not the link")
    if gpm_rx is not None and gpm_tx is not None:
        lag_ns = int(gpm.DEFAULT_LAG_S * 1e9)
        end_ns = gpm.read_ns(rows, time_ns) - lag_ns
        step_s = np.diff(end_ns) / 1e9
        quality.notice("gpm-lag-assumed", "GPM's PCIe rates lag by an unknown time; 0.1 s was assumed")
        return _Pcie(
            "gpm",
            end_ns,
            gpm_rx[1:] * step_s / GPM_PER_COUNTER,
            gpm_tx[1:] * step_s / GPM_PER_COUNTER,
            np.where(np.isnan(gpm_rx[1:]), np.nan, 1.0),
        )
    window_rx, window_tx = column(rows, "rx_window_bytes_per_s"), column(rows, "tx_window_bytes_per_s")
    if window_rx is not None:
        step_s = np.diff(time_ns) / 1e9
        coverage = np.minimum(1.0, WINDOW_S / np.maximum(step_s, 1e-9))
        seen = float(np.median(coverage)) if len(coverage) else 0.0
        enough = "bursts are missed" if seen >= 0.1 else "too little to say what any phase copied"
        quality.notice("pcie-windows", f"PCIe rates are 20 ms readings: {seen:.0%} of the time was seen, {enough}")
        tx = empty.copy() if window_tx is None else window_tx[1:] * step_s
        return _Pcie("window", time_ns, window_rx[1:] * step_s, tx, coverage)
    quality.notice("no-pcie", "this trace has no PCIe readings: what was copied cannot be known from it")
    return _Pcie(None, time_ns, empty.copy(), empty.copy(), np.zeros(len(empty)))


def _choose_totals(rows: pl.DataFrame, time_ns: Ints, known_to_move: bool) -> _Pcie | None:
    """64-bit totals: the difference between two rows that have them, whatever lies between."""
    if column(rows, "rx_total_bytes") is None or column(rows, "tx_total_bytes") is None:
        return None
    # Without nulls they stay integers, which differ exactly.
    totals = [rows[name].to_numpy() for name in ("rx_total_bytes", "tx_total_bytes")]
    unread = np.isnan(totals[0]) | np.isnan(totals[1])
    read = ~unread if unread.any() else None
    if read is not None:
        time_ns, totals = time_ns[read], [total[read] for total in totals]
    others = ("gpm_rx_bytes_per_s", "rx_window_bytes_per_s")
    moves = known_to_move or bool((totals[0][1:] != totals[0][:1]).any())
    if len(time_ns) < 2 or (not moves and any(column(rows, name) is not None for name in others)):
        return None
    steps = [np.diff(total) for total in totals]
    # A total that falls was begun anew.
    known = (steps[0] >= 0) & (steps[1] >= 0)
    moved = [np.where(known, step, np.nan) for step in steps]
    return _Pcie("counters", time_ns, moved[0], moved[1], np.where(known, 1.0, np.nan), read=read)


def _spread_over(taken: npt.NDArray[np.bool_], within: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
    """Which of all rows were read, given which of those taken were."""
    if within is None:
        return taken
    read = taken.copy()
    read[taken] = within
    return read


def _in_order(stamped: Floats, time_ns: Ints) -> npt.NDArray[np.bool_]:
    """Which of the counters' own times can be believed: those near their rows' and later than all before them."""
    apart = stamped - time_ns
    usual = np.nanmedian(apart) if not np.isnan(apart).all() else 0.0
    near = np.where(np.abs(apart - usual) <= MOST_APART_NS, stamped, np.nan)
    latest = np.fmax.accumulate(near)
    return ~np.isnan(near) & (np.concatenate([[True], ~(near[1:] <= latest[:-1])]) if len(near) else True)


def _choose_mean(rows: pl.DataFrame, time_ns: Ints, limit: float | None) -> _Pcie | None:
    """Sources that say what passed between two rows, without lag."""
    step_s = np.diff(time_ns) / 1e9
    for source, name, factor in (
        ("copies", "copied_bytes_per_s", WIRE_PER_PAYLOAD),
        ("mean", "mean_bytes_per_s", 1.0),
        ("metrics", "link_share", limit),
    ):
        rx, tx = column(rows, f"rx_{name}"), column(rows, f"tx_{name}")
        if (rx is None and tx is None) or factor is None:
            continue
        nothing = np.full(len(time_ns), np.nan)
        rx, tx = nothing if rx is None else rx, nothing if tx is None else tx
        seen = np.where(np.isnan(rx[1:]) & np.isnan(tx[1:]), np.nan, 1.0)
        tx_factor = factor if source != "copies" else TX_WIRE_PER_PAYLOAD
        return _Pcie(source, time_ns, rx[1:] * step_s * factor, tx[1:] * step_s * tx_factor, seen)
    return None


def _sm_active(rows: pl.DataFrame, pcie: _Pcie, time_ns: Ints) -> Floats | None:
    """SM activity on the samples' intervals, 0..1."""
    for name in ("sm_active", "kernel_active"):
        if (mean := column(rows, name)) is not None:
            return np.clip(mean[1:], 0.0, 1.0)
    return gpm.sm_active(rows, time_ns, pcie.lag_s, pcie.end_ns)


def to_host(rows: pl.DataFrame) -> pl.DataFrame:
    """Before: time_ns and canonical host_* readings, in order of time. After: the HOST frame."""
    time_ns = rows["time_ns"]
    if "host_cpu_share" not in rows.columns or rows.height < 2:
        return schema.HOST.empty()
    step_s = (time_ns.diff().cast(pl.Float64) / 1e9)[1:]
    faults = rows["host_page_faults"].diff()[1:] / step_s if "host_page_faults" in rows.columns else None
    return schema.HOST.fit(
        pl.DataFrame(
            {
                "start_ns": time_ns[:-1],
                "end_ns": time_ns[1:],
                "cpu_share": rows["host_cpu_share"][1:],
                "memory_used_mib": rows["host_memory_used_mib"][1:] if "host_memory_used_mib" in rows.columns else None,
                "page_faults_per_s": faults,
            }
        )
    )
