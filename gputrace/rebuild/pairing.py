"""Ties lines of one kind to those of another: the nth of a job and partition (and worker) to the nth."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from gputrace.rebuild.columns import Ints, ints


def nth_keys(*sides: pl.DataFrame) -> list[Ints]:
    """A number for every row of frames that have the same columns of whole numbers, null included.

    Rows have the same number where their values are the same and each is the nth with them in its own frame.
    """
    codes = np.zeros(sum(side.height for side in sides), dtype=np.int64)
    for name in sides[0].columns:
        values = np.concatenate([_known(side[name]) for side in sides])
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        codes = np.unique(codes * (high - low + 1) + values - low, return_inverse=True)[1]
    longest = max(side.height for side in sides)
    own_codes = np.split(codes, np.cumsum([side.height for side in sides])[:-1])
    return [own * longest + _nth(own) for own in own_codes]


def _known(values: pl.Series) -> Ints:
    """A column of whole numbers from 0 on, with -1 for null."""
    return ints(values.fill_null(-1) if values.null_count() else values)


def _nth(codes: Ints) -> Ints:
    """Which of those with the same code each is, from 0."""
    ranked = np.argsort(codes, kind="stable")
    nth = np.empty_like(codes)
    nth[ranked] = np.arange(len(codes)) - np.searchsorted(codes[ranked], codes[ranked])
    return nth


def places(keys: Ints, wanted: Ints) -> Ints:
    """Where in `keys`, which are all different, each wanted one is; -1 where it is not."""
    if not len(keys):
        return np.full(len(wanted), -1)
    ranked = np.argsort(keys)
    at = ranked[np.minimum(np.searchsorted(keys[ranked], wanted), len(keys) - 1)]
    return np.where(keys[at] == wanted, at, -1)


def in_order(sides: Sequence[Ints]) -> Ints:
    """The keys of all sides, each once: those of the first in its order, then those that only the next has."""
    keys = np.concatenate(list(sides))
    return keys[np.sort(np.unique(keys, return_index=True)[1])]
