"""Which inputs are too long to be held at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from gputrace.ingest.inputs import expand
from gputrace.ingest.layouts.parquet import PARQUET_MAGIC
from gputrace.ingest.opening import is_packed
from gputrace.ingest.recordings import Recording, recording_at

# A shorter log is held whole: it has a chapter or two, and single calls can be asked for then.
LONG_LOG_BYTES = 200_000_000
# Logs pack to a tenth and less.
_PACKED_TO = 10
LONG_TRACE_ROWS = 4_000_000
# A segment that is not packed yet has so many bytes a row.
_BYTES_OF_ROW = 150


@dataclass(frozen=True)
class LongInputs:
    """One log or one GPU trace in Parquet, or both; or the folder of a recording."""

    log: str | None = None
    trace: str | None = None
    recording: Recording | None = None

    @property
    def has_trace(self) -> bool:
        """Whether GPUs were sampled."""
        return self.trace is not None or (self.recording is not None and bool(self.recording.segments["samples"]))


def long_inputs(
    paths: Sequence[str], log_bytes: int = LONG_LOG_BYTES, trace_rows: int = LONG_TRACE_ROWS
) -> LongInputs | None:
    """The inputs, if they can be read in chapters and one of them is long, or comes through a pipe; None for others."""
    files = [path for path, _ in expand(paths)]
    if recordings := [recording for path in files if (recording := recording_at(path)) is not None]:
        is_long = len(files) == 1 and _recorded_is_long(recordings[0], log_bytes, trace_rows)
        return LongInputs(recording=recordings[0]) if is_long else None
    traces = [path for path in files if _begins(path).startswith(PARQUET_MAGIC)]
    logs = [path for path in files if path not in traces]
    if len(traces) > 1 or len(logs) > 1:
        return None
    found = LongInputs(next(iter(logs), None), next(iter(traces), None))
    if found.log == "-":
        return found if found.trace is None else None
    is_long = found.log is not None and _is_long(Path(found.log), log_bytes)
    return found if is_long or (found.trace is not None and _rows(found.trace) >= trace_rows) else None


def _recorded_is_long(recording: Recording, log_bytes: int, trace_rows: int) -> bool:
    segments = recording.segments["prover"]
    sizes = [_size(path) * (_PACKED_TO if path.suffix == ".zst" else 1) for path in segments]
    raw = sum(map(_size, recording.raw.values()))
    rows = sum(
        _rows(str(path)) if path.suffix == ".parquet" else _size(path) // _BYTES_OF_ROW
        for path in recording.segments["samples"]
    )
    return max(sum(sizes), raw) >= log_bytes or rows >= trace_rows


def _size(path: Path) -> int:
    """Of a segment that was packed or dropped since it was listed nothing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _begins(path: str) -> bytes:
    """The first bytes of a file; none of what is no file."""
    if path == "-" or not Path(path).is_file():
        return b""
    try:
        with Path(path).open("rb") as opened:
            return opened.read(4)
    except OSError:
        return b""


def _is_long(file: Path, least_bytes: int) -> bool:
    if not file.is_file():
        return False
    packed = is_packed(_begins(str(file)))
    return file.stat().st_size >= (least_bytes / _PACKED_TO if packed else least_bytes)


def _rows(parquet: str) -> int:
    """By the file's own word; a damaged file is somebody else's to complain of."""
    try:
        return int(pl.scan_parquet(parquet).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError):
        return 0
