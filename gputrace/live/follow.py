"""Reads a capture that another process is writing, line by line, and keeps as much of it as is needed.

What is kept can be written out as a small capture of its own, which `gputrace.loading.load` reads like any other: so
there is one reader of each format, whether a run is over or not.

Followed are the tables (`samples-000001.csv`, ...; any CSV with a column `t_end_ns` or `t_wall_ns`) and the logs
(`prover*`, `*.log`). A segment that was turned into Parquet meanwhile is read on from there. Names that differ only in
a segment's number are one series.
"""

import csv
import gzip
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl

BLOCK_BYTES = 4 << 20
# More lines of one series than this are not kept, whatever they are needed for.
MOST_LINES = 400_000
_NOT_FOLLOWED = ("meta.json", "truth.csv", "events.jsonl", "README", "README.md")
_SEGMENT = re.compile(r"-\d{6,}$")
_TIME_COLUMNS = ("t_end_ns", "t_wall_ns", "time_ns")
_UNIX_NS = re.compile(r"(\d{19}) ")
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z")
# Which worker is on which GPU is said once, when the prover starts.
_STARTS, _STICKY, _MOST_STICKY = "starting cuzk engine", "GPU worker started", 256


@dataclass
class _Position:
    """How far one segment has been read: bytes, and lines after its header."""

    offset: int = 0
    rows: int = 0
    done: bool = False
    unread: bytes = b""


@dataclass
class Series:
    """The segments of one table or log, in order. `kept` and `ahead` hold (time in Unix ns, line)."""

    name: str
    table: bool
    header: str = ""
    time_column: int | None = None
    kept: deque[tuple[int, str]] = field(default_factory=deque)
    ahead: deque[tuple[int, str]] = field(default_factory=deque)
    sticky: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_STICKY))
    positions: dict[str, _Position] = field(default_factory=dict)
    last_ns: int = 0

    def take(self, segments: dict[str, Path], until_ns: int | None) -> list[str]:
        """Reads on to `until_ns` (None: all there is); the lines that are new."""
        for gone in self.positions.keys() - segments.keys():
            del self.positions[gone]
        new: list[str] = []
        while len(new) < MOST_LINES:
            while self.ahead and (until_ns is None or self.ahead[0][0] <= until_ns):
                self.kept.append(self.ahead.popleft())
                new.append(self.kept[-1][1])
            if self.ahead or not self._read_block(segments):
                break
        while len(self.kept) > MOST_LINES:
            self._drop()
        return new

    def trim(self, before_ns: int) -> None:
        """Forgets lines older than that."""
        while self.kept and self.kept[0][0] < before_ns:
            self._drop()

    def write(self, folder: Path) -> None:
        """Writes what is kept as one file."""
        lines = [self.header] if self.table else list(self.sticky)
        with (folder / self.name).open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
            out.writelines(f"{line}\n" for line in lines)
            out.writelines(f"{line}\n" for _, line in self.kept)

    def skip_to_newest(self, segments: dict[str, Path]) -> None:
        """Leaves out all but the last two segments."""
        for name in sorted(segments)[:-2]:
            self.positions[name] = _Position(done=True)

    def _drop(self) -> None:
        _, line = self.kept.popleft()
        if not self.table:
            if _STARTS in line:
                self.sticky.clear()
            if _STICKY in line:
                self.sticky.append(line)

    def _read_block(self, segments: dict[str, Path]) -> bool:
        """Reads some more lines into `ahead`; false where there are none."""
        names = sorted(segments)
        for name in names:
            position = self.positions.setdefault(name, _Position())
            if position.done:
                continue
            lines = self._lines(segments[name], position, closed=name != names[-1])
            if lines:
                self._accept(lines, position)
                return True
            if name != names[-1]:
                position.done = True
        return False

    def _lines(self, path: Path, position: _Position, closed: bool) -> list[str]:
        if path.suffix == ".parquet":
            return _parquet_lines(path, position, self.header)
        try:
            return _text_lines(path, position, closed)
        except FileNotFoundError:
            # Turned into Parquet since the folder was listed: the next look finds it.
            return []

    def _accept(self, lines: list[str], position: _Position) -> None:
        if self.table and position.rows == 0:
            self._set_header(lines[0])
        for number, line in enumerate(lines):
            if self.table and position.rows == 0 and number == 0:
                continue
            if (at := self._time_of(line)) is not None:
                self.last_ns = max(self.last_ns, at)
            self.ahead.append((self.last_ns, line))
        position.rows += len(lines)

    def _set_header(self, line: str) -> None:
        names = line.split(",")
        if line != self.header:
            # Written by another version: rows of two kinds are not one table.
            self.kept.clear()
        self.header = line
        self.time_column = next((names.index(name) for name in _TIME_COLUMNS if name in names), None)

    def _time_of(self, line: str) -> int | None:
        if self.table:
            cells = line.split(",", (self.time_column or 0) + 1)
            cell = cells[self.time_column] if self.time_column is not None and len(cells) > self.time_column else ""
            return int(cell) if cell.isascii() and cell.isdigit() else None
        if found := _UNIX_NS.match(line):
            return int(found[1])
        if found := _ISO.search(line):
            try:
                seconds = int(datetime.fromisoformat(f"{found[1]}+00:00").timestamp())
            except ValueError:
                return None
            return seconds * 1_000_000_000 + int((found[2] or ".0")[1:].ljust(9, "0"))
        return None


