"""What several unit tests need: lines as frames, logs as files, and small hand-built frames."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from gputrace import schema
from gputrace.ingest.families import parse_lines
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import read_log
from gputrace.ingest.opening import ByteSource
from gputrace.rebuild.sequence import Sequence as MarkSequence
from gputrace.rebuild.sequence import to_sequence

MS = 1_000_000
S = 1_000_000_000

Said = tuple[object, ...]


def whole_lines(*texts: str) -> pl.DataFrame:
    """Lines as `parse_lines` takes them: unwrapped and not torn."""
    return pl.DataFrame(
        {
            "line": range(1, len(texts) + 1),
            "text": texts,
            "stream": [None] * len(texts),
            "arrival_ns": [None] * len(texts),
            "repaired": [False] * len(texts),
        },
        schema={
            "line": pl.UInt32,
            "text": pl.String,
            "stream": pl.String,
            "arrival_ns": pl.Int64,
            "repaired": pl.Boolean,
        },
    )


def marks_of(*texts: str) -> pl.DataFrame:
    """The marks of whole lines, in order, as a MARKS frame."""
    marks, _ = parse_lines(whole_lines(*texts), bundled_formats())
    return schema.MARKS.fit(marks.sort("line", maintain_order=True).with_columns(pl.lit(0, pl.UInt16).alias("source")))


def sequence_of(*texts: str) -> MarkSequence:
    """Whole lines as the rebuild sees them."""
    return to_sequence(marks_of(*texts))


def read_text(folder: Path, text: str) -> LogResult:
    """`text` read as a plain log file."""
    path = folder / "prover.log"
    path.write_text(text, encoding="utf-8")
    return read_log(ByteSource(str(path)), None, bundled_formats())


def said(marks: pl.DataFrame) -> Counter[Said]:
    """What each mark says, wherever it stood: the multiset that a repair must give back."""
    columns = ("family", "event", "job", "partition", "worker", "offset_ms", "log_ns", "values")
    return Counter(
        (*row[:-1], tuple((pair["key"], pair["value"]) for pair in row[-1] or ()))
        for row in marks.select(columns).iter_rows()
    )


def frame_of(of: schema.FrameSchema, rows: Iterable[dict[str, object]]) -> pl.DataFrame:
    """Rows as a frame of this schema; columns not given are null."""
    listed = list(rows)
    return of.fit(pl.DataFrame(listed, infer_schema_length=None)) if listed else of.empty()


def spans(pairs: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """Intervals as a frame: start_ns, end_ns."""
    return pl.DataFrame(pairs, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
