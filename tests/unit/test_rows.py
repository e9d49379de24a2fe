"""Rows chosen without a query are those that polars's own queries choose."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gputrace.rows import Places, line_numbers, ordered, where, with_values
from gputrace.trace import Trace

FRAME = pl.DataFrame(
    {"call": [3, 1, None, 1], "name": ["b", "a", "a", None], "at": [[1], [], None, [2]]},
    schema={"call": pl.UInt32, "name": pl.String, "at": pl.List(pl.Int64)},
)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_where_is_a_filter_and_null_is_not_true(name: str) -> None:
    assert_frame_equal(where(FRAME, FRAME["name"] == name), FRAME.filter(pl.col("name") == name))


def test_where_takes_arrays_and_gives_back_a_frame_of_which_all_is_wanted() -> None:
    assert_frame_equal(where(FRAME, np.array([True, False, False, True])), FRAME[[0, 3]])
    assert where(FRAME, np.ones(4, dtype=bool)) is FRAME
    assert_frame_equal(where(FRAME.clear(), FRAME.clear()["name"] == "a"), FRAME.clear())


def test_rows_with_values_are_those_without_a_null() -> None:
    assert_frame_equal(with_values(FRAME), FRAME.drop_nulls())
    assert_frame_equal(with_values(FRAME, "call"), FRAME.drop_nulls("call"))
    assert_frame_equal(with_values(FRAME, "at", "call"), FRAME.drop_nulls(["at", "call"]))
    whole = FRAME[:1]
    assert with_values(whole) is whole


def test_ordered_sorts_what_is_not() -> None:
    assert ordered(FRAME, "call")["call"].to_list() == [None, 1, 1, 3]
    sorted_before = FRAME.sort("call")
    assert ordered(sorted_before, "call") is sorted_before


def test_places_of_calls() -> None:
    places = Places(pl.Series([7, 3, 5], dtype=pl.UInt32))
    assert places.of(pl.Series([5, 4, 7, 9, 3], dtype=pl.UInt32)).tolist() == [2, -1, 0, -1, 1]
    assert Places(pl.Series([], dtype=pl.UInt32)).of(pl.Series([5], dtype=pl.UInt32)).tolist() == [-1]


def test_lines_of_several_inputs_are_told_apart() -> None:
    numbers = line_numbers(pl.Series([0, 1, 1], dtype=pl.UInt16), pl.Series([7, 7, 9], dtype=pl.UInt32))
    assert len(set(numbers.tolist())) == 3
    assert numbers[2] - numbers[1] == 2


def test_sums_by_place() -> None:
    places = Places(pl.Series([7, 3, 5], dtype=pl.UInt32))
    calls, values = pl.Series([3, 4, 3, 7], dtype=pl.UInt32), pl.Series([1, 2, 3, None])
    assert places.sums(calls, values).tolist() == [0.0, 4.0, 0.0]
    assert places.counts(calls).tolist() == [1, 2, 0]


def test_phases_by_name_keep_their_order() -> None:
    phases = Trace().phases.clear(3).with_columns(pl.Series("name", ["b", "a", "b"]), pl.Series("line", [1, 2, 3]))
    named = Trace(phases=phases).named_phases
    assert named.of("b")["line"].to_list() == [1, 3]
    assert named.any_of(["a", "b", "c"])["line"].to_list() == [2, 1, 3]
