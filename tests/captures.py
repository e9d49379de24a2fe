"""The real captures, found by name; where they come from is in sample_logs/README.md and tests/data/README.md."""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import polars as pl

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.ingest.wrappers import utc_ns
from gputrace.loading import load
from gputrace.trace import Trace

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
SAMPLES = {
    "pageable-heavy": ROOT / "sample_logs" / "h200-pageable",
    "pinned-heavy": ROOT / "sample_logs" / "h200-pinned",
    "light-then-heavy": ROOT / "sample_logs" / "h200-light-then-heavy",
    "told-story": ROOT / "sample_logs" / "told-story",
}
CAPTURES = ("pageable-heavy", "pageable-membw", "pinned-heavy", "light-then-heavy", "merged-fast", "one-worker")
WITH_DOCKER = tuple(name for name in CAPTURES if name != "merged-fast")


def folder(name: str) -> Path:
    """The capture's folder."""
    return SAMPLES.get(name, DATA / name)


def log_and_trace(name: str) -> list[str]:
    """The merged log and the GPU trace, as a user would give them."""
    return [str(folder(name) / "prover.merged.gz"), str(folder(name) / "nvml.csv.gz")]


@cache
def read(name: str) -> Trace:
    """The trace of a capture."""
    return load([str(folder(name))])


@cache
def diagnosis(name: str) -> Diagnosis:
    """The diagnosis of a capture."""
    return diagnose(read(name))


def docker_lines(name: str) -> list[tuple[str, int, str]]:
    """(stream, arrival ns, text) of every line of the capture's docker form."""
    with gzip.open(DATA / name / "prover.docker.json.gz", "rt") as lines:
        entries = [json.loads(line) for line in lines]
    arrival = pl.DataFrame({"time": [entry["time"] for entry in entries]}).select(utc_ns(pl.col("time")))["time"]
    return [
        (entry["stream"], at, entry["log"].rstrip("\n")) for entry, at in zip(entries, arrival.to_list(), strict=True)
    ]


def write_two_files(name: str, into: Path) -> list[str]:
    """stdout and stderr of the capture as two files, without arrival times."""
    for stream in ("stdout", "stderr"):
        text = "".join(f"{line}\n" for s, _, line in docker_lines(name) if s == stream)
        (into / f"prover.{stream}").write_text(text)
    return [str(into / "prover.stdout"), str(into / "prover.stderr")]


def truth_unlocks_ns(name: str) -> dict[int, list[int]]:
    """Per partition, when the driver says that the mutex was given back: return less release of a/b/c."""
    unlocks: dict[int, list[int]] = {}
    with gzip.open(DATA / name / "truth.csv.gz", "rt") as lines:
        for line in lines:
            found = re.match(r"(\d+),\d+,prove_start_done,(\d+),\w+,release_abc_ms=(\d+)", line)
            if found:
                wall, partition, release_ms = map(int, found.groups())
                unlocks.setdefault(partition, []).append(wall - release_ms * 1_000_000)
    return unlocks


def change_trace(name: str, into: Path, change: Callable[[dict[str, str]], None]) -> str:
    """A copy of the capture's GPU trace in which `change` has altered every row; its path."""
    text = gzip.decompress((folder(name) / "nvml.csv.gz").read_bytes()).decode()
    reader = csv.DictReader(io.StringIO(text))
    target = into / "changed.csv"
    with target.open("w", newline="") as out:
        writer = csv.DictWriter(out, reader.fieldnames or [])
        writer.writeheader()
        for row in reader:
            change(row)
            writer.writerow(row)
    return str(target)
