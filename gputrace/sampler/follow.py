"""Follows one log file as it grows, through rename, truncation and a new file in its place, line by line.

A writer writes either to the file it has open or to the new one, never to both at once; so a file that was renamed is
read on, before the new one, until it has been quiet for a while. What a copy-and-truncate took away between two looks
is read from the copy beside the file. Lines written between copying and truncating are lost to everybody (logrotate(8)
says so), and so is a file that came and went between two looks.
"""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

# A renamed file is read on for so long after its last line.
QUIET_NS = 5_000_000_000
_MOST_OLD = 4
_READ_BYTES = 1 << 20
# A line longer than this is given in parts.
_MOST_LINE_BYTES = 4 << 20
# So many bytes before the place reached are compared, to notice that the file was replaced by another as long.
_TAIL_BYTES = 256
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")


@dataclass
class Line:
    """A line without its end; `part` is true where the rest of it comes in the next."""

    text: bytes
    part: bool = False


@dataclass
class _Open:
    """One file being read: where we are in it, what stands before that place, and the line begun."""

    fd: int
    offset: int
    tail: bytes = b""
    carry: bytearray = field(default_factory=bytearray)
    quiet_since_ns: int | None = None


class Follower:
    """Lines of `path` from now on (`from_start`: all of them). `poll` never blocks.

    `last_part_kept`: a last line without its end is never given, because its file will still be there for the reader.
    """

    def __init__(self, path: Path, from_start: bool = False, last_part_kept: bool = False) -> None:
        self.path = path
        self._last_part_kept = last_part_kept
        self._old: list[_Open] = []
        self._current = self._reopen(from_start)

    @property
    def found(self) -> bool:
        """Whether there is a file."""
        return self._current is not None

    def poll(self, now_ns: int) -> list[Line]:
        """Whole lines that came since the last call; `now_ns` is monotonic."""
        lines: list[Line] = []
        self._notice_new_file(lines)
        for old in list(self._old):
            if self._read(old, lines) or old.quiet_since_ns is None:
                old.quiet_since_ns = now_ns
            elif now_ns - old.quiet_since_ns > QUIET_NS:
                self._retire(old, lines)
        if self._current is not None:
            self._read(self._current, lines)
        return lines

    def close(self) -> list[Line]:
        """The last lines, the one without an end included."""
        lines: list[Line] = []
        for file in [*self._old, *([self._current] if self._current else [])]:
            self._read(file, lines)
            self._end(file, lines)
        self._old, self._current = [], None
        return lines

    def _reopen(self, from_start: bool) -> _Open | None:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if from_start:
            return _Open(fd, 0)
        # From the last line's beginning, if it is still being written; its first part comes with its end.
        size = os.fstat(fd).st_size
        start = max(0, size - _MOST_LINE_BYTES)
        last = os.pread(fd, size - start, start) if size else b""
        offset = start + last.rfind(b"\n") + 1 if b"\n" in last else start
        return _Open(fd, offset, last[: offset - start][-_TAIL_BYTES:])

    def _notice_new_file(self, lines: list[Line]) -> None:
        if self._current is None:
            self._current = self._reopen(from_start=True)
            return
        try:
            there = self.path.stat()
        except OSError:
            # Renamed, and the new one is not there yet: the writer goes on with what it has open.
            return
        have = os.fstat(self._current.fd)
        if (there.st_dev, there.st_ino) == (have.st_dev, have.st_ino):
            return
        new = self._reopen(from_start=True)
        if new is None:
            return
        self._old.append(self._current)
        self._current = new
        while len(self._old) > _MOST_OLD:
            self._retire(self._old[0], lines)

    def _retire(self, old: _Open, lines: list[Line]) -> None:
        self._read(old, lines)
        self._end(old, lines)
        self._old.remove(old)

    def _end(self, file: _Open, lines: list[Line]) -> None:
        if file.carry and not self._last_part_kept:
            lines.append(Line(bytes(file.carry)))
        os.close(file.fd)

    def _read(self, file: _Open, lines: list[Line]) -> bool:
        """Reads a file to its end; whether there was anything."""
        any_read = False
        while True:
            before = len(file.tail)
            data = os.pread(file.fd, before + _READ_BYTES, file.offset - before)
            if data[:before] != file.tail:
                self._truncated(file, lines)
                any_read = True
                continue
            data = data[before:]
            if not data:
                return any_read
            any_read = True
            begun = bool(file.tail.strip(b"\0"))
            file.offset += len(data)
            file.tail = (file.tail + data)[-_TAIL_BYTES:]
            if not begun:
                # A writer that does not append goes on at its old place in a truncated file: a hole lies before it.
                data = data.lstrip(b"\0")
                if not data:
                    self._skip_hole(file)
            self._split(file, data, lines)

    def _split(self, file: _Open, data: bytes, lines: list[Line]) -> None:
        *whole, rest = data.split(b"\n")
        for text in whole:
            lines.append(Line(bytes(file.carry) + text if file.carry else text))
            file.carry.clear()
        file.carry += rest
        while len(file.carry) >= _MOST_LINE_BYTES:
            lines.append(Line(bytes(file.carry[:_MOST_LINE_BYTES]), part=True))
            del file.carry[:_MOST_LINE_BYTES]

    def _truncated(self, file: _Open, lines: list[Line]) -> None:
        """The file begins anew: first what the copy has that we have not, then from its start.

        Where there is a copy, the same writer goes on, maybe in the middle of a line; else another began.
        """
        rest = self._rest_of_copy(file)
        if rest is not None:
            self._split(file, rest, lines)
        elif file.carry:
            lines.append(Line(bytes(file.carry)))
            file.carry.clear()
        file.offset, file.tail = 0, b""

    @staticmethod
    def _skip_hole(file: _Open) -> None:
        with contextlib.suppress(OSError):
            file.offset = max(file.offset, os.lseek(file.fd, file.offset, os.SEEK_DATA))
            file.tail = b""

    def _rest_of_copy(self, file: _Open) -> bytes | None:
        """What a copy has behind the place reached; None where no file is one."""
        own = os.fstat(file.fd).st_ino
        with contextlib.suppress(OSError):
            beside = [p for p in self.path.parent.iterdir() if p.name.startswith(self.path.name) and p != self.path]
            found = []
            for path in beside:
                with contextlib.suppress(OSError), path.open("rb") as copy:
                    stat = os.fstat(copy.fileno())
                    if stat.st_ino == own or stat.st_size < file.offset or copy.read(6).startswith(_PACKED):
                        continue
                    copy.seek(file.offset - len(file.tail))
                    if copy.read(len(file.tail)) == file.tail:
                        found.append((stat.st_mtime_ns, copy.read()))
            if found:
                return max(found)[1]
        return None
