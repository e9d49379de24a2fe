"""What one log gave, and how what was read of a log that has grown since is used again."""

from dataclasses import dataclass, field

import polars as pl

from gputrace.ingest.formats import WrapperFormat

# So many of the lines that were not understood are named.
NAMED_LINES = 20


@dataclass(frozen=True)
class Resume:
    """Where reading can begin again when a log has grown: what was read of the `lines` before byte `offset` stands,
    whatever comes after. The counts are of those lines; so are the marks up to that line.
    """

    offset: int
    lines: int
    torn_repaired: int
    torn_lost: int
    unrecognised: int = 0
    unrecognised_lines: tuple[int, ...] = ()


@dataclass
class LogResult:
    """What one log gave: its marks and the counts of what was not understood.

    `arrival_ns` of the marks is the stamp as it stands (see `stamps.settle`). `open_end` is true where the log does
    not end with a line's end, or in the first part of a line that the collector cut. `resume` is null where a longer
    log has to be read from its start.
    """

    marks: pl.DataFrame
    wrapper: WrapperFormat | None = None
    open_end: bool = False
    lines: int = 0
    torn_repaired: int = 0
    torn_lost: int = 0
    unrecognised: int = 0
    unrecognised_lines: list[int] = field(default_factory=list)
    resume: Resume | None = None


def up_to_resume(before: LogResult) -> LogResult:
    """What stands of a log's result where reading begins again; `before` must have a resume."""
    resume = before.resume
    assert resume is not None
    return LogResult(
        before.marks.filter(pl.col("line") <= resume.lines),
        before.wrapper,
        lines=resume.lines,
        torn_repaired=resume.torn_repaired,
        torn_lost=resume.torn_lost,
        unrecognised=resume.unrecognised,
        unrecognised_lines=list(resume.unrecognised_lines),
        resume=resume,
    )
