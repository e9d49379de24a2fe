"""How well calls are put together again: wrappers x histories x streams, simulated with known truth, beside real ones.

Writes docs/rebuild-accuracy.md with `GPUTRACE_UPDATE_GOLDEN=1`; otherwise checks that the document is what is measured.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest

from gputrace.loading import load
from gputrace.simulate.capture import Simulation, play
from gputrace.simulate.scenarios import PRESETS, random_scenario
from gputrace.trace import Trace
from tests.captures import ROOT, WITH_DOCKER, docker_lines, log_and_trace, read, truth_unlocks_ns, write_two_files
from tests.integration.test_wrapped_captures import Line, encoded

# One worker makes the cells for both tests.
pytestmark = pytest.mark.xdist_group("rebuild-accuracy")

TARGET = ROOT / "docs" / "rebuild-accuracy.md"
HISTORIES = ("M", "Vs", "Vg", "Vd", "V12", "V9b", "V9a", "V8")
WRAPPERS = (
    "plain",
    "docker json-file",
    "docker --timestamps",
    "cri",
    "journalctl short-iso-precise",
    "journalctl json",
    "syslog RFC 5424",
    "journalctl short",
)
STREAMS = ("merged", "two files", "stderr", "stdout")
SEVERAL_FORMS = {
    "merged": ("plain", "merged"),
    "two files": ("plain", "two files"),
    "docker json-file": ("docker json-file", "merged"),
}
HEAD = """# How well calls are put together again

Made by `tests/integration/test_rebuild_accuracy.py`. Each cell: calls with the right worker, job, partition and GPU, of
all complete calls; then the error of the unlock's time (median / worst, ms). Simulated: one GPU, two workers, 40 calls,
pageable copies (`gputrace simulate pageable`, with the lines of that build). M is the build of 2026-03-13 and later, Vs
that of the hunt which `sample_logs/told-story` tells, V8 to Vg those before: they print no line for the mutex, so an
unlock is known only as well as the lines around it say. V4, the first, names no partition in TIMELINE: there is nothing
to compare with. Without a time for the unlock (stderr without the GPU trace; stdout, whose calls have no C++ lines)
only the counts are given.

