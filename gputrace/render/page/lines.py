"""The log lines that a report's figures came from, each once, so that every figure can lead to them.

The text of a line is not kept in a `Trace`, and a log is not read twice: shown is what was understood of it, beside the
shell command that prints the lines themselves.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.evidence import LogLine
from gputrace.analysis.moments import Moment
from gputrace.render.charts.timeline import TimeAxis
from gputrace.render.page.excerpt import excerpt
from gputrace.render.page.sources import gap_lines, phase_lines
from gputrace.trace import Trace

MOST_LINES = 500
_MOST_CONTENT = 300
# A line that tells of no phase is shown in the timeline with this much around it.
_AROUND_S = 0.5


@dataclass(frozen=True)
class CitedLine:
    """One line: `time_s` on the report's axis where known, the stretch to show of it, and what was read in it."""

    at: LogLine
    time_s: float | None
    from_s: float | None
    to_s: float | None
    gpu: int | None
    content: str

    @property
    def anchor(self) -> str:
        """Its place in the page."""
        return f"line-{self.at.source}-{self.at.line}"


@dataclass(frozen=True)
class CitedInput:
    """The cited lines of one input in their order, and the command that prints them from the input itself."""

    path: str
    lines: tuple[CitedLine, ...]
    command: str


@dataclass(frozen=True)
class Link:
    """A citation as the page shows it."""

    href: str
    text: str


class LogLines:
    """All citations of a report: at most `most` lines are listed, the first of `wanted` before all others."""

    def __init__(self, trace: Trace, axis: TimeAxis | None, wanted: Iterable[LogLine], most: int = MOST_LINES) -> None:
        distinct = list(dict.fromkeys(LogLine(*line) for line in wanted))
        self.omitted = max(0, len(distinct) - most)
        self._listed = set(distinct[:most])
        self._paths = [item.path for item in trace.inputs]
        self._names = _short_names(trace)
        self.inputs = tuple(self._of_inputs(trace, axis))

    @property
    def count(self) -> int:
        """How many lines are listed."""
        return len(self._listed)

    def link(self, line: tuple[int, int] | None) -> Link | None:
        """Where a line is listed; None where it is not."""
        if line is None or line not in self._listed:
            return None
        source, number = line
        name = self._names.get(source)
        return Link(f"#line-{source}-{number}", f"{name}:{number}" if name else str(number))

    def links(self, lines: Iterable[tuple[int, int] | None]) -> list[Link]:
        """The links of those that are listed."""
        return [link for link in map(self.link, lines) if link is not None]

    def _of_inputs(self, trace: Trace, axis: TimeAxis | None) -> Iterator[CitedInput]:
        table = pl.DataFrame(
            sorted(self._listed), schema={"source": pl.UInt16, "line": pl.UInt32}, orient="row"
        )  # fmt: skip
        marks = table.join(trace.marks, on=["source", "line"], how="left", maintain_order="left").unique(
            ["source", "line"], keep="first", maintain_order=True
        )
        spans = (
            trace.phases.drop_nulls(["source", "line", "start_ns", "end_ns"])
            .group_by("source", "line")
            .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("gpu").first().alias("of_gpu"))
        )
        clocked = trace.clock.method != "none"
        found: dict[int, list[CitedLine]] = {}
        for row in marks.join(spans, on=["source", "line"], how="left", maintain_order="left").iter_rows(named=True):
            own_ns = (row["log_ns"] or row["arrival_ns"]) if clocked else None
            at_ns = row["end_ns"] if own_ns is None else own_ns
            time_s = None if axis is None or at_ns is None else axis.seconds(at_ns)
            from_s, to_s = time_s, time_s
            if axis is not None and time_s is not None:
                phase = row["start_ns"] is not None and row["end_ns"] > row["start_ns"]
                from_s = axis.seconds(row["start_ns"]) if phase else time_s - _AROUND_S
                to_s = axis.seconds(row["end_ns"]) if phase else time_s + _AROUND_S
            cited = CitedLine(LogLine(row["source"], row["line"]), time_s, from_s, to_s, row["of_gpu"], _content(row))
            found.setdefault(row["source"], []).append(cited)
        for source, lines in found.items():
            path = self._paths[source] if source < len(self._paths) else "unknown"
            yield CitedInput(path, tuple(lines), raw_lines_command(path, [cited.at.line for cited in lines]))


def wanted_lines(
    trace: Trace, diagnosis: Diagnosis, moments: dict[str, tuple[Moment, ...]], most_gaps: int
) -> Iterator[LogLine]:
    """Every line that the page cites, the most important first: verdicts, moments, phases, gaps, what was refuted."""
    by_verdict = {
        verdict: [finding for finding in diagnosis.hypotheses if finding.verdict == verdict]
        for verdict in ("supported", "undetermined", "refuted")
    }
    for finding in by_verdict["supported"]:
        for item in finding.evidence:
            yield from item.cited
    for own in moments.values():
        for moment in own:
            if moment.source is not None and moment.line is not None:
                yield LogLine(moment.source, moment.line)
    for extremes in phase_lines(trace).values():
        yield from (line for line in extremes if line is not None)
    for finding in (*by_verdict["undetermined"], *by_verdict["refuted"]):
        for item in finding.evidence:
            yield from item.cited
    known = gap_lines(diagnosis)
    for gap in diagnosis.gaps.list[:most_gaps]:
        line = known.get((gap.call, gap.phase))
        if line is not None:
            yield line


def raw_lines_command(path: str, lines: list[int]) -> str:
    """A shell command that prints these lines (in ascending order) of an input, unpacked where it is packed."""
    wanted = ";".join(f"{line}p" for line in lines) + f";{lines[-1]}q"
    script, name = shlex.quote(wanted), shlex.quote(path)
    unpack = {"gz": "zcat", "zst": "zstdcat", "xz": "xzcat", "bz2": "bzcat"}.get(path.rpartition(".")[2])
    return f"{unpack} {name} | sed -n {script}" if unpack else f"sed -n {script} {name}"


def _content(row: dict[str, object]) -> str:
    """family event key=value ..., as they were read."""
    if row["event"] is None:
        return "not among the records that were understood"
    keys = [(key, row[key]) for key in ("worker", "gpu", "partition", "job") if row[key] is not None]
    values = row["values"]
    if isinstance(values, list):
        keys += [(pair["key"], pair["value"]) for pair in values]
    return excerpt(" ".join([f"{row['family']} {row['event']}", *(f"{k}={v}" for k, v in keys)]), _MOST_CONTENT)


def _short_names(trace: Trace) -> dict[int, str]:
    """By input, the name to put before a line's number: none where there is one log only."""
    logs = [(number, item) for number, item in enumerate(trace.inputs) if item.kind == "log" and item.used]
    if len(logs) < 2:
        return {}
    names = [item.path.rstrip("/").rpartition("/")[2] for _, item in logs]
    return {
        number: excerpt(name if names.count(name) == 1 else item.path, 60)
        for (number, item), name in zip(logs, names, strict=True)
    }
