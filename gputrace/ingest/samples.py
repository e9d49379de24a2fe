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
from gputrace.ingest.clock_steps import in_clock_order
from gputrace.sampler import link
from gputrace.trace import GpuInfo, Quality

COUNTER_MODULUS = 1 << 32
# Payload = wire / factor, (MPS + 20) / MPS at a 256-byte payload; measured 1.0781 on an H200.
WIRE_PER_PAYLOAD = (256 + 20) / 256
# What a GPU sends are writes with 64-bit addresses: a header of four words and not three. Measured 1.0938 on an H200.
TX_WIRE_PER_PAYLOAD = (256 + 24) / 256
WIRE_PER_PAYLOAD_OF = {"rx": WIRE_PER_PAYLOAD, "tx": TX_WIRE_PER_PAYLOAD}
# GPM's bytes against the counters', measured on an H200 over copies of known size.
GPM_PER_COUNTER = 0.994
WINDOW_S = 0.020
LANE_BYTES_PER_S = link.LANE_BYTES_PER_S
# A reading may exceed the limit by the clock error of a step; above this it is not believed.
LIMIT_TOLERANCE = 1.02
_DEFAULT_LAG_S = 0.1
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
_MAX_LAG_S = 0.4
# A counter's own time this far from its row's, beyond what they usually differ, is damage; so is a row that took as
# long.
_MOST_APART_NS = 60e9

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sampled:
    """What one input's readings became; `cadence_s` is the median step."""

    samples: pl.DataFrame
    host: pl.DataFrame
    gpus: list[GpuInfo]
    cadence_s: float


def link_limit_bytes_per_s(gen: int | None, width: int | None) -> float | None:
    """What the link carries one way, wire bytes a second; None where generation or width is unknown."""
    lane = LANE_BYTES_PER_S.get(gen or 0)
    return lane * width if lane and width else None


def to_samples(readings: pl.DataFrame, names: dict[int, str], quality: Quality) -> Sampled:
    """Samples, host rows and GPUs of one input.

    Before: time_ns and canonical reading columns (`gputrace.ingest.tables`), `gpu` absent for one GPU. After: the
    SAMPLES and HOST frames. Counts of wraps, ambiguous steps and holes are added to `quality`.
    """
    if "gpu" not in readings.columns:
        readings = readings.with_columns(pl.lit(0.0).alias("gpu"))
    frames, gpus, cadences = [], [], []
    for (gpu,), rows in readings.group_by("gpu", maintain_order=True):
        ordered = in_clock_order(rows, quality).unique("time_ns", keep="first", maintain_order=True)
        number = int(float(str(gpu))) if gpu is not None else 0
        frame, info, cadence = _one_gpu(number, ordered, names.get(number), quality)
        frames.append(frame)
        gpus.append(info)
        cadences.append(cadence)
    first = readings.filter(pl.col("gpu") == readings["gpu"][0]).sort("time_ns")
    return Sampled(pl.concat(frames), to_host(first), gpus, float(np.median(cadences)))


def _column(rows: pl.DataFrame, name: str) -> Floats | None:
    if name not in rows.columns or rows[name].null_count() == rows.height:
        return None
    return rows[name].cast(pl.Float64).to_numpy().astype(np.float64)


