"""A run from one log of any length, with or without a GPU trace: read once and judged chapter by chapter."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from gputrace import schema
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.cache.runs import Request
from gputrace.chapters.asked import Asked
from gputrace.chapters.cut import Size, cuts
from gputrace.chapters.inputs import LongInputs
from gputrace.ingest.ahead import ahead
from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import Formats, bundled_formats
from gputrace.ingest.inputs import Progress, ingest
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import marks_of
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.reader import Reader
from gputrace.ingest.stamps import check_timezone
from gputrace.ingest.trace_parts import extent_of
from gputrace.ingest.traces import TraceOptions, recognise
from gputrace.trace import InputInfo, Trace

if TYPE_CHECKING:
    from gputrace.chapters.samples import Sampler

Item = TypeVar("Item")


@dataclass(frozen=True)
class LongRun:
    """A run that is judged in chapters."""

    request: Request
    inputs: LongInputs
    size: Size = field(default_factory=Size)

    def judged(self, asked: Asked, progress: Progress = lambda _path, _bytes: None) -> tuple[Trace, Diagnosis]:
        """What is known of the run, without frames, and its diagnosis; of what is one chapter only, as always.

        Raises as `ingest` and `rebuild` do.
        """
        check_timezone(self.request.timezone)
        formats = bundled_formats()
        sampler = self._sampler(formats)
        if self.inputs.trace is not None and sampler is None:
            return self._whole(Reader(), asked, progress)
        if self.inputs.log is None:
            assert sampler is not None
            from gputrace.chapters.judging import joined

            return joined(ahead(sampler.alone()), asked, LogResult(schema.MARKS.empty()), [sampler.info], {})
        source = ByteSource(self.inputs.log)
        if recognise(source.path, source, formats, self._options) is not None:
            return self._whole(_Opened(source), asked, progress)
        log = LogResult(schema.MARKS.empty())
        lots = marks_of(
            source,
            log,
            formats,
            lambda size: progress(source.path, size),
            lambda lines: wrapper_of(lines, formats),
        )
        size = self.size if sampler is None else sampler.size(self.size)
        coming = ahead(cuts(lots, size))
        # Loaded while the first chapter is read, which takes as long.
        from gputrace.chapters.judging import Rebuilding, joined

        first = next(coming)
        if first.is_last:
            log.marks = first.marks
            return self._whole(_Opened(source, log), asked, progress)
        if sampler is not None and not any(first.marks[name].count() for name in ("log_ns", "arrival_ns")):
            # Where the log lies in the trace has to be found out, and all of both is needed for that.
            return self._whole(Reader(), asked, progress)
        rebuilding = Rebuilding(self.request, formats, log, InputInfo(source.path, "log", ""), sampler)
        owns = rebuilding.owns(_after(first, coming))
        del first
        # Reading samples takes as long as judging them does: there, a third chapter is under way.
        own_ahead = owns if sampler is None else ahead(owns)
        trace, diagnosis = joined(own_ahead, asked, log, rebuilding.infos, rebuilding.events)
        if source.damaged:
            trace.quality.notice("input-damaged", f"{source.path}: {source.damaged}")
        return trace, diagnosis

    @property
    def _options(self) -> TraceOptions:
        return self.request.trace_options or TraceOptions()

    def _sampler(self, formats: Formats) -> "Sampler | None":
        """The GPU trace, if there is one and it can be read in parts."""
        path = self.inputs.trace
        found = None if path is None else recognise(path, ByteSource(path), formats, self._options)
        extent = None if found is None else extent_of(found)
        if found is None or extent is None:
            return None
        from gputrace.chapters.samples import Sampler

        return Sampler(found, extent, self.request.gpu_map)

    def _whole(self, reader: Reader, asked: Asked, progress: Progress) -> tuple[Trace, Diagnosis]:
        from gputrace.analysis.diagnose import diagnose
        from gputrace.rebuild.rebuild import rebuild

        request = self.request
        options = {"timezone": request.timezone, "trace_options": request.trace_options, "reader": reader}
        trace = rebuild(ingest(request.paths, progress, **options), request.gpu_map)  # type: ignore[arg-type]
        return trace, diagnose(trace, asked.gap_ms, scenarios=asked.scenarios)


class _Opened(Reader):
    """Gives an input that was opened, or a log that was read, while nobody knew how long it is."""

    def __init__(self, source: ByteSource, log: LogResult | None = None) -> None:
        self._source, self._log = source, log

    def open(self, path: str) -> ByteSource:
        return self._source if path == self._source.path else super().open(path)

    def read_log(self, source: ByteSource, formats: Formats, progress: Callable[[int], None]) -> LogResult:
        known = self._log if source is self._source else None
        return super().read_log(source, formats, progress) if known is None else known


def _after(first: Item, coming: Iterator[Item]) -> Iterator[Item]:
    yield first
    del first
    yield from coming
