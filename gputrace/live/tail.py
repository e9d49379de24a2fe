"""The end of a file that somebody else is still writing, kept in memory."""

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

from gputrace.errors import InputError
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.traces import TraceOptions, recognise

# Of a file that is there already, and of one that grows faster than its window.
MOST_BYTES = 8 << 20
_HEAD_BYTES = 1 << 16


class Tail:
    """The last minutes of one text file: only what was added since the last look is read.

    A file that was replaced (rotation by rename) or cut short (copytruncate) is followed on from its beginning; what
    was read of the old one stays until it is too old. Compressed and binary files are not for this (`is_text`).
    """

    def __init__(self, path: Path, clock: Callable[[], float], most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._clock, self._most_bytes = clock, most_bytes
        self._header = b""
        self._kept: deque[tuple[float, bytes]] = deque()
        self._kept_bytes = 0
        self._file: IO[bytes] | None = None
        # The beginning of a line whose end is not written yet; its beginning was cut where `_headless`.
        self._torn, self._headless = b"", False

    def read(self) -> int:
        """Takes what was added; how many bytes. A file that is gone for the moment (rotation) gives none."""
        try:
            added = self._more()
            if self._replaced():
                self.close()
                added += self._more()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return added

    def close(self) -> None:
        """Lets go of the file; what was read stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def text(self) -> bytes:
        """The header of a table, and the whole lines that are kept."""
        return self._header + b"".join(data for _, data in self._kept)

    def forget_before(self, moment: float) -> None:
        """Drops what was read before `moment` (by the clock given)."""
        while len(self._kept) > 1 and self._kept[0][0] < moment:
            self._drop()

    def forget_share(self, share: float) -> None:
        """Drops this share (0..1) of what is kept, the oldest lines."""
        text = b"".join(data for _, data in self._kept)
        cut = text.find(b"\n", int(len(text) * share)) + 1
        if not cut:
            return
        read_at = self._kept[-1][0]
        self._kept.clear()
        self._kept_bytes = 0
        self._keep(text[cut:], read_at)

    @property
    def kept_bytes(self) -> int:
        """How much is in memory."""
        return self._kept_bytes

    def _more(self) -> int:
        """What the open file has more; opens it where it is not."""
        begun = self._kept or self._torn
        if self._file is None:
            file = self.path.open("rb")
            head = file.read(_HEAD_BYTES)
            if b"\n" not in head:
                file.close()
                return 0
            header = _header(str(self.path), head)
            self._header = self._header or header
            start = len(header) if begun else max(len(header), os.fstat(file.fileno()).st_size - self._most_bytes)
            file.seek(start)
            self._file, self._torn, self._headless = file, b"", start > len(header)
        elif os.fstat(self._file.fileno()).st_size < self._file.tell():
            # Cut short in place (copytruncate): it begins again, with its header where it has one.
            self.close()
            return self._more()
        added = self._file.read(self._most_bytes)
        whole, newline, self._torn = (self._torn + added).rpartition(b"\n")
        if self._headless and newline:
            _, _, whole = whole.partition(b"\n")
            self._headless = False
        self._keep(whole + newline if whole else b"")
        return len(added)

    def _replaced(self) -> bool:
        """Whether the name now means another file than the open one."""
        if self._file is None:
            return False
        try:
            named = self.path.stat()
        except FileNotFoundError:
            # Renamed, and the new one is not there yet: the old one may still be written to.
            return False
        opened = os.fstat(self._file.fileno())
        return (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)

    def _keep(self, data: bytes, read_at: float | None = None) -> None:
        if not data:
            return
        self._kept.append((self._clock() if read_at is None else read_at, data))
        self._kept_bytes += len(data)
        while self._kept_bytes > self._most_bytes and len(self._kept) > 1:
            self._drop()

    def _drop(self) -> None:
        self._kept_bytes -= len(self._kept.popleft()[1])


def is_text(path: Path) -> bool:
    """Whether it is lines that can be followed: not compressed, not a database, not Parquet, not one JSON object."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return b"\0" not in head and not head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"))


def _header(path: str, head: bytes) -> bytes:
    """The lines that say what a table's columns are; nothing for a log."""
    try:
        trace = recognise(path, ByteSource(path), bundled_formats(), TraceOptions())
    except InputError:
        return b""
    if trace is None or trace.header is not None or trace.table.layout not in ("csv", "dmon"):
        return b""
    lines = head.splitlines(keepends=True)
    if trace.table.layout == "csv":
        return lines[0]
    count = next((n for n, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
    return b"".join(lines[:count])
