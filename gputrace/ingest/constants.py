"""Columns that say one thing in all rows are held once: they take no room, and nothing where rows are chosen."""

import polars as pl


def with_constants(frame: pl.DataFrame) -> pl.DataFrame:
    """The same frame; columns that are null, or one whole number (whose sums are exact), in all rows are held once."""
    constant = [pl.lit(values[0], values.dtype).alias(values.name) for values in frame if _is_constant(values)]
    return frame.with_columns(constant) if constant else frame


def _is_constant(values: pl.Series) -> bool:
    if not len(values) or not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        return False
    # Most columns are told by their ends.
    first, last = values[0], values[-1]
    if first is None or last is None:
        return values.null_count() == len(values)
    if first != last or not float(first).is_integer() or values.null_count():
        return False
    return bool(values.min() == values.max())
