"""The beat of a recorder: deadlines on a grid that never drifts, whatever a call takes."""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from gputrace.errors import UsageError
from gputrace.sampler.driver import Clock
from gputrace.sampler.rows import SampleRow

SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 0.02, 10.0


class Sampler(Protocol):
    """What the loop drives: `gputrace.sampler.gpu.GpuSampler`."""

    def polls_per_row(self, period_s: float) -> int: ...

    def poll(self) -> None: ...

    def step(self, deadline_ns: int) -> Sequence[SampleRow]: ...


def check_period(period_s: float) -> float:
    """The period, or UsageError where it is out of bounds."""
    if not SHORTEST_PERIOD_S <= period_s <= LONGEST_PERIOD_S:
        raise UsageError(f"the period must be {SHORTEST_PERIOD_S} to {LONGEST_PERIOD_S:g} s, not {period_s:g}")
    return period_s


def run(
    sampler: Sampler,
    period_s: float,
    on_rows: Callable[[Sequence[SampleRow]], None],
    stop: threading.Event,
    clock: Clock,
) -> None:
    """Rows every `period_s` until `stop` is set, and polls of the counters between them as often as they need.

    Deadlines are multiples of the period from the start. Where a call blocked past several, one row is made at once
    (late by what it is late against the first of them) and the rest are left out: the grid stays, the hole is seen.
    """
    check_period(period_s)
    start_ns, polls = clock.mono_ns(), sampler.polls_per_row(period_s)
    at = 0
    while True:
        interval_ns = period_s * 1e9 / polls
        passed = math.floor((clock.mono_ns() - start_ns) / interval_ns)
        at += 1
        row = -(-at // polls) * polls
        if passed > at:
            # Several are overdue: the first row among them, or else the last poll.
            at = row if row <= passed else passed
        deadline_ns = start_ns + round(at * interval_ns)
        clock.wait(stop, deadline_ns)
        if stop.is_set():
            return
        if at % polls:
            sampler.poll()
            continue
        on_rows(sampler.step(deadline_ns))
        at = max(at, math.floor((clock.mono_ns() - start_ns) / interval_ns / polls) * polls)
        if (wanted := sampler.polls_per_row(period_s)) != polls:
            start_ns, at, polls = start_ns + round(at * interval_ns), 0, wanted
