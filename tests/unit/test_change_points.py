"""Change points, what a cut must earn, and holds that take turns: on numbers, and on simulated runs."""

import time

import numpy as np
import pytest

from gputrace.analysis.regimes.change_points import Floats, alternates, change_points, changes, scaled, typical
from gputrace.analysis.regimes.stretches import find_stretches, quantities
from gputrace.analysis.segments import alloc_bursts
from gputrace.trace import Trace
from tests.unit.schedules import run_of, steady_run, stepped

CYCLE = 1000.0


def noise(n: int, middle: float, spread: float, seed: int = 0) -> Floats:
    return np.asarray(np.random.default_rng(seed).normal(middle, spread, n))


def table(*columns: Floats) -> Floats:
    return np.column_stack(columns)


def cuts_in(values: Floats) -> list[int]:
    return change_points(scaled(values, CYCLE))


def test_a_step_is_found_where_it_is() -> None:
    copy = noise(60, 500.0, 30.0)
    copy[37:] += 250.0
    assert cuts_in(table(copy, noise(60, 300.0, 10.0, 1))) == [37]


def test_one_odd_call_is_no_regime() -> None:
    copy = noise(60, 500.0, 30.0)
    copy[20] = 14_000.0
    assert cuts_in(table(copy)) == []


def test_turns_are_not_taken_for_change() -> None:
    turns = np.where(np.arange(60) % 2, 0.0, 3000.0) + noise(60, 0.0, 40.0)
    assert cuts_in(table(turns)) == []


def test_what_is_small_beside_the_cycle_is_not_searched() -> None:
    tiny = noise(60, 3.0, 0.1)
    tiny[30:] += 5.0
    assert cuts_in(table(tiny)) == []


def test_few_calls_are_not_cut() -> None:
    assert cuts_in(table(np.array([1.0] * 7 + [900.0] * 7))) == []


def test_many_calls_are_searched_in_blocks_and_cut_to_the_call() -> None:
    copy = noise(300_000, 500.0, 60.0)
    copy[100_003:] += 250.0
    begun = time.process_time()
    assert cuts_in(table(copy, noise(300_000, 300.0, 20.0, 1))) == [100_003]
    assert time.process_time() - begun < 10.0


def test_a_change_must_be_a_tenth_of_a_cycle_and_beyond_chance() -> None:
    before, after = noise(20, 500.0, 20.0, 1), noise(20, 500.0, 20.0, 2)
    assert changes(table(before), table(after + 300.0), ["copy"], CYCLE)[0].name == "copy"
    assert changes(table(before), table(after + 60.0), ["copy"], CYCLE) == []
    wild = noise(8, 500.0, 400.0, 3), noise(8, 640.0, 400.0, 4)
    assert changes(table(wild[0]), table(wild[1]), ["copy"], CYCLE) == []


def test_larger_changes_come_first() -> None:
    before = table(noise(20, 500.0, 20.0, 1), noise(20, 200.0, 20.0, 2))
    found = changes(before, before + np.array([200.0, 400.0]), ["copy", "barrier"], CYCLE)
    assert [change.name for change in found] == ["barrier", "copy"]
    assert found[0].size == pytest.approx(400.0)


def test_the_typical_value_of_turns_is_their_average() -> None:
    assert typical(np.array([0.0, 1000.0] * 5)) == 500.0
    assert typical(np.array([0.0, 1000.0] * 5 + [0.0])) == 500.0
    assert typical(np.array([7.0])) == 7.0


@pytest.mark.parametrize("first", [0, 1])
def test_short_and_long_by_turns_are_bistable(first: int) -> None:
    turns = np.where(np.arange(12) % 2 == first, 700.0, 3700.0) + noise(12, 0.0, 80.0)
    assert alternates(turns)


def test_two_lengths_in_two_blocks_are_not_bistable() -> None:
    assert not alternates(np.array([700.0, 720.0] * 6 + [3700.0, 3650.0] * 6))


def test_one_length_is_not_bistable() -> None:
    flagged = [alternates(noise(40, 1500.0, 150.0, seed)) for seed in range(100)]
    assert sum(flagged) == 0


def test_two_lengths_in_random_order_are_rarely_called_bistable() -> None:
    flagged = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        flagged.append(alternates(np.where(rng.random(40) < 0.5, 700.0, 3700.0)))
    assert np.mean(flagged) <= 0.1


SKIPPED, KEPT = 12, 60
SEEDS = range(60)


def cuts_of(trace: Trace) -> list[int]:
    return [stretch.first for stretch in find_stretches(trace, alloc_bursts(trace))[1:]]


def test_steady_simulated_runs_are_not_cut() -> None:
    """Measured: 0 of 150 runs are cut."""
    cut = []
    for seed in SEEDS:
        works, limits = steady_run(seed, SKIPPED + KEPT + 24)
        if cuts_of(run_of(works, limits, seed, SKIPPED, KEPT)):
            cut.append(seed)
    assert len(cut) <= 0.05 * len(SEEDS), cut


def test_a_step_of_the_copy_is_cut_within_two_calls() -> None:
    """Copies half as long again, where that is 15 % of a cycle or more. Measured: 71 of 75 runs.

    Smaller steps are near or below the threshold of a tenth of a cycle: docs/definitions.md has their figures.
    """
    tried, missed = 0, []
    for seed in SEEDS:
        works, limits = steady_run(seed, SKIPPED + KEPT + 24)
        steady = run_of(works, limits, seed, SKIPPED, KEPT)
        usual = quantities(steady, alloc_bursts(steady)).frame.median()
        if works[0].pinned or 0.5 * usual["ntt_kernels"][0] < 0.15 * usual["lock to lock"][0]:
            continue
        tried += 1
        at = SKIPPED + 20 + seed % 20
        trace = run_of(stepped(works, at, 1.5), limits, seed, SKIPPED, KEPT)
        expected = trace.calls.select("job", "partition").rows().index((works[at].job, works[at].partition))
        found = cuts_of(trace)
        if len(found) != 1 or abs(found[0] - expected) > 2:
            missed.append((seed, expected, found))
    assert tried >= 25
    assert len(missed) <= 0.1 * tried, missed