"""


@dataclass(frozen=True)
class Cell:
    """Calls right, calls in all, and errors of the unlock in ms."""

    right: int
    total: int
    errors_ms: tuple[float, ...]

    def __str__(self) -> str:
        if not self.errors_ms:
            return f"{self.right}/{self.total}"
        ordered = sorted(self.errors_ms)
        return f"{self.right}/{self.total}, {ordered[len(ordered) // 2]:.0f} / {ordered[-1]:.0f}"


def simulated(history: str, gpus: int = 1) -> Simulation:
    preset = PRESETS["pageable"] if gpus == 1 else PRESETS["two-gpus"]
    return play(replace(preset, variant=history), seed=7)


def write_form(lines: list[Line], wrapper: str, streams: str, into: Path) -> list[str]:
    if streams == "two files":
        paths = []
        for stream in ("stdout", "stderr"):
            path = into / f"{stream}.log"
            path.write_bytes(encoded([line for line in lines if line[0] == stream], wrapper))
            paths.append(str(path))
        return paths
    path = into / "prover.log"
    kept = [line for line in lines if streams == "merged" or line[0] == streams]
    path.write_bytes(encoded(kept, wrapper))
    return [str(path)]


def compare(trace: Trace, truth: pl.DataFrame) -> Cell:
    """Rebuilt calls against the truth, by partition and worker; stdout alone shows no complete call but all of them."""
    finished = truth.filter(pl.col("unlock_ns").is_not_null() & (pl.col("outcome") == "ok"))
    keys = ["job", "partition", "worker", "gpu"]
    found = trace.calls.filter("complete") if trace.calls["complete"].any() else trace.calls
    joined = finished.join(
        found.select(*keys, pl.col("unlock_ns").alias("found_ns")), on=keys, how="left", nulls_equal=True
    )
    matched = finished.join(found.select(keys), on=keys, how="semi", nulls_equal=True).height
    errors: tuple[float, ...] = ()
    if trace.clock.method != "none":
        off = ((joined["found_ns"] - joined["unlock_ns"]).abs() / 1e6).drop_nulls()
        errors = tuple(off.to_list())
    return Cell(matched, finished.height, errors)


def measure(history: str, wrapper: str, streams: str, into: Path) -> Cell:
    simulation = simulated(history)
    lines = [(line.stream, line.at_ns, line.text) for line in simulation.lines]
    return compare(load(write_form(lines, wrapper, streams, into)), simulation.calls)


def table(rows: dict[str, dict[str, Cell]], columns: tuple[str, ...], corner: str) -> str:
    text = f"| {corner} | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|\n"
    for name, cells in rows.items():
        text += f"| {name} | {' | '.join(str(cells[column]) for column in columns)} |\n"
    return text


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Cell]:
    cells = {}
    for history in HISTORIES:
        for streams in STREAMS:
            for wrapper in WRAPPERS if history == "M" or streams == "merged" else ("plain", "docker json-file"):
                into = tmp_path_factory.mktemp("cell")
                cells[history, wrapper, streams] = measure(history, wrapper, streams, into)
    return cells


def real(name: str, into: Path) -> dict[str, Cell]:
    """A real capture's forms against the driver's own times."""
    truth = truth_unlocks_ns(name)
    known = read(name).calls.filter("complete")
    cells = {}
    docker = into / "docker.json"
    docker.write_bytes(encoded(docker_lines(name), "docker json-file"))
    two = write_two_files(name, into)
    forms = {"merged": [log_and_trace(name)[0]], "two files": two, "stderr": two[1:], "docker": [str(docker)]}
    for form, paths in forms.items():
        trace = load([*paths, log_and_trace(name)[1]])
        found = trace.calls.filter("complete")
        keys = ["job", "partition", "worker", "gpu", "mutex_held_ms"]
        right = known.join(found.select(keys), on=keys, how="semi", nulls_equal=True).height
        off = [
            min(abs(unlock_ns - at) for at in truth[partition]) / 1e6
            for partition, unlock_ns in found.select("partition", "unlock_ns").iter_rows()
            if partition is not None and unlock_ns is not None
        ]
        cells[form] = Cell(right, known.height, tuple(off))
    return cells


def several_gpus(into: Path) -> dict[str, dict[str, Cell]]:
    """Logs of several GPUs, whose C++ lines name none: without times of their own, and with."""
    scenarios = {"2 GPUs": PRESETS["two-gpus"], "4 GPUs": random_scenario(105, gpus=4), "8 GPUs": PRESETS["eight-gpus"]}
    rows: dict[str, dict[str, Cell]] = {}
    for name, scenario in scenarios.items():
        simulation = play(scenario, seed=7)
        lines = [(line.stream, line.at_ns, line.text) for line in simulation.lines]
        rows[name] = {}
        for column, (wrapper, streams) in SEVERAL_FORMS.items():
            folder = into / f"{name} {column}"
            folder.mkdir()
            rows[name][column] = compare(load(write_form(lines, wrapper, streams, folder)), simulation.calls)
    return rows


def test_every_call_is_right_where_times_exist(measured: dict[tuple[str, str, str], Cell]) -> None:
    for (history, wrapper, streams), cell in measured.items():
        if streams in ("merged", "two files"):
            assert cell.right == cell.total, (history, wrapper, streams, str(cell))
        if streams in ("merged", "two files") and history == "M":
            assert max(cell.errors_ms) < 10.0, (history, wrapper, streams, str(cell))


def test_the_document_is_what_is_measured(
    measured: dict[tuple[str, str, str], Cell], tmp_path_factory: pytest.TempPathFactory
) -> None:
    by_wrapper = {w: {s: measured["M", w, s] for s in STREAMS} for w in WRAPPERS}
    by_history = {h: {s: measured[h, "plain", s] for s in STREAMS} for h in HISTORIES}
    by_both = {w: {h: measured[h, w, "merged"] for h in HISTORIES} for w in WRAPPERS}
    forms = ("merged", "two files", "stderr", "docker")
    by_capture = {name: real(name, tmp_path_factory.mktemp("real")) for name in WITH_DOCKER}
    text = HEAD
    text += "## Simulated: wrappers x streams (build M)\n\n" + table(by_wrapper, STREAMS, "wrapper")
    text += "\n## Simulated: histories x streams (plain)\n\n" + table(by_history, STREAMS, "build")
    text += "\n## Simulated: wrappers x histories (merged)\n\n" + table(by_both, HISTORIES, "wrapper")
    gpus = several_gpus(tmp_path_factory.mktemp("gpus"))
    assert all(cells["docker json-file"].right == cells["docker json-file"].total for cells in gpus.values())
    text += "\n## Simulated: several GPUs in one log\n\n" + table(gpus, tuple(SEVERAL_FORMS), "host")
    text += (
        "\n## Real captures\n\nAgainst the stand-in engine's own clock, with the GPU trace given; stderr alone finds "
        "its clock in the trace.\n\n" + table(by_capture, forms, "capture")
    )
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        TARGET.write_text(text, encoding="utf-8")
    assert TARGET.read_text(encoding="utf-8") == text
