"""What a conclusion rests on: statements with their numbers, and the log lines that they came from."""

from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

# Line numbers and, in the same order, the inputs that hold them.
Cited = tuple[tuple[int, ...], tuple[int, ...]]


class LogLine(NamedTuple):
    """One line of one input: `source` is its index in `Trace.inputs`, `line` counts from 1."""

    source: int
    line: int


@dataclass(frozen=True)
class Evidence:
    """One statement with its number; `supports` is False where it speaks against.

    `lines` are numbers of log lines; `sources` has, for each of them, the index of its input in `Trace.inputs`.
    """

    text: str
    value: float | None
    unit: str | None
    supports: bool
    lines: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()

    @property
    def cited(self) -> tuple[LogLine, ...]:
        """Its lines with their inputs."""
        return tuple(LogLine(source, line) for source, line in zip(self.sources, self.lines, strict=True))


def cited(rows: pl.DataFrame) -> Cited:
    """Lines and sources of a frame with the columns source and line; rows that lack either are left out."""
    both = [(line, source) for line, source in zip(rows["line"], rows["source"], strict=True)]
    known = [(int(line), int(source)) for line, source in both if line is not None and source is not None]
    return tuple(line for line, _ in known), tuple(source for _, source in known)
