"""Every frame as a Parquet file in one folder, with a README that says what each column means."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from gputrace import __version__
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.tables import DIAGNOSIS_TABLES
from gputrace.schema import DIAGNOSIS_FRAMES, FRAMES, FrameSchema
from gputrace.trace import Trace

README = "README.md"


@dataclass(frozen=True)
class TablesRenderer:
    """A folder with `NAME.parquet` for each frame of the trace and of the diagnosis."""

    def write(self, trace: Trace, diagnosis: Diagnosis, folder: Path) -> str:
        """Writes into a folder that is there; says what was written."""
        written = dict(tables(trace, diagnosis))
        for known, frame in written.items():
            frame.write_parquet(folder / f"{known.name}.parquet")
        (folder / README).write_text(_readme(trace, diagnosis, written), encoding="utf-8")
        return f"{len(written)} tables"


def tables(trace: Trace, diagnosis: Diagnosis) -> Iterator[tuple[FrameSchema, pl.DataFrame]]:
    """The frames, each in its schema; those without rows as well, so that a query finds them all."""
    for known in FRAMES:
        yield known, known.fit(getattr(trace, known.name))
    frames = diagnosis.frames()
    for known in (*DIAGNOSIS_FRAMES, *DIAGNOSIS_TABLES):
        yield known, known.fit(frames[known.name])


def data_dictionary(frames: Iterable[FrameSchema]) -> str:
    """Name, type and meaning of every column, as Markdown."""
    parts = []
    for frame in frames:
        meaning = frame.meaning[0].upper() + frame.meaning[1:]
        parts.append(f"\n## {frame.name}\n\n{meaning}.\n\n| column | type | meaning |\n|---|---|---|\n")
        parts.extend(f"| `{name}` | {column.dtype} | {column.meaning} |\n" for name, column in frame.columns.items())
    return "".join(parts)


def _readme(trace: Trace, diagnosis: Diagnosis, written: dict[FrameSchema, pl.DataFrame]) -> str:
    clocked = trace.clock.method != "none" or trace.marks.is_empty()
    times = "Unix nanoseconds" if clocked else "nanoseconds since the engine's start: this log has no wall clock"
    inputs = "".join(f"- {index}: `{info.path.replace('`', '')}`\n" for index, info in enumerate(trace.inputs))
    notices = "".join(f"- {' '.join(notice.text.split())}\n" for notice in trace.quality.notices)
    rows = "".join(f"| `{known.name}.parquet` | {frame.height} |\n" for known, frame in written.items())
    return (
        f"# Tables of a run\n\nWritten by gputrace {__version__}. {' '.join(diagnosis.headline.split())}\n\n"
        f"Times (`*_ns`) are {times}. A null means unknown, never zero. `source` counts these inputs:\n\n{inputs}\n"
        + (f"Notices:\n\n{notices}\n" if notices else "")
        + f"| file | rows |\n|---|---:|\n{rows}"
        + data_dictionary(written)
    )
