"""A sampler's table to readings: canonical columns in canonical units, one row a step, nothing judged yet."""

import io
import re

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest.formats import TableFormat

# To canonical units: bytes, bytes/s, shares 0..1, W, MHz, MiB, ms, us.
UNIT_FACTORS = {
    "": 1.0,
    "B": 1.0,
    "ms": 1.0,
    "us": 1.0,
    "MHz": 1.0,
    "MiB": 1.0,
    "W": 1.0,
    "mW": 1e-3,
    "%": 1e-2,
    "us>ns": 1e3,
    "kB/s": 1e3,
    "MB/s": 1e6,
    "MiB/s": 1048576.0,
}
_NUMBER = r"^\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"


def _rows(text: str, layout: str) -> tuple[list[str], list[str]]:
    """Header names and the data lines of a table."""
    lines = [line for line in text.replace("\r", "").split("\n") if line.strip()]
    if not lines:
        return [], []
    if layout == "csv":
        return [name.strip() for name in lines[0].split(",")], lines[1:]
    header = next((line for line in lines if line.startswith("#")), "")
    return header.lstrip("#").split(), [line for line in lines if not line.startswith("#")]


def matches(head: str, table: TableFormat) -> bool:
    """Whether the first lines of an input look like this table."""
    names, _ = _rows(head, table.layout)
    return all(
        any(re.fullmatch(need, re.split(r"\s*\[", n)[0]) or re.match(need, n) for n in names) for need in table.required
    )


def read_table(path: str, data: bytes, table: TableFormat) -> tuple[pl.DataFrame, int]:
    """Readings of a table and the number of its rows that could not be used (wrong width or no time).

    After: time_ns (Int64) and, as Float64 in canonical units, the columns of the format that the table has;
    null where the table says N/A or nothing.
    """
    text = data.decode("utf-8", errors="replace")
    names, lines = _rows(text, table.layout)
    if table.layout == "dmon":
        cells = [line.split() for line in lines]
        whole = [row for row in cells if len(row) == len(names)]
        if not whole:
            raise InputError(f"{path}: {table.name} table without a row that fits its header")
        raw = pl.DataFrame(whole, schema=dict.fromkeys(names, pl.String), orient="row")
        broken = len(cells) - len(whole)
    else:
        if not lines:
            raise InputError(f"{path}: {table.name} table with a header and no rows")
        width = len(names)
        whole_lines = [line for line in lines if line.count(",") == width - 1]
        broken = len(lines) - len(whole_lines)
        raw = pl.read_csv(
            io.StringIO("\n".join(whole_lines)),
            has_header=False,
            new_columns=names,
            infer_schema=False,
            quote_char=None,
        )
    readings = raw.select(_time(names, table, path), *_columns(names, table))
    timed = readings.filter(pl.col("time_ns").is_not_null())
    if timed.is_empty():
        raise InputError(f"{path}: {table.name} table in which no row has a time that can be read")
    return timed, broken + readings.height - timed.height


def _time(names: list[str], table: TableFormat, path: str) -> pl.Expr:
    spec = table.time
    if "unit" in spec:
        return pl.col(spec["column"]).str.strip_chars().cast(pl.Int64, strict=False).alias("time_ns")
    if "column" in spec:
        stamp = pl.col(spec["column"]).str.strip_chars()
    elif spec["date"] in names and spec["clock"] in names:
        stamp = pl.concat_str(pl.col(spec["date"]), pl.lit(" "), pl.col(spec["clock"]))
    else:
        raise InputError(f"{path}: {table.name} table without times; record it with -o DT")
    return stamp.str.to_datetime(spec["format"], time_unit="ns", strict=False).cast(pl.Int64).alias("time_ns")


def _columns(names: list[str], table: TableFormat) -> list[pl.Expr]:
    found = []
    for column in table.columns:
        header = next((name for name in names if re.fullmatch(column.header, name)), None)
        if header is not None:
            number = pl.col(header).str.extract(_NUMBER).cast(pl.Float64, strict=False)
            found.append((number * UNIT_FACTORS[column.unit]).alias(column.target))
    return found
