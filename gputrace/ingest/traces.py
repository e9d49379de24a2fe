"""GPU traces among the inputs: recognises each, reads it, puts its clock right, and takes the one that sees most."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from gputrace.errors import InputError, UsageError
from gputrace.ingest import trace_times
from gputrace.ingest.column_map import inline_columns, load_columns
from gputrace.ingest.formats import Formats, TableFormat
from gputrace.ingest.layouts import delimited, dmon, nsight, nvtop, parquet
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.samples import Part, Sampled, to_samples
from gputrace.ingest.tables import matches, names_match, read_trace
from gputrace.ingest.time_axis import Readings, TimeHelp
from gputrace.trace import InputInfo, Quality

if TYPE_CHECKING:
    from gputrace.ingest.inputs import Ingested

_SHIFT_NS = 15 * 60 * trace_times.SECOND_NS
_MOST_SHIFTS = 14 * 4
_SNIFF_BYTES = 1 << 16
# How much a source of PCIe bytes sees, best last.
_RANK = {None: 0, "window": 1, "metrics": 2, "mean": 2, "gpm": 2, "counters": 3, "copies": 4}
# Outputs of the usual tools that look like a GPU trace and are none.
_NOT_TRACES = (
    (re.compile(rf"\s*{re.escape(nvtop.NO_GPU)}"), "nvtop found no GPU when it wrote this"),
    (
        re.compile(r"#\s*(?:Date\s+)?(?:Time\s+)?gpu\s+pid\b"),
        "nvidia-smi pmon lists processes and no copies; record nvidia-smi dmon -s pucvmet -o DT",
    ),
    (
        re.compile(r"timestamp, gpu_\w+, pid|.*\bused_gpu_memory\b"),
        "nvidia-smi --query-compute-apps lists processes; record nvidia-smi dmon -s pucvmet -o DT",
    ),
    (
        re.compile(r"GPU 0: .*\n\s*[TR]X_BYTES:"),
        "nvidia-smi pci --getCounters is one reading without a time; record nvidia-smi dmon -s pucvmet -o DT",
    ),
    (
        re.compile(r"\s*=+NVSMI LOG=+"),
        "nvidia-smi -q is one reading for people; record nvidia-smi dmon -s pucvmet -o DT",
    ),
    (
        re.compile(r'\s*\{\s*"hostname"[^{]*"query_time"[^{]*"gpus"'),
        "gpustat's JSON is one reading; record nvidia-smi dmon -s pucvmet -o DT",
    ),
)


@dataclass(frozen=True)
class TraceOptions:
    """What the user says about GPU traces.

    `start_ns` and `period_s` are for traces without times, `header` names the columns of one without header (dmon's
    -s letters, or --query-gpu's fields), `column_map` describes a CSV or Parquet file of somebody's own.
    """

    start_ns: int | None = None
    period_s: float | None = None
    header: str | None = None
    column_map: TableFormat | None = None

    @staticmethod
    def of(
        start: str | None = None,
        period_s: float | None = None,
        header: str | None = None,
        columns: str | None = None,
        column_map: str | None = None,
        timezone: str | None = None,
    ) -> "TraceOptions":
        """From the options of the command line. Raises `UsageError` for one that cannot be understood."""
        if columns is not None and column_map is not None:
            raise UsageError("--columns and --column-map say the same thing: give one of them")
        table = inline_columns(columns) if columns is not None else load_columns(column_map) if column_map else None
        start_ns = trace_times.parse_instant(start, timezone) if start is not None else None
        return TraceOptions(start_ns, period_s, header, table)


@dataclass
class TraceInput:
    """An input that is a GPU trace, recognised and not read yet, then with its readings.

    `data` are the rows of a Parquet file, not read yet. `part` is which part of them the readings are for (null: all);
    they then reach a little further.
    """

    info: InputInfo
    source: ByteSource
    table: TableFormat
    named: bool = True
    header: str | None = None
    data: pl.LazyFrame | None = None
    readings: Readings | None = None
    part: Part | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """Its readings."""
        assert self.readings is not None
        return self.readings.frame

    @property
    def range_ns(self) -> tuple[int, int]:
        """First and last time."""
        times = self.frame["time_ns"]
        return int(times.min()), int(times.max())  # type: ignore[arg-type]


def recognise(path: str, source: ByteSource, formats: Formats, options: TraceOptions) -> TraceInput | None:
    """The GPU trace that an input is; None for anything else.

    Raises `InputError` for an output of a known tool that cannot serve as a trace, saying what would.
    """
    head = source.head()
    info = InputInfo(path, "samples", "")

    def found(table: TableFormat, header: str | None = None, data: pl.LazyFrame | None = None) -> TraceInput:
        info.format = table.name
        return TraceInput(info, source, table, header=header, data=data)

    own = [options.column_map] if options.column_map else []
    if head.startswith(nsight.SQLITE_MAGIC):
        return found(next(table for table in formats.tables if table.layout == "nsight"))
    if head.startswith(parquet.PARQUET_MAGIC):
        data = parquet.scan(source.plain_file or source.read_all())
        names = parquet.columns_of(path, data)
        table = next((t for t in [*own, *formats.tables] if t.layout == "csv" and names_match(names, t)), None)
        if table is None:
            raise InputError(f"{path}: Parquet whose columns are not known; say what they are with --columns")
        return found(table, data=data)
    text = head[:_SNIFF_BYTES].decode("utf-8", errors="replace")
    for shape, message in _NOT_TRACES:
        if shape.match(text):
            raise InputError(f"{path}: {message}")
    if (table := next((table for table in [*own, *formats.tables] if matches(text, table)), None)) is not None:
        return found(table)
    if dmon.is_without_header(text):
        dmon_table = next(table for table in formats.tables if table.layout == "dmon" and "clock" in table.time)
        return found(dmon_table, options.header or "")
    if delimited.is_query_without_header(text):
        if not options.header:
            raise InputError(
                f"{path}: nvidia-smi CSV without its header line; give --trace-columns the list that "
                "--query-gpu was given"
            )
        return found(next(table for table in formats.tables if table.name == "nvidia-smi-query"), options.header)
    return None


def read_trace_input(
    trace: TraceInput, options: TraceOptions, timezone: str | None, log_range: tuple[int, int] | None, any_log: bool
) -> None:
    """Reads a trace and settles its clock; `log_range` is the span of the log's own times."""
    path = trace.info.path
    changed_ns = _changed_ns(path)
    hint_ns = log_range[0] if log_range else options.start_ns or changed_ns
    help_ = TimeHelp(
        hint_ns,
        options.start_ns,
        # Copying a file changes its date: without a start it is believed only where it falls into the log's time.
        changed_ns if options.start_ns is not None or log_range or not any_log else None,
        options.period_s,
        timezone,
    )
    data: bytes | pl.LazyFrame | None = trace.data
    if data is None:
        in_place = trace.table.layout == "nsight" and _is_plain_sqlite(path)
        data = b"" if in_place else trace.source.read_all()
    readings = read_trace(path, data, trace.table, help_, trace.header)
    trace.data, trace.readings = None, readings
    if readings.clock == "built" and options.start_ns is None and log_range and not _overlap(trace.range_ns, log_range):
        readings.clock = "none"
        readings.notices = [notice for notice in readings.notices if notice[0] != "trace-time-built"]
    if readings.clock == "none":
        readings.notices.append(("trace-without-time", f"{path}: {_WITHOUT_TIME}"))
    if readings.clock == "local":
        _infer_zone(trace, log_range)
    trace.info.rows = readings.frame.height
    if readings.clock != "none":
        trace.info.first_ns, trace.info.last_ns = trace.range_ns


_WITHOUT_TIME = (
    "no times in it, so nothing ties it to the log: it was not used for phases. Give --trace-start, or record with "
    "times: nvtop -l | ts '%.s', dcgmi dmon ... | ts '%.s', nvidia-smi dmon -o DT"
)


def _changed_ns(path: str) -> int | None:
    try:
        return None if path == "-" else Path(path).stat().st_mtime_ns
    except OSError:
        return None


def _is_plain_sqlite(path: str) -> bool:
    if path == "-":
        return False
    with Path(path).open("rb") as file:
        return file.read(len(nsight.SQLITE_MAGIC)) == nsight.SQLITE_MAGIC


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> int:
    # A single instant inside the other counts.
    return max(0, min(one[1], other[1]) - max(one[0], other[0]) + 1)


def _infer_zone(trace: TraceInput, log_range: tuple[int, int] | None) -> None:
    """Moves local times to the log's UTC where only that makes the two meet."""
    readings, path = trace.readings, trace.info.path
    assert readings is not None
    begin, end = trace.range_ns
    if log_range is None or _overlap((begin, end), log_range):
        if log_range is None:
            readings.notices.append(
                (
                    "trace-timezone-assumed",
                    f"{path}: times have no zone and were taken for UTC; --timezone says otherwise",
                )
            )
        return
    fits = [
        (_overlap((begin + shift, end + shift), log_range), shift)
        for shift in (count * _SHIFT_NS for count in range(-_MOST_SHIFTS, _MOST_SHIFTS + 1))
    ]
    most = max(overlap for overlap, _ in fits)
    if not most:
        return
    hour = 4 * _SHIFT_NS
    likely = [shift for overlap, shift in fits if overlap >= 0.99 * most]
    # Zones are whole hours nearly everywhere; the trace is started shortly before the prover.
    likely.sort(key=lambda shift: (shift % hour != 0, shift % (hour // 2) != 0, abs(begin + shift - log_range[0])))
    shift = likely[0]
    readings.frame = readings.frame.with_columns(pl.col("time_ns") + shift)
    offset = -shift // (60 * trace_times.SECOND_NS)
    zone = f"UTC{'+' if offset >= 0 else '-'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    others = "" if len(likely) == 1 else f"; {len(likely) - 1} other offsets would fit as well: --timezone settles it"
    readings.notices.append(
        ("trace-timezone-inferred", f"{path}: local times were read as {zone}, where they meet the log's{others}")
    )


def _merged(traces: Sequence[TraceInput]) -> list[TraceInput]:
    """Parts of one recording put together: rotated files, a file a GPU, a file a metric."""
    merged: list[TraceInput] = []
    for trace in sorted(traces, key=lambda trace: trace.range_ns):
        if "gpu" not in trace.frame.columns:
            assert trace.readings is not None
            trace.readings.frame = trace.frame.with_columns(pl.lit(0.0).alias("gpu"))
        whole = next((other for other in merged if other.table == trace.table and _are_parts(other, trace)), None)
        if whole is None:
            merged.append(trace)
            continue
        assert whole.readings is not None and trace.readings is not None
        both = pl.concat([whole.frame, trace.frame], how="diagonal_relaxed")
        # One row a GPU and time: metrics come in files of their own.
        whole.readings.frame = both.group_by("gpu", "time_ns", maintain_order=True).agg(pl.all().drop_nulls().first())
        whole.readings.names = {**trace.readings.names, **whole.readings.names}
    return merged


def _are_parts(one: TraceInput, other: TraceInput) -> bool:
    if one.table.layout == "prometheus":
        return True
    apart = one.range_ns[1] < other.range_ns[0] or other.range_ns[1] < one.range_ns[0]
    return apart or not set(one.frame["gpu"].unique()) & set(other.frame["gpu"].unique())


# The link of what is used for proving, for percentages of a link that nothing else tells.
_LINKS = ((re.compile(r"\b[BGR]B?[23]00\b"), 6), (re.compile(r"\b(?:GH?|H)[128]00\b|RTX 50|RTX PRO"), 5))


def _assume_link(trace: TraceInput, quality: Quality) -> None:
    """Gives metrics in per cent of the link a link, where there are no copies to take the bytes from."""
    frame, readings = trace.frame, trace.readings
    assert readings is not None
    if "rx_link_share" not in frame.columns or "rx_copied_bytes_per_s" in frame.columns or "link_gen" in frame.columns:
        return
    name = next(iter(readings.names.values()), "")
    gen = next((gen for shape, gen in _LINKS if shape.search(name)), 4)
    readings.frame = frame.with_columns(pl.lit(float(gen)).alias("link_gen"), pl.lit(16.0).alias("link_width"))
    quality.notice(
        "pcie-link-assumed",
        f"{trace.info.path}: PCIe is given in per cent of the link, and {name or 'the GPU'} was taken to have "
        f"Gen{gen} x16; single copies (--trace=cuda) would say it in bytes",
    )


def _several(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of GPUs that have more than one."""
    rows = frame.group_by("gpu").len()
    return frame if rows["len"].min() != 1 else frame.filter(pl.len().over("gpu") > 1)


def use_traces(result: "Ingested", traces: Iterable[TraceInput], names: dict[int, str], any_log: bool) -> None:
    """Takes, of several samplers of the same GPUs, the one that sees most of the PCIe traffic."""
    timed = []
    for trace in traces:
        assert trace.readings is not None
        for code, text in trace.readings.notices:
            result.quality.notice(code, text)
        if trace.readings.clock == "none" and any_log:
            trace.info.used = False
            continue
        if trace.readings.copies is not None:
            result.copies = pl.concat([result.copies, trace.readings.copies]).sort("start_ns")
        timed.append(trace)
    parts = {id(trace): trace for trace in _merged(timed)}
    best: tuple[tuple[int, float], TraceInput, Sampled, Quality] | None = None
    for trace in parts.values():
        assert trace.readings is not None
        several = _several(trace.frame)
        if several.height < trace.frame.height:
            result.quality.notice("too-few-samples", f"{trace.info.path}: a trace needs at least two rows of a GPU")
        trace.readings.frame = several
        if several.is_empty():
            trace.info.used = False
            continue
        own = Quality()
        _assume_link(trace, own)
        sampled = to_samples(trace.frame, {**trace.readings.names, **names}, own, trace.part)
        worth = (max(_RANK.get(gpu.pcie_source, 0) for gpu in sampled.gpus), -sampled.cadence_s)
        if best is None or worth > best[0]:
            if best is not None:
                best[1].info.used = False
            best = (worth, trace, sampled, own)
        else:
            trace.info.used = False
    if best is None:
        return
    _, chosen, sampled, own = best
    result.samples, result.host, result.gpus = sampled.samples, sampled.host, sampled.gpus
    quality = result.quality
    quality.samples, quality.samples_missing = own.samples, own.samples_missing
    quality.counter_wraps, quality.counter_ambiguous = own.counter_wraps, own.counter_ambiguous
    quality.notices.extend(own.notices)
    for trace in timed:
        if id(trace) not in parts:
            trace.info.used = chosen.table == trace.table
        if not trace.info.used:
            quality.notice(
                "same-gpu",
                f"{trace.info.path} samples the same time with less detail than {chosen.info.path}; not used",
            )
