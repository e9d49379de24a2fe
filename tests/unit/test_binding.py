"""Blocks find their partitions and floating lines their calls by what the figures say, not by who came first."""

import itertools
import math
import random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace.ingest.inputs import Ingested
from gputrace.rebuild.attempts import ATTEMPTS, Attempts
from gputrace.rebuild.binding import bind_blocks
from gputrace.rebuild.blocks import Block, Blocks
from gputrace.rebuild.matching import Matched, Pairs, match_lines
from gputrace.rebuild.rebuild import rebuild
from gputrace.rebuild.timebounds import TimeBounds, outside_ms
from tests.unit.prover import EPOCH_NS, MS, Planned, print_log, schedule
from tests.unit.support import marks_of

NO_BOUNDS = TimeBounds.of([])


def block(locked: int, unlocked: int, pre_lock: int, wait: int, held: int) -> Block:
    """A block whose lock and unlock lines are at these positions."""
    return Block(
        restart=0,
        first_order=locked,
        last_order=unlocked,
        source=0,
        orders={"mutex_acquired": locked, "mutex_released": unlocked},
        lines={"mutex_acquired": locked + 1, "mutex_released": unlocked + 1},
        ms={
            "pre_lock_cpu_ms": pre_lock,
            "mutex_wait_ms": wait,
            "mutex_held_ms": held,
            "total_start_fn_ms": pre_lock + wait + held,
        },
    )


Attempt = dict[str, Any]


def attempt(partition: int, order: int, start_ms: int, prove_start_ms: int | None, **known: Any) -> Attempt:
    """An attempt that started at this position and time."""
    return {
        "worker": partition % 2,
        "job": "j",
        "partition": partition,
        "restart": 0,
        "start_order": order,
        "start_ns": start_ms * MS,
        "prove_start_ms": prove_start_ms,
        **known,
    }


def bound(blocks: list[Block], attempts: list[Attempt], bounds: TimeBounds) -> list[int | None]:
    """For each block the number of its attempt."""
    frame = pl.DataFrame([dict.fromkeys(ATTEMPTS) | own for own in attempts], schema=ATTEMPTS)
    found, residual_ms = bind_blocks(Blocks.of(blocks), Attempts(frame), bounds)
    assert len(found) == len(residual_ms) == len(blocks)
    return [None if number < 0 else number for number in found.tolist()]


def rebuilt(lines: list[str]) -> pl.DataFrame:
    """The calls of a log that have a hold of the mutex, in order of their lines."""
    trace = rebuild(Ingested(marks=marks_of(*lines)))
    return trace.calls.filter(pl.col("mutex_held_ms").is_not_null()).sort("first_line")


# --- blocks to attempts --------------------------------------------------------------------------------------------

# Partition 0 starts first, but partition 1 gets the mutex first: partition 0 has a long way to the lock.
OVERTAKEN = [block(10, 20, 30, 0, 1900), block(21, 30, 2000, 0, 3000)]


@pytest.mark.parametrize("knows_prove_start", [True, False])
def test_first_come_would_be_wrong(knows_prove_start: bool) -> None:
    attempts = [
        attempt(0, 1, 0, 5040 if knows_prove_start else None, end_order=31),
        attempt(1, 2, 60, 1970 if knows_prove_start else None, end_order=32),
    ]
    bounds = TimeBounds.of([(1, 0.0), (2, 60.0 * MS), (15, 95.0 * MS), (22, 2005.0 * MS), (31, 5040.0 * MS)])
    assert bound(OVERTAKEN, attempts, bounds) == [1, 0]


def test_times_alone_decide_between_blocks_of_the_same_length() -> None:
    # Both hold the mutex alike; who waited, and since when, says who is who.
    blocks = [block(10, 20, 50, 0, 1000), block(21, 30, 30, 1012, 1000)]
    attempts = [attempt(0, 1, 0, None, end_order=40), attempt(1, 2, -20, None, end_order=41)]
    # Partition 1 entered 20 ms earlier and asked at -20 + 50 = 30; partition 0 asked at 0 + 30 = 30 and waited.
    blocks[1].ms["mutex_wait_ms"] = 1000
    bounds = TimeBounds.of([(9, 29.0 * MS), (11, 33.0 * MS), (40, 2050.0 * MS)])
    assert bound(blocks, attempts, bounds) == [1, 0]


def test_a_return_sooner_than_the_call_is_impossible() -> None:
    # prove_start must not be less than total_start_fn: however well the times fit, partition 0 cannot be it.
    blocks = [block(10, 20, 30, 0, 1000)]
    attempts = [attempt(0, 1, 0, 900, end_order=30), attempt(1, 2, 150, 1031, end_order=31)]
    assert bound(blocks, attempts, NO_BOUNDS) == [1]


