"""Times of a GPU trace: stamps that a pipe put in front of lines, local times, times without a year or a date."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from gputrace.errors import UsageError

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
_SNIFF_LINES = 60
# moreutils' ts: by default "Mar 13 18:16:41", with '%.s' seconds and fraction, or whatever ISO-like text was asked for.
_STAMP = re.compile(
    r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{10}(?:\.\d{1,9})?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)[ \t]"
)


def strip_stamps(text: str) -> tuple[list[str], list[str | None] | None]:
    """The lines without the stamps in front of them, and the stamps; None where the lines have none."""
    lines = text.replace("\r", "").split("\n")
    first = [line for line in lines[: 4 * _SNIFF_LINES] if line.strip()][:_SNIFF_LINES]
    if not first or sum(bool(_STAMP.match(line)) for line in first) < 0.8 * len(first):
        return lines, None
    bare: list[str] = []
    stamps: list[str | None] = []
    for line in lines:
        found = _STAMP.match(line)
        bare.append(line[found.end() :] if found else line)
        stamps.append(found["stamp"] if found else None)
    return bare, stamps


@dataclass(frozen=True)
class Times:
    """Unix nanoseconds, null where unreadable. `clock` is utc or local: local times were taken for UTC."""

    time_ns: pl.Series
    clock: str


def read_stamps(stamps: Sequence[str | None], hint_ns: int | None) -> Times:
    """Times of stamps of one kind; a stamp without a year gets the year that brings it nearest to the hint."""
    known = next((stamp for stamp in stamps if stamp), "")
    text = pl.Series("stamp", stamps, dtype=pl.String)
    if re.fullmatch(r"\d{10}(\.\d+)?", known):
        return Times(decimal_ns(text, SECOND_NS), "utc")
    if known[:1].isdigit():
        return iso_times(text)
    hint = datetime.fromtimestamp((hint_ns or 0) / SECOND_NS, UTC)
    candidates = [_month_times(text, hint.year + add) for add in (0, -1, 1)]
    known_years = [times for times in candidates if times.count()] or candidates[:1]
    near = min(known_years, key=lambda times: abs(int(times.drop_nulls()[0]) - (hint_ns or 0)) if times.count() else 0)
    # Over New Year the second part lies a year later.
    wrapped = ((near - near.forward_fill().shift(1)) < -180 * DAY_NS).fill_null(False).cum_sum() > 0
    if wrapped.any():
        near = pl.select(pl.when(wrapped).then(near + _year_ns(near, wrapped)).otherwise(near)).to_series()
    return Times(near, "local")


def _year_ns(times: pl.Series, wrapped: pl.Series) -> int:
    first = datetime.fromtimestamp(int(times.filter(wrapped).drop_nulls()[0]) / SECOND_NS, UTC)
    return round((first.replace(year=first.year + 1) - first).total_seconds()) * SECOND_NS


def _month_times(text: pl.Series, year: int) -> pl.Series:
    dated = text.str.replace(r"^([A-Z][a-z]{2}) +(\d)", f"{year} ${{1}} ${{2}}")
    return dated.str.to_datetime("%Y %b %d %H:%M:%S%.f", time_unit="ns", strict=False).cast(pl.Int64)


def decimal_ns(text: pl.Series, factor: int) -> pl.Series:
    """Decimal numbers in units of `factor` nanoseconds as nanoseconds, without rounding."""
    parts = text.str.strip_chars().str.extract_groups(r"^(?P<whole>\d+)(?:\.(?P<part>\d+))?$").struct.unnest()
    digits = len(str(factor)) - 1
    part = parts["part"].str.slice(0, digits).str.pad_end(digits, "0").cast(pl.Int64, strict=False).fill_null(0)
    return parts["whole"].cast(pl.Int64, strict=False) * factor + part


def iso_times(text: pl.Series) -> Times:
    """ISO 8601 times, with or without a zone."""
    clean = text.str.strip_chars().str.replace(" ", "T").str.replace(",", ".").str.replace(r"Z$", "+00:00")
    clean = clean.str.replace(r"([+-]\d\d)(\d\d)$", "${1}:${2}")
    first = next((value for value in clean.to_list() if value), "")
    if re.search(r"[+-]\d\d:\d\d$", first):
        zoned = clean.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="ns", strict=False, time_zone="UTC")
        return Times(zoned.cast(pl.Int64), "utc")
    return Times(clean.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="ns", strict=False).cast(pl.Int64), "local")


def times_of_day(text: pl.Series, hint_ns: int | None) -> pl.Series:
    """HH:MM:SS as Unix nanoseconds: on the day nearest to the hint, a day later after each midnight."""
    whole = text.str.strip_chars().str.to_time("%H:%M:%S%.f", strict=False).cast(pl.Int64)
    past = ((whole - whole.forward_fill().shift(1)) < -DAY_NS // 2).fill_null(False).cast(pl.Int64).cum_sum()
    running = whole + past * DAY_NS
    first = running.drop_nulls()
    if hint_ns is None or not len(first):
        return running
    return running + round((hint_ns - int(first[0])) / DAY_NS) * DAY_NS


def to_utc(local: pl.Series, timezone: str) -> pl.Series:
    """Local times, taken for UTC so far, in the zone they were written in."""
    try:
        ZoneInfo(timezone)
    except (ValueError, OSError) as error:
        raise UsageError(f"--timezone {timezone}: no such time zone; names are like Europe/Berlin") from error
    zoned = local.cast(pl.Datetime("ns")).dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone("UTC").cast(pl.Int64)


def spread_repeats(time_ns: Sequence[int]) -> tuple[list[int], bool]:
    """Rows stamped with whole seconds, several to a second, laid evenly into their seconds; whether any were."""
    values = np.asarray(time_ns, dtype=np.int64)
    if len(values) < 2 or (values % SECOND_NS).any() or not (np.diff(values) == 0).any():
        return list(time_ns), False
    edges = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1, [len(values)]])
    counts = np.diff(edges)
    usual = int(np.median(counts[1:-1])) if len(counts) > 2 else int(counts.max())
    spread = values.copy()
    for number, (begin, count) in enumerate(zip(edges[:-1], counts, strict=True)):
        # The first second has only its end, the last only its beginning.
        most = max(count, usual) if number in (0, len(counts) - 1) else count
        skipped = most - count if number == 0 and len(counts) > 1 else 0
        spread[begin : begin + count] += ((skipped + np.arange(count) + 0.5) * SECOND_NS / most).astype(np.int64)
    return [int(value) for value in spread], True


def parse_instant(text: str, timezone: str | None = None, option: str = "--trace-start") -> int:
    """One ISO time or Unix seconds as Unix nanoseconds. Raises `UsageError`."""
    if re.fullmatch(r"\d{9,11}(\.\d+)?", text.strip()):
        return int(decimal_ns(pl.Series([text]), SECOND_NS)[0])
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{option} {text}: not a time; write it as 2026-11-29T11:47:29Z") from error
    if when.tzinfo is None:
        local = pl.Series([round(when.replace(tzinfo=UTC).timestamp() * 1e6) * 1000])
        return int((to_utc(local, timezone) if timezone else local)[0])
    return round(when.timestamp() * 1e6) * 1000


def bursts(time_ns: Iterable[int]) -> list[int] | None:
    """For rows without any mark of their GPU: each row's place in its burst, where all bursts are equally long."""
    values = np.asarray(list(time_ns), dtype=np.int64)
    steps = np.diff(values)
    if len(steps) < 3 or not steps.max():
        return None
    ends = np.flatnonzero(steps > max(np.quantile(steps, 0.95) / 4, 1)) + 1
    edges = np.concatenate([[0], ends, [len(values)]])
    sizes = np.diff(edges)
    size = int(np.median(sizes))
    if size < 2 or (sizes[:-1] != size).any() or sizes[-1] > size:
        return None
    return [int(place) for place in np.arange(len(values)) - np.repeat(edges[:-1], sizes)]
