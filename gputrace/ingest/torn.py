"""Puts TIMELINE records together again that other writes tore apart.

Rust's `eprintln!` writes a record in nine pieces; under its lock only one record is open at a time. Lines of other
writers are one write each, so what lands between two pieces is always a whole line with its newline:

    TIMELINE,85,GPU_START2026-11-29T11:52:43.2Z  INFO ...      a piece, then a whole foreign line
    ,b1c31766,worker=1,partition=2                             the record goes on at the next line

So: take the foreign lines out, and what remains in order is the record.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

_HEAD = "TIMELINE,"
# Where a foreign line begins inside another: a C line, or a tracing line's time (four digits of a year: digits of
# the record may run into it).
_FOREIGN = r"CUZK_TIMING: |CUZK_NTT_H: |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z +(?:TRACE|DEBUG|INFO|WARN|ERROR) "
_FOREIGN_START = re.compile(_FOREIGN)
_DETAIL = r"(?:[a-z_]+=[^,=]*(?:,[a-z_]+=[^,=]*)*|monolithic)"
_COMPLETE = re.compile(rf"TIMELINE,\d+,[A-Z_]+,[^,].*?,{_DETAIL}?")
_WITH_DETAIL = re.compile(rf"TIMELINE,\d+,[A-Z_]+,[^,].*?,{_DETAIL}")
# Only this event, of builds before 2026-03, has no detail; others would lose theirs to a blank line.
_EMPTY_DETAIL = re.compile(r"TIMELINE,\d+,CHAN_SEND,[^,].*?,")
_BEGUN = re.compile(r"TIMELINE,(?:\d+(?:,(?:[A-Z_]+(?:,(?:[^,\s][^=]*?(?:,(?:[a-z_]+(?:=.*)?)?)?)?)?)?)?)?")


class LineAt(NamedTuple):
    """One line with where and when it was seen."""

    line: int
    text: str
    stream: str | None = None
    arrival_ns: int | None = None
    repaired: bool = False


@dataclass
class Stitched:
    """What a torn stretch was made of: `restored` replaces the lines in `consumed`."""

    restored: list[LineAt] = field(default_factory=list)
    consumed: set[int] = field(default_factory=set)
    repaired: int = 0
    lost: int = 0


def find_torn(lines: pl.DataFrame) -> list[int]:
    """Numbers of the lines in which a TIMELINE record begins but does not end as it should, in order."""
    begun = lines["text"].str.contains(_HEAD, literal=True).fill_null(False)
    text, line = lines["text"].filter(begun), lines["line"].filter(begun)
    whole = text.str.contains(rf"^{_COMPLETE.pattern}$") & ~text.str.contains(_FOREIGN)
    if whole.all():
        return []
    # Another program may quote the word; a tracing line that carries it is whole.
    return line.filter(~whole & ~text.str.contains(rf"^(?:{_FOREIGN})")).to_list()


def _split(text: str) -> tuple[str, str]:
    """The piece of a record before a foreign line, and the foreign line; either may be empty."""
    found = _FOREIGN_START.search(text)
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])


def stitch(window: list[LineAt]) -> Stitched:
    """Repairs the record that begins in the first line of `window`, using the lines after it.

    Only lines of the same stream can hold its pieces. A record that does not end within the window, or before the
    next record begins, is lost: its pieces are counted, its foreign lines are kept.
    """
    head = window[0]
    outcome = Stitched(consumed={head.line})
    before, _, rest = head.text.partition(_HEAD)
    piece, foreign = _split(_HEAD + rest)
    if before:
        outcome.restored.append(head._replace(text=before))
    if foreign:
        outcome.restored.append(head._replace(text=foreign))
    record = piece
    finished = not foreign
    for here in window[1:] if not finished else []:
        if here.stream != head.stream:
            continue
        if here.text.startswith(_HEAD):
            break
        piece, foreign = _split(here.text)
        if not piece and foreign:
            continue
        if not piece:
            if _WITH_DETAIL.fullmatch(record) or _EMPTY_DETAIL.fullmatch(record):
                outcome.consumed.add(here.line)
                finished = True
                break
            continue
        if _WITH_DETAIL.fullmatch(record):
            # The detail is one write: only the newline is still to come, and this is somebody else's line.
            continue
        longer = record + piece
        if not (_BEGUN if foreign else _COMPLETE).fullmatch(longer):
            continue
        record = longer
        outcome.consumed.add(here.line)
        if foreign:
            outcome.restored.append(here._replace(text=foreign))
        else:
            finished = True
            break
    if _WITH_DETAIL.fullmatch(record) or (finished and _COMPLETE.fullmatch(record)):
        outcome.restored.append(head._replace(text=record, repaired=True))
        outcome.repaired = 1
    else:
        outcome.lost = 1
    return outcome