def test_an_attempt_that_closed_before_the_block_cannot_be_chosen() -> None:
    blocks = [block(10, 20, 30, 0, 1000)]
    finished = attempt(0, 1, 0, None, end_order=15)
    moved_on = attempt(2, 2, 0, None, next_pickup_order=19)
    assert bound(blocks, [finished, moved_on], NO_BOUNDS) == [None]
    late = attempt(1, 3, 500, None, end_order=21)
    assert bound(blocks, [finished, moved_on, late], NO_BOUNDS) == [2]


def test_an_attempt_that_starts_after_the_lock_cannot_be_chosen() -> None:
    assert bound([block(10, 20, 30, 0, 1000)], [attempt(0, 11, 0, None)], NO_BOUNDS) == [None]


def test_an_attempt_of_another_run_cannot_be_chosen() -> None:
    other = attempt(0, 1, 0, None, restart=1)
    assert bound([block(10, 20, 30, 0, 1000)], [other], NO_BOUNDS) == [None]


def test_each_attempt_is_used_once() -> None:
    blocks = [block(10, 20, 30, 0, 1000), block(21, 30, 30, 0, 1000)]
    found = bound(blocks, [attempt(0, 1, 0, None)], NO_BOUNDS)
    assert sorted(index is None for index in found) == [False, True]


def test_a_missing_attempt_leaves_its_block_unbound() -> None:
    plan = schedule([Planned(n % 2, n, start=100.0 + 2500 * n) for n in range(6)])
    lines = [line for line in print_log(plan) if "partition=3" not in line and "Some(3)" not in line]
    assert rebuilt(lines)["partition"].to_list() == [0, 1, 2, None, 4, 5]


def test_no_blocks_no_bindings() -> None:
    assert bound([], [attempt(0, 1, 0, None)], NO_BOUNDS) == []


@st.composite
def plans(draw: st.DrawFn) -> list[Planned]:
    """Two or three workers, each taking its next partition when it is free; lengths as they vary in real runs."""
    rng = random.Random(draw(st.integers(0, 1_000_000)))
    workers, count = draw(st.integers(2, 3)), draw(st.integers(4, 16))

    def next_call(worker: int, partition: int, free_at: float) -> Planned:
        return Planned(
            worker,
            partition,
            start=free_at + rng.uniform(0.5, 20),
            pre_lock=rng.uniform(30, 60),
            prep=rng.uniform(300, 3500),
            b_g2=rng.uniform(150, 1800),
            ntt_kernels=rng.uniform(300, 5000),
            msm_invoke=rng.uniform(600, 660),
            release=rng.uniform(5, 900),
        )

    waiting = [next_call(worker, worker, 100.0 + 7.3 * worker) for worker in range(workers)]
    placed: list[Planned] = []
    while waiting:
        # The mutex goes to whoever asks first; only then is it known when that worker comes again.
        call = min(waiting, key=lambda c: c.asks)
        waiting.remove(call)
        placed = schedule([*placed, call])
        if len(placed) + len(waiting) < count:
            waiting.append(next_call(call.worker, len(placed) + len(waiting), call.end + 1.0))
    return placed


@given(plan=plans(), streams=st.sampled_from([("stderr", "stdout"), ("stderr",)]))
@settings(max_examples=40)
def test_every_block_finds_its_partition(plan: list[Planned], streams: tuple[str, ...]) -> None:
    calls = rebuilt(print_log(plan, streams))
    assert calls["partition"].to_list() == [call.partition for call in sorted(plan, key=lambda call: call.lock)]


@given(plan=plans())
@settings(max_examples=30)
def test_locks_are_where_they_were_within_the_stated_uncertainty(plan: list[Planned]) -> None:
    by_partition = {call.partition: call for call in plan}
    for call in rebuilt(print_log(plan)).iter_rows(named=True):
        truth = by_partition[call["partition"]]
        # The epoch's own error (under a millisecond) comes on top.
        assert abs((call["lock_ns"] - EPOCH_NS) / MS - truth.lock) <= call["uncertainty_ms"] + 1.0
        assert abs((call["unlock_ns"] - EPOCH_NS) / MS - truth.unlock) <= call["uncertainty_ms"] + 1.5


# --- floating lines ------------------------------------------------------------------------------------------------


