"""Figures of many calls in arrays: an entry a call, NaN where one lacks the figure.

An index says by number which entry of another array belongs to each; -1 where none does.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def floats(values: pl.Series) -> Floats:
    """A column of numbers, NaN where it has null."""
    return values.cast(pl.Float64).to_numpy()


def ints(values: pl.Series) -> Ints:
    """A column of whole numbers without nulls."""
    return values.cast(pl.Int64).to_numpy()


def nothing(count: int) -> Floats:
    """A figure that nobody has."""
    return np.full(count, np.nan)


def taken(values: Floats, index: Ints) -> Floats:
    """The values at an index, NaN where that is -1."""
    return np.where(index < 0, np.nan, values[index]) if len(values) else nothing(len(index))


def first_known(*choices: Floats) -> Floats:
    """Each entry from the first array that has it."""
    found = choices[0]
    for other in choices[1:]:
        found = np.where(np.isnan(found), other, found)
    return found


def whole(values: Floats) -> pl.Series:
    """A column of whole numbers, null where NaN is; fractions are cut off."""
    unknown = np.isnan(values)
    numbers = pl.Series(np.where(unknown, 0.0, values).astype(np.int64))
    return numbers.set(pl.Series(unknown), None) if unknown.any() else numbers


def rows_at(frame: pl.DataFrame, index: Ints) -> pl.DataFrame:
    """The rows at an index, of nulls where that is -1."""
    if not frame.height:
        return frame.clear(len(index))
    nowhere = index < 0
    if not nowhere.any():
        return frame[index]
    return frame.select_seq(pl.all().gather(pl.Series(index).set(pl.Series(nowhere), None)))
