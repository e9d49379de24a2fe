"""Rows of frames, chosen column by column on the thread that asks.

A query on a frame wakes polars's threads. For some thousand rows that takes longer than the query, and many times as
long where other threads keep the cores busy: what is asked hundreds of times is asked here.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def where(frame: pl.DataFrame, mask: pl.Series | Bools) -> pl.DataFrame:
    """The rows of a frame for which `mask` is true, as `DataFrame.filter` has them: what is null is not true."""
    chosen = mask if isinstance(mask, pl.Series) else pl.Series(mask)
    if chosen.sum() == frame.height:
        return frame
    return pl.DataFrame([column.filter(chosen) for column in frame.get_columns()])


def with_values(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The rows of a frame that have a value in each of these columns; in all, where none is named."""
    names = list(columns or frame.columns)
    return frame.drop_nulls(names) if any(frame[name].null_count() for name in names) else frame


def ordered(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """A frame in the order of one column, nulls first: mostly it is so already."""
    return frame if frame[column].is_sorted() else frame.sort(column)


def repeated(name: str, value: object, count: int, dtype: type[pl.DataType] | None = None) -> pl.Series:
    """A column that has one value in all of `count` rows."""
    return pl.Series(name, [value], dtype).new_from_index(0, count)


def line_numbers(source: pl.Series, line: pl.Series) -> Ints:
    """Lines of all inputs as one number each, in order within an input; neither column has a null."""
    return np.asarray((source.to_numpy().astype(np.int64) << 32) | line.to_numpy().astype(np.int64))


class Places:
    """Where calls are among some calls, by their numbers."""

    def __init__(self, calls: pl.Series) -> None:
        numbers = calls.to_numpy()
        self._order = np.argsort(numbers, kind="stable")
        self._sorted = numbers[self._order]

    def of(self, calls: pl.Series) -> Ints:
        """The row of each of these calls; -1 where it is not among them."""
        wanted = calls.to_numpy()
        if not len(self._sorted):
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1)

    def counts(self, calls: pl.Series) -> Ints:
        """How many of these calls are at each place."""
        place = self.of(calls)
        return np.bincount(place[place >= 0], minlength=len(self._sorted))

    def sums(self, calls: pl.Series, values: pl.Series) -> Floats:
        """The sum of the values of these calls at each place; null is 0."""
        place = self.of(calls)
        known = np.nan_to_num(values.cast(pl.Float64).to_numpy())
        return np.bincount(place[place >= 0], known[place >= 0], len(self._sorted)).astype(np.float64)