def test_prep_lines_are_told_apart_by_the_barrier() -> None:
    # Both preparations run at once; partition 1's is printed first, and it is partition 0 that waits at the barrier.
    first = Planned(0, 0, start=100.0, prep=2600.0, ntt_kernels=500.0)
    second = Planned(1, 1, start=110.0, prep=1500.0, ntt_kernels=500.0)
    plan = schedule([first, second])
    lines = print_log(plan)
    preps = [line for line in lines if "prep_msm_ms" in line]
    assert preps == ["CUZK_TIMING: prep_msm_ms=1500", "CUZK_TIMING: prep_msm_ms=2600"]
    assert first.barrier > 1000 and second.barrier == 0
    calls = rebuilt(lines)
    assert calls["partition"].to_list() == [0, 1]
    assert calls["prep_msm_ms"].to_list() == [2600, 1500]


@given(plan=plans())
@settings(max_examples=30)
def test_prep_lines_of_calls_that_wait_at_the_barrier_are_right(plan: list[Planned]) -> None:
    calls = rebuilt(print_log(plan))
    by_partition = {call.partition: call for call in plan}
    for partition, prep_ms in calls.select("partition", "prep_msm_ms").iter_rows():
        truth = by_partition[partition]
        if truth.barrier > 20:
            assert prep_ms == int(truth.prep)
    # Whatever is whose, each line is used once.
    assert calls["prep_msm_ms"].sort().to_list() == sorted(int(call.prep) for call in plan)


@st.composite
def matchings(draw: st.DrawFn) -> tuple[int, int, dict[tuple[int, int], float]]:
    lines, calls = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    pairs = [(call, line) for call in range(calls) for line in range(lines)]
    possible = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return lines, calls, {pair: float(draw(st.integers(0, 150))) for pair in possible}


def matched(calls: int, costs: dict[tuple[int, int], float]) -> Matched:
    """What `match_lines` makes of pairs of call and line that cost so much."""
    pairs = sorted(costs)
    call, line = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    lines, residuals = match_lines(
        calls, Pairs(call, line, np.array([costs[pair] for pair in pairs], dtype=np.float64))
    )
    return [
        (None if own < 0 else own, residual) for own, residual in zip(lines.tolist(), residuals.tolist(), strict=True)
    ]


@given(matchings())
def test_the_cheapest_one_to_one_matching_is_found(given_: tuple[int, int, dict[tuple[int, int], float]]) -> None:
    lines, calls, costs = given_
    got = matched(calls, costs)
    assert len(got) == calls
    used = [line for line, _ in got if line is not None]
    assert len(used) == len(set(used))
    assert all(residual == costs[call, line] for call, (line, residual) in enumerate(got) if line is not None)

    def total(choice: tuple[int | None, ...]) -> float:
        # A call without a line costs more than any residual that is believed.
        return sum(200.0 if line is None else costs[call, line] for call, line in enumerate(choice))

    everything = itertools.product([None, *range(lines)], repeat=calls)
    allowed = [
        choice
        for choice in everything
        if len({c for c in choice if c is not None}) == sum(c is not None for c in choice)
        and all(line is None or (call, line) in costs for call, line in enumerate(choice))
    ]
    assert total(tuple(line for line, _ in got)) == pytest.approx(min(total(choice) for choice in allowed))


def test_a_pair_that_cannot_be_is_never_matched() -> None:
    got = matched(2, {(0, 0): math.nan, (0, 1): 1.0, (1, 0): 1.0, (1, 1): math.nan})
    assert [line for line, _ in got] == [1, 0]
    assert matched(1, {(0, 0): math.nan}) == [(None, 0.0)]
    assert matched(0, {}) == []


# --- bounds --------------------------------------------------------------------------------------------------------


def test_a_time_within_the_lines_around_it_misses_nothing() -> None:
    bounds = TimeBounds.of([(10, 1000.0 * MS), (20, 2000.0 * MS)])

    def misses(order: int, time_ms: float, known: TimeBounds = bounds) -> list[float]:
        low, high = known.spans_ns(np.array([order]))
        return [float(off[0]) for off in outside_ms(low, high, np.array([time_ms * MS]))]

    assert misses(15, 1500.0) == [0.0, 0.0]
    # 5 ms of disorder are allowed for; before what came earlier, and after what came later.
    assert misses(15, 900.0) == pytest.approx([95.0, 0.0])
    assert misses(15, 2300.0) == pytest.approx([0.0, 295.0])
    assert misses(5, 0.0) == [0.0, 0.0]
    assert misses(25, 9000.0) == [0.0, 0.0]
    assert misses(5, 123.0, NO_BOUNDS) == [0.0, 0.0]
