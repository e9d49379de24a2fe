"""A run from one log of any length, read once and judged chapter by chapter."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from gputrace import schema
from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.gaps import MOST_LISTED
from gputrace.analysis.outlook import Outlook
from gputrace.chapters.chapter import Begins, Chapter, Judged, judge
from gputrace.chapters.cut import Cut, Size, cuts
from gputrace.chapters.joined import all_jobs, joined_diagnosis
from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import Formats, bundled_formats
from gputrace.ingest.inputs import Ingested, Progress, expand, ingest, use_logs
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.logs import ReadLog, merge_logs
from gputrace.ingest.marks import marks_of
from gputrace.ingest.opening import ByteSource, is_packed
from gputrace.ingest.reader import Reader
from gputrace.ingest.recordings import recording_at
from gputrace.ingest.stamps import check_timezone
from gputrace.ingest.traces import TraceOptions, recognise
from gputrace.rebuild.rebuild import rebuild
from gputrace.trace import InputInfo, Notice, Quality, Trace

# A shorter log is held whole: it has a chapter or two, and single calls can be asked for then.
LONG_LOG_BYTES = 200_000_000
# Logs pack to a tenth and less.
_PACKED_TO = 10
# So many notices of a kind are told in full.
_MOST_ALIKE = 3


@dataclass(frozen=True)
class LongRun:
    """Inputs that are judged in chapters. `source` is the log, opened."""

    paths: Sequence[str]
    source: ByteSource
    timezone: str | None
    options: TraceOptions
    gpu_map: dict[int, int] | None
    size: Size = field(default_factory=Size)

    def judged(self, gap_ms: float, progress: Progress = lambda _path, _bytes: None) -> tuple[Trace, Diagnosis]:
        """What is known of the run, without frames, and its diagnosis; of what is one chapter only, as always.

        Raises as `ingest` and `rebuild` do.
        """
        check_timezone(self.timezone)
        formats = bundled_formats()
        if recognise(self.source.path, self.source, formats, self.options) is not None:
            return self._whole(Reader(), gap_ms, progress)
        log = LogResult(schema.MARKS.empty())
        lots = marks_of(
            self.source,
            log,
            formats,
            lambda size: progress(self.source.path, size),
            lambda lines: wrapper_of(lines, formats),
        )
        coming = cuts(lots, self.size)
        first = next(coming)
        if first.is_last:
            log.marks = first.marks
            return self._whole(_ReadAlready(self.source, log), gap_ms, progress)
        reading = _Reading(self, formats, log, gap_ms)
        with ThreadPoolExecutor(max_workers=1) as beside:
            # A chapter is judged while the next one is read: two are held at a time.
            at_work, cut = beside.submit(reading.take, first), next(coming, None)
            del first
            while cut is not None:
                at_work.result()
                at_work, cut = beside.submit(reading.take, cut), next(coming, None)
            at_work.result()
        return reading.joined()

    def _whole(self, reader: Reader, gap_ms: float, progress: Progress) -> tuple[Trace, Diagnosis]:
        options = {"timezone": self.timezone, "trace_options": self.options, "reader": reader}
        trace = rebuild(ingest(self.paths, progress, **options), self.gpu_map)  # type: ignore[arg-type]
        return trace, diagnose(trace, gap_ms)


def long_run(
    paths: Sequence[str],
    timezone: str | None = None,
    options: TraceOptions | None = None,
    gpu_map: dict[int, int] | None = None,
    least_bytes: int = LONG_LOG_BYTES,
) -> LongRun | None:
    """The run of these inputs, where it is one log of `least_bytes` or more, or one from a pipe; None for others."""
    files = expand(paths)
    if len(files) != 1 or recording_at(files[0][0]) is not None:
        return None
    path = files[0][0]
    if path != "-" and not _is_long(path, least_bytes):
        return None
    return LongRun(paths, ByteSource(path), timezone, options or TraceOptions(), gpu_map)


def _is_long(path: str, least_bytes: int) -> bool:
    file = Path(path)
    if not file.is_file() or file.stat().st_size < least_bytes / _PACKED_TO:
        return False
    with file.open("rb") as opened:
        packed = is_packed(opened.read(4))
    return file.stat().st_size >= (least_bytes / _PACKED_TO if packed else least_bytes)


class _ReadAlready(Reader):
    """Gives a log that was read while its length was not known."""

    def __init__(self, source: ByteSource, log: LogResult) -> None:
        self._source, self._log = source, log

    def open(self, path: str) -> ByteSource:
        return self._source if path == self._source.path else super().open(path)

    def read_log(self, source: ByteSource, formats: Formats, progress: Progress) -> LogResult:  # type: ignore[override]
        return self._log if source is self._source else super().read_log(source, formats, progress)  # type: ignore[arg-type]


class _Reading:
    """The chapters judged so far, and what is counted over them."""

    def __init__(self, run: LongRun, formats: Formats, log: LogResult, gap_ms: float) -> None:
        self._run, self._formats, self._log, self._gap_ms = run, formats, log, gap_ms
        self._chapters: list[Chapter] = []
        self._begins = Begins()
        self._events: Counter[str] = Counter()
        self._info = InputInfo(run.source.path, "log", "")
        self._ahead = Outlook()

    def take(self, cut: Cut) -> None:
        """Judges a chapter."""
        own = cut.marks.filter(cut.is_own)
        self._events.update(dict(own["event"].value_counts().iter_rows()))
        judged = self._judged(cut)
        self._chapters.append(judged.chapter)
        self._begins = judged.chapter.ends
        if cut.is_last:
            self._ahead = judged.outlook()

    def _judged(self, cut: Cut) -> Judged:
        info, quality = replace(self._info), Quality()
        log = LogResult(cut.marks, self._log.wrapper)
        sets, resolution_ns = merge_logs([ReadLog(info, log)], quality, self._formats, self._run.timezone)
        ingested = Ingested(inputs=[info], arrival_resolution_ns=resolution_ns, quality=quality)
        use_logs(ingested, sets)
        self._widen(info)
        trace = rebuild(ingested, self._run.gpu_map)
        del ingested, sets, log
        return judge(trace, cut, self._begins, self._gap_ms)

    def _widen(self, info: InputInfo) -> None:
        """The log's first and last time."""
        if info.first_ns is not None and info.last_ns is not None:
            own = self._info
            own.first_ns = info.first_ns if own.first_ns is None else min(own.first_ns, info.first_ns)
            own.last_ns = info.last_ns if own.last_ns is None else max(own.last_ns, info.last_ns)

    def joined(self) -> tuple[Trace, Diagnosis]:
        """The run."""
        log, source, chapters = self._log, self._run.source, self._chapters
        diagnosis = joined_diagnosis(chapters, self._ahead)
        self._info.format, self._info.rows = log.wrapper.name if log.wrapper else "plain", log.lines
        marks = sum(self._events.values())
        placed = sum(chapter.marks_placed for chapter in chapters)
        quality = Quality(
            lines=log.lines,
            marks=marks,
            marks_by_event=dict(sorted(self._events.items())),
            marks_placed=placed,
            marks_unplaced=marks - placed,
            torn_repaired=log.torn_repaired,
            torn_lost=log.torn_lost,
            unrecognised_of_known_family=log.unrecognised,
        )
        calls = diagnosis.calls.count
        quality.notice(
            "in-chapters",
            f"a long run, judged in {len(chapters)} chapters of some {calls // len(chapters)} calls each: sums and "
            "quantiles are of all calls, verdicts and regimes those of the chapters put together, predictions replay "
            "the end of the run",
            len(chapters),
        )
        jobs = all_jobs(chapters).height
        if jobs > len(diagnosis.jobs):
            quality.notice("jobs-listed", f"of {jobs} jobs the {MOST_LISTED} that took longest are listed", jobs)
        if source.damaged:
            quality.notice("input-damaged", f"{source.path}: {source.damaged}")
        quality.notices += _together([notice for chapter in chapters for notice in chapter.quality.notices])
        first = next((c for c in chapters if c.clock.method != "none"), chapters[0])
        return Trace(inputs=[self._info], gpus=first.gpus, clock=first.clock, quality=quality), diagnosis


def _together(notices: Sequence[Notice]) -> list[Notice]:
    """Equal notices as one, counts added; of a kind whose words differ only the first few in full."""
    texts: dict[str, dict[str, int]] = {}
    for notice in notices:
        of_code = texts.setdefault(notice.code, {})
        of_code[notice.text] = of_code.get(notice.text, 0) + notice.count
    found = []
    for code, counts in texts.items():
        told = list(counts.items())
        found += [Notice(code, text, count) for text, count in told[:_MOST_ALIKE]]
        if rest := told[_MOST_ALIKE:]:
            found.append(Notice(code, f"the like in {len(rest)} more chapters", sum(count for _, count in rest)))
    return found
