"""Logs read once: what a log gave is kept by its content, and of one that has grown only what is new is read."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gputrace.cache.content import Contents
from gputrace.cache.log_entries import LogEntries
from gputrace.cache.store import Store
from gputrace.ingest.formats import Formats
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import SNIFFED_BYTES, read_log
from gputrace.ingest.opening import CHUNK_BYTES, ByteSource
from gputrace.ingest.reader import Reader

# A smaller log is read sooner than looked up.
LEAST_BYTES = 1 << 20
# Only what all of the first chunk tells of the wrapper holds for whatever comes later.
RESUMED_BYTES = SNIFFED_BYTES + CHUNK_BYTES


@dataclass(frozen=True)
class KeptLog:
    """What a log gave, less its wrapper, which is told by name."""

    wrapper: str | None
    log: LogResult
    damaged: str | None = None


class CachedReader(Reader):
    """Reads a log from the store where its content is there."""

    def __init__(self, store: Store, contents: Contents) -> None:
        self._store, self._contents = store, contents

    def open(self, path: str) -> ByteSource:
        """An input as the bytes that its content was told of, even if it grows meanwhile."""
        content = self._contents.of(path)
        return ByteSource(path, end=content.size) if content is not None else ByteSource(path)

    def read_log(self, source: ByteSource, formats: Formats, progress: Callable[[int], None]) -> LogResult:
        """What the log gives, from the store or read now and put there."""
        content = self._contents.of(source.path)
        if content is None or content.size < LEAST_BYTES:
            return super().read_log(source, formats, progress)
        entries = LogEntries(self._store, content, "log")
        if (kept := entries.same(KeptLog)) is not None:
            source.damaged = kept.damaged
            progress(content.size)
            return _with_wrapper(kept, formats)
        shorter = entries.shorter(KeptLog, lambda known: known.log.resume is not None)
        if shorter is None:
            log = super().read_log(source, formats, progress)
        else:
            before = _with_wrapper(shorter, formats)
            assert before.resume is not None
            tail = ByteSource(source.path, before.resume.offset, content.size)
            log = read_log(tail, before.wrapper, formats, progress, before=before)
        if log.marks.height:
            bare = replace(log, wrapper=None, resume=log.resume if content.size >= RESUMED_BYTES else None)
            entries.keep(KeptLog(log.wrapper.name if log.wrapper else None, bare, source.damaged))
        return log


def _with_wrapper(kept: KeptLog, formats: Formats) -> LogResult:
    return replace(kept.log, wrapper=formats.wrapper(kept.wrapper))
