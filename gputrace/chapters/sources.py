"""What a long run is read from: a log and a GPU trace given as files, or a recording's folder."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from gputrace import schema
from gputrace.chapters.inputs import LongInputs
from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import Formats
from gputrace.ingest.inputs import Progress, of_recorded_log
from gputrace.ingest.log_result import LogResult, Resume, up_to_resume
from gputrace.ingest.marks import marks_of
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.recordings import RecordedLog, log_wrapper, read_host, unread_samples
from gputrace.ingest.trace_parts import extent_of
from gputrace.ingest.traces import TraceOptions, recognise
from gputrace.sampler.capture import META
from gputrace.trace import InputInfo, Notice, Quality

if TYPE_CHECKING:
    from gputrace.chapters.samples import Sampler
    from gputrace.chapters.standing import Reached


@dataclass
class LongLog:
    """A log that is being read: in `result` what is counted so far, in `resumes` where reading could begin again."""

    source: ByteSource | RecordedLog
    result: LogResult
    coming: Iterator[pl.DataFrame]
    resumes: list[Resume] = field(default_factory=list)

    def lots(self) -> Iterator[pl.DataFrame]:
        """The marks (`schema.MARKS`), lot by lot, once."""
        for lot in self.coming:
            if (resume := self.result.resume) is not None and resume not in self.resumes[-1:]:
                self.resumes.append(resume)
            yield lot

    def resume_before(self, line: int) -> Resume | None:
        """The last place known from which all marks from this line on are read again."""
        return next((resume for resume in reversed(self.resumes) if resume.lines < line), None)

    @property
    def stamped(self) -> str:
        """Who stamped its lines, as `Clock.method` has it."""
        return "receipt" if isinstance(self.source, RecordedLog) else "wrapper"

    def notices(self) -> list[Notice]:
        """What there is to say of the source, once all of it is read."""
        quality = Quality()
        if isinstance(self.source, RecordedLog):
            of_recorded_log(self.source, quality)
        elif self.source.damaged:
            quality.notice("input-damaged", f"{self.source.path}: {self.source.damaged}")
        return quality.notices


def log_in(
    inputs: LongInputs,
    source: ByteSource | None,
    formats: Formats,
    progress: Progress,
    reached: "Reached | None" = None,
) -> LongLog | None:
    """The log of a long run; `source` is a file's or a pipe's, opened, beginning at the resume that was `reached`.
    None where there is no log."""
    recording = inputs.recording
    if recording is not None and not recording.segments["prover"] and not recording.raw:
        return None
    read = source if recording is None else RecordedLog(recording)
    if read is None:
        return None
    result = LogResult(schema.MARKS.empty(), None if recording is None else log_wrapper(formats))
    detect = (lambda lines: wrapper_of(lines, formats)) if recording is None else None
    if reached is not None:
        begun = LogResult(result.marks, formats.wrapper(reached.wrapper), resume=reached.resume)
        result, detect = up_to_resume(begun), None
        progress(read.path, reached.resume.offset)
    coming = marks_of(read, result, formats, lambda size: progress(read.path, size), detect)
    return LongLog(read, result, coming, [] if reached is None else [reached.resume])


def sampler_in(
    inputs: LongInputs, formats: Formats, options: TraceOptions, gpu_map: dict[int, int] | None
) -> "Sampler | None":
    """The GPU trace of a long run, if there is one and it can be read in parts."""
    recording = inputs.recording
    if recording is not None:
        found = unread_samples(recording, formats)
    else:
        found = None if inputs.trace is None else recognise(inputs.trace, ByteSource(inputs.trace), formats, options)
    extent = None if found is None else extent_of(found)
    if found is None or extent is None:
        return None
    from gputrace.chapters.samples import Sampler

    if recording is None:
        return Sampler(found, extent, gpu_map)
    quality = Quality()
    host = read_host(recording, formats, quality)
    sampler = Sampler(found, extent, gpu_map, recording.gpu_names(), host[1] if host else None)
    sampler.infos += [host[0]] if host else []
    sampler.notices += quality.notices
    return sampler


def metadata_in(inputs: LongInputs) -> list[InputInfo]:
    """The inputs that only tell about others."""
    recording = inputs.recording
    return [] if recording is None else [InputInfo(str(recording.folder / META), "metadata", "json")]
