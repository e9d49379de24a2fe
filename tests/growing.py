"""Captures that grow: what another process would have written, up to a moment of the run."""

import gzip
import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

_ISO = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})")


def _stamped(lines: list[bytes], time_ns: "list[int | None]") -> list[tuple[int, bytes]]:
    """Lines with the time at which they were written; one that shows none comes with the one before it."""
    stamped, last = [], next(at for at in time_ns if at is not None)
    for line, at in zip(lines, time_ns, strict=True):
        last = max(last, at or 0)
        stamped.append((last, line))
    return stamped


def _log_time_ns(line: bytes) -> int | None:
    found = _ISO.search(line)
    if found is None:
        return None
    seconds = datetime.fromisoformat(f"{found[1].decode()}+00:00").timestamp()
    return int(seconds) * 1_000_000_000 + int(found[2]) * 1000


def _read(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines(keepends=True)


@dataclass
class GrowingCapture:
    """Writes a capture's log and GPU trace into `folder` as they came about.

    `segment_rows`: rows after which the trace goes on in a new file, as the recorder's does.
    """

    source: Path
    folder: Path
    segment_rows: int = 10**9
    _log: list[tuple[int, bytes]] = field(init=False)
    _rows: list[tuple[int, bytes]] = field(init=False)
    _header: bytes = field(init=False)
    _written: int = 0
    _written_rows: int = 0

    def __post_init__(self) -> None:
        log = next(path for path in sorted(self.source.iterdir()) if path.name.startswith("prover."))
        lines = _read(log)
        self._log = _stamped(lines, [_log_time_ns(line) for line in lines])
        trace = next(path for path in sorted(self.source.iterdir()) if ".csv" in path.name)
        self._header, *rows = _read(trace)
        names = self._header.decode().strip().split(",")
        column = next(names.index(name) for name in ("t_end_ns", "t_wall_ns") if name in names)
        self._rows = _stamped(rows, [int(row.split(b",")[column]) for row in rows])
        self.folder.mkdir(exist_ok=True)

    @property
    def span_ns(self) -> tuple[int, int]:
        """First and last moment."""
        return min(self._log[0][0], self._rows[0][0]), max(self._log[-1][0], self._rows[-1][0])

    def grow(self, until_ns: int) -> None:
        """Writes everything up to that moment; files look as if written then."""
        new = [line for at, line in self._log[self._written :] if at <= until_ns]
        self._written += len(new)
        touched = set()
        if new:
            touched.add(self.folder / "prover.log")
            with (self.folder / "prover.log").open("ab") as log:
                log.writelines(new)
        for _, row in self._rows[self._written_rows :]:
            if self._rows[self._written_rows][0] > until_ns:
                break
            segment = self.folder / f"samples-{self._written_rows // self.segment_rows + 1:06d}.csv"
            with segment.open("ab") as table:
                if self._written_rows % self.segment_rows == 0:
                    table.write(self._header)
                table.write(row)
            self._written_rows += 1
            touched.add(segment)
        for path in touched:
            os.utime(path, ns=(until_ns, until_ns))
