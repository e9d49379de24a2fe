"""Clocks, GPU rows and sources for tests of recordings: no GPU, no waiting."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gputrace.sampler.rows import SampleRow

START_NS = 1_795_971_805_000_000_000
MS = 1_000_000
S = 1_000_000_000


class FakeClock:
    """Time that passes when told to."""

    def __init__(self, wall_ns: int = START_NS, mono_ns: int = 5 * S) -> None:
        self.wall, self.mono = wall_ns, mono_ns

    def wall_ns(self) -> int:
        return self.wall

    def mono_ns(self) -> int:
        return self.mono

    def wait(self, stop: threading.Event, until_ns: int) -> None:
        self.pass_ns(max(0, until_ns - self.mono))

    def pass_ns(self, duration_ns: int) -> None:
        self.wall += duration_ns
        self.mono += duration_ns


class NoPacker:
    """Remembers what was to be packed."""

    def __init__(self) -> None:
        self.given: list[Path] = []

    def add(self, path: Path) -> None:
        self.given.append(path)

    def poll(self) -> str | None:
        return None


def row(number: int, gpu: int = 0, period_ns: int = 100 * MS, **changes: Any) -> SampleRow:
    """Row `number` of a steady recording: 1000 bytes in a step into the GPU, 10 out."""
    end_ns = START_NS + (number + 1) * period_ns
    steady: dict[str, Any] = {
        "gpu": gpu,
        "t_start_ns": end_ns - period_ns,
        "t_end_ns": end_ns,
        "t_mono_ns": end_ns - START_NS + 5 * S,
        "late_ms": 0.05,
        "rx_wire_bytes_total": 1000 * (number + 1),
        "tx_wire_bytes_total": 10 * (number + 1),
        "pcie_source": "counters",
        "gpu_util": 50,
        "link_gen": 5,
        "link_width": 16,
    }
    return SampleRow(**{**steady, **changes})


class StandInGpus:
    """Rows of some GPUs on the real clock, for recorders run as processes."""

    def __init__(self, count: int, period_s: float, clock: Any) -> None:
        self._count, self._period_s, self._clock = count, period_s, clock

    def describe(self) -> dict[str, Any]:
        return {"driver": "stand-in", "gpus": [{"index": n, "name": "stand-in GPU"} for n in range(self._count)]}

    def take_events(self) -> list[dict[str, Any]]:
        return []

    def run(self, on_rows: Callable[[Sequence[SampleRow]], None], stop: threading.Event) -> None:
        number, last_ns = 0, self._clock.wall_ns()
        while not stop.wait(self._period_s):
            now_ns, mono_ns = self._clock.wall_ns(), self._clock.mono_ns()
            times = {"t_start_ns": last_ns, "t_end_ns": now_ns, "t_mono_ns": mono_ns}
            on_rows([row(number, gpu, **times) for gpu in range(self._count)])
            number, last_ns = number + 1, now_ns
