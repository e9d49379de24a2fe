"""What stands of a long log, whatever is appended to it: all chapters but the last, and how the last one begins."""

from collections.abc import Mapping
from dataclasses import dataclass

from gputrace.chapters.chapter import Begins
from gputrace.chapters.cut import Seam
from gputrace.chapters.joined import Gathered
from gputrace.ingest.log_result import Resume


@dataclass(frozen=True)
class Reached:
    """How far a log was read, cut and rebuilt when its last chapter began.

    Reading goes on at `resume`, under the wrapper of this name. `events` are the records so far by event, `first_ns`
    and `last_ns` their first and last time.
    """

    resume: Resume
    wrapper: str | None
    seam: Seam
    begins: Begins
    events: Mapping[str, int]
    first_ns: int | None
    last_ns: int | None


@dataclass(frozen=True)
class Standing:
    """The chapters that stand, and how far the log was read when the next one began."""

    reached: Reached
    gathered: Gathered
