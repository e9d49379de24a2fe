"""Cuts the marks of a log, as they come, into chapters of whole calls.

    |-- before --|------------- own -------------|-- after --|
                                     |-- before --|------------- own ...

A call belongs to the chapter in which its first line lies. The marks before and after are there so that calls, their
syntheses and their waits across an edge are seen whole; what they add is not counted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np
import polars as pl

from gputrace import schema
from gputrace.rebuild.sequence import restarts_of_log

NO_LINE = int(np.iinfo(np.uint32).max)
# Lines that hold for everything after them: the time that offsets count from, and the workers' GPUs.
_STAY = ("engine_start", "worker_started")


@dataclass(frozen=True)
class Size:
    """How long a chapter is: so many marks, or so many seconds if that is less; and how far its surroundings reach.

    130,000 marks are some 5,000 calls. 4,000 marks before are 150 calls: many times what the engine has in flight.
    """

    marks: int = 130_000
    seconds: float = inf
    marks_before: int = 4_000
    marks_after: int = 2_000
    seconds_around: float = 600.0


@dataclass(frozen=True)
class Seam:
    """Where a chapter begins, and all that cutting on from there has to know of what came before.

    Its marks are those that `staying` has, and those from `from_line` on; its own come after `after_line`, the first
    `own_from` marks are before them. `restarts` is how often the prover had been started again before the first of
    all these marks. The chapters before it were judged by marks up to `used_line`.
    """

    staying: pl.DataFrame = field(default_factory=schema.MARKS.empty)
    from_line: int = 0
    own_from: int = 0
    after_line: int = 0
    restarts: int = 0
    used_line: int = 0


@dataclass(frozen=True)
class Cut:
    """The marks of a chapter and its surroundings; its own are those after the lines of the one before it, up to
    `last_line`."""

    marks: pl.DataFrame
    seam: Seam
    last_line: int

    @property
    def is_last(self) -> bool:
        """Whether the log ends with it."""
        return self.last_line == NO_LINE

    @property
    def is_own(self) -> pl.Expr:
        """Whether a row with the column `line` belongs to the chapter."""
        return (pl.col("line") > self.seam.after_line) & (pl.col("line") <= self.last_line)


def cuts(lots: Iterable[pl.DataFrame], size: Size, seam: Seam | None = None) -> Iterator[Cut]:
    """The chapters of one log; `lots` are its MARKS in order, lot by lot. The last chapter may be longer by a half.

    With `seam`, those from the chapter on that begins there; `lots` may begin with any line up to its `from_line`.
    """
    seam = seam or Seam()
    held = seam.staying
    coming: list[pl.DataFrame] = []
    for lot in _from_line(lots, seam.from_line):
        coming.append(lot)
        if held.height + sum(one.height for one in coming) < seam.own_from + size.marks_after:
            continue
        held, coming = pl.concat([held, *coming]), []
        while (edge := _edge(held, seam.own_from, size)) is not None:
            own_to, known_to = edge
            last_line = int(held["line"][own_to - 1])
            yield Cut(held[:known_to], seam, last_line)
            begin = max(seam.staying.height, _reach_back(held, own_to, size))
            staying = _staying(held[:begin])
            seam = Seam(
                staying=staying,
                from_line=int(held["line"][begin]),
                own_from=staying.height + own_to - begin,
                after_line=last_line,
                restarts=seam.restarts + int(restarts_of_log(held[: begin + 1])[begin]),
                used_line=int(held["line"][known_to - 1]),
            )
            held = pl.concat([staying, held[begin:]], rechunk=True)
    yield Cut(pl.concat([held, *coming]), seam, NO_LINE)


def _from_line(lots: Iterable[pl.DataFrame], line: int) -> Iterator[pl.DataFrame]:
    for lot in lots:
        yield lot.filter(pl.col("line") >= line) if line else lot


def stamps_s(marks: pl.DataFrame) -> np.ndarray:
    """When each mark was written, in seconds, by the times that most marks of the log tell; NaN before the first."""
    known = next((name for name in ("log_ns", "arrival_ns") if marks[name].count()), "offset_ms")
    seconds = marks[known].forward_fill().cast(pl.Float64) / (1e3 if known == "offset_ms" else 1e9)
    return seconds.to_numpy()


def _edge(held: pl.DataFrame, own_from: int, size: Size) -> tuple[int, int] | None:
    """Where the chapter ends and what is after it ends; None where that is not known yet."""
    if held.height < own_from + 2:
        return None
    own_to = own_from + size.marks
    stamps = stamps_s(held) if size.seconds < inf else np.zeros(held.height)
    late = np.flatnonzero(stamps[own_from:] > stamps[own_from] + size.seconds)
    own_to = min(own_to, own_from + max(1, int(late[0]))) if len(late) else own_to
    if own_to >= held.height:
        return None
    known_to = own_to + size.marks_after
    far = np.flatnonzero(stamps[own_to:] > stamps[own_to] + size.seconds_around)
    known_to = min(known_to, own_to + int(far[0])) if len(far) else known_to
    # What would be left for a last chapter of its own must be worth one.
    return (own_to, known_to) if held.height >= max(known_to, own_to + (own_to - own_from) // 2) else None


def _reach_back(held: pl.DataFrame, own_to: int, size: Size) -> int:
    """Where the surroundings of a chapter that begins at `own_to` begin: with the first mark of a line."""
    begin = max(0, own_to - size.marks_before)
    if size.seconds < inf:
        stamps = stamps_s(held)
        near = np.flatnonzero(stamps[begin:own_to] >= stamps[own_to] - size.seconds_around)
        begin = begin + int(near[0]) if len(near) else own_to - 1
    return int(held["line"].search_sorted(held["line"][begin]))


def _staying(passed: pl.DataFrame) -> pl.DataFrame:
    """What holds on of the marks that are let go: the last engine start and what the workers said since."""
    told = passed.filter(pl.col("event").is_in(_STAY))
    starts = np.flatnonzero((told["event"] == "engine_start").to_numpy())
    return (
        told[int(starts[-1]) :] if len(starts) else told.unique(["event", "worker"], keep="last", maintain_order=True)
    )
