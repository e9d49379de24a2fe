"""Takes inputs of any kind, in any mix: recognises each by content, reads it, counts twice-given data once."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from gputrace import schema
from gputrace.errors import InputError
from gputrace.ingest.formats import Formats, bundled_formats
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.logs import LogSet, ReadLog, merge_logs, time_range
from gputrace.ingest.marks import read_log
from gputrace.ingest.opening import ByteSource, cannot_open
from gputrace.ingest.reader import Reader
from gputrace.ingest.recordings import (
    LOG_WRAPPER,
    RecordedLog,
    Recording,
    log_wrapper,
    read_host,
    read_samples,
    recording_at,
)
from gputrace.ingest.stamps import check_timezone
from gputrace.ingest.traces import TraceInput, TraceOptions, read_trace_input, recognise, use_traces
from gputrace.sampler.capture import META
from gputrace.trace import GpuInfo, InputInfo, Quality

Progress = Callable[[str, int], None]
# Never inputs: what the tests know of a capture, and what people write about one.
_NOT_INPUTS = ("truth.csv", "README.md", "README")


@dataclass
class Ingested:
    """Everything read, before anything is rebuilt.

    `arrival_resolution_ns` is how coarse the marks' `arrival_ns` is: 0 where it is as exact as it looks;
    `arrival_method` who stamped them: a collector (wrapper), or gputrace itself as they came (receipt).
    """

    inputs: list[InputInfo] = field(default_factory=list)
    marks: pl.DataFrame = field(default_factory=schema.MARKS.empty)
    arrival_resolution_ns: int = 0
    arrival_method: str = "wrapper"
    samples: pl.DataFrame = field(default_factory=schema.SAMPLES.empty)
    host: pl.DataFrame = field(default_factory=schema.HOST.empty)
    copies: pl.DataFrame = field(default_factory=schema.COPIES.empty)
    gpus: list[GpuInfo] = field(default_factory=list)
    quality: Quality = field(default_factory=Quality)


def is_input(name: str) -> bool:
    """Whether a file of this name in a capture's folder is read at all."""
    return not name.startswith(".") and name not in _NOT_INPUTS


def expand(paths: Iterable[str]) -> list[tuple[str, bool]]:
    """The files meant by `paths` and whether each was named itself (true) or found in a folder.

    Raises `InputError` where one is not there, before any is read.
    """
    files: list[tuple[str, bool]] = []
    for given in paths:
        path = Path(given)
        if given != "-" and path.is_dir():
            if recording_at(given) is not None:
                files.append((given, True))
                continue
            inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            if not inside:
                raise InputError(f"{given}: the folder is empty; a capture has a log, a GPU trace, or both")
            files.extend((str(p), False) for p in inside if is_input(p.name))
        else:
            if given != "-":
                _must_be_there(given)
            files.append((given, True))
    return files


def _must_be_there(given: str) -> None:
    try:
        Path(given).stat()
    except FileNotFoundError as error:
        raise cannot_open(given, error) from error
    except OSError:
        # Whoever opens it says more.
        return


def ingest(
    paths: Iterable[str],
    progress: Progress = lambda _path, _bytes: None,
    *,
    timezone: str | None = None,
    trace_options: TraceOptions | None = None,
    now_ns: int | None = None,
    reader: Reader | None = None,
) -> Ingested:
    """Reads all inputs. Raises `InputError` where an input that was named itself cannot be used.

    `timezone` is the zone of times written without one; `trace_options` what is said about GPU traces; `now_ns`
    what no log is later than (null: the time at which it was written, or now); `reader` reads files (null: anew).
    """
    check_timezone(timezone)
    formats = bundled_formats()
    result = Ingested()
    logs: list[tuple[InputInfo, LogResult]] = []
    traces: list[TraceInput] = []
    names: dict[int, str] = {}
    options = trace_options or TraceOptions()
    hosts: list[pl.DataFrame] = []
    for path, named in expand(paths):
        if (recording := recording_at(path)) is not None:
            _read_recording(recording, formats, result, logs, traces, hosts, names, progress)
            continue
        try:
            _read_one(path, named, formats, result, logs, traces, options, names, progress, reader or Reader())
        except InputError as error:
            if named:
                raise
            result.quality.notice("input-skipped", str(error))
    sets, result.arrival_resolution_ns = merge_logs(
        [ReadLog(info, log) for info, log in logs], result.quality, formats, timezone, now_ns
    )
    traces = _read_traces(result, traces, options, timezone, logs)
    if not logs and not traces:
        raise InputError(
            "none of the inputs is a prover log or a GPU trace; `gputrace formats list` shows what is read"
        )
    use_logs(result, sets)
    use_traces(result, traces, names, bool(logs))
    if hosts:
        result.host = pl.concat(hosts).sort("start_ns")
    return result


def _read_recording(
    recording: Recording,
    formats: Formats,
    result: Ingested,
    logs: list[tuple[InputInfo, LogResult]],
    traces: list[TraceInput],
    hosts: list[pl.DataFrame],
    names: dict[int, str],
    progress: Progress,
) -> None:
    """What `gputrace record` wrote, still being written or not."""
    quality = result.quality
    result.inputs.append(InputInfo(str(recording.folder / META), "metadata", "json"))
    names.update(recording.gpu_names())
    if recording.segments["prover"] or recording.raw:
        source = RecordedLog(recording)
        log = read_log(source, log_wrapper(formats), formats, lambda size: progress(source.path, size))
        of_recorded_log(source, quality)
        if log.marks.is_empty():
            quality.notice("input-skipped", f"{source.path}: no line of a known prover in {log.lines} lines")
        else:
            info = InputInfo(source.path, "log", LOG_WRAPPER, log.lines)
            info.first_ns, info.last_ns = time_range(log.marks)
            result.inputs.append(info)
            result.arrival_method = "receipt"
            logs.append((info, log))
    if (samples := read_samples(recording, formats)) is not None:
        result.inputs.append(samples.info)
        traces.append(samples)
    if (host := read_host(recording, formats, quality)) is not None:
        result.inputs.append(host[0])
        hosts.append(host[1])


