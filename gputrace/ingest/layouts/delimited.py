"""CSV, with a header or without."""

import csv
import io
import re

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest.layouts.grid import Grid, text_grid

# What nvidia-smi --query-gpu --format=csv,noheader prints first: local time with slashes.
_QUERY_ROW = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}, ")


def lines_of(text: str) -> list[str]:
    """Lines that are not blank."""
    return [line for line in text.replace("\r", "").split("\n") if line.strip()]


def delimiter_of(line: str) -> str:
    """What separates the cells of a header line."""
    return max(",;\t", key=line.count)


def header_names(line: str) -> list[str]:
    """Names of a CSV header."""
    return [name.strip() for name in next(csv.reader([line], delimiter=delimiter_of(line)), [])]


def names_in(head: str) -> list[str]:
    """Header of a CSV."""
    lines = lines_of(head)
    return header_names(lines[0]) if lines else []


def is_query_without_header(head: str) -> bool:
    """Whether this is nvidia-smi --query-gpu's CSV without its header line."""
    return bool(_QUERY_ROW.match(head.lstrip()))


def read_csv(path: str, name: str, text: str, header: str | None = None) -> Grid:
    """A CSV whose first line names the columns, or `header` where it has no such line."""
    lines = lines_of(text)
    first = header if header is not None else lines[0] if lines else ""
    names, delimiter = header_names(first), delimiter_of(first)
    # A header comes again where several recordings were put into one file.
    data = [line for line in (lines if header is not None else lines[1:]) if line != first]
    if not data:
        raise InputError(f"{path}: {name} table with a header and no rows; was the sampler stopped at once?")
    width = len(names)
    if '"' in text:
        cells = list(csv.reader(data, delimiter=delimiter))
        kept = [row for row in cells if len(row) == width]
        return text_grid(names, kept, len(cells) - len(kept))
    whole = [line for line in data if line.count(delimiter) == width - 1]
    if not whole:
        raise InputError(f"{path}: {name} table without a row that has its {width} columns")
    frame = pl.read_csv(
        io.StringIO("\n".join(whole)),
        has_header=False,
        new_columns=[f"c{number}" for number in range(width)],
        infer_schema=False,
        quote_char=None,
        separator=delimiter,
    )
    keep = {name: number for number, name in reversed(list(enumerate(names)))}
    return Grid(
        frame.select(pl.col(f"c{number}").alias(name) for name, number in reversed(list(keep.items()))),
        len(data) - len(whole),
    )
