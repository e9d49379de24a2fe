"""Which inputs are too long to be held at once."""

from collections.abc import Sequence
from pathlib import Path

from gputrace.ingest.inputs import expand
from gputrace.ingest.opening import is_packed
from gputrace.ingest.recordings import recording_at

# A shorter log is held whole: it has a chapter or two, and single calls can be asked for then.
LONG_LOG_BYTES = 200_000_000
# Logs pack to a tenth and less.
_PACKED_TO = 10


def long_log(paths: Sequence[str], least_bytes: int = LONG_LOG_BYTES) -> str | None:
    """The only input, if it is a file of `least_bytes` or more (unpacked) or a pipe, whose length nobody knows."""
    files = expand(paths)
    if len(files) != 1 or recording_at(files[0][0]) is not None:
        return None
    path = files[0][0]
    return path if path == "-" or _is_long(Path(path), least_bytes) else None


def _is_long(file: Path, least_bytes: int) -> bool:
    if not file.is_file() or file.stat().st_size < least_bytes / _PACKED_TO:
        return False
    with file.open("rb") as opened:
        packed = is_packed(opened.read(4))
    return file.stat().st_size >= (least_bytes / _PACKED_TO if packed else least_bytes)
