"""Logs read once: what a log gave is kept by its content, and of one that has grown only what is new is read."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gputrace.cache.codec import UnreadableError, pack, unpack
from gputrace.cache.content import Content, Contents, digest_of, head_of
from gputrace.cache.store import Store
from gputrace.cache.version import code_version
from gputrace.ingest.formats import Formats, WrapperFormat
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import SNIFFED_BYTES, read_log
from gputrace.ingest.opening import CHUNK_BYTES, ByteSource, is_packed
from gputrace.ingest.reader import Reader

# A smaller log is read sooner than looked up.
LEAST_BYTES = 1 << 20
# A log that has grown is told by how it begins.
_HEAD_BYTES = 4096
# Only what all of the first chunk tells of the wrapper holds for whatever comes later.
RESUMED_BYTES = SNIFFED_BYTES + CHUNK_BYTES
# So many of the logs that begin alike are compared with one that is read.
_MOST_COMPARED = 4


@dataclass(frozen=True)
class KeptLog:
    """What a log gave, less its wrapper, which is told by name; `size` and `blocks` are those of its `Content`."""

    size: int
    blocks: tuple[str, ...]
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
        head = head_of(source.path, _HEAD_BYTES)
        family = f"log-{digest_of(code_version(), head)}"
        name = f"{family}-{content.size}-{content.digest}"
        if (kept := self._kept(name)) is not None and kept.blocks == content.blocks:
            source.damaged = kept.damaged
            progress(content.size)
            return _with_wrapper(kept, formats)
        shorter = None if is_packed(head) else self._shorter(family, content)
        if shorter is None:
            log = super().read_log(source, formats, progress)
        else:
            before = _with_wrapper(shorter[1], formats)
            assert before.resume is not None
            tail = ByteSource(source.path, before.resume.offset, content.size)
            log = read_log(tail, before.wrapper, formats, progress, before=before)
        if log.marks.height and content.still(longer=True):
            self._keep(name, content, log, source.damaged)
            if shorter is not None:
                self._store.remove(shorter[0])
        return log

    def _keep(self, name: str, content: Content, log: LogResult, damaged: str | None) -> None:
        judged = content.size >= RESUMED_BYTES
        bare = replace(log, wrapper=None, resume=log.resume if judged else None)
        wrapper = log.wrapper.name if log.wrapper else None
        self._store.put(name, pack(KeptLog(content.size, content.blocks, wrapper, bare, damaged)))

    def _shorter(self, family: str, content: Content) -> tuple[str, KeptLog] | None:
        """The longest log that this one begins with, under its name."""
        sizes = {name: int(name.split("-")[2]) for name in self._store.names(f"{family}-")}
        likely = sorted((name for name in sizes if sizes[name] < content.size), key=lambda name: -sizes[name])
        for name in likely[:_MOST_COMPARED]:
            kept = self._kept(name)
            if kept is not None and kept.log.resume is not None and content.begins_with(kept.size, kept.blocks):
                return name, kept
        return None

    def _kept(self, name: str) -> KeptLog | None:
        if (data := self._store.get(name)) is None:
            return None
        try:
            kept = unpack(data)
        except UnreadableError:
            kept = None
        if not isinstance(kept, KeptLog):
            self._store.discard(name)
            return None
        return kept


def _with_wrapper(kept: KeptLog, formats: Formats) -> LogResult:
    wrapper: WrapperFormat | None = next((one for one in formats.wrappers if one.name == kept.wrapper), None)
    return replace(kept.log, wrapper=wrapper)
