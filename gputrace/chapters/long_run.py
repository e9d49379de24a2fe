"""A run from one log of any length, with or without a GPU trace: read once and judged chapter by chapter."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gputrace import schema
from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.outlook import Outlook
from gputrace.cache.runs import Request
from gputrace.chapters.chapter import Begins, Own, judge, own_part
from gputrace.chapters.cut import Cut, Size, cuts
from gputrace.chapters.inputs import LongInputs
from gputrace.chapters.joined import Gathered, joined_trace
from gputrace.chapters.samples import Sampler
from gputrace.ingest.ahead import ahead
from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import Formats, bundled_formats
from gputrace.ingest.inputs import Ingested, Progress, ingest, use_logs
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.logs import ReadLog, merge_logs
from gputrace.ingest.marks import marks_of
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.reader import Reader
from gputrace.ingest.stamps import check_timezone
from gputrace.ingest.trace_parts import extent_of
from gputrace.ingest.traces import TraceOptions, recognise
from gputrace.rebuild.rebuild import rebuild
from gputrace.trace import InputInfo, Quality, Trace

Item = TypeVar("Item")


@dataclass(frozen=True)
class LongRun:
    """A run that is judged in chapters."""

    request: Request
    inputs: LongInputs
    size: Size = field(default_factory=Size)

    def judged(self, gap_ms: float, progress: Progress = lambda _path, _bytes: None) -> tuple[Trace, Diagnosis]:
        """What is known of the run, without frames, and its diagnosis; of what is one chapter only, as always.

        Raises as `ingest` and `rebuild` do.
        """
        check_timezone(self.request.timezone)
        formats = bundled_formats()
        sampler = self._sampler(formats)
        if self.inputs.trace is not None and sampler is None:
            return self._whole(Reader(), gap_ms, progress)
        if self.inputs.log is None:
            assert sampler is not None
            return _joined(sampler.alone(), gap_ms, LogResult(schema.MARKS.empty()), [sampler.info], Counter())
        source = ByteSource(self.inputs.log)
        if recognise(source.path, source, formats, self._options) is not None:
            return self._whole(_Opened(source), gap_ms, progress)
        log = LogResult(schema.MARKS.empty())
        lots = marks_of(
            source,
            log,
            formats,
            lambda size: progress(source.path, size),
            lambda lines: wrapper_of(lines, formats),
        )
        size = self.size if sampler is None else replace(self.size, seconds=min(self.size.seconds, sampler.chapter_s))
        coming = cuts(lots, size)
        first = next(coming)
        if first.is_last:
            log.marks = first.marks
            return self._whole(_Opened(source, log), gap_ms, progress)
        if sampler is not None and not any(first.marks[name].count() for name in ("log_ns", "arrival_ns")):
            # Where the log lies in the trace has to be found out, and all of both is needed for that.
            return self._whole(Reader(), gap_ms, progress)
        rebuilding = _Rebuilding(self.request, formats, log, InputInfo(source.path, "log", ""), sampler)
        owns = rebuilding.owns(ahead(_after(first, coming)))
        del first
        # Reading samples takes as long as judging them does: there, a third chapter is under way.
        own_ahead = owns if sampler is None else ahead(owns)
        trace, diagnosis = _joined(own_ahead, gap_ms, log, rebuilding.infos, rebuilding.events)
        if source.damaged:
            trace.quality.notice("input-damaged", f"{source.path}: {source.damaged}")
        return trace, diagnosis

    @property
    def _options(self) -> TraceOptions:
        return self.request.trace_options or TraceOptions()

    def _sampler(self, formats: Formats) -> Sampler | None:
        """The GPU trace, if there is one and it can be read in parts."""
        path = self.inputs.trace
        found = None if path is None else recognise(path, ByteSource(path), formats, self._options)
        extent = None if found is None else extent_of(found)
        return None if found is None or extent is None else Sampler(found, extent, self.request.gpu_map)

    def _whole(self, reader: Reader, gap_ms: float, progress: Progress) -> tuple[Trace, Diagnosis]:
        asked = self.request
        options = {"timezone": asked.timezone, "trace_options": asked.trace_options, "reader": reader}
        trace = rebuild(ingest(asked.paths, progress, **options), asked.gpu_map)  # type: ignore[arg-type]
        return trace, diagnose(trace, gap_ms)


class _Opened(Reader):
    """Gives an input that was opened, or a log that was read, while nobody knew how long it is."""

    def __init__(self, source: ByteSource, log: LogResult | None = None) -> None:
        self._source, self._log = source, log

    def open(self, path: str) -> ByteSource:
        return self._source if path == self._source.path else super().open(path)

    def read_log(self, source: ByteSource, formats: Formats, progress: Callable[[int], None]) -> LogResult:
        known = self._log if source is self._source else None
        return super().read_log(source, formats, progress) if known is None else known


class _Rebuilding:
    """Chapters of a log, put together one after the other; what is counted over them."""

    def __init__(
        self, request: Request, formats: Formats, log: LogResult, info: InputInfo, sampler: Sampler | None
    ) -> None:
        self._request, self._formats, self._log, self._info, self._sampler = request, formats, log, info, sampler
        self._begins = Begins()
        self.events: Counter[str] = Counter()

    @property
    def infos(self) -> list[InputInfo]:
        """The inputs."""
        return [self._info] if self._sampler is None else [self._info, self._sampler.info]

    def owns(self, coming: Iterator[Cut]) -> Iterator[Own]:
        """What belongs to each chapter."""
        for cut in coming:
            own = self._own(cut)
            del cut
            yield own
            del own

    def _own(self, cut: Cut) -> Own:
        self.events.update(dict(cut.marks.filter(cut.is_own)["event"].value_counts().iter_rows()))
        info, quality = replace(self._info), Quality()
        log = LogResult(cut.marks, self._log.wrapper)
        sets, resolution_ns = merge_logs([ReadLog(info, log)], quality, self._formats, self._request.timezone)
        ingested = Ingested(inputs=[info], arrival_resolution_ns=resolution_ns, quality=quality)
        use_logs(ingested, sets)
        self._widen(info)
        own = own_part(rebuild(ingested), cut, self._begins)
        self._begins = own.ends
        if self._sampler is not None:
            self._sampler.put_into(own.trace)
        return own

    def _widen(self, info: InputInfo) -> None:
        """The log's first and last time, and what it was wrapped in."""
        known = self._info
        known.format, known.rows = self._log.wrapper.name if self._log.wrapper else "plain", self._log.lines
        if info.first_ns is not None and info.last_ns is not None:
            known.first_ns = info.first_ns if known.first_ns is None else min(known.first_ns, info.first_ns)
            known.last_ns = info.last_ns if known.last_ns is None else max(known.last_ns, info.last_ns)


def _joined(
    owns: Iterable[Own], gap_ms: float, log: LogResult, infos: list[InputInfo], events: Counter[str]
) -> tuple[Trace, Diagnosis]:
    """The chapters judged and put together; the last one says what is to be expected."""
    gathered, ahead_of_all = Gathered(), Outlook()
    for own in owns:
        judged = judge(own, gap_ms)
        gathered.add(judged.chapter)
        if own.is_last:
            ahead_of_all = judged.outlook()
        # Nothing of a chapter is held while the next one is put together.
        del own, judged
    diagnosis = gathered.diagnosis(ahead_of_all)
    return joined_trace(gathered.chapters, diagnosis, infos, log, events), diagnosis


def _after(first: Item, coming: Iterator[Item]) -> Iterator[Item]:
    yield first
    del first
    yield from coming
