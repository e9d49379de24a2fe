"""Log text to marks, lot by lot: finds the lines that matter, puts torn ones together, has them taken apart."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, Protocol, Self

import numpy as np
import polars as pl

from gputrace import schema
from gputrace.ingest.families import needles_of, parse_lines
from gputrace.ingest.formats import Formats, WrapperFormat
from gputrace.ingest.log_result import NAMED_LINES, LogResult, Resume, up_to_resume
from gputrace.ingest.torn import LineAt, find_torn, stitch
from gputrace.ingest.wrappers import (
    export_to_json,
    join_parts,
    json_twin,
    raw_pattern,
    stream_of,
    unwrap,
)

# A torn record is given up when it has not ended within this many lines: the prover writes tens of lines a second.
_TORN_REACH_LINES = 200
_PARSED_AT_ONCE = 15_000
SNIFFED_BYTES = 1 << 18
_NOT_REPAIRED = pl.Series("repaired", [False])


class LogSource(Protocol):
    """Bytes of a log in pieces that end at a line end."""

    def chunks(self) -> Iterator[bytes]:
        """The bytes from the start."""


# The wrapper of some lines (line, raw), or that no line among them tells it.
Detect = Callable[[pl.DataFrame], tuple[WrapperFormat | None, bool]]


def _decode(chunk: bytes, first_line: int) -> pl.DataFrame:
    """Lines of a chunk: line, raw. Bytes that are not UTF-8 become U+FFFD."""
    if not chunk:
        return pl.DataFrame(schema={"line": pl.UInt32, "raw": pl.String})
    try:
        frame = pl.read_lines(chunk, name="raw")
    except pl.exceptions.ComputeError:
        frame = pl.read_lines(chunk.decode("utf-8", errors="replace").encode(), name="raw")
    return frame.with_row_index("line", offset=first_line)


def read_log(
    source: LogSource,
    wrapper: WrapperFormat | None,
    formats: Formats,
    progress: Callable[[int], None] = lambda _: None,
    detect: Detect | None = None,
    before: LogResult | None = None,
) -> LogResult:
    """All marks of one log, in its order. Memory is bounded by one chunk and by the lines of interest.

    With `detect`, the wrapper is told from the first chunk in which something tells it. With `before`, what was read
    of the same log when it was shorter, `source` begins at its `resume`, and the result is that of the whole log.
    """
    result = LogResult(schema.MARKS.empty(), wrapper) if before is None else up_to_resume(before)
    result.marks = pl.concat([result.marks, *marks_of(source, result, formats, progress, detect)])
    return result


def marks_of(
    source: LogSource,
    result: LogResult,
    formats: Formats,
    progress: Callable[[int], None] = lambda _: None,
    detect: Detect | None = None,
) -> Iterator[pl.DataFrame]:
    """The marks of one log (`schema.MARKS`, in order of their lines) lot by lot, in bounded memory.

    `result` says how to begin: without marks under its wrapper, or as `up_to_resume` gives it, where `source` begins
    at that resume. Its counts (lines, torn, unrecognised) are those of the lots given so far, its wrapper is known
    with the first lot, its `resume` and `open_end` hold when all are given; its marks are left as they are.
    """
    begin = result.resume
    offset = begin.offset if begin is not None else 0
    read = _Reading(result)
    chunks = _counted(source.chunks(), progress, read)
    if detect is not None:
        chunks = _find_wrapper(chunks, detect, read)
        result.wrapper = read.wrapper
    wrapper = read.wrapper
    # Bytes can be counted where every chunk is seen as it was read.
    countable = read.lines == 0 or begin is not None
    if wrapper is not None and wrapper.layout == "export":
        chunks, wrapper = export_to_json(chunks, wrapper), json_twin(wrapper)
        countable = False
    pattern = raw_pattern(needles_of(formats), wrapper)
    repair, carried = _Repair(wrapper, read), b""
    with _Parser(formats, result) as parser:
        for chunk, last in _with_last(chunks):
            physical = _decode(carried + chunk, read.lines + 1)
            offset += len(chunk)
            joined = join_parts(physical, wrapper)
            frame = joined.lines
            wanted = pl.col("raw").str.contains(pattern)
            if "joined" in frame.columns:
                wanted = wanted | pl.col("joined").str.contains(pattern).fill_null(False)
            lines = unwrap(frame.filter(wanted), wrapper)
            torn = repair.open_heads(lines)
            carried = b""
            end = int(physical["line"][-1]) if physical.height else read.lines
            first = end + 1
            if last:
                read.open_end = read.open_end or joined.unfinished is not None
            else:
                # What may go on in the next chunk is left for then, and all after it.
                if joined.unfinished is not None:
                    frame = frame.filter(pl.col("line") < joined.unfinished)
                first = _settled_before(frame, torn, joined.unfinished or first)
            if first <= end:
                rest = physical.filter(pl.col("line") >= first)
                carried = "".join(f"{raw}\n" for raw in rest["raw"].to_list()).encode()
                lines = lines.filter(pl.col("line") < first)
                torn = [line for line in torn if line < first]
            read.lines = first - 1
            whole = repair.repaired(lines, frame, torn)
            if not last and countable:
                left = _bytes_of_last(chunk, end + 1 - first)
                if left is not None and not joined.given_up and not repair.goes_on:
                    read.resume = Resume(offset - left, read.lines, read.torn_repaired, read.torn_lost)
            parser.take(whole, read)
            yield from parser.ready()
        yield from parser.rest(read)
    result.open_end = read.open_end


def _settled_before(frame: pl.DataFrame, torn: list[int], first: int) -> int:
    """The line before which nothing depends on lines from `first` on: neither a torn record nor a line in parts."""
    reached = frame.height - _TORN_REACH_LINES
    last_judged = int(frame["line"][reached]) if reached >= 0 else 0
    first = min((line for line in torn if last_judged < line < first), default=first)
    while "until" in frame.columns:
        across = frame.filter((pl.col("line") < first) & (pl.col("until") >= first))["line"]
        if across.is_empty():
            break
        first = int(across[0])
    return first


def _bytes_of_last(chunk: bytes, lines: int) -> int | None:
    """How many bytes the last lines of a chunk are; null where it has not so many."""
    at = len(chunk)
    for _ in range(lines):
        if at <= 0:
            return None
        at = chunk.rfind(b"\n", 0, at - 1) + 1
    return len(chunk) - at


class _Reading:
    """How far a log was read and what was counted on the way; what was parsed is behind that."""

    def __init__(self, begin: LogResult) -> None:
        self.wrapper, self.open_end, self.resume = begin.wrapper, begin.open_end, begin.resume
        self.lines, self.torn_repaired, self.torn_lost = begin.lines, begin.torn_repaired, begin.torn_lost


class _Lot(NamedTuple):
    """Lines that are being parsed, and what was counted when the last of them had been read."""

    parsed: Future[tuple[pl.DataFrame, list[int]]]
    lines: int
    torn_repaired: int
    torn_lost: int
    resume: Resume | None


class _Parser:
    """Takes lines apart in a thread beside the one that looks for them, many at a time.

    The counts in `result` are brought up to each lot of marks that is handed out.
    """

    def __init__(self, formats: Formats, result: LogResult) -> None:
        self._formats, self._result = formats, result
        self._waiting: list[pl.DataFrame] = []
        self._waiting_lines = 0
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._lots: deque[_Lot] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self, lines: pl.DataFrame, read: _Reading) -> None:
        """Lines to be parsed, in order: line, text, stream, arrival_ns, repaired."""
        self._waiting.append(lines)
        self._waiting_lines += lines.height
        if self._waiting_lines >= _PARSED_AT_ONCE:
            self._submit(read)

    def ready(self) -> Iterator[pl.DataFrame]:
        """The marks of all lots but the last: memory is bounded by two."""
        while len(self._lots) > 1:
            yield self._next()

    def rest(self, read: _Reading) -> Iterator[pl.DataFrame]:
        """The marks of all lots that are left."""
        if self._waiting:
            self._submit(read)
        while self._lots:
            yield self._next()

    def _submit(self, read: _Reading) -> None:
        lines = pl.concat(self._waiting)
        self._waiting, self._waiting_lines = [], 0
        parsed = self._pool.submit(parse_lines, lines, self._formats)
        self._lots.append(_Lot(parsed, read.lines, read.torn_repaired, read.torn_lost, read.resume))

    def _next(self) -> pl.DataFrame:
        lot, result = self._lots.popleft(), self._result
        marks, unknown = lot.parsed.result()
        if lot.resume is not None and (result.resume is None or lot.resume.lines > result.resume.lines):
            known = [line for line in unknown if line <= lot.resume.lines]
            named = tuple([*result.unrecognised_lines, *known][:NAMED_LINES])
            count = result.unrecognised + len(known)
            result.resume = replace(lot.resume, unrecognised=count, unrecognised_lines=named)
        result.lines, result.torn_repaired, result.torn_lost = lot.lines, lot.torn_repaired, lot.torn_lost
        result.unrecognised += len(unknown)
        result.unrecognised_lines = [*result.unrecognised_lines, *unknown][:NAMED_LINES]
        return schema.MARKS.fit(marks)


def _counted(chunks: Iterator[bytes], progress: Callable[[int], None], read: _Reading) -> Iterator[bytes]:
    """The chunks, their sizes reported, and whether the last ended a line noted."""
    for chunk in chunks:
        progress(len(chunk))
        read.open_end = not chunk.endswith(b"\n")
        yield chunk


def _find_wrapper(chunks: Iterator[bytes], detect: Detect, read: _Reading) -> Iterator[bytes]:
    """Skips chunks, counting their lines, up to the one that tells the wrapper; that one and those after it."""
    for chunk in chunks:
        # Mostly, the first lines tell it.
        read.wrapper, told = detect(_decode(chunk[: chunk.find(b"\n", SNIFFED_BYTES) + 1], 1))
        if told:
            return chain([chunk], chunks)
        lines = _decode(chunk, read.lines + 1)
        read.wrapper, told = detect(lines)
        if told:
            return chain([chunk], chunks)
        read.lines += lines.height
    return iter(())


def _with_last(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The chunks, and at last, marked, what is behind the last line's end: mostly nothing."""
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut < len(chunk):
            # Only the last chunk has no line's end at its end.
            if cut:
                yield chunk[:cut], False
            yield chunk[cut:], True
            return
        yield chunk, False
    yield b"", True


