"""The sampler as the recorder takes it, and the recorder's loop on what it gives."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gputrace.sampler.capture import Capture
from gputrace.sampler.driver import SystemClock
from gputrace.sampler.gpus import SampledGpus
from gputrace.sampler.host import HostSampler
from gputrace.sampler.recorder import Recorder
from gputrace.sampler.rows import SampleRow
from tests.recording import MS, FakeClock, NoPacker, row


class FakeSampler:
    """Two GPUs, a row a step; ends the loop after some steps."""

    def __init__(self, stop: threading.Event, steps: int) -> None:
        self.stop, self.steps, self.at, self.closed = stop, steps, 0, False

    def describe(self) -> dict[str, Any]:
        return {"driver": "570.86.15", "gpus": [{"index": n, "name": "NVIDIA H200"} for n in (0, 1)]}

    def polls_per_row(self, period_s: float) -> int:
        return 2

    def poll(self) -> None:
        pass

    def step(self, deadline_ns: int) -> list[SampleRow]:
        self.at += 1
        if self.at == self.steps:
            self.stop.set()
        return [row(self.at, gpu) for gpu in (0, 1)]

    def take_events(self) -> list[dict[str, Any]]:
        return [{"event": "gpu-lost", "gpu": 1, "t_ns": 7, "detail": "d"}] if self.at == 2 else []

    def close(self) -> None:
        self.closed = True


def test_only_the_gpus_asked_for_are_given() -> None:
    stop = threading.Event()
    sampler = FakeSampler(stop, 5)
    gpus = SampledGpus(sampler, 0.1, FakeClock(), frozenset({1}))  # type: ignore[arg-type]
    rows: list[SampleRow] = []
    gpus.run(rows.extend, stop)
    assert [(one.gpu, one.rx_wire_bytes_total) for one in rows] == [(1, 1000 * (n + 2)) for n in range(5)]
    assert [gpu["index"] for gpu in gpus.describe()["gpus"]] == [1]
    assert gpus.take_events() == [{"event": "gpu-lost", "gpu": 1, "t_ns": 7, "detail": "d"}]
    assert gpus.take_events() == [] and sampler.closed


class SteppedWall(SystemClock):
    """The machine's clocks, the wall clock of which can be set."""

    moved_ns = 0

    def wall_ns(self) -> int:
        return SystemClock.wall_ns() + self.moved_ns


class Scripted:
    """GPUs that do what a test says, on the recorder's own thread for them."""

    def __init__(self, script: Callable[[Callable[[Sequence[SampleRow]], None]], None]) -> None:
        self._script = script

    def describe(self) -> dict[str, Any]:
        return {"gpus": []}

    def take_events(self) -> list[dict[str, Any]]:
        return []

    def run(self, on_rows: Callable[[Sequence[SampleRow]], None], stop: threading.Event) -> None:
        self._script(on_rows)


def recorded(
    folder: Path, script: Callable[[Callable[[Sequence[SampleRow]], None]], None], clock: SystemClock
) -> Recorder:
    """A recorder run in this thread until the script is over."""
    capture = Capture(folder, clock, packer=NoPacker())
    capture.write_meta()
    return Recorder(capture, clock, gpus=Scripted(script), host=HostSampler(clock), tick_s=0.01)


def run_until(recorder: Recorder, condition: Callable[[], bool]) -> None:
    """Stops it as a signal would, once the condition holds."""
    import signal
    import time

    def watch() -> None:
        deadline = time.monotonic() + 10
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.005)
        signal.raise_signal(signal.SIGTERM)

    watcher = threading.Thread(target=watch)
    watcher.start()
    ended = recorder.run()
    watcher.join()
    assert ended.why == "SIGTERM"


def events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("step_s", [5, -5])
def test_a_clock_step_is_noted_and_the_monotonic_axis_holds(tmp_path: Path, step_s: int) -> None:
    folder, clock = tmp_path / "c", SteppedWall()
    began = threading.Event()

    def script(on_rows: Callable[[Sequence[SampleRow]], None]) -> None:
        on_rows([row(0)])
        began.wait(5)
        clock.moved_ns = step_s * 1_000_000_000

    recorder = recorded(folder, script, clock)

    def noted() -> bool:
        began.set() if list(folder.glob("samples-*")) else None
        return any(event["event"] == "clock-step" for event in events(folder))

    run_until(recorder, noted)
    (step,) = [event for event in events(folder) if event["event"] == "clock-step"]
    assert step["seconds"] == pytest.approx(step_s, abs=0.02)
    (kept,) = json.loads((folder / "meta.json").read_text())["clock_steps"]
    assert kept["seconds"] == step["seconds"]
    mono = [event["t_mono_ns"] for event in events(folder)]
    assert mono == sorted(mono)


def test_holes_are_told_once_and_a_failing_driver_does_not_end_the_recording(tmp_path: Path) -> None:
    folder = tmp_path / "c"

    def script(on_rows: Callable[[Sequence[SampleRow]], None]) -> None:
        on_rows([row(0), row(1, hole=True, failed="gpu_lost"), row(2, hole=True), row(3), row(4, hole=True)])
        raise OSError("the driver is gone")

    recorder = recorded(folder, script, SystemClock())
    run_until(recorder, lambda: any(event["event"] == "gpus-lost" for event in events(folder)))
    told = [(event["event"], event.get("seconds")) for event in events(folder)]
    assert told == [("start", None), ("hole", 0.1), ("hole", 0.1), ("gpus-lost", None), ("stop", None)]
    frame = pl.read_csv(folder / "samples-000001.csv")
    assert frame["hole"].to_list() == [False, True, True, False, True]
    assert (frame["t_end_ns"].diff().drop_nulls() == 100 * MS).all()