def _text_lines(path: Path, position: _Position, closed: bool) -> list[str]:
    """The next complete lines of a text file; of a closed log also a last line without an end."""
    if path.suffix == ".gz":
        # Packed files are not written to any more.
        with gzip.open(path) as packed:
            block = packed.read()
        position.done = True
    else:
        if path.stat().st_size < position.offset:
            # Cut back to be written anew.
            position.offset, position.rows, position.unread = 0, 0, b""
        with path.open("rb") as file:
            file.seek(position.offset)
            block = file.read(BLOCK_BYTES)
    position.offset += len(block)
    text = position.unread + block
    if not block and closed and path.suffix != ".csv":
        position.unread = b""
        return [text.decode("utf-8", "surrogateescape")] if text else []
    whole, end, position.unread = text.rpartition(b"\n")
    lines = whole.split(b"\n") if end else []
    return [line.rstrip(b"\r").decode("utf-8", "surrogateescape") for line in lines]


def _parquet_lines(path: Path, position: _Position, header: str) -> list[str]:
    """The rows of a Parquet segment that were not read as text, as lines of CSV."""
    frame = pl.read_parquet(path)
    names = header.split(",")
    if set(names) == set(frame.columns):
        frame = frame.select(names)
    position.done = True
    return frame.write_csv().splitlines()[position.rows :]


@dataclass
class Follower:
    """A capture folder being written. `read` first, then `write` what is kept."""

    folder: Path
    series: dict[str, Series] = field(default_factory=dict)

    def start_at_end(self) -> None:
        """Leaves out old samples. Logs are read whole, for what the prover says once, but hardly anything is kept."""
        for name, segments in self._found().items():
            if name.endswith(".csv"):
                self._named(name).skip_to_newest(segments)

    def read(self, until_ns: int | None = None) -> dict[str, list[str]]:
        """Reads on, up to a time of the capture; the new lines of each series, by its name."""
        return {name: self._named(name).take(segments, until_ns) for name, segments in self._found().items()}

    def first_ns(self) -> int | None:
        """The earliest time kept; None where there is none yet."""
        times = [series.kept[0][0] for series in self.series.values() if series.kept]
        return min((at for at in times if at), default=None)

    def last_ns(self) -> int | None:
        """The latest time kept."""
        return max((series.kept[-1][0] for series in self.series.values() if series.kept), default=None)

    def next_ns(self) -> int | None:
        """The earliest time that was read but is later than what was asked for."""
        return min((series.ahead[0][0] for series in self.series.values() if series.ahead), default=None)

    def newest_change_s(self) -> float | None:
        """When a followed file last grew, as the file system says; Unix seconds."""
        times = []
        for segments in self._found().values():
            for path in segments.values():
                try:
                    times.append(path.stat().st_mtime)
                except FileNotFoundError:
                    continue
        return max(times, default=None)

    def trim(self, before_ns: int) -> None:
        """Forgets what is older than that."""
        for series in self.series.values():
            series.trim(before_ns)

    def write(self, folder: Path) -> None:
        """Writes what is kept as a capture of its own into an empty folder."""
        for series in self.series.values():
            if series.kept:
                series.write(folder)
        try:
            meta = (self.folder / "meta.json").read_bytes()
        except OSError:
            return
        (folder / "meta.json").write_bytes(meta)

    def rows(self, name: str, lines: list[str]) -> Iterator[dict[str, str | None]]:
        """Lines of a table as rows, by column."""
        header = self.series[name].header.split(",")
        return csv.DictReader(lines, header)

    def _named(self, name: str) -> Series:
        return self.series.setdefault(name, Series(name, name.endswith(".csv")))

    def _found(self) -> dict[str, dict[str, Path]]:
        """Per series, its segments by name; a segment in both forms in that in which it was begun."""
        found: dict[str, dict[str, Path]] = {}
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith(".") or path.name in _NOT_FOLLOWED or not path.is_file():
                continue
            inner = path.with_suffix("") if path.suffix == ".gz" else path
            numbered = _SEGMENT.search(inner.stem) is not None
            if inner.suffix in (".tmp", ".json", ".jsonl", ".toml") or (inner.suffix == ".parquet" and not numbered):
                continue
            suffix = ".csv" if inner.suffix in (".csv", ".parquet") else inner.suffix
            if suffix not in (".csv", ".log") and not inner.name.startswith("prover"):
                # What the recorder noted about the host.
                continue
            name = _SEGMENT.sub("", inner.stem) + suffix
            segments = found.setdefault(name, {})
            if inner.stem not in segments or path.suffix != ".parquet":
                segments[inner.stem] = path
        if "prover.log" in found and _SEGMENT.search(next(iter(found["prover.log"]))):
            # The recorder's own stamped lines: what the prover wrote itself is the same without times.
            found.pop("prover.stdout", None)
            found.pop("prover.stderr", None)
        return found
