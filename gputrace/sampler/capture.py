"""The folder that a recording is written to: docs/capture-format.md describes every file.

Everything is appended with one write a step, so that a killed recorder leaves whole lines, at most the last one torn.
Closed segments are packed by a process of their own; the oldest are dropped where the capture may not grow further.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gputrace.errors import RecordingError, UsageError
from gputrace.sampler.driver import Clock
from gputrace.sampler.host import HOST_HEADER
from gputrace.sampler.rows import HEADER
from gputrace.sampler.segments import Segments, Write, cannot_record, write_all

FORMAT = "gputrace capture"
VERSION = 1
META, EVENTS, OLD_EVENTS = "meta.json", "events.jsonl", "events-old.jsonl"
RAW = {"stdout": "prover.stdout", "stderr": "prover.stderr"}
_SEGMENT_BYTES = 64 << 20
_SMALLEST_SEGMENT_BYTES = 64 << 10
_SEGMENTS_WITHIN_LIMIT = 24
_SEGMENT_NS = 6 * 3600 * 1_000_000_000
_EVENTS_BYTES = 8 << 20
_HOUSEKEEPING_NS = 1_000_000_000
# Recording ends while this much is free, so that the prover can go on writing its own output.
_RESERVE_SHARE, _RESERVE_BYTES = 0.05, 64 << 20
_PUNCH_BYTES = 4 << 20
_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02


@dataclass(frozen=True)
class Limits:
    """How large a capture may grow: bytes in all, closed segments of each kind (None: no limit)."""

    max_bytes: int | None = None
    keep: int | None = None

    @property
    def segment_bytes(self) -> int:
        """When a segment is closed."""
        if self.max_bytes is None:
            return _SEGMENT_BYTES
        return max(_SMALLEST_SEGMENT_BYTES, min(_SEGMENT_BYTES, self.max_bytes // _SEGMENTS_WITHIN_LIMIT))


class Packer(Protocol):
    """Packs closed segments, one at a time, without holding the recorder up."""

    def add(self, path: Path) -> None:
        """A segment to be packed."""

    def poll(self) -> str | None:
        """Goes on with the work; what went wrong since the last call."""


class ProcessPacker:
    """Packs in a child process of low priority."""

    def __init__(self) -> None:
        self._waiting: list[Path] = []
        self._running: subprocess.Popen[bytes] | None = None
        self._path: Path | None = None

    def add(self, path: Path) -> None:
        """A segment to be packed."""
        self._waiting.append(path)

    def poll(self) -> str | None:
        """Starts the next child when the last has ended."""
        problem = None
        if self._running is not None:
            code = self._running.poll()
            if code is None:
                return None
            if code:
                problem = f"{self._path}: not packed (exit code {code}); it stays as it is"
            self._running = None
        while self._waiting:
            self._path = self._waiting.pop(0)
            if not self._path.exists():
                continue
            try:
                self._running = subprocess.Popen(
                    [sys.executable, "-m", "gputrace.sampler.compact", str(self._path)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "POLARS_MAX_THREADS": "1"},
                    start_new_session=True,
                )
            except OSError as error:
                return f"{self._path}: not packed ({error.strerror}); it stays as it is"
            break
        return problem


class Capture:
    """A capture being written. Every method may raise `RecordingError`."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        limits: Limits | None = None,
        packer: Packer | None = None,
        write: Write = os.write,
    ) -> None:
        limits = limits or Limits()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is there already and not empty; -o names a new folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_record(folder, error) from error
        self.folder = folder
        # Bytes of each raw stream whose lines are in the stamped log.
        self.consumed: dict[str, int] = {}
        self.meta: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        self._clock, self._limits, self._write = clock, limits, write
        self._packer = packer or ProcessPacker()
        self._samples = Segments(folder, "samples", ".csv", lambda _: HEADER.encode() + b"\n", write)
        self._host = Segments(folder, "host", ".csv", lambda _: HOST_HEADER.encode() + b"\n", write)
        self._log = Segments(folder, "prover", ".log", self._log_header, write)
        self._events_size = 0
        self._punched: dict[str, int] = {}
        self._due_ns = clock.mono_ns()

    def write_meta(self, **more: Any) -> None:
        """Adds to meta.json, which is replaced as a whole."""
        self.meta |= more
        new = self.folder / f".{META}.new"
        try:
            new.write_text(json.dumps(self.meta, indent=1, default=str) + "\n", encoding="utf-8")
            new.replace(self.folder / META)
        except OSError as error:
            raise cannot_record(self.folder / META, error) from error

    def samples(self, lines: Sequence[str]) -> None:
        """Rows of the GPUs, as CSV lines without ends."""
        self._samples.append("".join(f"{line}\n" for line in lines).encode(), self._clock.mono_ns())

    def host(self, line: str) -> None:
        """A row of the host."""
        self._host.append(f"{line}\n".encode(), self._clock.mono_ns())

    def log(self, lines: Iterable[tuple[int, str, bytes, bool]]) -> None:
        """Lines of the prover: Unix ns as seen, stream, text without its end, and whether the rest is still to come."""
        stamped, taken = [], dict(self.consumed)
        for stamp_ns, stream, text, part in lines:
            stamped.append(b"%d %s%s %s\n" % (stamp_ns, stream.encode(), b"&" if part else b"", text))
            if stream in taken:
                taken[stream] += len(text) + (0 if part else 1)
        self._log.append(b"".join(stamped), self._clock.mono_ns())
        self.consumed = taken

    def _log_header(self, number: int) -> bytes:
        """Says where in the raw streams the segment begins, so that a reader can go on there after a crash."""
        where = "".join(f" {stream}={at}" for stream, at in self.consumed.items())
        return b"%d gputrace segment=%d%s\n" % (self._clock.wall_ns(), number, where.encode())

    def event(self, what: str, **more: Any) -> None:
        """Something about the recording itself, with both clocks."""
        now = {"t_ns": self._clock.wall_ns(), "t_mono_ns": self._clock.mono_ns(), "event": what}
        data = (json.dumps({**now, **more}, default=str) + "\n").encode()
        path = self.folder / EVENTS
        try:
            if self._events_size > _EVENTS_BYTES:
                path.replace(self.folder / OLD_EVENTS)
                self._events_size = 0
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot_record(path, error) from error
        try:
            write_all(fd, data, path, self._write)
        finally:
            os.close(fd)
        self._events_size += len(data)

    def keep_house(self) -> None:
        """Closes segments that are due, packs, drops the oldest, and stops before the disk is full; once a second."""
        now_ns = self._clock.mono_ns()
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + _HOUSEKEEPING_NS
        for segments in (self._samples, self._host, self._log):
            old = segments.path is not None and now_ns - segments.opened_ns > _SEGMENT_NS
            if (old or segments.size >= self._limits.segment_bytes) and (closed := segments.close()) is not None:
                self._packer.add(closed)
        if (problem := self._packer.poll()) is not None:
            self.event("not-packed", text=problem)
        self._drop_oldest()
        self._check_disk()

    def close(self) -> None:
        """Ends the segments; they stay as they are."""
        for segments in (self._samples, self._host, self._log):
            segments.close()

    def _drop_oldest(self) -> None:
        limits = self._limits
        if limits.max_bytes is None and limits.keep is None:
            return
        for stream in self.consumed:
            self._punch(stream, _PUNCH_BYTES)
        opened = {segments.path for segments in (self._samples, self._host, self._log)}
        closed: dict[str, list[Path]] = {}
        total = 0
        ages: dict[Path, tuple[int, int]] = {}
        for entry in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                stat = entry.stat()
                total += min(stat.st_size, stat.st_blocks * 512) if entry.name in RAW.values() else stat.st_size
                path, (kind, dash, _) = Path(entry.path), entry.name.partition("-")
                if dash and kind in ("samples", "host", "prover") and path not in opened:
                    closed.setdefault(kind, []).append(path)
                    ages[path] = (stat.st_mtime_ns, stat.st_size)
        dropped = []
        if limits.keep is not None:
            dropped = [path for paths in closed.values() for path in sorted(paths)[: -limits.keep or len(paths)]]
        total -= sum(ages[path][1] for path in dropped)
        for path in sorted(set(ages) - set(dropped), key=lambda path: (ages[path][0], path.name)):
            if limits.max_bytes is None or total <= limits.max_bytes:
                break
            dropped.append(path)
            total -= ages[path][1]
        for path in dropped:
            path.unlink(missing_ok=True)
        if dropped:
            self.event("dropped", files=sorted(path.name for path in dropped))

    def _check_disk(self) -> None:
        try:
            disk = os.statvfs(self.folder)
        except OSError:
            return
        free = disk.f_bavail * disk.f_frsize
        if disk.f_blocks and free < min(_RESERVE_BYTES, _RESERVE_SHARE * disk.f_blocks * disk.f_frsize):
            for stream in self.consumed:
                self._punch(stream, 1)
            raise RecordingError(
                f"{self.folder}: no space left ({free / 1e6:.0f} MB free): recording stopped, so that the prover can "
                "go on writing; what was recorded so far is kept"
            )

    def _punch(self, stream: str, least_bytes: int) -> None:
        """Gives back the space of raw output that the stamped log has; its writer notices nothing."""
        block = 4096
        have, want = self._punched.get(stream, 0), self.consumed[stream] // block * block
        if want - have < least_bytes:
            return
        with contextlib.suppress(OSError, AttributeError):
            fd = os.open(self.folder / RAW[stream], os.O_WRONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                libc.fallocate64(fd, _KEEP_SIZE_AND_PUNCH, ctypes.c_long(have), ctypes.c_long(want - have))
            finally:
                os.close(fd)
        self._punched[stream] = want
