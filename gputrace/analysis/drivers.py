"""What a variable phase goes with, as points, one for each call: what its correlations are made of."""

from collections.abc import Iterable

import polars as pl

from gputrace.analysis.diagnosis import PhaseFinding
from gputrace.analysis.phases import driver_context
from gputrace.analysis.segments import alloc_bursts
from gputrace.trace import Trace

POINTS = {
    "phase": pl.String,
    "driver": pl.String,
    "call": pl.UInt32,
    "value": pl.Float64,
    "duration_ms": pl.Float64,
}


def driver_points(trace: Trace, phases: Iterable[PhaseFinding]) -> pl.DataFrame:
    """phase, driver, call, value, duration_ms: every pair of phase and driver that `phases` name, call by call.

    These are the values that the rank correlations in `PhaseFinding.drivers` were computed from: complete calls in
    focus, without the first call on each GPU. Durations of several circuits of one call are added up.
    """
    complete = trace.calls_in_focus.filter("complete")
    wanted = [(phase.name, driver.name) for phase in phases for driver in phase.drivers]
    if not wanted or complete.is_empty():
        return pl.DataFrame(schema=POINTS)
    context = driver_context(trace, complete, alloc_bursts(trace))
    durations = (
        trace.phases.join(complete.filter(~pl.col("warmup")).select("call"), on="call", how="semi")
        .group_by("call", "name", maintain_order=True)
        .agg(pl.col("duration_ms").sum())
    )
    parts = []
    for phase, driver in wanted:
        if driver not in context.columns:
            continue
        own = durations.filter(pl.col("name") == phase).join(context.select("call", driver), on="call")
        named = own.select(
            pl.lit(phase).alias("phase"), pl.lit(driver).alias("driver"), "call",
            pl.col(driver).alias("value"), "duration_ms",
        )  # fmt: skip
        parts.append(named.drop_nulls(["value", "duration_ms"]).cast(POINTS))  # type: ignore[arg-type]
    return pl.concat(parts).sort("phase", "driver", "call") if parts else pl.DataFrame(schema=POINTS)
