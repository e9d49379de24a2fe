"""A long GPU trace read part by part: its extent without reading it all, then the rows of a stretch of time.

This is for Parquet whose rows name their GPU by number and have Unix times as integers, as recordings do: what lies
outside a stretch is then passed over by row group. A part's samples are those that the whole trace would have there.
What a look at the whole decides is taken from its extent: the link of a GPU, and whether its totals move. Decided
in each part anew are: by how much GPM lags (to 10 ms), how many wraps 32-bit counters hid (totals need none), and what
is said of a wall clock that was set.
"""

import re
from dataclasses import dataclass, replace

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest.layouts.parquet import parquet_errors
from gputrace.ingest.samples import Known, Part
from gputrace.ingest.tables import MOST_GPUS, read_trace, readings_of
from gputrace.ingest.time_axis import TIME_UNITS
from gputrace.ingest.traces import TraceInput

# A part is read with the rows around it, which its first and last samples need: so far at first, and ten times as far
# where a GPU has none there.
_MARGIN_NS = 60_000_000_000
_WIDER = 10


@dataclass(frozen=True)
class Extent:
    """A whole trace: Unix times of its first and last row, its rows, and what holds for all rows of each GPU.

    `gpu_range_ns` has the first and last time of each; `broken` counts rows without a time or a GPU.
    """

    first_ns: int
    last_ns: int
    rows: int
    known: dict[int, Known]
    gpu_range_ns: dict[int, tuple[int, int]]
    broken: int = 0

    @property
    def gpus(self) -> list[int]:
        """The GPUs' numbers, as the trace has them."""
        return sorted(self.known)


@dataclass(frozen=True)
class _Times:
    """The column that holds a trace's times: integers, so many nanoseconds each, which come so much late."""

    column: str
    unit_ns: int
    late_ns: int

    def between(self, from_ns: int, to_ns: int) -> pl.Expr:
        """Rows whose time is in [from_ns, to_ns]; on the column as it is, so that row groups can be passed over."""
        low, high = (-(-(from_ns + self.late_ns) // self.unit_ns), (to_ns + self.late_ns) // self.unit_ns)
        return pl.col(self.column).is_between(low, high)

    def unix_ns(self) -> pl.Expr:
        """The times."""
        return pl.col(self.column).cast(pl.Int64) * self.unit_ns - self.late_ns


def _times(trace: TraceInput, schema: pl.Schema) -> _Times | None:
    spec = trace.table.time
    if "column" not in spec or "unit" not in spec:
        return None
    name = next((name for name in schema if re.fullmatch(spec["column"], name)), None)
    if name is None or not schema[name].is_integer():
        return None
    return _Times(name, TIME_UNITS[spec["unit"]], round(trace.table.lag_s * 1e9))


def extent_of(trace: TraceInput) -> Extent | None:
    """The extent of a trace that was recognised and not read; None for one that cannot be read in parts.

    Of the whole file, a few columns are looked at and nothing is kept: 6 s of CPU time for 200 million rows.
    Raises `InputError` where the file is damaged.
    """
    if trace.data is None:
        return None
    with parquet_errors(trace.info.path):
        schema = trace.data.collect_schema()
        times = _times(trace, schema)
        columns = {column.meta.output_name(): column for column in readings_of(schema, trace.table)}
        number = next((c.header for c in trace.table.columns if c.target == "gpu"), None)
        numbered = [name for name in schema if number is not None and re.fullmatch(number, name)]
        if times is None or not numbered or not schema[numbered[0]].is_integer():
            return None
        needed = ("gpu", "link_gen", "link_width", "rx_total_bytes")
        rows = trace.data.select(
            times.unix_ns().alias("time_ns"),
            *(columns.get(name, pl.lit(None)).alias(name) for name in needed),
        )
        total = pl.col("rx_total_bytes")
        found = (
            rows.drop_nulls("time_ns")
            .filter(pl.col("gpu").is_between(0, MOST_GPUS))
            .group_by("gpu")
            .agg(
                pl.len().alias("rows"),
                pl.col("time_ns").min().alias("first_ns"),
                pl.col("time_ns").max().alias("last_ns"),
                pl.col("link_gen", "link_width").max(),
                (total.min() != total.max()).fill_null(False).alias("totals_move"),
            )
            .sort("gpu")
            .collect(engine="streaming")
        )
        total_rows = int(trace.data.select(pl.len()).collect().item())
    if found.is_empty():
        return None
    gpus = found.rows(named=True)
    return Extent(
        min(gpu["first_ns"] for gpu in gpus),
        max(gpu["last_ns"] for gpu in gpus),
        sum(gpu["rows"] for gpu in gpus),
        {gpu["gpu"]: Known(gpu["link_gen"], gpu["link_width"], gpu["totals_move"]) for gpu in gpus},
        {gpu["gpu"]: (gpu["first_ns"], gpu["last_ns"]) for gpu in gpus},
        total_rows - sum(gpu["rows"] for gpu in gpus),
    )


def read_part(trace: TraceInput, extent: Extent, from_ns: int, to_ns: int) -> TraceInput | None:
    """The part of a trace whose intervals overlap [from_ns, to_ns), read, for `use_traces`; None where it has none.

    The trace itself stays unread. Parts may be read from several threads at once.
    """
    assert trace.data is not None
    times = _times(trace, trace.data.collect_schema())
    if times is None or to_ns <= extent.first_ns or from_ns > extent.last_ns:
        return None
    before_ns = after_ns = _MARGIN_NS
    while True:
        low, high = from_ns - before_ns, to_ns + after_ns
        # Where not a row is near, the next ones may be far.
        try:
            readings = read_trace(trace.info.path, trace.data.filter(times.between(low, high)), trace.table)
        except InputError:
            if low <= extent.first_ns and high >= extent.last_ns:
                raise
            before_ns, after_ns = before_ns * _WIDER, after_ns * _WIDER
            continue
        of_gpu = {
            int(gpu): (int(first), int(last))
            for gpu, first, last in readings.frame.group_by("gpu")
            .agg(pl.col("time_ns").min().alias("first"), pl.col("time_ns").max().alias("last"))
            .iter_rows()
        }
        nothing = (to_ns + 1, from_ns - 1)
        lacks_before = [
            gpu
            for gpu, (first, _) in extent.gpu_range_ns.items()
            if first < low and of_gpu.get(gpu, nothing)[0] > from_ns
        ]
        lacks_after = [
            gpu for gpu, (_, last) in extent.gpu_range_ns.items() if last > high and of_gpu.get(gpu, nothing)[1] < to_ns
        ]
        if not lacks_before and not lacks_after:
            break
        before_ns *= _WIDER if lacks_before else 1
        after_ns *= _WIDER if lacks_after else 1
    info = replace(trace.info, rows=readings.frame.height, first_ns=max(from_ns, extent.first_ns))
    info.last_ns = min(to_ns, extent.last_ns)
    return replace(trace, info=info, data=None, readings=readings, part=Part(from_ns, to_ns, extent.known))
