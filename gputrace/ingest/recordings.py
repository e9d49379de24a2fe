"""Reads what `gputrace record` writes (docs/capture-format.md), while it is written and after any crash."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from gputrace.errors import InputError
from gputrace.ingest.formats import Formats, TableFormat, WrapperFormat
from gputrace.ingest.layouts import parquet
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.samples import to_host
from gputrace.ingest.tables import read_trace
from gputrace.ingest.time_axis import Readings
from gputrace.ingest.traces import TraceInput
from gputrace.sampler.capture import FORMAT, META, RAW
from gputrace.sampler.compact import packed_path, typed
from gputrace.trace import InputInfo, Quality

LOG_WRAPPER = "gputrace-log"
_SEGMENT = re.compile(r"(samples|host|prover)-(\d{6,})\.(csv|parquet|log|log\.zst)")
_HEADER = re.compile(rb"\d+ gputrace segment=\d+((?: [a-z]+=\d+)*)")
_STAMPED = re.compile(rb"(?:\d+|-) ([a-z]+)(&?) ([^\n]*)\n")
_READ_BYTES = 8 << 20
_HEAD_BYTES = 4096


@dataclass(frozen=True)
class Recording:
    """A capture's folder: its meta.json and its segments by kind, in order."""

    folder: Path
    meta: dict[str, Any]
    segments: dict[str, list[Path]]

    def name_of(self, kind: str) -> str:
        """What to call the segments of a kind together."""
        paths = self.segments[kind]
        return str(paths[0]) if len(paths) == 1 else str(self.folder / f"{kind}-*{paths[0].suffix}")

    def gpu_names(self) -> dict[int, str]:
        """Names of GPUs by index."""
        gpus = (self.meta.get("sampler") or {}).get("gpus") or []
        return {int(gpu["index"]): str(gpu["name"]) for gpu in gpus if gpu.get("name") and "index" in gpu}

    @property
    def raw(self) -> dict[str, Path]:
        """Raw output of a command that the recorder started, by stream."""
        return {stream: self.folder / name for stream, name in RAW.items() if (self.folder / name).exists()}


def recording_at(path: str) -> Recording | None:
    """The recording in a folder; None for anything else."""
    folder = Path(path)
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        return None
    found: dict[str, dict[int, Path]] = {"samples": {}, "host": {}, "prover": {}}
    # Packed files come later in the order of names; one that is there is whole, whether or not its source is gone.
    for file in sorted(folder.iterdir(), key=lambda file: len(file.name)):
        if (parts := _SEGMENT.fullmatch(file.name)) is not None:
            found[parts[1]][int(parts[2])] = file
    segments = {kind: [paths[number] for number in sorted(paths)] for kind, paths in found.items()}
    return Recording(folder, meta, segments)


