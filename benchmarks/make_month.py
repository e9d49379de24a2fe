"""Makes a long run of several GPUs: the log of an engine that proves a job now and then, and the samples that fit it.

Each GPU has a simulated prover of its own (`benchmarks.make_log`), the jobs of the GPUs begin evenly one after the
other, and between jobs nothing runs. The samples follow the calls: while a call copies, bytes go over the link at the
rate of a pageable copy; while its kernels run, the SMs are active.
"""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.make_log import (
    EPOCH_US,
    LINES_PER_BLOCK,
    PARTITIONS_PER_JOB,
    Mark,
    Plan,
    Prover,
    Work,
    log_lines,
    marks,
    start_marks,
)

STEP_NS = 100_000_000
# Steps of all GPUs made at once, and rows that a reader can pass over together.
STEPS_PER_PIECE = 125_000
ROWS_PER_GROUP = 250_000
RX_BYTES_PER_S, TX_BYTES_PER_S = 7e9, 3.5e8
SM_ACTIVE_IN_KERNELS = 0.96

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Load:
    """Seconds that one GPU copied and computed since the engine's start, as functions of time."""

    copies_ns: Ints
    kernels_ns: Ints

    @classmethod
    def of(cls, work: Work) -> "Load":
        """From the edges of its stretches."""
        return cls(*(np.array(edges, dtype=np.int64) * 1_000_000 for edges in (work.copies_ms, work.kernels_ms)))

    def seconds(self, edges_ns: Ints) -> tuple[Floats, Floats]:
        """Seconds of copies and of kernels between consecutive times, which count from the engine's start."""
        return _seconds_within(self.copies_ns, edges_ns), _seconds_within(self.kernels_ns, edges_ns)