def of_recorded_log(source: RecordedLog, quality: Quality) -> None:
    """Notices of a recording's log that was read to its end."""
    if source.damaged:
        quality.notice("input-damaged", f"{source.path}: {source.damaged}")
    if source.torn:
        quality.notice("line-unfinished", f"{source.path}: a line without its end was not used", source.torn)
    if source.unstamped:
        text = f"{source.path}: written by the prover when no recorder saw it, so without a time of receipt"
        quality.notice("log-unstamped", text, source.unstamped)


def _read_one(
    path: str,
    named: bool,
    formats: Formats,
    result: Ingested,
    logs: list[tuple[InputInfo, LogResult]],
    traces: list[TraceInput],
    options: TraceOptions,
    names: dict[int, str],
    progress: Progress,
    reader: Reader,
) -> None:
    source = reader.open(path)
    head = source.head()
    if not head:
        raise InputError(f"{path}: {source.damaged or 'the file is empty'}")
    text = head.decode("utf-8", errors="replace")
    if (trace := recognise(path, source, formats, options)) is not None:
        trace.named = named
        result.inputs.append(trace.info)
        traces.append(trace)
        return
    if (metadata := _metadata(source, text)) is not None:
        result.inputs.append(InputInfo(path, "metadata", "json"))
        if name := _gpu_name(metadata):
            names[0] = name
    else:
        log = reader.read_log(source, formats, lambda size: progress(path, size))
        if log.marks.is_empty() and "\0" in text:
            raise InputError(
                f"{path}: not a log and not a GPU trace (binary data); `gputrace formats list` shows what is read"
            )
        if log.marks.is_empty():
            broken = f"; {source.damaged}" if source.damaged else ""
            raise InputError(
                f"{path}: no line of a known prover in {log.lines} lines{broken}; "
                "a cuzk log has lines that begin with CUZK_TIMING or TIMELINE"
            )
        info = InputInfo(path, "log", log.wrapper.name if log.wrapper else "plain", log.lines)
        info.first_ns, info.last_ns = time_range(log.marks.with_columns(pl.lit(None, pl.Int64).alias("arrival_ns")))
        result.inputs.append(info)
        logs.append((info, log))
    if source.damaged:
        result.quality.notice("input-damaged", f"{path}: {source.damaged}")


def _read_traces(
    result: Ingested,
    traces: list[TraceInput],
    options: TraceOptions,
    timezone: str | None,
    logs: list[tuple[InputInfo, LogResult]],
) -> list[TraceInput]:
    """Reads the traces, which need the log's time where their own lacks a date, a year or a zone."""
    known = [info for info, _ in logs if info.first_ns is not None and info.last_ns is not None]
    span = (min(i.first_ns or 0 for i in known), max(i.last_ns or 0 for i in known)) if known else None
    read = []
    for trace in traces:
        path = trace.info.path
        try:
            if trace.readings is None:
                read_trace_input(trace, options, timezone, span, bool(logs))
            else:
                trace.info.first_ns, trace.info.last_ns = trace.range_ns
        except InputError as error:
            if trace.named:
                raise
            result.inputs.remove(trace.info)
            result.quality.notice("input-skipped", str(error))
            continue
        if trace.readings is not None and trace.readings.broken:
            result.quality.notice("rows-broken", f"{path}: rows that do not fit the table", trace.readings.broken)
        if trace.source.damaged:
            result.quality.notice("input-damaged", f"{path}: {trace.source.damaged}")
        read.append(trace)
    return read


def _metadata(source: ByteSource, head: str) -> dict[str, Any] | None:
    """A JSON object that is metadata about a capture; None for anything else (docker logs are JSON lines)."""
    if not head.lstrip().startswith("{") or _is_json_lines(head):
        return None
    try:
        loaded = json.loads(source.read_all())
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    return loaded if isinstance(loaded, dict) else None


def _is_json_lines(head: str) -> bool:
    """Whether this is a log of one object a line, as docker and journald write them."""
    first = head.split("\n", 1)[0]
    try:
        entry = json.loads(first)
    except json.JSONDecodeError:
        return '"log":' in head[:2000]
    return isinstance(entry, dict) and bool({"log", "MESSAGE", "__CURSOR", "__REALTIME_TIMESTAMP"} & set(entry))


def _gpu_name(metadata: dict[str, Any]) -> str | None:
    for key in ("apis", "nvml_apis"):
        value = metadata.get(key, {}).get("name", {})
        if isinstance(value, dict) and isinstance(value.get("value"), str):
            return str(value["value"])
    name = metadata.get("gpu_name")
    return name if isinstance(name, str) else None


def use_logs(result: Ingested, sets: list[LogSet]) -> None:
    """Puts the logs' marks one after the other, each under the index of its (first) input."""
    quality = result.quality
    frames = [
        one.settled.marks.with_columns(pl.lit(result.inputs.index(one.pieces[0].info), pl.UInt16).alias("source"))
        for one in sets
    ]
    if frames:
        result.marks = pl.concat(frames)
    quality.marks = result.marks.height
    counts = result.marks["event"].value_counts().sort("event")
    quality.marks_by_event = dict(counts.iter_rows())
