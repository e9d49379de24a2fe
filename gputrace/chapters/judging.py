"""Chapters of a log rebuilt and judged one after the other, and put together."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.outlook import Outlook
from gputrace.cache.log_entries import LogEntries
from gputrace.cache.runs import Request
from gputrace.chapters.asked import Asked
from gputrace.chapters.chapter import Begins, Own, judge, own_part
from gputrace.chapters.cut import Cut, Seam
from gputrace.chapters.joined import Gathered, joined_trace
from gputrace.chapters.samples import Sampler
from gputrace.chapters.sources import LongLog
from gputrace.chapters.standing import Reached, Standing
from gputrace.ingest.formats import Formats
from gputrace.ingest.inputs import Ingested, use_logs
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.logs import ReadLog, merge_logs
from gputrace.rebuild.rebuild import rebuild
from gputrace.trace import InputInfo, Quality, Trace


class Rebuilding:
    """Chapters of a log, put together one after the other; what is counted over them.

    It begins with the chapters that stand from when the log was shorter, `gathered`; what stands of it is kept in
    `entries`.
    """

    def __init__(
        self,
        request: Request,
        formats: Formats,
        log: LongLog,
        sampler: Sampler | None,
        standing: Standing | None = None,
        entries: LogEntries | None = None,
    ) -> None:
        self._request, self._formats, self._sampler, self._entries = request, formats, sampler, entries
        self._source, self._log = log, log.result
        self._info = InputInfo(log.source.path, "log", "")
        self._begins = Begins()
        self.events: Counter[str] = Counter()
        self.gathered = Gathered()
        # How the last chapter began; None where that may change when the log grows.
        self._reached: Reached | None = None
        if standing is not None:
            reached, self.gathered = standing.reached, standing.gathered
            self._begins = reached.begins
            self._info.first_ns, self._info.last_ns = reached.first_ns, reached.last_ns
            self.events.update(reached.events)

    @property
    def infos(self) -> list[InputInfo]:
        """The inputs."""
        return [self._info] if self._sampler is None else [self._info, *self._sampler.infos]

    def owns(self, coming: Iterator[Cut]) -> Iterator[Own]:
        """What belongs to each chapter."""
        for cut in coming:
            own = self._own(cut)
            del cut
            yield own
            del own

    def keep(self, gathered: Gathered) -> None:
        """Holds, to be kept, the chapters before the last one, which was put together, if they stand."""
        if self._entries is not None and self._reached is not None:
            self._entries.hold(Standing(self._reached, gathered))

    def _own(self, cut: Cut) -> Own:
        if cut.is_last:
            self._reached = self._reached_at(cut.seam)
        self.events.update(dict(cut.marks.filter(cut.is_own)["event"].value_counts().iter_rows()))
        info, quality = replace(self._info), Quality()
        log = LogResult(cut.marks, self._log.wrapper)
        sets, resolution_ns = merge_logs([ReadLog(info, log)], quality, self._formats, self._request.timezone)
        ingested = Ingested(
            [info], arrival_resolution_ns=resolution_ns, arrival_method=self._source.stamped, quality=quality
        )
        use_logs(ingested, sets)
        self._widen(info)
        own = own_part(rebuild(ingested), cut, self._begins)
        self._begins = own.ends
        if self._sampler is not None:
            self._sampler.put_into(own.trace)
        return own

    def _reached_at(self, seam: Seam) -> Reached | None:
        """How far all is when the last chapter begins, all of the log having been read."""
        wrapper, resume = self._log.wrapper, self._source.resume_before(seam.from_line)
        if resume is None or self._log.resume is None or seam.used_line > self._log.resume.lines:
            return None
        if wrapper is not None and wrapper.time_form == "month-day":
            # Which year it is depends on the log's end.
            return None
        name = None if wrapper is None else wrapper.name
        return Reached(resume, name, seam, self._begins, dict(self.events), self._info.first_ns, self._info.last_ns)

    def _widen(self, info: InputInfo) -> None:
        """The log's first and last time, and what it was wrapped in."""
        known = self._info
        known.format, known.rows = self._log.wrapper.name if self._log.wrapper else "plain", self._log.lines
        if info.first_ns is not None and info.last_ns is not None:
            known.first_ns = info.first_ns if known.first_ns is None else min(known.first_ns, info.first_ns)
            known.last_ns = info.last_ns if known.last_ns is None else max(known.last_ns, info.last_ns)


def joined(
    owns: Iterable[Own],
    asked: Asked,
    log: LogResult,
    infos: list[InputInfo],
    events: Mapping[str, int],
    gathered: Gathered,
    keep: Callable[[Gathered], None] = lambda _: None,
) -> tuple[Trace, Diagnosis]:
    """The chapters judged and put together with those `gathered` before; the last one says what is to be expected.

    `keep` is given all but the last.
    """
    ahead_of_all = Outlook()
    for own in owns:
        if own.is_last:
            keep(gathered)
        judged = judge(own, asked.gap_ms)
        gathered.add(judged.chapter)
        if own.is_last:
            ahead_of_all = judged.outlook(asked.scenarios)
        # Nothing of a chapter is held while the next one is put together.
        del own, judged
    diagnosis = gathered.diagnosis(ahead_of_all)
    return joined_trace(gathered.chapters, diagnosis, infos, log, events), diagnosis
