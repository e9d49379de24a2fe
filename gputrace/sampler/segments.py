"""Files of one kind that are appended to, one after the other, so that old ones can be packed and dropped."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from gputrace.errors import RecordingError

Write = Callable[[int, bytes], int]
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_all(fd: int, data: bytes, path: Path, write: Write = os.write) -> None:
    """Writes everything, in one call where the system takes it in one. Raises `RecordingError`."""
    try:
        while data:
            data = data[write(fd, data) :]
    except OSError as error:
        raise cannot_record(path, error) from error


def cannot_record(path: Path, error: OSError) -> RecordingError:
    """What to say of a write that failed."""
    reason = "no space left" if error.errno in _FULL else error.strerror or str(error)
    return RecordingError(f"{path}: {reason}: recording stopped; what was recorded so far is kept")


class Segments:
    """`KIND-000001.SUFFIX` and so on in a folder; each begins with `header()`.

    A segment is made with its first data, header and data in one write, and never reopened for writing.
    """

    def __init__(
        self, folder: Path, kind: str, suffix: str, header: Callable[[int], bytes], write: Write = os.write
    ) -> None:
        self.kind = kind
        self.path: Path | None = None
        self.size = 0
        self.opened_ns = 0
        self._folder, self._suffix, self._header, self._write = folder, suffix, header, write
        self._number = 0
        self._fd: int | None = None

    def append(self, data: bytes, mono_ns: int) -> None:
        """Adds whole lines. Raises `RecordingError`."""
        if not data:
            return
        if self._fd is None:
            self._number += 1
            self.path = self._folder / f"{self.kind}-{self._number:06d}{self._suffix}"
            self.opened_ns = mono_ns
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self.path, flags, 0o644)
            except OSError as error:
                raise cannot_record(self.path, error) from error
            data = self._header(self._number) + data
        assert self.path is not None
        write_all(self._fd, data, self.path, self._write)
        self.size += len(data)

    def close(self) -> Path | None:
        """Ends the segment; the next data go to a new one. Returns the file, None where none was open."""
        if self._fd is None:
            return None
        os.close(self._fd)
        self._fd, self.size = None, 0
        path, self.path = self.path, None
        return path
