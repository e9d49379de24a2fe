"""Interleaving of real captures, against figures taken by hand from what their logs print."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from gputrace.analysis.diagnosis import Interleaving
from tests.captures import diagnosis, read

TWO_WORKERS = ("pageable-heavy", "pinned-heavy", "light-then-heavy")
# Printed milliseconds are floored: at most one is lost in each.
FLOOR_S = 0.001


def interleaving(name: str) -> Interleaving:
    (only,) = diagnosis(name).interleaving
    return only


def holds(name: str) -> pl.DataFrame:
    return read(name).calls.filter(pl.col("lock_ns").is_not_null() & pl.col("unlock_ns").is_not_null()).sort("lock_ns")


def printed_s(name: str, phase: str) -> float:
    phases = read(name).phases.filter((pl.col("name") == phase) & pl.col("call").is_in(holds(name)["call"].implode()))
    return float(phases["duration_ms"].sum()) / 1e3


# By hand: mutex_wait_ms of calls with a lock, and barrier_wait_ms of the calls that held it then, summed by worker.
@pytest.mark.parametrize(
    ("name", "waiter", "holder", "waited_s", "at_barrier_s"),
    [
        ("pageable-heavy", 0, 1, 26.882, 7.555),
        ("pageable-heavy", 1, 0, 18.673, 0.0),
        ("pinned-heavy", 0, 1, 36.559, 12.038),
        ("pinned-heavy", 1, 0, 33.792, 0.0),
        ("light-then-heavy", 0, 1, 25.145, 7.239),
        ("light-then-heavy", 1, 0, 30.861, 11.120),
    ],
)
def test_who_waited_for_whom(name: str, waiter: int, holder: int, waited_s: float, at_barrier_s: float) -> None:
    pairs = {(pair.waiter, pair.holder): pair for pair in interleaving(name).waits}
    assert set(pairs) == {(0, 1), (1, 0)}
    pair = pairs[waiter, holder]
    printed = read(name).calls.filter(pl.col("worker") == waiter)["mutex_wait_ms"].sum()
    assert float(printed) / 1e3 == pytest.approx(waited_s)
    # The rest of a wait is the hand-over, a few milliseconds a call.
    assert pair.total_s == pytest.approx(waited_s, abs=0.005 * pair.waits)
    assert pair.by_phase_s.get("barrier_wait", 0.0) == pytest.approx(at_barrier_s, abs=FLOOR_S * pair.waits)


@pytest.mark.parametrize("name", TWO_WORKERS)
def test_seconds_waited_add_up_to_what_the_log_prints(name: str) -> None:
    result = interleaving(name)
    waits = read(name).calls["mutex_wait_ms"].drop_nulls()
    assert result.waited_s == pytest.approx(float(waits.sum()) / 1e3, abs=FLOOR_S * len(waits))
    by_phase = sum(sum(pair.by_phase_s.values()) for pair in result.waits)
    assert by_phase + result.waited_unheld_s == pytest.approx(result.waited_s, abs=1e-6)
    assert 0.0 <= result.waited_unheld_s < 0.005 * len(waits)


@pytest.mark.parametrize("name", TWO_WORKERS)
def test_the_mutex_goes_round(name: str) -> None:
    result, own = interleaving(name), holds(name)
    assert result.workers == (0, 1)
    assert result.held_s == pytest.approx(float(own["mutex_held_ms"].sum()) / 1e3, abs=2 * FLOOR_S * own.height)
    assert (result.alternation_share, result.longest_run) == (1.0, 1)
    times = list(pairwise(own.select("unlock_ns", "lock_ns", "mutex_wait_ms").iter_rows()))
    waited = [(later[1] - earlier[0]) / 1e6 for earlier, later in times if later[2] >= 1]
    assert result.handovers_waited.count == len(waited)
    assert result.handovers_waited.median_ms == pytest.approx(float(np.median(waited)))
    assert result.handovers_waited.max_ms == pytest.approx(max(waited))
    assert result.handovers_waited.count + result.handovers_unwaited.count == own.height - 1


def test_one_call_of_the_pageable_run_came_to_a_free_mutex() -> None:
    """Call 1 entered 338 ms after call 0's unlock and needed 4 ms more to ask."""
    unwaited = interleaving("pageable-heavy").handovers_unwaited
    assert unwaited.count == 1
    assert unwaited.max_ms == pytest.approx(342.6, abs=0.1)


@pytest.mark.parametrize("name", TWO_WORKERS)
def test_what_preparation_exposes_is_the_wait_at_the_barrier(name: str) -> None:
    work = {item.kind: item for item in interleaving(name).off_gpu}
    barrier_s = printed_s(name, "barrier_wait")
    assert work["prep_msm"].exposed_s == pytest.approx(barrier_s, abs=0.002 * holds(name).height)
    assert work["release"].under_other_s >= 0.97 * work["release"].total_s


@pytest.mark.parametrize("name", TWO_WORKERS)
def test_bounds_are_sums_of_printed_times(name: str) -> None:
    result, rounding = interleaving(name), 2 * FLOOR_S * holds(name).height
    built, around = result.shortest
    held_s = float(holds(name)["mutex_held_ms"].sum()) / 1e3
    assert built.limits_s["mutex"] == pytest.approx(held_s - printed_s(name, "barrier_wait"), abs=rounding)
    compute = sum(printed_s(name, phase) for phase in ("coset_intt_sync", "msm_invoke", "batch_add", "tail_msm"))
    assert around.limits_s["compute"] == pytest.approx(compute, abs=2 * rounding)
    assert around.limits_s["copy"] == pytest.approx(printed_s(name, "ntt_kernels"), abs=rounding)
    assert around.shortest_s <= built.shortest_s <= result.window_s


def test_one_worker_is_no_interleaving() -> None:
    assert diagnosis("one-worker").interleaving == ()
