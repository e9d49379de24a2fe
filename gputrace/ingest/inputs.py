"""Takes inputs of any kind, in any mix: recognises each by content, reads it, counts twice-given data once."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from gputrace import schema
from gputrace.errors import InputError
from gputrace.ingest.formats import Formats, TableFormat, WrapperFormat, bundled_formats
from gputrace.ingest.marks import LogResult, needle_pattern, parse_lines, read_log
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.samples import Sampled, to_samples
from gputrace.ingest.tables import matches, read_table
from gputrace.ingest.wrappers import unwrap
from gputrace.trace import GpuInfo, InputInfo, Quality

Progress = Callable[[str, int], None]
# Never inputs: what the tests know of a capture, and what people write about one.
_NOT_INPUTS = ("truth.csv", "README.md", "README")
# A log is another form of one already counted when most of its records are there.
_SAME_LOG_SHARE = 0.5
_SNIFF_LINES = 4000


@dataclass
class Ingested:
    """Everything read, before anything is rebuilt."""

    inputs: list[InputInfo] = field(default_factory=list)
    marks: pl.DataFrame = field(default_factory=schema.MARKS.empty)
    samples: pl.DataFrame = field(default_factory=schema.SAMPLES.empty)
    host: pl.DataFrame = field(default_factory=schema.HOST.empty)
    gpus: list[GpuInfo] = field(default_factory=list)
    quality: Quality = field(default_factory=Quality)


def expand(paths: Iterable[str]) -> list[tuple[str, bool]]:
    """The files meant by `paths` and whether each was named itself (true) or found in a folder."""
    files: list[tuple[str, bool]] = []
    for given in paths:
        path = Path(given)
        if given != "-" and path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            if not inside:
                raise InputError(f"{given}: the folder is empty")
            files.extend((str(p), False) for p in inside if p.name not in _NOT_INPUTS)
        else:
            files.append((given, True))
    return files


def ingest(paths: Iterable[str], progress: Progress = lambda _path, _bytes: None) -> Ingested:
    """Reads all inputs. Raises `InputError` where an input that was named itself cannot be used."""
    formats = bundled_formats()
    result = Ingested()
    logs: list[tuple[InputInfo, LogResult]] = []
    tables: list[tuple[InputInfo, pl.DataFrame]] = []
    names: dict[int, str] = {}
    for path, named in expand(paths):
        try:
            _read_one(path, formats, result, logs, tables, names, progress)
        except InputError as error:
            if named:
                raise
            result.quality.notice("input-skipped", str(error))
    if not logs and not tables:
        raise InputError(
            "none of the inputs is a prover log or a GPU trace; `gputrace formats list` shows what is read"
        )
    _use_logs(result, logs)
    _use_tables(result, tables, names)
    return result


def _read_one(
    path: str,
    formats: Formats,
    result: Ingested,
    logs: list[tuple[InputInfo, LogResult]],
    tables: list[tuple[InputInfo, pl.DataFrame]],
    names: dict[int, str],
    progress: Progress,
) -> None:
    source = ByteSource(path)
    head = source.head()
    if not head:
        raise InputError(f"{path}: {source.damaged or 'the file is empty'}")
    text = head.decode("utf-8", errors="replace")
    table = next((t for t in formats.tables if matches(text, t)), None)
    if table is not None:
        _read_samples(path, source, table, result, tables)
    elif (metadata := _metadata(source, text)) is not None:
        result.inputs.append(InputInfo(path, "metadata", "json"))
        if name := _gpu_name(metadata):
            names[0] = name
    elif "\0" in text:
        raise InputError(f"{path}: not a log and not a GPU trace (binary data)")
    else:
        wrapper = detect_wrapper(text, formats)
        log = read_log(source, wrapper, formats, lambda size: progress(path, size))
        if log.marks.is_empty():
            broken = f"; {source.damaged}" if source.damaged else ""
            raise InputError(
                f"{path}: no line of a known prover in {log.lines} lines{broken}; "
                "a cuzk log has lines that begin with CUZK_TIMING or TIMELINE"
            )
        info = InputInfo(path, "log", wrapper.name if wrapper else "plain", log.lines)
        info.first_ns, info.last_ns = _time_range(log.marks)
        result.inputs.append(info)
        logs.append((info, log))
    if source.damaged:
        result.quality.notice("input-damaged", f"{path}: {source.damaged}")


def _read_samples(
    path: str,
    source: ByteSource,
    table: TableFormat,
    result: Ingested,
    tables: list[tuple[InputInfo, pl.DataFrame]],
) -> None:
    readings, broken = read_table(path, source.read_all(), table)
    if broken:
        result.quality.notice("rows-broken", f"{path}: rows that do not fit the table", broken)
    info = InputInfo(path, "samples", table.name, readings.height)
    info.first_ns, info.last_ns = int(readings["time_ns"].min()), int(readings["time_ns"].max())  # type: ignore[arg-type]
    result.inputs.append(info)
    tables.append((info, readings))


def _metadata(source: ByteSource, head: str) -> dict[str, Any] | None:
    """A JSON object that is metadata about a capture; None for anything else (docker logs are JSON lines)."""
    if not head.lstrip().startswith("{") or '"log":' in head[:2000]:
        return None
    try:
        loaded = json.loads(source.read_all())
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    return loaded if isinstance(loaded, dict) else None


def _gpu_name(metadata: dict[str, Any]) -> str | None:
    for key in ("apis", "nvml_apis"):
        value = metadata.get(key, {}).get("name", {})
        if isinstance(value, dict) and isinstance(value.get("value"), str):
            return str(value["value"])
    name = metadata.get("gpu_name")
    return name if isinstance(name, str) else None


def detect_wrapper(head: str, formats: Formats) -> WrapperFormat | None:
    """The wrapper under which most of the first lines are records; None for plain lines."""
    lines = head.split("\n")[:_SNIFF_LINES]
    frame = pl.DataFrame({"line": range(len(lines)), "raw": lines}, schema={"line": pl.UInt32, "raw": pl.String})
    frame = frame.filter(pl.col("raw").str.contains(needle_pattern(formats)))

    def records(wrapper: WrapperFormat | None) -> int:
        inner = unwrap(frame, wrapper).with_columns(pl.lit(False).alias("repaired"))
        return parse_lines(inner, formats)[0].height

    candidates: list[WrapperFormat | None] = [None, *formats.wrappers]
    return max(candidates, key=records)


def _time_range(marks: pl.DataFrame) -> tuple[int | None, int | None]:
    times = pl.concat([marks["log_ns"].drop_nulls(), marks["arrival_ns"].drop_nulls()])
    return (int(times.min()), int(times.max())) if len(times) else (None, None)  # type: ignore[arg-type]


def _identity(marks: pl.DataFrame) -> pl.Series:
    """A hash of what each record says, whatever carried it."""
    return marks.select("family", "event", "log_ns", "offset_ms", "job", "worker", "partition", "values").hash_rows()


def _use_logs(result: Ingested, logs: list[tuple[InputInfo, LogResult]]) -> None:
    """Takes the forms of a log with the best times first and leaves out those that say the same again."""
    quality = result.quality
    ranked = sorted(logs, key=lambda item: (-item[1].marks["arrival_ns"].count(), -item[1].marks.height, item[0].path))
    taken: pl.Series = pl.Series("seen", [], dtype=pl.UInt64)
    chosen: list[tuple[InputInfo, LogResult]] = []
    for info, log in ranked:
        if len(ranked) == 1:
            chosen.append((info, log))
            break
        identity = _identity(log.marks)
        again = int(identity.is_in(taken.implode()).sum()) if len(taken) else 0
        if again > _SAME_LOG_SHARE * len(identity):
            info.used = False
            quality.notice("same-log", f"{info.path} is another form of a log already read; it was not counted again")
            continue
        taken = pl.concat([taken, identity.rename("seen")])
        chosen.append((info, log))
    chosen.sort(key=lambda item: item[0].path)
    frames = []
    for info, log in chosen:
        source = result.inputs.index(info)
        frames.append(log.marks.with_columns(pl.lit(source, pl.UInt16).alias("source")))
        quality.lines += log.lines
        quality.torn_repaired += log.torn_repaired
        quality.torn_lost += log.torn_lost
        quality.unrecognised_of_known_family += log.unrecognised
    if frames:
        result.marks = pl.concat(frames)
    quality.marks = result.marks.height
    counts = result.marks["event"].value_counts().sort("event")
    quality.marks_by_event = dict(counts.iter_rows())


def _use_tables(result: Ingested, tables: list[tuple[InputInfo, pl.DataFrame]], names: dict[int, str]) -> None:
    """Takes, of several samplers of the same GPUs, the one that sees most of the PCIe traffic."""
    best: tuple[tuple[int, float], InputInfo, Sampled, Quality] | None = None
    rank = {"counters": 3, "gpm": 2, "window": 1, None: 0}
    for info, readings in tables:
        if readings.height < 2:
            result.quality.notice("too-few-samples", f"{info.path}: a trace needs at least two rows")
            info.used = False
            continue
        own = Quality()
        sampled = to_samples(readings, names, own)
        worth = (max(rank[gpu.pcie_source] for gpu in sampled.gpus), -sampled.cadence_s)
        if best is None or worth > best[0]:
            if best is not None:
                best[1].used = False
            best = (worth, info, sampled, own)
        else:
            info.used = False
    if best is None:
        return
    _, info, sampled, own = best
    result.samples, result.host, result.gpus = sampled.samples, sampled.host, sampled.gpus
    quality = result.quality
    quality.samples, quality.samples_missing = own.samples, own.samples_missing
    quality.counter_wraps, quality.counter_ambiguous = own.counter_wraps, own.counter_ambiguous
    quality.notices.extend(own.notices)
    for other in result.inputs:
        if other.kind == "samples" and not other.used:
            quality.notice(
                "same-gpu", f"{other.path} samples the same time with less detail than {info.path}; not used"
            )
