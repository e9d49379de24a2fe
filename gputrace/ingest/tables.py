"""A GPU trace to readings: canonical columns in canonical units, one row a step and GPU, nothing judged yet.

Layouts (`gputrace.ingest.layouts`) know how a trace is written, the descriptions in `parsers/` what its columns mean;
here the two come together, and every row gets its time and its GPU.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest import trace_times
from gputrace.ingest.formats import TableColumn, TableFormat
from gputrace.ingest.layouts import delimited, dmon, nsight, nvtop, prometheus
from gputrace.ingest.layouts.grid import TIME_NS, Grid

# To canonical units: bytes, bytes/s, shares 0..1, W, MHz, MiB, ms, us.
UNIT_FACTORS = {
    "": 1.0,
    "B": 1.0,
    "B/s": 1.0,
    "ms": 1.0,
    "us": 1.0,
    "MHz": 1.0,
    "MiB": 1.0,
    "W": 1.0,
    "mW": 1e-3,
    "%": 1e-2,
    "us>ns": 1e3,
    "s>ms": 1e3,
    "B>MiB": 1 / 1048576.0,
    "kB>MiB": 1e3 / 1048576.0,
    "GHz": 1e3,
    "kB/s": 1e3,
    "KiB/s": 1024.0,
    "MB/s": 1e6,
    "MiB/s": 1048576.0,
    # NVML's KB (1000 bytes) divided by 1024 and called MiB: nvitop, and nvtop's screen.
    "1024 kB/s": 1024e3,
    "GB/s": 1e9,
    "GiB/s": 1073741824.0,
}
TEXT_UNIT = "text"
_TIME_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_NUMBER = r"^\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
# What a column can be read as, for descriptions and for --columns.
READINGS = (
    "gpu",
    "gpu_uuid",
    "gpu_bus_id",
    "gpu_name",
    "rx_window_bytes_per_s",
    "tx_window_bytes_per_s",
    "rx_mean_bytes_per_s",
    "tx_mean_bytes_per_s",
    "rx_copied_bytes_per_s",
    "tx_copied_bytes_per_s",
    "rx_link_share",
    "tx_link_share",
    "rx_counter_bytes",
    "tx_counter_bytes",
    "counter_time_ns",
    "gpm_rx_bytes_per_s",
    "gpm_tx_bytes_per_s",
    "gpm_sm_active",
    "gpm_interval_ms",
    "sm_active",
    "kernel_active",
    "gpu_util",
    "sm_clock_mhz",
    "power_w",
    "memory_used_mib",
    "link_gen",
    "link_width",
    "row_us",
    "host_cpu_share",
    "host_memory_used_mib",
    "host_page_faults",
)
_NAMES_IN: dict[str, Callable[[str], list[str]]] = {
    "csv": delimited.names_in,
    "dmon": dmon.names_in,
    "nvtop": nvtop.names_in,
    "prometheus": prometheus.names_in,
    "nsight": nsight.names_in,
}


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


def matches(head: str, table: TableFormat) -> bool:
    """Whether the first lines of an input look like this table."""
    names = _NAMES_IN[table.layout](head)
    return names_match(names, table)


def names_match(names: list[str], table: TableFormat) -> bool:
    """Whether columns of these names are those of the table."""
    return all(
        any(re.fullmatch(need, re.split(r"\s*\[", n)[0]) or re.match(need, n) for n in names) for need in table.required
    ) and not any(re.fullmatch(name, n) for name in table.absent for n in names)


def read_table(path: str, data: bytes, table: TableFormat) -> tuple[pl.DataFrame, int]:
    """Readings of a table and the number of its rows that could not be used (wrong width or no time).

    After: time_ns (Int64) and, as Float64 in canonical units, the columns of the format that the table has;
    null where the table says N/A or nothing. Without times, rows count from 0 at the sampler's usual pace.
    """
    readings = read_trace(path, data, table)
    return readings.frame, readings.broken


def read_trace(
    path: str, data: bytes, table: TableFormat, help_: TimeHelp | None = None, header: str | None = None
) -> Readings:
    """Readings of a trace with what is known about their clock; `header` names the columns of one without header.

    Raises `InputError` where no row can be used.
    """
    grid = _grid(path, data, table, header)
    readings = Readings(pl.DataFrame(), grid.broken, "utc", grid.names, grid.copies, grid.notices)
    columns = grid.frame.select(_columns(grid, table))
    columns = _with_gpu(columns, readings)
    timed = columns.with_columns(_times(path, grid, table, columns, help_ or TimeHelp(), readings))
    if table.lag_s:
        timed = timed.with_columns(pl.col("time_ns") - round(table.lag_s * 1e9))
    if "gpu" not in timed.columns and (places := trace_times.bursts(timed["time_ns"].drop_nulls())) is not None:
        known = timed.filter(pl.col("time_ns").is_not_null())
        timed = known.with_columns(pl.Series("gpu", places, dtype=pl.Float64))
        readings.broken += columns.height - known.height
        readings.notices.append(
            ("gpus-by-order", f"{path}: rows do not name their GPU; {max(places) + 1} GPUs were told apart by order")
        )
    readings.frame = timed.filter(pl.col("time_ns").is_not_null())
    readings.broken += timed.height - readings.frame.height
    if readings.frame.is_empty():
        raise InputError(f"{path}: {table.name} table in which no row has a time that can be read")
    first = ["time_ns", *(name for name in readings.frame.columns if name != "time_ns")]
    readings.frame = readings.frame.select(first)
    return readings


def _grid(path: str, data: bytes, table: TableFormat, header: str | None) -> Grid:
    headers = [column.header for column in table.columns]
    if table.layout == "nsight":
        return nsight.read_nsight(path, data, headers)
    if data.startswith(delimited.PARQUET_MAGIC):
        return delimited.read_parquet(path, data)
    text = data.decode("utf-8", errors="replace")
    if table.layout == "dmon":
        return dmon.read_dmon(path, table.name, text, header)
    if table.layout == "nvtop":
        return nvtop.read_nvtop(text)
    if table.layout == "prometheus":
        return prometheus.read_prometheus(path, text, headers)
    return delimited.read_csv(path, table.name, text, header)


def _columns(grid: Grid, table: TableFormat) -> list[pl.Expr]:
    found = []
    for column in table.columns:
        header = next((name for name in grid.columns if re.fullmatch(column.header, name)), None)
        if header is not None:
            found.append(_reading(header, grid.frame.schema[header], column))
    return found


def _reading(header: str, dtype: pl.DataType, column: TableColumn) -> pl.Expr:
    cell = pl.col(header)
    if column.unit == TEXT_UNIT:
        return cell.cast(pl.String).str.strip_chars().alias(column.target)
    number = cell.str.extract(_NUMBER).cast(pl.Float64, strict=False) if dtype == pl.String else cell.cast(pl.Float64)
    return (number * UNIT_FACTORS[column.unit]).alias(column.target)


def _with_gpu(columns: pl.DataFrame, readings: Readings) -> pl.DataFrame:
    """Numbers GPUs that a trace tells by bus id or uuid, in the order of those; takes names out of the readings."""
    if "gpu" not in columns.columns or not columns["gpu"].count():
        told = next((name for name in ("gpu_bus_id", "gpu_uuid") if name in columns.columns), None)
        columns = columns.drop("gpu", strict=False)
        if told is not None:
            columns = columns.with_columns((pl.col(told).rank("dense").cast(pl.Float64) - 1.0).alias("gpu"))
    if "gpu_name" in columns.columns:
        numbered = columns if "gpu" in columns.columns else columns.with_columns(pl.lit(0.0).alias("gpu"))
        for gpu, name in numbered.select("gpu", "gpu_name").drop_nulls().unique("gpu", keep="first").iter_rows():
            readings.names.setdefault(int(gpu), name)
    return columns.drop("gpu_name", "gpu_bus_id", "gpu_uuid", strict=False)


def _times(
    path: str, grid: Grid, table: TableFormat, columns: pl.DataFrame, help_: TimeHelp, readings: Readings
) -> pl.Series:
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
        factor = _TIME_UNITS[unit]
        if cell.dtype == pl.String:
            text = cell.str.strip_chars()
            whole = text.cast(pl.Int64, strict=False) * factor
            if unit == "ns" or whole.null_count() == text.null_count():
                return whole, "utc"
            return trace_times.decimal_ns(text, factor), "utc"
        if cell.dtype.is_integer():
            return cell.cast(pl.Int64) * factor, "utc"
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
