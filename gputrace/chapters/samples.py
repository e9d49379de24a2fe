"""The GPU trace of a long run: read for one chapter after the other."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import polars as pl

from gputrace.analysis.parts import part_of
from gputrace.analysis.segments import windows
from gputrace.chapters.chapter import Own
from gputrace.chapters.cut import Size
from gputrace.chapters.stillness import without_stillness
from gputrace.ingest.inputs import Ingested
from gputrace.ingest.trace_parts import Extent, read_part
from gputrace.ingest.traces import TraceInput, use_traces
from gputrace.rebuild.gpus import map_gpus
from gputrace.rebuild.on_trace import check_overlap
from gputrace.trace import Notice, Trace

# At 0.1 s, forty hours of eight GPUs. Of a chapter, so many rows are unpacked at once.
_ROWS_OF_CHAPTER = 12_000_000
_ROWS_AT_ONCE = 1_500_000
# What there is to be done for each chapter and GPU is worth more calls where there are samples.
_MARKS_FACTOR = 3


class Sampler:
    """Gives chapters their samples. Which GPU of the log is which of the trace is found out in the first that has some,
    unless `gpu_map` says it. `names` are those of the GPUs, as far as they are known; `host` is a HOST frame."""

    def __init__(
        self,
        trace: TraceInput,
        extent: Extent,
        gpu_map: dict[int, int] | None,
        names: dict[int, str] | None = None,
        host: pl.DataFrame | None = None,
    ) -> None:
        self._trace, self._extent, self._gpu_map = trace, extent, gpu_map
        self._names, self._host = names or {}, host
        first_ns, last_ns = extent.first_ns, extent.last_ns
        self.infos = [replace(trace.info, rows=extent.rows, first_ns=first_ns, last_ns=last_ns)]
        self.notices: list[Notice] = []
        if extent.broken:
            text = f"{trace.info.path}: rows that do not fit the table"
            self.notices.append(Notice("rows-broken", text, extent.broken))
        self.chapter_s = max(1.0, (last_ns - first_ns) / 1e9 * _ROWS_OF_CHAPTER / max(1, extent.rows))

    def size(self, usual: Size) -> Size:
        """How long chapters are that have samples as well."""
        return replace(usual, marks=usual.marks * _MARKS_FACTOR, seconds=min(usual.seconds, self.chapter_s))

    def put_into(self, chapter: Trace) -> None:
        """Gives a chapter that has calls the samples of its windows."""
        spans = windows(chapter).frame
        if spans.is_empty():
            return
        start_ns, end_ns = int(spans["start_ns"].min()), int(spans["end_ns"].max())  # type: ignore[arg-type]
        if not self._read(chapter, start_ns, end_ns):
            return
        known = self._gpu_map
        if known is not None:
            # A GPU may have no samples in a chapter.
            there = set(chapter.samples["gpu"].unique())
            known = {log: of for log, of in known.items() if of in there} or {gpu: gpu for gpu in there}
        found = map_gpus(chapter, known)
        self._gpu_map = self._gpu_map or found or {gpu: gpu for gpu in self._extent.gpus}
        check_overlap(chapter)

    def alone(self) -> Iterator[Own]:
        """Chapters of a run without a log: stretches of equal length, as many rows as are unpacked at once."""
        start_ns, last_ns = self._extent.first_ns, self._extent.last_ns + 1
        count = max(1, round(self._extent.rows / _ROWS_AT_ONCE))
        edges = [start_ns + (last_ns - start_ns) * n // count for n in range(count + 1)]
        for low, high in pairwise(edges):
            chapter = Trace(inputs=self.infos)
            self._read(chapter, low, high)
            yield Own(part_of(chapter, chapter.calls["call"], low, high), is_last=high == edges[-1])

    def _read(self, chapter: Trace, start_ns: int, end_ns: int) -> bool:
        """Whether there is anything in that time. It is read piece by piece, of which the still ones are small."""
        count = max(1, round((end_ns - start_ns) / 1e9 / self.chapter_s * _ROWS_OF_CHAPTER / _ROWS_AT_ONCE))
        edges = [start_ns + (end_ns - start_ns) * n // count for n in range(count + 1)]
        pieces = [self._piece(chapter, low, high, low > start_ns) for low, high in pairwise(edges)]
        known = [piece for piece in pieces if piece is not None]
        if known:
            samples, hosts = pl.concat([samples for samples, _ in known]), pl.concat([host for _, host in known])
            chapter.samples = samples.sort("gpu", "start_ns")
            host = hosts.unique("start_ns") if self._host is None else self._host
            chapter.host = host.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns)).sort("start_ns")
        return bool(known)

    def _piece(
        self, chapter: Trace, start_ns: int, end_ns: int, goes_on: bool
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """SAMPLES and HOST of a time; where it goes on from a piece before, without the samples on that edge."""
        part = read_part(self._trace, self._extent, start_ns, end_ns)
        if part is None:
            return None
        read = Ingested()
        use_traces(read, [part], self._names, any_log=True)
        samples = read.samples.filter(pl.col("start_ns") >= start_ns) if goes_on else read.samples
        told = {info.gpu: info for info in [*chapter.gpus, *read.gpus]}
        chapter.gpus = [told[gpu] for gpu in sorted(told)]
        own, said = chapter.quality, read.quality
        own.samples += said.samples
        own.samples_missing += said.samples_missing
        own.counter_wraps += said.counter_wraps
        own.counter_ambiguous += said.counter_ambiguous
        own.notices += said.notices
        return without_stillness(samples, read.gpus), read.host
