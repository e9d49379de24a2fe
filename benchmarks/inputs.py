"""The inputs of the benchmarks, made once and kept under `benchmarks/data/`, which git ignores."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.make_log import EPOCH_US, write_log

DATA = Path(__file__).parent / "data"
DENSE, SPARSE = 8, 100
ROWS_PER_PIECE = 1_000_000
STEP_NS = 100_000_000


def log_of(megabytes: float, interesting_every: int = DENSE, seed: int = 1) -> Path:
    """A prover's log of this size; one line in `interesting_every` is of interest."""
    kind = "" if interesting_every == DENSE else f"-every{interesting_every}"
    other = "" if seed == 1 else f"-seed{seed}"
    log = DATA / f"prover-{megabytes:g}mb{kind}{other}.log"
    return _kept(log, lambda path: write_log(path, megabytes=megabytes, interesting_every=interesting_every, seed=seed))


def samples_of(rows: int, gpus: int = 1) -> Path:
    """A recording of `rows` samples of 0.1 s of every GPU, as Parquet, from the start of the logs on."""
    return _kept(DATA / f"samples-{rows}x{gpus}.parquet", lambda path: _write_samples(path, rows, gpus))


def _kept(path: Path, make: Callable[[Path], object]) -> Path:
    """The file, made if it is not there. It gets its name only once it is whole."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        print(f"making {path.name} ...", file=sys.stderr)
        make(unfinished)
        unfinished.replace(path)
    return path


def _write_samples(path: Path, rows: int, gpus: int) -> None:
    rng = np.random.default_rng(1)
    pieces = [
        _samples(rng, first, min(ROWS_PER_PIECE, rows - first), gpu).lazy()
        for first in range(0, rows, ROWS_PER_PIECE)
        for gpu in range(gpus)
    ]
    pl.concat(pieces).sink_parquet(path)


def _samples(rng: np.random.Generator, first: int, count: int, gpu: int) -> pl.DataFrame:
    """Bursts of copies between stretches of kernels; counters never fall."""
    step = np.arange(first, first + count)
    start = EPOCH_US * 1_000 + step * STEP_NS
    busy = np.clip(0.4 + 0.4 * np.sin(step / 7.0) + rng.normal(0.0, 0.1, count), 0.0, 1.0)
    received = first * 2_000_000_000 + np.cumsum(rng.integers(0, 2_000_000_000, count))
    return pl.DataFrame(
        {
            "gpu": np.full(count, gpu, dtype=np.int32),
            "t_start_ns": start,
            "t_end_ns": start + STEP_NS,
            "t_mono_ns": step * STEP_NS,
            "late_ms": rng.random(count),
            "rx_wire_bytes_total": received,
            "tx_wire_bytes_total": received // 20,
            "pcie_source": ["counters"] * count,
            "gpm_interval_ms": np.full(count, 100.0),
            "gpm_sm_active": busy,
            "gpu_util": (busy * 100).astype(np.int64),
            "sm_clock_mhz": np.full(count, 1_980),
            "link_gen": np.full(count, 5),
            "link_width": np.full(count, 16),
            "hole": np.zeros(count, dtype=bool),
            "failed": [""] * count,
        }
    )
