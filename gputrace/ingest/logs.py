"""Of all logs read: which are the same log in another form, which are pieces of one, and what their stamps mean."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from gputrace.ingest.formats import Formats
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import read_log
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.rotation import Chained, rotated_sets
from gputrace.ingest.stamps import Settled, settle
from gputrace.trace import InputInfo, Quality

# A log is another form of one already counted when most of its records are there.
_SAME_LOG_SHARE = 0.5
# A file that claims to be from before this was given its time by a packer, not when it was written.
OLDEST_FILE_NS = 946_684_800_000_000_000


@dataclass
class ReadLog:
    """One log as it was read: an input and what it gave."""

    info: InputInfo
    log: LogResult


@dataclass
class LogSet:
    """One log, in one or more pieces (in order of time), with its stamps settled."""

    pieces: list[ReadLog]
    log: LogResult
    settled: Settled = field(default_factory=lambda: Settled(pl.DataFrame()))


def merge_logs(
    logs: list[ReadLog],
    quality: Quality,
    formats: Formats,
    timezone: str | None = None,
    now_ns: int | None = None,
) -> tuple[list[LogSet], int]:
    """All logs, each once, stderr first and then by time; and how coarse their `arrival_ns` is, in ns (0: fine).

    The result does not depend on the order or the names of the files.
    """
    chosen = _without_copies(logs, quality)
    members_of = rotated_sets([read.log for read in chosen])
    sets = [_as_one([chosen[index] for index in members], formats, quality) for members in members_of]
    for one in sets:
        path = one.pieces[0].info.path
        one.settled = settle(one.log.marks, one.log.wrapper, path, timezone, _reference_ns(one, now_ns))
    resolution_ns = _coarse(sets)
    sets.sort(key=_place)
    for one in sets:
        _note_times(one)
        for code, text in one.settled.notices:
            quality.notice(code, text)
        quality.lines += one.log.lines
        quality.torn_repaired += one.log.torn_repaired
        quality.torn_lost += one.log.torn_lost
        quality.unrecognised_of_known_family += one.log.unrecognised
    return sets, resolution_ns


def time_range(marks: pl.DataFrame) -> tuple[int | None, int | None]:
    """First and last wall-clock time of marks."""
    times = pl.concat([marks["log_ns"].drop_nulls(), marks["arrival_ns"].drop_nulls()])
    return (int(times.min()), int(times.max())) if len(times) else (None, None)  # type: ignore[arg-type]


def _identity(marks: pl.DataFrame) -> pl.Series:
    """A hash of what each record says, whatever carried it. Records without a time or a job may repeat by chance:
    they count only where there is nothing else."""
    telling = marks.filter(pl.any_horizontal(pl.col("log_ns", "offset_ms", "job").is_not_null()))
    told = marks if telling.is_empty() else telling
    return told.select("family", "event", "log_ns", "offset_ms", "job", "worker", "partition", "values").hash_rows()


def _without_copies(logs: list[ReadLog], quality: Quality) -> list[ReadLog]:
    """Takes the forms of a log with the best times first and leaves out those that say the same again."""

    def worth(read: ReadLog) -> tuple[int, int, str]:
        stamps = read.log.marks["arrival_ns"].drop_nulls()
        believed = len(stamps) if (stamps % 1_000_000_000 != 0).any() else 0
        return -believed, -read.log.marks.height, read.info.path

    if len(logs) == 1:
        return logs
    taken: pl.Series = pl.Series("seen", [], dtype=pl.UInt64)
    chosen: list[ReadLog] = []
    for read in sorted(logs, key=worth):
        identity = _identity(read.log.marks)
        again = int(identity.is_in(taken.implode()).sum()) if len(taken) else 0
        if again > _SAME_LOG_SHARE * len(identity):
            read.info.used = False
            text = f"{read.info.path} is another form of a log already read; it was not counted again"
            quality.notice("same-log", text)
            continue
        taken = pl.concat([taken, identity.rename("seen")])
        chosen.append(read)
    return chosen


def _as_one(pieces: list[ReadLog], formats: Formats, quality: Quality) -> LogSet:
    """A set as one log. Only where a line or a record was cut at a piece's end is it read again, as one."""
    if len(pieces) == 1:
        return LogSet(pieces, pieces[0].log)
    names = ", ".join(piece.info.path for piece in pieces)
    quality.notice("rotated-log", f"read as one log, in this order, lines counted through: {names}", len(pieces))
    logs = [piece.log for piece in pieces]
    cut = any(log.open_end for log in logs[:-1]) or any(log.torn_lost or log.unrecognised for log in logs)
    if cut and all(piece.info.path != "-" for piece in pieces):
        sources = [ByteSource(piece.info.path) for piece in pieces]
        whole = read_log(Chained([*sources], logs[0].wrapper), logs[0].wrapper, formats)
        return LogSet(pieces, whole)
    one = LogResult(logs[0].marks, logs[0].wrapper)
    one.marks = pl.concat(
        log.marks.with_columns((pl.col("line") + before).cast(pl.UInt32))
        for log, before in zip(logs, _lines_before(logs), strict=True)
    )
    for log in logs:
        one.lines += log.lines
        one.torn_repaired += log.torn_repaired
        one.torn_lost += log.torn_lost
        one.unrecognised += log.unrecognised
    return LogSet(pieces, one)


def _lines_before(logs: list[LogResult]) -> list[int]:
    before = [0]
    for log in logs[:-1]:
        before.append(before[-1] + log.lines)
    return before


def _reference_ns(one: LogSet, now_ns: int | None) -> int:
    """No record of the set is later than this: when its last piece was written, else now."""
    if now_ns is not None:
        return now_ns
    now = time.time_ns()
    try:
        written_ns = Path(one.pieces[-1].info.path).stat().st_mtime_ns
    except OSError:
        return now
    return min(now, written_ns) if written_ns > OLDEST_FILE_NS else now


def _coarse(sets: list[LogSet]) -> int:
    """Stamps of whole seconds are left out, unless the logs have no other time; how coarse are those that stay."""
    coarse = [one for one in sets if one.settled.resolution_ns]
    if not coarse:
        return 0
    other_times = any(one.settled.marks[name].count() for one in sets for name in ("log_ns", "offset_ms"))
    for one in coarse:
        path = one.pieces[0].info.path
        if other_times:
            text = f"{path}: the collector's times are whole seconds: not used, the log's own times are"
            one.settled.drop("arrival-coarse", text)
        else:
            text = f"{path}: the only times are the collector's, in whole seconds: phases are placed to about 1 s"
            one.settled.notices.append(("arrival-coarse", text))
    return 0 if other_times else max(one.settled.resolution_ns for one in coarse)


def _place(one: LogSet) -> tuple[bool, int, str]:
    """stderr first, so that restarts are found in it; then by time."""
    marks = one.settled.marks
    first_ns, _ = time_range(marks)
    return not marks["offset_ms"].count(), first_ns or 0, one.pieces[0].info.path


def _note_times(one: LogSet) -> None:
    """When each piece begins and ends, now that its stamps are settled."""
    if len(one.pieces) == 1:
        one.pieces[0].info.first_ns, one.pieces[0].info.last_ns = time_range(one.settled.marks)
        return
    for piece, before in zip(one.pieces, _lines_before([piece.log for piece in one.pieces]), strict=True):
        own = one.settled.marks.filter(pl.col("line").is_between(before + 1, before + piece.log.lines))
        piece.info.first_ns, piece.info.last_ns = time_range(own)
