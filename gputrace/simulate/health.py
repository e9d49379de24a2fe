"""Columns of a simulated trace that tell of the GPU's health: clocks, the link, kernels of other processes."""

import random
from collections.abc import Sequence

import numpy as np

from gputrace.simulate.activity import Piece
from gputrace.simulate.traced import Floats, Total, TracedRun

MAX_CLOCK_MHZ = 1980
_CLOCK_STEP_MHZ = 15
_GPU_IDLE = 0x1
_LOADED_SM = 0.05
_IDLE_WIRE = 50e6
# Power caps and thermal slowdowns let the clock wander by a few steps.
_WANDER_STEPS = 3
_MOST_SM = 0.98


def other_kernels(runs: Sequence[TracedRun], zero_ns: int, own: Sequence[Piece]) -> tuple[Total, Total]:
    """SM time of other processes: what they would take alone, and what the prover's own kernels leave them not."""
    alone, refused = [], []
    for run in runs:
        for other in run.schedule.disturbance.others:
            start, end = (run.seconds(min(at, run.schedule.end), zero_ns) for at in (other.start, other.end))
            if end <= start:
                continue
            alone.append((start, end, (end - start) * other.sm))
            for piece in own:
                begin, stop = max(start, piece.start), min(end, piece.end)
                if stop > begin:
                    refused.append((begin, stop, (stop - begin) * max(0.0, piece.sm + other.sm - _MOST_SM)))
    return Total(alone), Total(refused)


def health_columns(
    runs: Sequence[TracedRun], zero_ns: int, rows_s: Floats, active: Floats, wire: Floats, rng: random.Random
) -> dict[str, list[object]]:
    """Clocks, event reasons, link and its replays, and the count of other processes.

    `active` is the SM share and `wire` the traffic in, bytes/s, at each row.
    """
    columns: dict[str, list[object]] = {
        name: []
        for name in (
            "sm_clock_mhz", "sm_clock_max_mhz", "clock_event_reasons", "pcie_gen", "pcie_width", "pcie_gen_max",
            "pcie_width_max", "pcie_replays", "other_processes",
        )
    }  # fmt: skip
    # The counter runs since the GPU was started.
    replays, last = float(rng.choice((0, 0, 3, 412))), 0.0
    starts = [run.seconds(0.0, zero_ns) for run in runs]
    for row, busy, traffic in zip(rows_s, active, wire, strict=True):
        number = max(0, int(np.searchsorted(starts, row, side="right")) - 1)
        disturbance, at = runs[number].schedule.disturbance, float(row) - starts[number]
        link, loaded = disturbance.link, bool(busy > _LOADED_SM)
        degraded = at >= link.since
        gen = link.gen if degraded else link.gen_max
        if link.idle_gen and not loaded and traffic < _IDLE_WIRE:
            gen = min(gen, link.idle_gen)
        reasons = disturbance.reasons(at) if loaded else _GPU_IDLE
        share = disturbance.clock(at) if loaded else 1.0
        clock = round(share * MAX_CLOCK_MHZ / _CLOCK_STEP_MHZ)
        if share < 1.0:
            clock += rng.randint(-_WANDER_STEPS, _WANDER_STEPS)
        replays += (float(row) - last) * link.replays_per_s * rng.uniform(0.3, 1.7) if degraded else 0.0
        last = float(row)
        seen = (
            clock * _CLOCK_STEP_MHZ,
            MAX_CLOCK_MHZ,
            reasons,
            gen,
            link.width if degraded else link.width_max,
            link.gen_max,
            link.width_max,
            int(replays),
            int(any(other.start - 1.0 <= at < other.end + 1.0 for other in disturbance.others)),
        )
        for name, value in zip(columns, seen, strict=True):
            columns[name].append(value)
    return columns
