"""Every frame as a Parquet file in one folder, with a README that says what each column means."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from gputrace import __version__, schema
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.schema import FrameSchema
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
    for known in schema.FRAMES:
        yield known, known.fit(getattr(trace, known.name))
    for known in (schema.STATES, schema.BLAME, schema.CALL_BYTES):
        yield known, known.fit(getattr(diagnosis, known.name))
    regimes = [{"number": number, **asdict(regime)} for number, regime in enumerate(diagnosis.regimes, 1)]
    evidence = [
        {"id": finding.id, **asdict(item), "lines": list(item.lines), "sources": list(item.sources)}
        for finding in diagnosis.hypotheses
        for item in finding.evidence
    ]
    for known, rows in (
        (schema.GAPS, map(asdict, diagnosis.gaps.list)),
        (schema.REGIMES, regimes),
        (schema.PHASE_STATISTICS, map(asdict, diagnosis.phases)),
        (schema.VERDICTS, map(asdict, diagnosis.hypotheses)),
        (schema.EVIDENCE, evidence),
    ):
        yield known, _frame(known, rows)


def data_dictionary(frames: Iterable[FrameSchema]) -> str:
    """Name, type and meaning of every column, as Markdown."""
    parts = []
    for frame in frames:
        meaning = frame.meaning[0].upper() + frame.meaning[1:]
        parts.append(f"\n## {frame.name}\n\n{meaning}.\n\n| column | type | meaning |\n|---|---|---|\n")
        parts.extend(f"| `{name}` | {column.dtype} | {column.meaning} |\n" for name, column in frame.columns.items())
    return "".join(parts)


def _frame(known: FrameSchema, rows: Iterable[dict[str, object]]) -> pl.DataFrame:
    listed = [{name: row.get(name) for name in known.columns} for row in rows]
    return pl.DataFrame(listed, schema=known.polars()) if listed else known.empty()


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
