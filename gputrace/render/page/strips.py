"""How a phase's durations are spread, small enough for a table's cell."""

from typing import Any

import polars as pl

from gputrace.analysis.diagnosis import PhaseFinding
from gputrace.trace import Trace

_MOST_TICKS = 80
_WIDTH = 120.0


def strips(trace: Trace, phases: tuple[PhaseFinding, ...]) -> dict[str, dict[str, Any]]:
    """For each kind of phase its strip: a tick a call (at most 80, evenly over the ranks), from 0 to the longest."""
    calls = trace.calls.filter("complete").select("call")
    durations = trace.phases.join(calls, on="call", how="semi").drop_nulls("duration_ms")
    found = {}
    for phase in phases:
        if phase.max_ms <= 0:
            continue
        values = durations.filter(pl.col("name") == phase.name)["duration_ms"].sort()
        step = max(1.0, values.len() / _MOST_TICKS)
        chosen = [values[int(i * step)] for i in range(int(values.len() / step))]

        def place(value: float, longest: float = phase.max_ms) -> float:
            return round(1 + (_WIDTH - 2) * min(value / longest, 1.0), 1)

        found[phase.name] = {
            "ticks": sorted({place(value) for value in chosen}),
            "low": place(phase.p5_ms),
            "median": place(phase.median_ms),
            "high": place(phase.p95_ms),
            "width": _WIDTH,
        }
    return found
