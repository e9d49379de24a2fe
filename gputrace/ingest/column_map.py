"""Column maps: what the columns of a CSV or Parquet file of somebody's own mean, in one line or in a TOML file."""

import re
import tomllib
from pathlib import Path
from typing import Any

from gputrace.errors import UsageError
from gputrace.ingest.formats import TableFormat, load_table
from gputrace.ingest.tables import READINGS, TEXT_UNIT, UNIT_FACTORS
from gputrace.nearest import did_you_mean

_TIME_UNITS = ("ns", "us", "ms", "s", "iso")


def inline_columns(text: str) -> TableFormat:
    """A column map from `time=ts_ns:ns,rx_window_bytes_per_s=rx_mb:MB/s`. Raises `UsageError`."""
    columns: dict[str, dict[str, str]] = {}
    time: dict[str, str] = {}
    for part in text.split(","):
        target, equals, source = part.strip().partition("=")
        if not equals or not source:
            raise UsageError(f"--columns: {part.strip()!r} is not TARGET=COLUMN:UNIT, as rx_window_bytes_per_s=rx:MB/s")
        if target == "time":
            header, _, how = source.partition(":")
            time = {"column": re.escape(header), **_time_spec(how or "iso")}
        else:
            header, _, unit = source.rpartition(":") if ":" in source else (source, "", "")
            columns[target] = {"header": re.escape(header), "unit": unit}
    return _column_map("--columns", {"columns": columns, "time": time})


def load_columns(path: str) -> TableFormat:
    """A column map from a TOML file like those in `parsers/`; name, layout and samples may be left out."""
    try:
        raw = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not a column map: {error}") from error
    return _column_map(path, raw)


def _time_spec(how: str) -> dict[str, str]:
    return {"format": how} if how == "iso" or "%" in how else {"unit": how}


def _column_map(where: str, raw: dict[str, Any]) -> TableFormat:
    columns, time = raw.get("columns"), raw.get("time")
    if not isinstance(columns, dict) or not columns:
        raise UsageError(f"{where}: names no column")
    if not isinstance(time, dict) or not time:
        raise UsageError(f"{where}: says nothing about time, as time=COLUMN:ns (or us, ms, s, iso, a strptime format)")
    if "unit" in time and time["unit"] not in _TIME_UNITS:
        raise UsageError(f"{where}: {time['unit']!r} is no unit of time; {', '.join(_TIME_UNITS)} are, or a format")
    for target, spec in columns.items():
        if target not in READINGS:
            raise UsageError(
                f"{where}: {target!r} is no reading{did_you_mean(target, READINGS)}; known are {', '.join(READINGS)}"
            )
        unit = spec.get("unit") if isinstance(spec, dict) else None
        if unit != TEXT_UNIT and unit not in UNIT_FACTORS:
            raise UsageError(
                f"{where}: {unit!r} of {target} is no unit; known are {', '.join(filter(None, UNIT_FACTORS))}"
            )
    required = [spec["header"] for spec in columns.values()]
    required += [time[key] for key in ("column", "clock") if key in time]
    defaults = {"name": "column-map", "title": "columns as given", "layout": "csv", "required": required, "sample": []}
    try:
        return load_table({**defaults, **raw})
    except (KeyError, TypeError) as error:
        raise UsageError(f"{where}: column map lacks or misspells {error}") from error
