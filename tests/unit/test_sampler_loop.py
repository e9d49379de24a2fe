"""Deadlines, by a clock that stands still between calls."""

import itertools
import random
import threading
from collections.abc import Sequence

import pytest

from gputrace.errors import UsageError
from gputrace.sampler import link
from gputrace.sampler.loop import run
from gputrace.sampler.rows import SampleRow


class Still:
    """A clock that only waiting and calls move."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_123

    def wall_ns(self) -> int:
        return self.now_ns

    def mono_ns(self) -> int:
        return self.now_ns

    def wait(self, stop: threading.Event, until_ns: int) -> None:
        self.now_ns = max(self.now_ns, until_ns)


class Recorded:
    """A sampler whose calls take as long as they are told, seconds."""

    def __init__(self, clock: Still, polls: int, row_s: dict[int, float], poll_s: dict[int, float]) -> None:
        self.clock, self.polls = clock, polls
        self.row_s, self.poll_s = row_s, poll_s
        self.began_ns = clock.now_ns
        self.deadlines_ms: list[float] = []
        self.late_ms: list[float] = []
        self.polled_ms: list[float] = []

    def polls_per_row(self, period_s: float) -> int:
        return self.polls

    def poll(self) -> None:
        self.polled_ms.append((self.clock.now_ns - self.began_ns) / 1e6)
        self.clock.now_ns += round(self.poll_s.get(len(self.polled_ms), 0) * 1e9)

    def step(self, deadline_ns: int) -> Sequence[SampleRow]:
        self.deadlines_ms.append((deadline_ns - self.began_ns) / 1e6)
        self.late_ms.append((self.clock.now_ns - deadline_ns) / 1e6)
        self.clock.now_ns += round(self.row_s.get(len(self.deadlines_ms), 0) * 1e9)
        return []


def record(
    rows: int, polls: int = 2, row_s: dict[int, float] | None = None, poll_s: dict[int, float] | None = None
) -> Recorded:
    clock, stop = Still(), threading.Event()
    sampler = Recorded(clock, polls, row_s or {}, poll_s or {})

    def on_rows(_: Sequence[SampleRow]) -> None:
        if len(sampler.deadlines_ms) == rows:
            stop.set()

    run(sampler, 0.1, on_rows, stop, clock)
    return sampler


def test_rows_and_polls_alternate_on_the_grid() -> None:
    made = record(3)
    assert made.deadlines_ms == [100, 200, 300]
    assert made.polled_ms == [50, 150, 250]
    assert made.late_ms == [0, 0, 0]


def test_calls_that_take_time_do_not_make_the_grid_drift() -> None:
    made = record(50, row_s=dict.fromkeys(range(1, 51), 0.037), poll_s=dict.fromkeys(range(1, 51), 0.012))
    assert made.deadlines_ms == [100 * row for row in range(1, 51)]
    assert set(made.late_ms) == {0}


def test_a_blocked_poll_is_followed_by_one_late_row_and_the_grid() -> None:
    made = record(4, poll_s={2: 0.93})
    assert made.deadlines_ms == [100, 200, 1100, 1200]
    assert made.late_ms == [0, pytest.approx(880), 0, 0]


def test_a_blocked_row_is_followed_by_the_grid() -> None:
    made = record(4, row_s={2: 0.93})
    assert made.deadlines_ms == [100, 200, 1200, 1300]
    assert made.late_ms == [0, 0, 0, 0]


def test_whatever_blocks_rows_stay_on_the_grid_and_none_is_made_twice() -> None:
    dice = random.Random(3)
    blocks = [{at: dice.expovariate(4) for at in range(1, 200) if dice.random() < 0.2} for _ in range(2)]
    made = record(100, polls=3, row_s=blocks[0], poll_s=blocks[1])
    assert [round(deadline) % 100 for deadline in made.deadlines_ms] == [0] * 100
    assert all(after > before for before, after in itertools.pairwise(made.deadlines_ms))


@pytest.mark.parametrize("period_s", [0.019, 10.1, 0, -1])
def test_a_period_out_of_bounds_is_refused(period_s: float) -> None:
    clock = Still()
    with pytest.raises(UsageError, match=r"0\.02 to 10 s"):
        run(Recorded(clock, 1, {}, {}), period_s, lambda _: None, threading.Event(), clock)


@pytest.mark.parametrize("gen", [1, 2, 3, 4, 5, 6, None])
@pytest.mark.parametrize("width", [1, 4, 8, 16])
@pytest.mark.parametrize("period_s", [0.02, 0.05, 0.1, 1, 10])
def test_no_counter_comes_round_between_two_readings(gen: int | None, width: int, period_s: float) -> None:
    wrap_s = link.wrap_s(32, link.limit_bytes_per_s(gen, width))
    polls = link.polls_per_row(period_s, wrap_s)
    assert period_s / polls <= 0.81 * wrap_s
    assert polls == 1 or period_s / (polls - 1) > 0.79 * wrap_s
