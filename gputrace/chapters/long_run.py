"""A run from one log of any length, with or without a GPU trace: read once and judged chapter by chapter."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from gputrace import schema
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.cache.log_entries import LogEntries
from gputrace.cache.runs import Request, rebuilt
from gputrace.chapters.asked import Asked
from gputrace.chapters.cut import Size, cuts
from gputrace.chapters.inputs import LongInputs
from gputrace.chapters.sources import log_in, metadata_in, sampler_in
from gputrace.ingest.ahead import ahead
from gputrace.ingest.formats import Formats, bundled_formats
from gputrace.ingest.inputs import Progress
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.reader import Reader
from gputrace.ingest.stamps import check_timezone
from gputrace.ingest.traces import TraceOptions, recognise
from gputrace.trace import Trace

if TYPE_CHECKING:
    from gputrace.chapters.samples import Sampler
    from gputrace.chapters.standing import Standing

Item = TypeVar("Item")


@dataclass(frozen=True)
class LongRun:
    """A run that is judged in chapters."""

    request: Request
    inputs: LongInputs
    size: Size = field(default_factory=Size)

    def judged(
        self,
        asked: Asked,
        progress: Progress = lambda _path, _bytes: None,
        entries: LogEntries | None = None,
    ) -> tuple[Trace, Diagnosis]:
        """What is known of the run, without frames, and its diagnosis; of what is one chapter only, as always.

        `entries`: what is known of the log, the only input, from when it was shorter; it is kept up to date.
        Raises as `ingest` and `rebuild` do.
        """
        request, inputs = self.request, self.inputs
        check_timezone(request.timezone)
        formats, options = bundled_formats(), request.trace_options or TraceOptions()
        sampler = sampler_in(inputs, formats, options, request.gpu_map)
        if sampler is None and inputs.has_trace:
            return self._whole(Reader(), asked, progress)
        source = None if inputs.log is None else ByteSource(inputs.log)
        if source is not None and recognise(source.path, source, formats, options) is not None:
            return self._whole(_Opened(source), asked, progress)
        standing = None if entries is None else _standing(entries)
        reached = None if standing is None else standing.reached
        if entries is not None:
            begin = 0 if reached is None else reached.resume.offset
            source = ByteSource(entries.content.path, begin, entries.content.size)
        log = log_in(inputs, source, formats, progress, reached)
        if log is None:
            return self._without_log(sampler, asked)
        size = self.size if sampler is None else sampler.size(self.size)
        coming = ahead(cuts(log.lots(), size, None if reached is None else reached.seam))
        # Loaded while the first chapter is read, which takes as long.
        from gputrace.chapters.judging import Rebuilding, joined

        first = next(coming)
        if first.is_last and reached is None:
            log.result.marks = first.marks
            return self._whole(Reader() if source is None else _Opened(source, log.result), asked, progress)
        if sampler is not None and not any(first.marks[name].count() for name in ("log_ns", "arrival_ns")):
            # Where the log lies in the trace has to be found out, and all of both is needed for that.
            return self._whole(Reader(), asked, progress)
        rebuilding = Rebuilding(request, formats, log, sampler, standing, entries)
        owns = rebuilding.owns(_after(first, coming))
        del first
        # Reading samples takes as long as judging them does: there, a third chapter is under way.
        own_ahead = owns if sampler is None else ahead(owns)
        infos = [*metadata_in(inputs), *rebuilding.infos]
        trace, diagnosis = joined(
            own_ahead, asked, log.result, infos, rebuilding.events, rebuilding.gathered, rebuilding.keep
        )
        trace.quality.notices += [*log.notices(), *(sampler.notices if sampler is not None else [])]
        return trace, diagnosis

    def _without_log(self, sampler: "Sampler | None", asked: Asked) -> tuple[Trace, Diagnosis]:
        assert sampler is not None
        from gputrace.chapters.joined import Gathered
        from gputrace.chapters.judging import joined

        infos = [*metadata_in(self.inputs), *sampler.infos]
        nothing = LogResult(schema.MARKS.empty())
        trace, diagnosis = joined(ahead(sampler.alone()), asked, nothing, infos, {}, Gathered())
        trace.quality.notices += sampler.notices
        return trace, diagnosis

    def _whole(self, reader: Reader, asked: Asked, progress: Progress) -> tuple[Trace, Diagnosis]:
        from gputrace.analysis.diagnose import diagnose

        trace = rebuilt(self.request, progress, reader)
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


def _standing(entries: LogEntries) -> "Standing | None":
    """What stands of a log that was read before."""
    if not entries.is_known:
        return None
    # Loads the numerical libraries.
    from gputrace.chapters.standing import Standing

    return entries.same(Standing) or entries.shorter(Standing)


def _after(first: Item, coming: Iterator[Item]) -> Iterator[Item]:
    yield first
    del first
    yield from coming