class _Repair:
    """Puts torn records together. What one took of lines that are not settled yet is kept until they are."""

    def __init__(self, wrapper: WrapperFormat | None, read: _Reading) -> None:
        self._wrapper, self._read = wrapper, read
        self._consumed: set[int] = set()
        self._restored: list[LineAt] = []

    @property
    def goes_on(self) -> bool:
        """Whether a record took lines that are still to come."""
        return bool(self._consumed or self._restored)

    def open_heads(self, lines: pl.DataFrame) -> list[int]:
        """The lines in which a torn record begins that was not put together yet."""
        return [line for line in find_torn(lines) if line not in self._consumed]

    def repaired(self, lines: pl.DataFrame, frame: pl.DataFrame, torn: list[int]) -> pl.DataFrame:
        """`lines`, which are settled, with those that are torn replaced by the records and lines they were made of.

        `frame` has them as they were read (line, raw), and those after them as far as they are known.
        """
        whole = lines.insert_column(lines.width, _NOT_REPAIRED.new_from_index(0, lines.height))
        if torn:
            self._stitch(torn, frame)
        if not self.goes_on:
            return whole
        settled = self._read.lines
        pieces = pl.DataFrame(
            [
                (p.line, p.text, stream_of(p.stream), p.arrival_ns, p.repaired)
                for p in self._restored
                if p.line <= settled
            ],
            schema={**whole.schema},
            orient="row",
        )
        kept = whole.filter(~pl.col("line").is_in(list(self._consumed)))
        self._consumed = {line for line in self._consumed if line > settled}
        self._restored = [piece for piece in self._restored if piece.line > settled]
        return pl.concat([kept, pieces])

    def _stitch(self, torn: list[int], frame: pl.DataFrame) -> None:
        # Pieces are looked for among the lines of the same writer: process or service, where the wrapper names it.
        lines = pl.Series(torn, dtype=pl.UInt32)
        heads = frame["line"].search_sorted(lines).to_numpy()
        within = (heads[:, None] + np.arange(_TORN_REACH_LINES)).ravel()
        looked_at = unwrap(frame[np.unique(within[within < frame.height])], self._wrapper, by_origin=True)
        for head, at in zip(torn, looked_at["line"].search_sorted(lines), strict=True):
            if head in self._consumed:
                continue
            outcome = stitch([LineAt(*row) for row in looked_at.slice(at, _TORN_REACH_LINES).iter_rows()])
            self._consumed |= outcome.consumed
            self._restored.extend(outcome.restored)
            self._read.torn_repaired += outcome.repaired
            self._read.torn_lost += outcome.lost