def _seconds_within(stretches_ns: Ints, edges_ns: Ints) -> Floats:
    """Seconds of the stretches (begin and end in turn) between consecutive edges."""
    if not len(stretches_ns):
        return np.zeros(len(edges_ns) - 1)
    # Of a piece of a month only what lies in it: times of its own, which a float holds exactly.
    first, last = np.searchsorted(stretches_ns, edges_ns[[0, -1]])
    near = stretches_ns[max(0, first // 2 * 2 - 2) : last // 2 * 2 + 2]
    length = np.diff(near, append=near[-1:])
    length[1::2] = 0
    running = np.concatenate([[0], np.cumsum(length[:-1])])
    return np.asarray(np.diff(np.interp(edges_ns - edges_ns[0], near - edges_ns[0], running)) / 1e9)


def write_month_log(path: Path, *, calls: int, gpus: int, days: float, seed: int = 1) -> list[Load]:
    """Writes a log of about so many calls, evenly over the days and GPUs; returns what each GPU did."""
    span_ms = round(days * 86_400_000)
    every_ms = span_ms * gpus * PARTITIONS_PER_JOB // calls
    plans = [Plan(gpu, every_ms * gpu // gpus, every_ms) for gpu in range(gpus)]
    generators = [random.Random(seed + 1 + gpu) for gpu in range(gpus)]
    provers = [Prover(rng, plan.gpu) for rng, plan in zip(generators, plans, strict=True)]
    streams = [
        marks(rng, ansi=False, plan=plan, prover=prover)
        for rng, plan, prover in zip(generators, plans, provers, strict=True)
    ]
    merged = heapq.merge(*streams, key=lambda mark: (mark.at_us, mark.ordinal))
    told: Iterator[Mark] = takewhile(lambda mark: mark.at_us < span_ms * 1000, merged)
    lines = log_lines(chain(start_marks(gpus, ansi=False), told), interesting_every=1, seed=seed, ansi=False)
    with path.open("wb") as file:
        while block := "".join(islice(lines, LINES_PER_BLOCK)):
            file.write(block.encode())
    return [Load.of(prover.work) for prover in provers]


def write_samples(path: Path, steps: int, gpus: int, loads: list[Load] | None = None) -> None:
    """Writes the rows of a recording, all GPUs of a step one after the other; without loads, made-up bursts."""
    rng = np.random.default_rng(1)
    totals = np.zeros((gpus, 2), dtype=np.int64)
    with pq.ParquetWriter(path, SCHEMA, compression="zstd", write_statistics=True) as writer:
        for first in range(0, steps, STEPS_PER_PIECE):
            count = min(STEPS_PER_PIECE, steps - first)
            moved, busy = _bursts(rng, first, count, gpus) if loads is None else _loaded(rng, first, count, loads)
            received = totals[:, :1] + np.cumsum(moved, axis=1)
            sent = totals[:, 1:] + np.cumsum(moved * (TX_BYTES_PER_S / RX_BYTES_PER_S), axis=1).astype(np.int64)
            totals = np.stack([received[:, -1], sent[:, -1]], axis=1)
            writer.write_table(_rows(rng, first, received, sent, busy), row_group_size=ROWS_PER_GROUP)


def _bursts(rng: np.random.Generator, first: int, count: int, gpus: int) -> tuple[Ints, Floats]:
    """Bytes received in each step and share of it with SMs active: copies between stretches of kernels, by GPU."""
    step = np.arange(first, first + count)
    noise = rng.normal(0.0, 0.1, (gpus, count))
    busy = np.clip(0.4 + 0.4 * np.sin(step / 7.0) + noise, 0.0, 1.0)
    return rng.integers(0, 2_000_000_000, (gpus, count)), busy


def _loaded(rng: np.random.Generator, first: int, count: int, loads: list[Load]) -> tuple[Ints, Floats]:
    """The same as the calls have it."""
    edges_ns = np.arange(first, first + count + 1) * STEP_NS
    seconds = np.array([load.seconds(edges_ns) for load in loads])
    noise = rng.normal(1.0, 0.02, (len(loads), count))
    busy = np.clip(SM_ACTIVE_IN_KERNELS * seconds[:, 1] / (STEP_NS / 1e9) * noise, 0.0, 1.0)
    return (seconds[:, 0] * RX_BYTES_PER_S * noise).astype(np.int64), busy


SCHEMA = pa.schema(
    [
        ("gpu", pa.int64()),
        ("t_start_ns", pa.int64()),
        ("t_end_ns", pa.int64()),
        ("t_mono_ns", pa.int64()),
        ("late_ms", pa.float64()),
        ("rx_wire_bytes_total", pa.int64()),
        ("tx_wire_bytes_total", pa.int64()),
        ("pcie_source", pa.string()),
        ("gpm_interval_ms", pa.float64()),
        ("gpm_sm_active", pa.float64()),
        ("gpu_util", pa.int64()),
        ("sm_clock_mhz", pa.int64()),
        ("link_gen", pa.int64()),
        ("link_width", pa.int64()),
        ("hole", pa.bool_()),
        ("failed", pa.string()),
    ]
)


def _rows(rng: np.random.Generator, first: int, received: Ints, sent: Ints, busy: Floats) -> pa.Table:
    """The rows of a piece: arrays have a row a GPU and a column a step."""
    gpus, count = busy.shape
    rows = gpus * count
    step = np.repeat(np.arange(first, first + count), gpus)
    start_ns = EPOCH_US * 1_000 + step * STEP_NS
    in_turn = busy.T.ravel()
    return pa.table(
        {
            "gpu": np.tile(np.arange(gpus), count),
            "t_start_ns": start_ns,
            "t_end_ns": start_ns + STEP_NS,
            "t_mono_ns": step * STEP_NS,
            "late_ms": np.round(rng.random(rows), 3),
            "rx_wire_bytes_total": received.T.ravel(),
            "tx_wire_bytes_total": sent.T.ravel(),
            "pcie_source": pa.repeat("counters", rows),
            "gpm_interval_ms": np.full(rows, 100.0),
            "gpm_sm_active": np.round(in_turn, 4),
            "gpu_util": np.round(in_turn * 100).astype(np.int64),
            "sm_clock_mhz": np.full(rows, 1_980),
            "link_gen": np.full(rows, 5),
            "link_width": np.full(rows, 16),
            "hole": np.zeros(rows, dtype=bool),
            "failed": pa.repeat("", rows),
        },
        schema=SCHEMA,
    )
