"""Logs of hosts with several GPUs, whose holds mix: the parts by which they come apart, and what they cost."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gputrace.loading import load
from gputrace.rebuild import separate
from gputrace.rebuild.beam import Kinds, likeliest_holds
from gputrace.rebuild.blocks import MutexLine
from gputrace.rebuild.rivals import disjoint, overlapping
from gputrace.rebuild.timebounds import TimeBounds
from gputrace.simulate.capture import Simulation, play
from gputrace.simulate.scenarios import PRESETS
from gputrace.trace import Trace
from tests.unit.support import sequence_of

FIGURES = ["pre_lock_cpu_ms", "mutex_wait_ms", "ntt_msm_h_ms", "gpu_total_ms", "mutex_held_ms"]


def texts_of(simulation: Simulation) -> list[str]:
    return [line.text for line in simulation.lines]


def read(texts: list[str], folder: Path) -> Trace:
    path = folder / "prover.log"
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return load([str(path)], cache=False)


def complete(trace: Trace) -> pl.DataFrame:
    return trace.calls.filter("complete")


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many lines each part had that was put together line by line."""
    counts: list[int] = []

    def counting(lines: list[MutexLine], bounds: TimeBounds, kinds: Kinds) -> list[list[MutexLine]]:
        counts.append(len(lines))
        return likeliest_holds(lines, bounds, kinds)

    monkeypatch.setattr(separate, "likeliest_holds", counting)
    return counts


def test_pairs_of_overlapping_intervals_are_all_pairs() -> None:
    rng = np.random.default_rng(1)
    low, other_low = rng.integers(0, 50, 30).astype(float), rng.integers(0, 50, 40).astype(float)
    high, other_high = low + rng.uniform(0, 9, 30), other_low + rng.uniform(0, 9, 40)
    found = sorted(zip(*(own.tolist() for own in overlapping(low, high, other_low, other_high)), strict=True))
    rows = itertools.product(range(30), range(40))
    assert found == [(i, j) for i, j in rows if other_low[j] <= high[i] and low[i] <= other_high[j]]


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_chosen_are_disjoint_and_worth_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = np.stack([rng.integers(0, 4, 10), rng.integers(4, 8, 10), rng.integers(8, 12, 10)], axis=1)
    members[rng.random((10, 3)) < 0.2] = -1
    worth = rng.uniform(1.0, 9.0, 10)

    def value(rows: tuple[int, ...]) -> float:
        items = [item for row in rows for item in members[row].tolist() if item >= 0]
        return float(worth[list(rows)].sum()) if len(items) == len(set(items)) else -1.0

    best = max(value(rows) for size in range(11) for rows in itertools.combinations(range(10), size))
    assert value(tuple(np.flatnonzero(disjoint(members, worth)).tolist())) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(3))
def test_a_log_that_begins_while_both_mutexes_are_held_comes_apart(seed: int, tmp_path: Path) -> None:
    """From then on each lock follows a release: two are never seen to be held."""
    texts = texts_of(play(PRESETS["two-gpus"], seed))
    locks = [number for number, text in enumerate(texts) if "pre_lock_cpu_ms" in text]
    after = texts[locks[5] + 1 :]
    known = complete(read(texts, tmp_path)).select(FIGURES)
    found = complete(read(after, tmp_path)).select(FIGURES)
    assert found.height == len(locks) - 6
    # Two calls whose lines came at the same time may have exchanged some.
    assert found.join(known, on=FIGURES, how="anti").height <= 2


@pytest.mark.parametrize("lost", ["pre_lock_cpu_ms", "ntt_msm_h_ms", "gpu_total_ms", "mutex_held_ms"])
def test_one_gpu_with_a_lost_line_is_not_several(lost: str) -> None:
    texts = texts_of(play(replace(PRESETS["pageable"], partitions=12), 2))
    for at in (number for number, text in enumerate(texts) if lost in text):
        assert not separate.interleaved(sequence_of(*texts[:at], *texts[at + 1 :]))


def test_hardly_a_line_of_many_calls_of_eight_gpus_is_searched_for(searched: list[int], tmp_path: Path) -> None:
    """What is told apart in columns takes time in proportion to the calls; a line searched for, some ms."""
    simulation = play(replace(PRESETS["eight-gpus"], partitions=400), 1)
    trace = read(texts_of(simulation), tmp_path)
    assert complete(trace).height == 400
    assert sum(searched) < 0.01 * 400 * 7
    keys = ["job", "partition", "worker", "gpu"]
    right = simulation.calls.join(complete(trace).select(keys), on=keys, how="semi", nulls_equal=True)
    assert right.height > 0.97 * 400


def test_a_lost_line_costs_the_call_that_it_is_of(searched: list[int], tmp_path: Path) -> None:
    texts, rng = texts_of(play(replace(PRESETS["eight-gpus"], partitions=120), 3)), random.Random(5)
    under_mutex = ("mutex_", "NTT_H", "gpu_tid")
    lost = {n for n, text in enumerate(texts) if any(word in text for word in under_mutex) and rng.random() < 0.01}
    trace = read([text for number, text in enumerate(texts) if number not in lost], tmp_path)
    assert len(lost) > 5 and max(searched) < 100
    assert abs(120 - len(lost) - complete(trace).height) <= 4
