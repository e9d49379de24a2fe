"""What is done in columns is what would be done line by line."""

import random
from dataclasses import fields

import numpy as np
import polars as pl
import pytest

from gputrace.analysis.records import Records
from gputrace.rebuild.blocks import Blocks, _block_of, _clean_blocks, _consecutive, _mutex_lines
from gputrace.rebuild.sequence import Sequence
from gputrace.rebuild.timebounds import TimeBounds
from tests.unit.prover import MS, Planned, print_log, schedule
from tests.unit.support import marks_of, sequence_of


def log(seed: int) -> list[str]:
    """A log of one GPU and two workers whose calls differ."""
    rng = random.Random(seed)
    plan = [
        Planned(
            start=1500.0 * n, worker=n % 2, partition=n, prep=rng.uniform(200.0, 900.0), b_g2=rng.uniform(200.0, 500.0)
        )
        for n in range(12)
    ]
    return print_log(schedule(plan))


def line_by_line(sequence: Sequence) -> Blocks:
    """The blocks as the general path makes them."""
    return Blocks.of([_block_of(group) for group in _consecutive(_mutex_lines(sequence))])


def assert_same(found: Blocks, other: Blocks) -> None:
    """Whether all columns of two sets of blocks are equal."""
    assert list(found.lines) == list(other.lines)
    assert sorted(found.ms) == sorted(other.ms)
    for field in fields(Blocks):
        own, theirs = (getattr(blocks, field.name) for blocks in (found, other))
        np.testing.assert_equal(own, theirs, err_msg=field.name)


@pytest.mark.parametrize("seed", range(3))
def test_clean_blocks_are_those_made_line_by_line(seed: int) -> None:
    sequence = sequence_of(*log(seed))
    found = _clean_blocks(sequence)
    assert found is not None and len(found) == 12
    assert_same(found, line_by_line(sequence))


@pytest.mark.parametrize("dropped", ["mutex_held_ms", "pre_lock_cpu_ms"])
def test_blocks_that_lack_a_lock_or_an_unlock_are_never_made_wrongly(dropped: str) -> None:
    texts = log(0)
    lost = [n for n, text in enumerate(texts) if dropped in text][3]
    sequence = sequence_of(*texts[:lost], *texts[lost + 1 :])
    found = _clean_blocks(sequence)
    if found is not None:
        assert_same(found, line_by_line(sequence))


def test_lines_of_one_event_with_different_keys_keep_their_figures() -> None:
    texts = [
        "CUZK_TIMING: b_g2_msm_ms=1580 num_circuits=2",
        "CUZK_TIMING: b_g2_msm_ms=900",
        "CUZK_TIMING: b_g2_msm_ms=1 num_circuits=x",
        "CUZK_TIMING: prep_msm_ms=700",
    ]
    told = sequence_of(*texts).of(
        "b_g2_msm", "prep_msm", columns=("order", "b_g2_msm_ms", "num_circuits", "prep_msm_ms")
    )
    assert told.rows() == [(0, 1580, 2, None), (1, 900, None, None), (2, 1, None, None), (3, None, None, 700)]


def test_a_line_whose_figure_cannot_be_is_left_out_and_counted() -> None:
    sequence = sequence_of(
        "CUZK_TIMING: gpu_tid=0 ntt_msm_h_ms=1067", "CUZK_TIMING: gpu_tid=0 ntt_msm_h_ms=99999999999999999999"
    )
    assert sequence.damaged == 1
    assert sequence.of("ntt_msm_h", columns=("order", "ntt_msm_h_ms")).rows() == [(0, 1067)]
    assert sequence.frame["order"].to_list() == [0]


def test_bounds_of_many_positions_are_those_of_each() -> None:
    rng = random.Random(1)
    bounds = TimeBounds.of([(order, order * 1.0 * MS + rng.uniform(-5.0, 5.0) * MS) for order in range(0, 100, 3)])
    positions = pl.Series(range(-2, 105)).to_numpy()
    low, high = bounds.spans_ns(positions)
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [bounds.span_ns(int(at)) for at in positions]


def test_records_of_a_stretch_are_those_stamped_in_it_and_those_without_a_stamp() -> None:
    marks = marks_of(
        "CUZK_TIMING: prep_msm_ms=700", "CUZK_TIMING: prep_msm_ms=800", "CUZK_TIMING: prep_msm_ms=900"
    ).with_columns(pl.Series("log_ns", [10, None, 30]))
    records = Records(marks)
    assert records.numbers("prep_msm", "prep_msm_ms")["value"].to_list() == [700.0, 800.0, 900.0]
    assert records.numbers("prep_msm", "prep_msm_ms", (20, 30))["value"].to_list() == [800.0, 900.0]
    assert records.of("prep_msm", (0, 5))["line"].to_list() == [2]
    assert records.spoken((10, 10)) and not records.spoken((11, 29))
