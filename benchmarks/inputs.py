"""The inputs of the benchmarks, made once and kept under `benchmarks/data/`, which git ignores."""

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.make_log import write_log
from benchmarks.make_month import Load, write_month_log, write_samples

DATA = Path(__file__).parent / "data"
DENSE, SPARSE = 8, 100
STEPS_PER_DAY = 864_000


def log_of(megabytes: float, interesting_every: int = DENSE, seed: int = 1) -> Path:
    """A prover's log of this size; one line in `interesting_every` is of interest."""
    kind = "" if interesting_every == DENSE else f"-every{interesting_every}"
    other = "" if seed == 1 else f"-seed{seed}"
    log = DATA / f"prover-{megabytes:g}mb{kind}{other}.log"
    return _kept(log, lambda path: write_log(path, megabytes=megabytes, interesting_every=interesting_every, seed=seed))


def samples_of(rows: int, gpus: int = 1) -> Path:
    """A recording of `rows` samples of 0.1 s of every GPU, as Parquet, from the start of the logs on."""
    return _kept(DATA / f"samples-{rows}x{gpus}.parquet", lambda path: write_samples(path, rows, gpus))


def month_of(calls: int = 300_000, gpus: int = 8, days: float = 30) -> tuple[Path, Path]:
    """The log of a run of so many calls on so many GPUs, and the samples of 0.1 s that fit it."""
    name = f"month-{calls}x{gpus}-{days:g}d"
    log, samples = DATA / f"{name}.log", DATA / f"{name}.parquet"
    if not (log.exists() and samples.exists()):
        log.unlink(missing_ok=True)
        loads: list[Load] = []
        _kept(log, lambda path: loads.extend(write_month_log(path, calls=calls, gpus=gpus, days=days)))
        _kept(samples, lambda path: write_samples(path, round(days * STEPS_PER_DAY), gpus, loads))
    return log, samples


def _kept(path: Path, make: Callable[[Path], object]) -> Path:
    """The file, made if it is not there. It gets its name only once it is whole."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        print(f"making {path.name} ...", file=sys.stderr)
        make(unfinished)
        unfinished.replace(path)
    return path
