"""Parquet: read when it is known which of its columns and rows are wanted."""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest.layouts.grid import Grid

PARQUET_MAGIC = b"PAR1"


def scan(source: Path | bytes) -> pl.LazyFrame:
    """A file, or the bytes of one, with nothing read yet."""
    return pl.scan_parquet(source if isinstance(source, Path) else io.BytesIO(source))


def columns_of(path: str, rows: pl.LazyFrame) -> list[str]:
    """The names of the columns; the rows stay unread."""
    with parquet_errors(path):
        return rows.collect_schema().names()


def read_parquet(path: str, rows: pl.LazyFrame, headers: Iterable[str]) -> Grid:
    """The columns that one of the headers (regular expressions) names, with their own types."""
    wanted = list(headers)
    with parquet_errors(path):
        names = [name for name in rows.collect_schema().names() if any(re.fullmatch(one, name) for one in wanted)]
        return Grid(rows.select(names).collect())


@contextmanager
def parquet_errors(path: str) -> Iterator[None]:
    """Raises `InputError` for what polars says of a file that it cannot read."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise InputError(f"{path}: Parquet that cannot be read: {str(error).splitlines()[0]}") from error