def _one_gpu(gpu: int, rows: pl.DataFrame, name: str | None, quality: Quality) -> tuple[pl.DataFrame, GpuInfo, float]:
    time_ns = rows["time_ns"].to_numpy().astype(np.int64)
    gen, width = _highest(rows, "link_gen"), _highest(rows, "link_width")
    limit = link_limit_bytes_per_s(gen, width)
    pcie = _choose_pcie(rows, time_ns, limit, quality)
    start_ns, end_ns = pcie.end_ns[:-1], pcie.end_ns[1:]
    step_s = (end_ns - start_ns) / 1e9
    cadence_s = float(np.median(step_s)) if len(step_s) else 0.0
    holes = _holes(rows, pcie)
    quality.samples += int((~holes).sum())
    quality.samples_missing += int(holes.sum())
    if cadence_s:
        quality.samples_missing += int(np.sum(np.maximum(0, np.rint(step_s / cadence_s) - 1)))
    over = np.zeros(len(start_ns), dtype=bool)
    if limit is not None:
        for wire in (pcie.rx, pcie.tx):
            bad = wire / np.maximum(step_s, 1e-9) > limit * LIMIT_TOLERANCE
            over |= bad
            wire[bad] = np.nan
    if over.any():
        quality.notice("rate-above-link", "readings above what the link can carry were not believed", int(over.sum()))
    sm = _sm_active(rows, pcie, start_ns, end_ns)
    columns: dict[str, object] = {
        "gpu": np.full(len(start_ns), gpu),
        "start_ns": start_ns,
        "end_ns": end_ns,
        "rx_wire_bytes": pcie.rx,
        "tx_wire_bytes": pcie.tx,
        "coverage": pcie.coverage,
        "sm_active": sm,
        "over_limit": over,
    }
    for target in _AS_READ:
        values = _column(rows, target)
        if values is not None:
            columns[target] = (values if pcie.read is None else values[pcie.read])[1:]
    frame = schema.SAMPLES.fit(pl.DataFrame(columns).with_columns(pl.selectors.float().fill_nan(None)))
    frame = frame.filter((pl.col("end_ns") > pl.col("start_ns")) & pl.Series(~holes))
    sm_source = _sm_source(rows) if sm is not None else "utilization.gpu" if "gpu_util" in columns else None
    return frame, GpuInfo(gpu, name, gen, width, limit, pcie.source, sm_source), cadence_s


def _holes(rows: pl.DataFrame, pcie: "_Pcie") -> npt.NDArray[np.bool_]:
    """Which steps were not observed: those that end in, or pass over, a row that says so."""
    marked = _column(rows, "hole")
    if marked is None:
        return np.zeros(len(pcie.end_ns) - 1, dtype=bool)
    before = np.cumsum(np.nan_to_num(marked) > 0)
    return np.diff(before if pcie.read is None else before[pcie.read]) > 0


def _sm_source(rows: pl.DataFrame) -> str:
    sources = (("sm_active", "sm active"), ("kernel_active", "kernels running"))
    return next((source for name, source in sources if _column(rows, name) is not None), "gpm")


def _highest(rows: pl.DataFrame, column: str) -> int | None:
    # A link falls back to Gen1 when idle: what it reached says what it is.
    return int(rows[column].max()) if column in rows.columns and rows[column].count() else None  # type: ignore[arg-type]


@dataclass
class _Pcie:
    """Bytes per step between consecutive `end_ns` (n+1 of them for n steps); `read` says which rows gave one."""

    source: str | None
    end_ns: Ints
    rx: Floats
    tx: Floats
    coverage: Floats
    lag_s: float = _DEFAULT_LAG_S
    read: npt.NDArray[np.bool_] | None = None


def _gpm_end_ns(rows: pl.DataFrame, time_ns: Ints) -> Ints:
    """When GPM was read: at the end of a row, where the row says how long it took."""
    took = _column(rows, "row_us")
    if took is None:
        return time_ns
    believable = np.where((took >= 0) & (took * 1e3 <= _MOST_APART_NS), took, 0.0)
    return time_ns + (believable * 1e3).astype(np.int64)


