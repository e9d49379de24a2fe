"""A GPU trace of schedules: the columns of the recorder's nvml.csv, one row per GPU and step.

The 32-bit counters count wire bytes and wrap; GPM lags and reads 0.6 % low; PCIe throughput is a 20 ms reading; the
driver's utilisation counts copies and is refreshed every 0.2 s.
"""

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gputrace.simulate.activity import Piece, Rates, pieces
from gputrace.simulate.health import health_columns, other_kernels
from gputrace.simulate.traced import Floats, Total, TracedRun

WIRE_PER_PAYLOAD = 276 / 256
_GPM_LOW = 0.994
_MIB = 1 << 20
_MARGIN_S = 4.0
_COLUMN_NAMES = """
    seq t_wall_ns t_mono_ns pcie_rx_kbps pcie_rx_us pcie_tx_kbps pcie_tx_us cnt_rx_bytes cnt_tx_bytes cnt_ts_us
    cnt_us gpm_interval_ms gpm_pcie_rx_mibps gpm_pcie_tx_mibps gpm_sm_util gpm_sm_occ gpm_dram_bw_util
    gpm_graphics_util gpm_us util_gpu util_mem util_us sm_clock_mhz mem_clock_mhz clock_us gpu_mem_used_mib
    gpu_mem_us power_mw power_us pcie_gen pcie_width link_us sm_clock_max_mhz clock_event_reasons pcie_gen_max
    pcie_width_max pcie_replays host_cpu_pct host_mem_used_mib host_mem_total_mib host_pgfault host_us row_us
"""
COLUMNS = _COLUMN_NAMES.split()
_STEADY = {
    "pcie_rx_us": 20_800, "pcie_tx_us": 20_700, "cnt_us": 460, "gpm_us": 1250, "util_us": 14, "util_mem": 0,
    "mem_clock_mhz": 3201, "clock_us": 10, "gpu_mem_us": 21, "power_us": 7, "link_us": 96, "host_us": 390,
}  # fmt: skip


@dataclass(frozen=True)
class TraceOptions:
    """How the trace is taken: step, GPM's lag, the host's size."""

    step_s: float = 0.1
    jitter_s: float = 0.0006
    gpm_lag_s: float = 0.1
    cores: int = 16
    partition_mib: int = 4000
    start_stall_s: float = 0.6


