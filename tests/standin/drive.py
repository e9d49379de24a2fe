"""Runs the sampler against the stand-in, in a process of its own: `python -m tests.standin.drive '{"seconds": 3}'`.

Time is the stand-in's and stands still between deadlines, so a run takes no longer than its calls; with `real` it is
the machine's.

Prints one JSON object: described, after, polls_per_row, rows (lines of CSV), events, cpu_s; or error.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from gputrace.errors import GputraceError
from gputrace.sampler.driver import Clock, SystemClock
from gputrace.sampler.gpu import GpuSampler
from gputrace.sampler.loop import run
from gputrace.sampler.nvml import Nvml
from gputrace.sampler.one_gpu import Options
from gputrace.sampler.rows import SampleRow, csv_line

EPOCH_NS = 1_800_000_000_000_000_000


class ScriptClock:
    """The stand-in's time; `step_ns` is put on the wall clock at `step_at_ns`."""

    def __init__(self, step_at_ns: int = 0, step_ns: int = 0) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._library.standin_time_ns.restype = ctypes.c_int64
        self._step_at_ns, self._step_ns = step_at_ns, step_ns
        self._set(0)

    def _set(self, now_ns: int) -> None:
        step_ns = self._step_ns if now_ns >= self._step_at_ns else 0
        unix_us = (EPOCH_NS + step_ns) // 1000
        self._library.standin_set_time_ns(ctypes.c_int64(now_ns), ctypes.c_int64(unix_us))

    def mono_ns(self) -> int:
        """Nanoseconds of the script."""
        return int(self._library.standin_time_ns())

    def wall_ns(self) -> int:
        """Unix nanoseconds of the script."""
        now_ns = self.mono_ns()
        return EPOCH_NS + now_ns + (self._step_ns if now_ns >= self._step_at_ns else 0)

    def wait(self, stop: threading.Event, until_ns: int) -> None:
        """It is `until_ns` at once."""
        if until_ns > self.mono_ns():
            self._set(until_ns)


def main(asked: dict[str, Any]) -> dict[str, Any]:
    """One run; keys of `asked`: seconds, period_s, real, options, own_pids, step_at_s, step_s."""
    clock: Clock = SystemClock()
    if not asked.get("real"):
        clock = ScriptClock(round(asked.get("step_at_s", 0) * 1e9), round(asked.get("step_s", 0) * 1e9))
    own = asked.get("own_pids")
    options = Options(**asked.get("options", {}), own_pids=None if own is None else lambda: frozenset(own))
    period_s = asked.get("period_s", 0.1)
    began_s = time.process_time()
    try:
        sampler = GpuSampler(Nvml(), clock, period_s, options)
    except GputraceError as error:
        return {"error": str(error)}
    described, polls = sampler.describe(), sampler.polls_per_row(period_s)
    lines: list[str] = []
    stop = threading.Event()
    end_ns = clock.mono_ns() + round(asked["seconds"] * 1e9)

    def on_rows(rows: Sequence[SampleRow]) -> None:
        lines.extend(map(csv_line, rows))
        if clock.mono_ns() >= end_ns:
            stop.set()

    run(sampler, period_s, on_rows, stop, clock)
    after = sampler.describe()
    sampler.close()
    return {
        "described": described,
        "after": after,
        "polls_per_row": polls,
        "rows": lines,
        "events": sampler.take_events(),
        "cpu_s": time.process_time() - began_s,
    }


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
