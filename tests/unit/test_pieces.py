"""Cutting time conserves it; dividing and fitting conserve and recover what was put in."""

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace.analysis.pieces import Pieces, divide, fit_kinds
from tests.unit.support import MS, spans

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def chain(draw: st.DrawFn, most: int, gaps: bool) -> list[tuple[int, int]]:
    """Intervals in order that do not overlap; with holes between them where asked for."""
    at = draw(st.integers(0, 500)) * MS
    found = []
    for _ in range(draw(st.integers(0 if gaps else 1, most))):
        if gaps:
            at += draw(st.sampled_from([0, 0, 1, 70])) * MS
        length = draw(st.integers(1, 300)) * MS
        found.append((at, at + length))
        at += length
    return found


@st.composite
def tilings(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Samples (at least one) and segments of one GPU."""
    samples = chain(draw, 15, gaps=draw(st.booleans())) or [(0, 100 * MS)]
    return samples, chain(draw, 15, gaps=draw(st.booleans()))


def overlap_s(a: tuple[int, int], b: tuple[int, int]) -> float:
    return max(0, min(a[1], b[1]) - max(a[0], b[0])) / 1e9


@given(tilings())
def test_cutting_conserves_the_seconds_of_every_sample(
    tiles: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    samples, segments = tiles
    pieces = Pieces.cut(spans(samples), spans(segments))
    got = np.bincount(pieces.sample, pieces.seconds, len(samples))
    assert got == pytest.approx([(end - start) / 1e9 for start, end in samples])


@given(tilings())
def test_every_overlap_of_sample_and_segment_is_in_the_pieces(
    tiles: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    samples, segments = tiles
    pieces = Pieces.cut(spans(samples), spans(segments))
    got = np.zeros((len(samples), len(segments) + 1))
    np.add.at(got, (pieces.sample, pieces.segment), pieces.seconds)
    expected = np.array([[overlap_s(a, b) for b in segments] for a in samples]).reshape(len(samples), len(segments))
    assert got[:, : len(segments)] == pytest.approx(expected)
    lengths = np.array([(end - start) / 1e9 for start, end in samples])
    # What lies in no segment has the number -1, the last column.
    assert got[:, -1] == pytest.approx(lengths - expected.sum(axis=1), abs=1e-9)


def test_without_segments_every_piece_is_in_none() -> None:
    pieces = Pieces.cut(spans([(0, 5), (5, 9)]), spans([]))
    assert pieces.segment.tolist() == [-1, -1]
    assert (pieces.seconds * 1e9).tolist() == [5.0, 4.0]


@st.composite
def divisions(draw: st.DrawFn) -> tuple[Floats, Ints, Floats, Floats]:
    """Totals, and pieces with weights (some all 0, some totals nan)."""
    size = draw(st.integers(1, 8))
    total = draw(st.lists(st.one_of(st.floats(0, 1e10), st.just(float("nan"))), min_size=size, max_size=size))
    extra = draw(st.lists(st.integers(0, size - 1), max_size=20))
    sample = np.sort(np.array([*range(size), *extra]))
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
    weights = draw(st.lists(weight, min_size=len(sample), max_size=len(sample)))
    seconds = draw(st.lists(st.floats(1e-4, 1.0), min_size=len(sample), max_size=len(sample)))
    return np.array(total), sample, np.array(weights), np.array(seconds)


@given(divisions())
def test_dividing_conserves_each_samples_total(given_: tuple[Floats, Ints, Floats, Floats]) -> None:
    total, sample, weights, seconds = given_
    parts = divide(total, sample, weights, seconds)
    assert np.bincount(sample, parts, len(total)) == pytest.approx(np.nan_to_num(total), rel=1e-9)
    assert (parts >= 0).all()


def test_dividing_follows_weights_and_time_where_there_are_none() -> None:
    parts = divide(
        np.array([12.0, 10.0]), np.array([0, 0, 1, 1]), np.array([1.0, 2.0, 0.0, 0.0]), np.array([5.0, 5.0, 1.0, 4.0])
    )
    assert parts.tolist() == pytest.approx([4.0, 8.0, 2.0, 8.0])


KINDS = ["ntt", "sync", "msm", "add", "rest"]
# Payload GB a segment of each kind copies, and how long it takes: sync is a third of a sample, add a little less.
VOLUME = np.array([7.8, 0.3, 12.9, 3.1, 0.0])
LENGTH_MS = np.array([2500, 33, 630, 95, 200])
SAMPLE_MS = 100


def synthetic(calls: int, seed: int, noise: float = 0.0) -> tuple[Pieces, Ints, Floats, Floats]:
    """A run of calls of five kinds with jittered lengths: its pieces, kinds, weights (shares) and what was sampled."""
    rng = np.random.default_rng(seed)
    length = np.maximum(5, LENGTH_MS * rng.uniform(0.7, 1.3, (calls, len(KINDS)))).astype(np.int64).ravel() * MS
    edges = np.concatenate([[0], np.cumsum(length)])
    kind = np.tile(np.arange(len(KINDS)), calls)
    steps = int(edges[-1] // (SAMPLE_MS * MS))
    ticks = np.arange(steps + 1) * SAMPLE_MS * MS
    pieces = Pieces.cut(
        spans(list(zip(ticks[:-1].tolist(), ticks[1:].tolist(), strict=True))),
        spans(list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))),
    )
    share = pieces.seconds / (length[pieces.segment] / 1e9)
    observed = np.bincount(pieces.sample, share * VOLUME[kind[pieces.segment]], steps)
    seen = np.maximum(observed * (1.0 + noise * rng.standard_normal(steps)), 0.0)
    return pieces, kind[pieces.segment], share, seen


@pytest.mark.parametrize("seed", range(5))
def test_known_volumes_come_back_even_of_kinds_shorter_than_a_sample(seed: int) -> None:
    pieces, kind, share, observed = synthetic(40, seed)
    fit = fit_kinds(share, pieces.sample, kind, KINDS, observed)
    assert fit.value == pytest.approx(VOLUME, rel=1e-3, abs=1e-3)
    assert fit.of("add") == pytest.approx(3.1, rel=1e-3)
    assert fit.of("never seen") == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_noise_stays_within_the_stated_errors(seed: int) -> None:
    pieces, kind, share, observed = synthetic(60, seed, noise=0.05)
    fit = fit_kinds(share, pieces.sample, kind, KINDS, observed)
    assert (np.abs(fit.value - VOLUME) < 5 * np.maximum(fit.error, 1e-6)).all()
    assert fit.of("add") == pytest.approx(3.1, rel=0.2)
    assert fit.error_of("ntt") < 0.1 * VOLUME[0]
    assert np.isnan(fit.error_of("never seen"))


def test_what_was_not_seen_is_left_out() -> None:
    pieces, kind, share, observed = synthetic(40, 1)
    observed[::7] = np.nan
    fit = fit_kinds(share, pieces.sample, kind, KINDS, observed)
    assert fit.value == pytest.approx(VOLUME, rel=1e-3, abs=1e-3)


@given(seed=st.integers(0, 1000), highest=st.sampled_from([0.5, 1.0, float("inf")]), scale=st.floats(0.1, 3.0))
@settings(max_examples=25)
def test_the_bounds_hold(seed: int, highest: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    pieces, kind, _, _ = synthetic(8, seed)
    observed: Floats = rng.uniform(0, scale, int(pieces.sample.max()) + 1) * 0.1
    fit = fit_kinds(pieces.seconds, pieces.sample, kind, KINDS, observed, highest=highest)
    assert (fit.value >= 0.0).all()
    assert (fit.value <= highest + 1e-9).all()


def test_shares_of_activity_come_back_with_the_bound_at_one() -> None:
    truth = np.array([0.03, 1.0, 0.72, 0.9, 0.0])
    pieces, kind, _, _ = synthetic(40, 2)
    observed: Floats = np.bincount(pieces.sample, pieces.seconds * truth[kind]).astype(np.float64)
    fit = fit_kinds(pieces.seconds, pieces.sample, kind, KINDS, observed, highest=1.0)
    assert fit.value == pytest.approx(truth, abs=1e-3)


def test_a_kind_that_no_sample_saw_gets_nothing() -> None:
    pieces, kind, share, observed = synthetic(40, 1)
    fit = fit_kinds(share, pieces.sample, kind, [*KINDS, "elsewhere"], observed)
    assert fit.of("elsewhere") == 0.0
    assert fit.value[:-1] == pytest.approx(VOLUME, rel=1e-3, abs=1e-3)


def test_pieces_of_no_segment_do_not_enter_the_fit() -> None:
    samples = pl.DataFrame({"start_ns": [0, 100, 200], "end_ns": [100, 200, 300]})
    pieces = Pieces.cut(samples, spans([(0, 100), (100, 200)]))
    kind = np.where(pieces.segment >= 0, 0, -1)
    fit = fit_kinds(pieces.seconds * 1e7, pieces.sample, kind, ["a"], np.array([3.0, 3.0, np.nan]))
    assert fit.of("a") == pytest.approx(3.0)