class RecordedLog:
    """The prover's log of a recording as one: every segment, then what the raw files have and no segment.

    `torn` counts lines whose end was not there, `unstamped` those that nobody saw come.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.path = recording.name_of("prover") if recording.segments["prover"] else str(recording.folder / "prover.*")
        self.damaged: str | None = None
        self.torn = 0
        self.unstamped = 0

    def chunks(self) -> Iterator[bytes]:
        """Whole lines, stamped, or with a dash for a stamp."""
        at = dict.fromkeys(self._recording.raw, 0)
        last = self._last_begun() if at else 0
        for number, path in enumerate(self._recording.segments["prover"]):
            if (source := _open(path)) is None:
                continue
            left = b""
            for chunk in source.chunks():
                data = left + chunk
                cut = data.rfind(b"\n") + 1
                data, left = data[:cut], data[cut:]
                if at:
                    self._count(data, at, first=number < last)
                yield data
            self.torn += bool(left)
            self.damaged = self.damaged or source.damaged
        # stderr first: it has the lines that tell a restart.
        for stream in sorted(at):
            yield from self._rest(stream, at[stream])

    def _last_begun(self) -> int:
        """Which segment is the last whose first line is whole."""
        paths = self._recording.segments["prover"]
        for number in reversed(range(len(paths))):
            source = _open(paths[number])
            if source is not None and b"\n" in source.head(_HEAD_BYTES):
                return number
        return 0

    @staticmethod
    def _count(data: bytes, at: dict[str, int], first: bool) -> None:
        """How far the raw streams are: what the segment's first line says, and the lines since."""
        head = _HEADER.match(data)
        if head is not None:
            for word in head[1].split():
                stream, _, offset = word.decode().partition("=")
                if stream in at:
                    at[stream] = int(offset)
        if first:
            # The next segment's first line says it.
            return
        for line in _STAMPED.finditer(data, head.end() + 1 if head is not None else 0):
            stream = line[1].decode()
            if stream in at:
                at[stream] += len(line[3]) + (0 if line[2] else 1)

    def _rest(self, stream: str, offset: int) -> Iterator[bytes]:
        prefix = b"- %s " % stream.encode()
        with contextlib.suppress(OSError), self._recording.raw[stream].open("rb") as raw:
            with contextlib.suppress(OSError):
                # Given back to the disk: the lines are in segments, or were in some that were dropped.
                offset = os.lseek(raw.fileno(), offset, os.SEEK_DATA)
            raw.seek(offset)
            left = b""
            while chunk := raw.read(_READ_BYTES):
                data = left + chunk.lstrip(b"\0")
                cut = data.rfind(b"\n") + 1
                data, left = data[:cut], data[cut:]
                if data:
                    self.unstamped += data.count(b"\n")
                    yield prefix + data[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
            if left and self._recording.meta.get("exit_code") is not None:
                # The command is over: nothing will come behind it.
                self.unstamped += 1
                yield prefix + left + b"\n"
            else:
                self.torn += bool(left)


def log_wrapper(formats: Formats) -> WrapperFormat:
    """The wrapper of stamped logs."""
    return next(wrapper for wrapper in formats.wrappers if wrapper.name == LOG_WRAPPER)


def read_samples(recording: Recording, formats: Formats) -> TraceInput | None:
    """The GPUs' rows of all segments as one trace, read; None where there are none."""
    table = _table(formats, "gputrace-samples")
    readings = _read_segments(recording, "samples", table)
    if readings is None:
        return None
    info = InputInfo(recording.name_of("samples"), "samples", table.name, readings.frame.height)
    return TraceInput(info, ByteSource(os.devnull), table, False, readings=readings)


def unread_samples(recording: Recording, formats: Formats) -> TraceInput | None:
    """The GPUs' rows of all segments as one trace, to be read in parts (`trace_parts`); None where there are none."""
    table = _table(formats, "gputrace-samples")
    segments = []
    for path in recording.segments["samples"]:
        if (source := _open(path)) is None:
            continue
        # As where all is read at once, one without a row yet is passed over.
        with contextlib.suppress(InputError), parquet.parquet_errors(source.path):
            rows = _rows(source)
            if isinstance(rows, bytes):
                rows = typed("samples", rows[: rows.rfind(b"\n") + 1]).lazy()
            rows.collect_schema()
            segments.append(rows)
    if not segments:
        return None
    info = InputInfo(recording.name_of("samples"), "samples", table.name)
    together = pl.concat(segments, how="diagonal_relaxed")
    return TraceInput(info, ByteSource(os.devnull), table, False, data=together)


def read_host(recording: Recording, formats: Formats, quality: Quality) -> tuple[InputInfo, pl.DataFrame] | None:
    """The host's rows of all segments as one HOST frame; None where there are none."""
    table = _table(formats, "gputrace-host")
    readings = _read_segments(recording, "host", table)
    if readings is None:
        return None
    info = InputInfo(recording.name_of("host"), "host", table.name, readings.frame.height)
    if readings.broken:
        quality.notice("rows-broken", f"{info.path}: rows that do not fit the table", readings.broken)
    times = pl.col("time_ns")
    ordered = readings.frame.sort("mono_ns").filter((times > times.cum_max().shift(1)).fill_null(True))
    info.first_ns, info.last_ns = ordered["time_ns"][0], ordered["time_ns"][-1]
    return info, to_host(ordered)


def _table(formats: Formats, name: str) -> TableFormat:
    return next(table for table in formats.tables if table.name == name)


def _open(path: Path) -> ByteSource | None:
    """A segment, which may have been packed since it was listed; None where it was dropped."""
    for there in (path, packed_path(path)):
        with contextlib.suppress(InputError):
            return ByteSource(str(there))
    return None


def _rows(source: ByteSource) -> bytes | pl.LazyFrame:
    """Of a packed segment what can be read of it at will."""
    if not source.head().startswith(parquet.PARQUET_MAGIC):
        return source.read_all()
    return parquet.scan(source.plain_file or source.read_all())


def _read_segments(recording: Recording, kind: str, table: TableFormat) -> Readings | None:
    """All segments of a kind put one behind the other; one without a row yet is passed over."""
    whole: Readings | None = None
    frames = []
    for path in recording.segments[kind]:
        if (source := _open(path)) is None:
            continue
        try:
            readings = read_trace(source.path, _rows(source), table)
        except InputError:
            continue
        frames.append(readings.frame)
        if whole is None:
            whole = readings
        else:
            whole.broken += readings.broken
            whole.notices += readings.notices
    if whole is not None:
        whole.frame = pl.concat(frames, how="diagonal_relaxed")
    return whole
