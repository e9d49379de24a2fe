"""Pieces of one rotated log, in whatever order they were given, put in order by what they say."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from gputrace.ingest.formats import WrapperFormat
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import LogSource
from gputrace.ingest.wrappers import unwrap

# Threads print slightly out of order, and stamps may be whole seconds.
_TOLERANCE_NS = 2_000_000_000
_TIMES = ("log_ns", "arrival_ns", "offset_ms")
_STDERR, _STDOUT = frozenset({"timeline", "cuzk-timing", "cuzk-ntt-h"}), frozenset({"tracing"})


@dataclass(frozen=True)
class Piece:
    """What tells whether a log goes on where another ends: its form, its writers, when it begins and ends.

    `times` holds first and last of log_ns, arrival_ns and offset_ms, all in ns, where the log has them; offset_ms only
    where it never falls, which it does when the prover starts again.
    """

    wrapper: str | None
    stdout: bool
    stderr: bool
    times: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, log: LogResult) -> "Piece":
        """The piece that a log would be."""
        times = {}
        for name in _TIMES:
            known = log.marks[name].drop_nulls()
            if not len(known):
                continue
            scale = 1_000_000 if name == "offset_ms" else 1
            if name == "offset_ms" and (known.diff() * scale < -_TOLERANCE_NS).any():
                continue
            times[name] = (int(known.min()) * scale, int(known.max()) * scale)  # type: ignore[arg-type]
        families = set(log.marks["family"].unique().to_list())
        form = log.wrapper.name if log.wrapper else None
        return cls(form, bool(families & _STDOUT), bool(families & _STDERR), times)

    def precedes(self, other: "Piece") -> bool | None:
        """Whether it lies before (true) or after (false) the other; None where they overlap or cannot be compared."""
        shared = [name for name in _TIMES if name in self.times and name in other.times]
        for name in shared:
            mine, theirs = self.times[name], other.times[name]
            before, after = mine[1] <= theirs[0] + _TOLERANCE_NS, theirs[1] <= mine[0] + _TOLERANCE_NS
            if before and after:
                # Both are shorter than the tolerance.
                before, after = mine < theirs, theirs < mine
            if before != after:
                return before
            # An offset that begins anew says nothing; a wall clock that overlaps says that these are two logs.
            if name != "offset_ms":
                return None
        return None


def rotated_sets(logs: list[LogResult]) -> list[list[int]]:
    """Indexes of logs by set, each set in order of time. A log that no other continues is a set of its own.

    Pieces have the same wrapper and the same writers; where there are logs of both streams, a piece of one stream
    belongs to them if it fits between them.
    """
    if len(logs) < 2:
        return [[index] for index in range(len(logs))]
    pieces = [Piece.of(log) for log in logs]
    order = sorted(range(len(pieces)), key=lambda i: (not (pieces[i].stdout and pieces[i].stderr), -logs[i].lines, i))
    sets: list[list[int]] = []
    for index in order:
        for members in sets:
            if all(_one_log(pieces[index], pieces[member]) for member in members):
                members.append(index)
                break
        else:
            sets.append([index])
    return [_in_order(members, pieces) for members in sets]


def _one_log(one: Piece, other: Piece) -> bool:
    if one.wrapper != other.wrapper or one.precedes(other) is None:
        return False
    same_writers = (one.stdout, one.stderr) == (other.stdout, other.stderr)
    return same_writers or (one.stdout and one.stderr) or (other.stdout and other.stderr)


def _in_order(members: list[int], pieces: list[Piece]) -> list[int]:
    """By how many of the others each precedes: pieces do not overlap, so that this is their order."""
    rank = {index: sum(bool(pieces[index].precedes(pieces[other])) for other in members) for index in members}
    return sorted(members, key=lambda index: (-rank[index], index))


class Chained:
    """Logs one after the other as one. A line that one broke off in goes on in the next, unless that begins anew."""

    def __init__(self, sources: list[LogSource], wrapper: WrapperFormat | None) -> None:
        self._sources, self._wrapper = sources, wrapper

    def chunks(self) -> Iterator[bytes]:
        """The bytes of all logs, in pieces that end at a line end."""
        left = b""
        for source in self._sources:
            begins = True
            for chunk in source.chunks():
                joint = b"\n" if begins and left and self._begins_anew(chunk) else b""
                begins = False
                data = left + joint + chunk
                cut = data.rfind(b"\n") + 1
                left = data[cut:]
                if cut:
                    yield data[:cut]
        if left:
            yield left

    def _begins_anew(self, chunk: bytes) -> bool:
        if self._wrapper is None:
            return False
        first = chunk[: chunk.find(b"\n")].decode("utf-8", errors="replace")
        line = pl.DataFrame({"line": [1], "raw": [first]}, schema={"line": pl.UInt32, "raw": pl.String})
        inner = unwrap(line, self._wrapper)
        return bool((inner["text"] != unwrap(line, None)["text"]).any())
