"""The time of every row of a GPU trace: from a column, from stamps in front of lines, or from what the user says."""

import re
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest import trace_times
from gputrace.ingest.formats import TableFormat
from gputrace.ingest.layouts.grid import TIME_NS, Grid

TIME_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True)
class TimeHelp:
    """What is known about a trace's time from outside it.

    `hint_ns` is roughly when it was recorded (the log's time), for times without year or date. `start_ns`, `end_ns`
    and `period_s` are what is known of a trace without times; `timezone` is the zone of local times.
    """

    hint_ns: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    period_s: float | None = None
    timezone: str | None = None


@dataclass
class Readings:
    """Readings of one input. `clock` is utc, local (not yet moved to UTC), built (made from a start) or none."""

    frame: pl.DataFrame
    broken: int
    clock: str
    names: dict[int, str] = field(default_factory=dict)
    copies: pl.DataFrame | None = None
    notices: list[tuple[str, str]] = field(default_factory=list)


def times_of(
    path: str, grid: Grid, table: TableFormat, columns: pl.DataFrame, help_: TimeHelp, readings: Readings
) -> pl.Series:
    """`time_ns` of every row, UTC where the zone is known; sets the clock of `readings`."""
    spec: dict[str, Any] = table.time
    frame = grid.frame
    if TIME_NS in frame.columns:
        return frame[TIME_NS].alias("time_ns")
    if "column" in spec:
        found, readings.clock = _column_times(path, frame, table)
    elif spec.get("clock") in frame.columns:
        readings.clock = "local"
        if spec["date"] in frame.columns:
            both = frame.select(pl.concat_str(pl.col(spec["date"]), pl.lit(" "), pl.col(spec["clock"]))).to_series()
            found = both.str.to_datetime(spec["format"], time_unit="ns", strict=False).cast(pl.Int64)
            found = _spread(path, found, columns, readings)
        else:
            found = trace_times.times_of_day(frame[spec["clock"]], help_.hint_ns)
            readings.notices.append(("trace-date-inferred", f"{path}: times have no date; the log's was taken"))
    elif grid.stamps is not None:
        times = trace_times.read_stamps(grid.stamps, help_.hint_ns)
        found, readings.clock = times.time_ns, times.clock
        found = _spread(path, found, columns, readings)
    else:
        return _built(path, table, columns, help_, readings)
    if readings.clock == "local" and help_.timezone:
        found, readings.clock = trace_times.to_utc(found, help_.timezone), "utc"
    return found.alias("time_ns")


def _column_times(path: str, frame: pl.DataFrame, table: TableFormat) -> tuple[pl.Series, str]:
    spec = table.time
    header = next((name for name in frame.columns if re.fullmatch(spec["column"], name)), spec["column"])
    if header not in frame.columns:
        raise InputError(f"{path}: {table.name} table without the column {spec['column']} that holds its times")
    cell = frame[header]
    if cell.dtype == pl.Date or isinstance(cell.dtype, pl.Datetime):
        zoned = isinstance(cell.dtype, pl.Datetime) and cell.dtype.time_zone is not None
        return cell.cast(pl.Datetime("ns", "UTC" if zoned else None)).cast(pl.Int64), "utc" if zoned else "local"
    if unit := spec.get("unit"):
        factor = TIME_UNITS[unit]
        if cell.dtype == pl.String:
            text = cell.str.strip_chars()
            whole = text.cast(pl.Int64, strict=False) * factor
            if unit == "ns" or whole.null_count() == text.null_count():
                return whole, "utc"
            return trace_times.decimal_ns(text, factor), "utc"
        if cell.dtype.is_integer():
            return (cell.cast(pl.Int64) if factor == 1 else cell.cast(pl.Int64) * factor), "utc"
        return (cell.cast(pl.Float64) * factor).round().cast(pl.Int64), "utc"
    text = cell.cast(pl.String).str.strip_chars()
    if spec["format"] == "iso":
        times = trace_times.iso_times(text)
        return times.time_ns, times.clock
    return text.str.to_datetime(spec["format"], time_unit="ns", strict=False).cast(pl.Int64), "local"


def _spread(path: str, found: pl.Series, columns: pl.DataFrame, readings: Readings) -> pl.Series:
    """Stamps of whole seconds, laid into their seconds for each GPU."""
    gpus = columns["gpu"] if "gpu" in columns.columns else pl.Series([0.0] * len(found))
    frame = pl.DataFrame({"row": range(len(found)), "time_ns": found, "gpu": gpus}).filter(
        pl.col("time_ns").is_not_null()
    )
    parts, any_spread = [pl.DataFrame(schema={"row": pl.Int64, "time_ns": pl.Int64})], False
    for _, rows in frame.group_by("gpu", maintain_order=True):
        spread, was = trace_times.spread_repeats(rows["time_ns"].to_list())
        any_spread |= was
        parts.append(pl.DataFrame({"row": rows["row"], "time_ns": spread}))
    if not any_spread:
        return found
    readings.notices.append(
        ("trace-times-spread", f"{path}: several rows carry the same second; they were laid evenly into it, +-0.2 s")
    )
    whole = pl.DataFrame({"row": range(len(found))}).join(pl.concat(parts), on="row", how="left", maintain_order="left")
    return whole["time_ns"]


def _built(path: str, table: TableFormat, columns: pl.DataFrame, help_: TimeHelp, readings: Readings) -> pl.Series:
    """A time axis for rows without times, from a start or an end and the sampler's pace."""
    per_gpu = columns.with_columns(pl.lit(0.0).alias("gpu")) if "gpu" not in columns.columns else columns
    tick = per_gpu.select(pl.int_range(pl.len()).over("gpu").alias("tick"))["tick"]
    last = int(tick.max() or 0)  # type: ignore[arg-type]
    gpus = per_gpu["gpu"].n_unique()
    pace = float(table.time.get("period_s", 1.0)) + gpus * float(table.time.get("work_s", 0.0))
    period_s, off = (help_.period_s, 0.01) if help_.period_s else (pace, 0.10)
    pace_is = "as given" if help_.period_s else f"the usual pace of {table.name}"
    if help_.start_ns is not None and help_.end_ns is not None and last:
        measured = (help_.end_ns - help_.start_ns) / 1e9 / last
        # The file's own end is believed where it agrees with the pace.
        if 0.8 * period_s <= measured <= (1.5 if help_.period_s else 20.0) * period_s:
            period_s, off, pace_is = measured, 0.01, "from the start given to the file's last change"
    step_ns = round(period_s * 1e9)
    span_s = last * period_s
    if help_.start_ns is not None:
        begin, anchor = help_.start_ns, "the start given"
    elif help_.end_ns is not None:
        begin, anchor = help_.end_ns - last * step_ns, "the file's last change as its end"
    else:
        begin, anchor = 0, ""
    readings.clock = "built" if anchor else "none"
    if anchor:
        readings.notices.append(
            (
                "trace-time-built",
                f"{path}: no times in it; they were built from {anchor} and {period_s:.3f} s a row ({pace_is}): "
                f"off by up to {1 + span_s * off:.1f} s at the far end",
            )
        )
    return (tick.cast(pl.Int64) * step_ns + begin).alias("time_ns")