def _choose_pcie(rows: pl.DataFrame, time_ns: Ints, limit: float | None, quality: Quality) -> _Pcie:
    if (known := _choose_totals(rows, time_ns)) is not None:
        if (gpm := _column(rows, "gpm_tx_bytes_per_s")) is not None:
            known.lag_s = _lag_s(rows, time_ns, known.end_ns, np.nan_to_num(known.tx), gpm)
        return known
    rx_counter, tx_counter = _column(rows, "rx_counter_bytes"), _column(rows, "tx_counter_bytes")
    gpm_rx, gpm_tx = _column(rows, "gpm_rx_bytes_per_s"), _column(rows, "gpm_tx_bytes_per_s")
    empty = np.full(max(0, len(time_ns) - 1), np.nan)
    if rx_counter is not None and tx_counter is not None and len(np.unique(rx_counter)) > 1:
        stamped = _column(rows, "counter_time_ns")
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
            pcie.lag_s = _lag_s(rows, time_ns, end_ns, tx, gpm_tx)
            _add_wraps(pcie, rows, time_ns, gpm_rx, limit, quality)
        elif limit is not None:
            room = limit * np.diff(end_ns) / 1e9 - rx
            quality.counter_ambiguous += int(np.sum(room > COUNTER_MODULUS))
        return pcie
    if (known := _choose_mean(rows, time_ns, limit)) is not None:
        return known
    if rx_counter is not None:
        quality.notice("sensor-dead", "the PCIe byte counters never change: the sensor is dead, not the link")
    if gpm_rx is not None and gpm_tx is not None:
        lag_ns = int(_DEFAULT_LAG_S * 1e9)
        end_ns = _gpm_end_ns(rows, time_ns) - lag_ns
        step_s = np.diff(end_ns) / 1e9
        quality.notice("gpm-lag-assumed", "GPM's PCIe rates lag by an unknown time; 0.1 s was assumed")
        return _Pcie(
            "gpm",
            end_ns,
            gpm_rx[1:] * step_s / GPM_PER_COUNTER,
            gpm_tx[1:] * step_s / GPM_PER_COUNTER,
            np.where(np.isnan(gpm_rx[1:]), np.nan, 1.0),
        )
    window_rx, window_tx = _column(rows, "rx_window_bytes_per_s"), _column(rows, "tx_window_bytes_per_s")
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


def _choose_totals(rows: pl.DataFrame, time_ns: Ints) -> _Pcie | None:
    """64-bit totals: the difference between two rows that have them, whatever lies between."""
    rx, tx = _column(rows, "rx_total_bytes"), _column(rows, "tx_total_bytes")
    if rx is None or tx is None:
        return None
    read = ~(np.isnan(rx) | np.isnan(tx))
    others = ("gpm_rx_bytes_per_s", "rx_window_bytes_per_s")
    if read.sum() < 2 or (len(np.unique(rx[read])) == 1 and any(_column(rows, name) is not None for name in others)):
        return None
    steps = [np.diff(total[read]) for total in (rx, tx)]
    # A total that falls was begun anew.
    known = (steps[0] >= 0) & (steps[1] >= 0)
    moved = [np.where(known, step, np.nan) for step in steps]
    return _Pcie("counters", time_ns[read], moved[0], moved[1], np.where(known, 1.0, np.nan), read=read)


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
    near = np.where(np.abs(apart - usual) <= _MOST_APART_NS, stamped, np.nan)
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
        rx, tx = _column(rows, f"rx_{name}"), _column(rows, f"tx_{name}")
        if (rx is None and tx is None) or factor is None:
            continue
        nothing = np.full(len(time_ns), np.nan)
        rx, tx = nothing if rx is None else rx, nothing if tx is None else tx
        seen = np.where(np.isnan(rx[1:]) & np.isnan(tx[1:]), np.nan, 1.0)
        tx_factor = factor if source != "copies" else TX_WIRE_PER_PAYLOAD
        return _Pcie(source, time_ns, rx[1:] * step_s * factor, tx[1:] * step_s * tx_factor, seen)
    return None


def _lag_s(rows: pl.DataFrame, time_ns: Ints, counter_ns: Ints, tx: Floats, gpm_tx: Floats) -> float:
    """By how much GPM lags: where its bytes fit the counters' best. tx is used because it never wraps at 0.1 s."""
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(tx))])
    end_ns = _gpm_end_ns(rows, time_ns)[1:]
    length_ns = _gpm_interval_ns(rows, time_ns)[1:]
    seen = np.nan_to_num(gpm_tx[1:]) * length_ns / 1e9
    if len(seen) < 30 or np.std(seen) == 0:
        return _DEFAULT_LAG_S
    best_lag, best_fit = _DEFAULT_LAG_S, 0.0
    for lag in np.arange(-0.05, _MAX_LAG_S, 0.01):
        end = end_ns - lag * 1e9
        predicted = np.interp(end, counter_ns, total) - np.interp(end - length_ns, counter_ns, total)
        fit = float(np.corrcoef(predicted, seen)[0, 1]) if np.std(predicted) else 0.0
        if fit > best_fit:
            best_lag, best_fit = float(lag), fit
    return best_lag


