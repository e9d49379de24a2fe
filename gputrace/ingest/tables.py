"""A GPU trace to readings: canonical columns in canonical units, one row a step and GPU, nothing judged yet.

Layouts (`gputrace.ingest.layouts`) know how a trace is written, the descriptions in `parsers/` what its columns mean;
here the two come together, and every row gets its time and its GPU.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest import trace_times
from gputrace.ingest.constants import with_constants
from gputrace.ingest.formats import TableColumn, TableFormat
from gputrace.ingest.layouts import delimited, dmon, nsight, nvtop, parquet, prometheus
from gputrace.ingest.layouts.grid import TIME_NS, Grid
from gputrace.ingest.time_axis import Readings, TimeHelp, times_of

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
    "bits": 1.0,
    "bool": 1.0,
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
# Numbers beyond a 64-bit counter and GPUs beyond what a machine has are damage.
_LARGEST = 1e20
_LARGEST_OF = {
    "link_gen": 16,
    "link_width": 64,
    "link_gen_max": 16,
    "link_width_max": 64,
    "gpm_interval_ms": 60_000,
    "clock_event_reasons": 1 << 32,
    "pcie_replays": 1 << 53,
    "other_processes": 100_000,
}
MOST_GPUS = 1024
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
    "rx_total_bytes",
    "tx_total_bytes",
    "hole",
    "mono_ns",
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
    "sm_clock_max_mhz",
    "clock_event_reasons",
    "link_gen_max",
    "link_width_max",
    "pcie_replays",
    "other_processes",
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
    path: str, data: bytes | pl.LazyFrame, table: TableFormat, help_: TimeHelp | None = None, header: str | None = None
) -> Readings:
    """Readings of a trace with what is known about their clock; `header` names the columns of one without header.

    Numbers of a Parquet file (a lazy frame) that are in canonical units stay of the types that they have there.
    Raises `InputError` where no row can be used.
    """
    grid = _grid(path, data, table, header)
    readings = Readings(pl.DataFrame(), grid.broken, "utc", grid.names, grid.copies, grid.notices)
    if grid.frame.is_empty():
        raise InputError(f"{path}: {table.name} without a row that can be used")
    columns = grid.frame.select(readings_of(grid.frame.schema, table))
    if not columns.columns:
        raise InputError(f"{path}: {table.name} without a column that is known")
    columns = _with_gpu(columns, readings)
    timed = columns.with_columns(times_of(path, grid, table, columns, help_ or TimeHelp(), readings))
    if table.lag_s:
        timed = timed.with_columns(pl.col("time_ns") - round(table.lag_s * 1e9))
    if "gpu" not in timed.columns and (places := trace_times.bursts(timed["time_ns"].drop_nulls())) is not None:
        known = timed.filter(pl.col("time_ns").is_not_null())
        timed = known.with_columns(pl.Series("gpu", places, dtype=pl.Float64))
        readings.broken += columns.height - known.height
        readings.notices.append(
            ("gpus-by-order", f"{path}: rows do not name their GPU; {max(places) + 1} GPUs were told apart by order")
        )
    usable = pl.col("time_ns").is_not_null()
    if "gpu" in timed.columns:
        usable &= pl.col("gpu").is_between(0, MOST_GPUS).fill_null(False)
    kept = timed.select(usable.alias("usable"))["usable"]
    readings.frame = timed if kept.all() else timed.filter(kept)
    readings.broken += timed.height - readings.frame.height
    if readings.frame.is_empty():
        raise InputError(f"{path}: {table.name} table in which no row has a time that can be read")
    # A wall clock that was set back tells a time twice.
    key = [name for name in ("time_ns", "gpu", "mono_ns") if name in readings.frame.columns]
    frame = readings.frame
    once = frame if _in_turn(frame, key) else frame.unique(key, keep="first", maintain_order=True)
    if repeated := frame.height - once.height:
        readings.frame = once
        readings.notices.append(
            ("rows-repeated", f"{path}: {repeated} rows repeat a time of the same GPU; the first was taken")
        )
    first = ["time_ns", *(name for name in readings.frame.columns if name != "time_ns")]
    readings.frame = with_constants(readings.frame.select(first))
    return readings


def _in_turn(frame: pl.DataFrame, key: Sequence[str]) -> bool:
    """Whether rows stand in order of time, and those of a time in order of their GPUs: then none comes twice."""
    if not set(key) >= {"time_ns", "gpu"}:
        return False
    step, gpu_step = pl.col("time_ns").diff(), pl.col("gpu").cast(pl.Float64).diff()
    return bool(frame.select(((step > 0) | ((step == 0) & (gpu_step > 0))).fill_null(True).all()).item())


def _grid(path: str, data: bytes | pl.LazyFrame, table: TableFormat, header: str | None) -> Grid:
    headers = [column.header for column in table.columns]
    if isinstance(data, pl.LazyFrame):
        times = [str(table.time[name]) for name in ("column", "clock", "date") if name in table.time]
        return parquet.read_parquet(path, data, [*headers, *times])
    if table.layout == "nsight":
        return nsight.read_nsight(path, data, headers)
    text = data.decode("utf-8", errors="replace")
    if table.layout == "dmon":
        return dmon.read_dmon(path, table.name, text, header)
    if table.layout == "nvtop":
        return nvtop.read_nvtop(text)
    if table.layout == "prometheus":
        return prometheus.read_prometheus(path, text, headers)
    torn = table.whole_lines and not text.endswith("\n")
    grid = delimited.read_csv(path, table.name, text[: text.rfind("\n") + 1] if torn else text, header)
    return replace(grid, broken=grid.broken + 1) if torn else grid


def readings_of(schema: pl.Schema, table: TableFormat) -> list[pl.Expr]:
    """The readings that a table has, in canonical units, from columns of these names and types."""
    found = []
    for column in table.columns:
        header = next((name for name in schema if name != TIME_NS and re.fullmatch(column.header, name)), None)
        if header is not None:
            found.append(_reading(header, schema[header], column))
    return found


def _reading(header: str, dtype: pl.DataType, column: TableColumn) -> pl.Expr:
    cell = pl.col(header)
    if column.unit == TEXT_UNIT:
        return cell.cast(pl.String).str.strip_chars().alias(column.target)
    if column.unit == "bits" and dtype == pl.String:
        # A mask is printed as 0x0000000000000004 by nvidia-smi, as a number by others.
        mask = cell.str.extract(r"^\s*0[xX]([0-9a-fA-F]{1,16})\s*$").str.to_integer(base=16, strict=False)
        cell = pl.coalesce(mask.cast(pl.String), cell)
    if column.unit == "bool" and dtype == pl.String:
        cell = (cell == "true").cast(pl.Float64)
        dtype = pl.Float64()
    if dtype == pl.Boolean:
        cell, dtype = cell.cast(pl.UInt8), pl.UInt8()
    largest, factor = _LARGEST_OF.get(column.target, _LARGEST), UNIT_FACTORS[column.unit]
    if dtype.is_integer() and factor == 1.0:
        # Whatever is an integer is below the bound of most readings.
        fits = largest == _LARGEST
        return (cell if fits else pl.when(cell.cast(pl.Int64, strict=False).abs() <= largest).then(cell)).alias(
            column.target
        )
    number = cell.str.extract(_NUMBER).cast(pl.Float64, strict=False) if dtype == pl.String else cell.cast(pl.Float64)
    return (pl.when(number.abs() <= largest).then(number) * factor).alias(column.target)


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