def trace_csv(runs: Sequence[TracedRun], rates: Rates, options: TraceOptions | None = None, seed: int = 0) -> str:
    """The trace as CSV text, with a `gpu` column where there is more than one."""
    options = options or TraceOptions()
    rng = random.Random(f"trace {seed}")
    gpus = max(run.schedule.limits.gpus for run in runs)
    zero_ns = min(run.clocks.epoch_ns for run in runs) - int(_MARGIN_S * 1e9)
    rows_s = _row_times(runs, zero_ns, options, rng)
    host = _host(runs, zero_ns, rows_s, options)
    listed = any(run.schedule.disturbance.lists_processes for run in runs)
    header = [COLUMNS[0], *(["gpu"] if gpus > 1 else []), *COLUMNS[1:], *(["other_processes"] if listed else [])]
    columns = [_one_gpu(gpu, runs, zero_ns, rows_s + gpu * 2e-4, rates, options, rng) for gpu in range(gpus)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for seq in range(len(rows_s)):
        for gpu in range(gpus):
            row: dict[str, object] = {**_STEADY, "seq": seq, "gpu": gpu}
            row |= {name: values[seq] for name, values in (columns[gpu] | host).items()}
            writer.writerow([row[name] for name in header])
    return out.getvalue()


def _row_times(runs: Sequence[TracedRun], zero_ns: int, options: TraceOptions, rng: random.Random) -> Floats:
    """Seconds since zero_ns of every row; making a GPU context holds the sampler up for a while."""
    end_s = max((run.clocks.wall_ns(run.schedule.end) - zero_ns) / 1e9 for run in runs) + _MARGIN_S
    starts = sorted((run.clocks.epoch_ns - zero_ns) / 1e9 for run in runs)
    times, at = [], 0.0
    while at < end_s:
        times.append(at + rng.random() * options.jitter_s)
        step = options.step_s
        if starts and at >= starts[0]:
            starts.pop(0)
            step += rng.uniform(0.3, 1.0) * options.start_stall_s
        at += step
    return np.array(times)


def _one_gpu(
    gpu: int,
    runs: Sequence[TracedRun],
    zero_ns: int,
    rows_s: Floats,
    rates: Rates,
    options: TraceOptions,
    rng: random.Random,
) -> dict[str, list[object]]:
    found: list[Piece] = []
    for run in runs:
        for call in run.schedule.calls:
            if call.gpu == gpu:
                found += [
                    piece._replace(start=run.seconds(piece.start, zero_ns), end=run.seconds(piece.end, zero_ns))
                    for piece in pieces(run.schedule, call, rates)
                ]
    rx = Total([(p.start, p.end, p.rx_bytes * WIRE_PER_PAYLOAD) for p in found], rates.idle_wire)
    sm = Total([(p.start, p.end, (p.end - p.start) * p.sm) for p in found])
    others, refused = other_kernels(runs, zero_ns, found)
    busy = Total([(p.start, p.end, (p.end - p.start) * (1.0 if p.rx_bytes or p.sm > 0.4 else 0.0)) for p in found])
    count_s = rows_s + 0.0415 + np.array([rng.uniform(-4e-4, 4e-4) for _ in rows_s])
    read_s = count_s + 0.0017
    gpm_end = read_s - options.gpm_lag_s
    gpm_start = np.concatenate([gpm_end[:1] - options.step_s, gpm_end[:-1]])
    gpm_mibps = rx.mean(gpm_start, gpm_end) / _MIB * _GPM_LOW

    def active(start: Floats, end: Floats) -> Floats:
        return np.clip(sm.mean(start, end) + others.mean(start, end) - refused.mean(start, end), 0.0, 1.0)

    sm_share = active(gpm_start, gpm_end)
    refreshed = np.floor(rows_s / 0.2) * 0.2
    util = np.clip(busy.mean(refreshed - 0.2, refreshed) + others.mean(refreshed - 0.2, refreshed), 0.0, 1.0)
    counted = rx.at(count_s) + rng.randrange(1 << 32)
    sent = rx.at(count_s) * rates.tx_share + rng.randrange(1 << 32)
    window = rx.mean(rows_s, rows_s + 0.02) / 1e3
    window_tx = rx.mean(rows_s + 0.02, rows_s + 0.04) / 1e3 * rates.tx_share
    wall_ns = zero_ns + np.rint(rows_s * 1e9).astype(np.int64)
    count_us = (zero_ns + np.rint(count_s * 1e9).astype(np.int64)) // 1000
    health_rng = random.Random(f"health {gpu} {zero_ns} {len(rows_s)}")
    now = rows_s + 0.03, rows_s + 0.05
    health = health_columns(runs, zero_ns, rows_s, active(*now), rx.mean(*now), health_rng)
    power = 90_000 + sm_share * 350_000
    return {
        "t_wall_ns": wall_ns.tolist(),
        **health,
        "t_mono_ns": (wall_ns - zero_ns + 25_000_000_000).tolist(),
        "pcie_rx_kbps": np.rint(window).astype(int).tolist(),
        "pcie_tx_kbps": np.rint(window_tx).astype(int).tolist(),
        "cnt_rx_bytes": (np.floor(counted).astype(np.int64) % (1 << 32)).tolist(),
        "cnt_tx_bytes": (np.floor(sent).astype(np.int64) % (1 << 32)).tolist(),
        "cnt_ts_us": count_us.tolist(),
        "gpm_interval_ms": [f"{ms:.1f}" for ms in (gpm_end - gpm_start) * 1e3],
        "gpm_pcie_rx_mibps": [f"{value:.3f}" for value in gpm_mibps],
        "gpm_pcie_tx_mibps": [f"{value:.3f}" for value in gpm_mibps * rates.tx_share],
        "gpm_sm_util": [f"{value:.3f}" for value in sm_share * 100],
        "gpm_sm_occ": [f"{value:.3f}" for value in sm_share * 25],
        "gpm_dram_bw_util": [f"{value:.3f}" for value in sm_share * 12],
        "gpm_graphics_util": [f"{value:.3f}" for value in sm_share * 100],
        "util_gpu": np.rint(util * 100).astype(int).tolist(),
        "gpu_mem_used_mib": np.where(rows_s < _MARGIN_S, 637, 4765).tolist(),
        "power_mw": np.rint(power).astype(int).tolist(),
        "row_us": np.rint((read_s + 0.0008 - rows_s) * 1e6).astype(int).tolist(),
    }


def _host(runs: Sequence[TracedRun], zero_ns: int, rows_s: Floats, options: TraceOptions) -> dict[str, list[object]]:
    """CPU, memory and page faults, from the syntheses and the C++ pool."""
    syntheses, tasks, held = np.zeros(len(rows_s)), np.zeros(len(rows_s)), np.zeros(len(rows_s))
    for run in runs:
        end = run.schedule.end
        for synthesis in run.schedule.syntheses:
            if not synthesis.skipped:
                _add(syntheses, rows_s, run, synthesis.start, synthesis.end, zero_ns, end)
        freed = {call.index: call.returned for call in run.schedule.calls}
        for synthesis in run.schedule.syntheses:
            if not synthesis.skipped:
                _add(held, rows_s, run, synthesis.start, freed.get(synthesis.index, end), zero_ns, end)
        for call in run.schedule.calls:
            if call.split_end == call.split_end:
                _add(tasks, rows_s, run, call.split_end, call.b_g2_end, zero_ns, end)
    threads = runs[0].schedule.limits.pool_threads
    cpu = np.minimum(1.0, 0.03 + (syntheses + np.minimum(tasks, 1) * threads) / options.cores)
    faults = 5000 + np.cumsum(40 + syntheses * 1800)
    return {
        "host_cpu_pct": [f"{share * 100:.1f}" for share in cpu],
        "host_mem_used_mib": (6000 + held * options.partition_mib).astype(int).tolist(),
        "host_mem_total_mib": [128_887] * len(rows_s),
        "host_pgfault": faults.astype(int).tolist(),
    }


def _add(
    counts: Floats, rows_s: Floats, run: TracedRun, start: float, end: float, zero_ns: int, otherwise: float
) -> None:
    """Adds 1 to the rows between start and end; an end that never came is the run's."""
    stop = run.seconds(end if end == end else otherwise, zero_ns)
    first, last = np.searchsorted(rows_s, [run.seconds(start, zero_ns), stop])
    counts[first:last] += 1