def _gpm_interval_ns(rows: pl.DataFrame, time_ns: Ints) -> Floats:
    interval = _column(rows, "gpm_interval_ms")
    if interval is not None:
        return np.nan_to_num(interval) * 1e6
    steps = np.diff(time_ns).astype(np.float64)
    return np.concatenate([steps[:1], steps])


def _add_wraps(
    pcie: _Pcie, rows: pl.DataFrame, time_ns: Ints, gpm_rx: Floats, limit: float | None, quality: Quality
) -> None:
    """Adds whole wraps to the rx steps, as many as GPM's total asks for, where GPM's nearby sum lacks most."""
    step_s = np.diff(pcie.end_ns) / 1e9
    gpm_end = _gpm_end_ns(rows, time_ns) - pcie.lag_s * 1e9
    length_ns = _gpm_interval_ns(rows, time_ns)
    gpm_bytes = np.nan_to_num(gpm_rx) * length_ns / 1e9 / GPM_PER_COUNTER
    # GPM's bytes laid on the counters' steps, through their running sum.
    knots = np.concatenate([[gpm_end[0] - length_ns[0]], gpm_end])
    total = np.concatenate([[0.0], np.cumsum(gpm_bytes)])
    expected = np.diff(np.interp(pcie.end_ns, knots, total))
    base = np.nan_to_num(pcie.rx)
    room = np.full(len(base), np.inf) if limit is None else limit * LIMIT_TOLERANCE * step_s - base
    most = np.maximum(0.0, np.floor(room / COUNTER_MODULUS))
    wanted = int(np.rint((expected.sum() - base.sum()) / COUNTER_MODULUS))
    added = np.zeros(len(base), dtype=np.int64)
    neighbourhood = np.ones(3)
    lacking = expected - base
    if wanted > 0:
        for _ in range(wanted):
            near = np.convolve(lacking - added * COUNTER_MODULUS, neighbourhood, mode="same")
            own = lacking - added * COUNTER_MODULUS
            # The neighbourhood says that bytes are missing here, the step itself where.
            score = np.where(added < most, near + own, -np.inf)
            step = int(np.argmax(score))
            if not np.isfinite(score[step]) or score[step] <= 0:
                break
            added[step] += 1
    pcie.rx = pcie.rx + added * COUNTER_MODULUS
    left = np.abs(np.convolve(lacking - added * COUNTER_MODULUS, neighbourhood, mode="same"))
    ambiguous = (most > 0) & (left > COUNTER_MODULUS / 2)
    quality.counter_wraps += int(added.sum())
    quality.counter_ambiguous += int(ambiguous.sum())


def _sm_active(rows: pl.DataFrame, pcie: _Pcie, start_ns: Ints, end_ns: Ints) -> Floats | None:
    """SM activity on the samples' intervals, 0..1, conserving its running sum."""
    for name in ("sm_active", "kernel_active"):
        if (mean := _column(rows, name)) is not None:
            return np.clip(mean[1:], 0.0, 1.0)
    active = _column(rows, "gpm_sm_active")
    if active is None:
        return None
    time_ns = rows["time_ns"].to_numpy().astype(np.int64)
    read_ns = _gpm_end_ns(rows, time_ns) - pcie.lag_s * 1e9
    length_ns = np.concatenate([_gpm_interval_ns(rows, time_ns)[:1], np.diff(read_ns)])
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(active) * length_ns)])
    knots = np.concatenate([[read_ns[0] - length_ns[0]], read_ns])
    span = np.interp(end_ns, knots, total) - np.interp(start_ns, knots, total)
    # A reading that is missing is not idleness: only the time that was read counts.
    known = np.concatenate([[0.0], np.cumsum(np.where(np.isnan(active), 0.0, length_ns))])
    read = np.interp(end_ns, knots, known) - np.interp(start_ns, knots, known)
    share = np.clip(span / np.maximum(np.where(np.isnan(active).any(), read, end_ns - start_ns), 1), 0.0, 1.0)
    share[read < 0.5 * (end_ns - start_ns)] = np.nan
    share[(end_ns < knots[0]) | (start_ns > knots[-1])] = np.nan
    return np.asarray(share, dtype=np.float64)


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
