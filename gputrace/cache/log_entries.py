"""What is kept of one log, told by its content, so that it is found for a log that has grown since, too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gputrace.cache.content import Content, digest_of, head_of
from gputrace.cache.store import Store
from gputrace.cache.values import kept_value, packed
from gputrace.cache.version import code_version
from gputrace.ingest.opening import is_packed

Value = TypeVar("Value")

# A log that has grown is told by how it begins.
_HEAD_BYTES = 4096
# So many of the logs that begin alike are compared with one that is read.
_MOST_COMPARED = 4


@dataclass(frozen=True)
class Kept:
    """A value made of a log; `size` and `blocks` are those of the log's `Content`."""

    size: int
    blocks: tuple[str, ...]
    value: object


class LogEntries:
    """The entries of a store that were made of one log, or of what it was when it was shorter.

    `kind` (a word) and `options` tell them from others of the same log. Of a packed log no beginning is known.
    """

    def __init__(self, store: Store, content: Content, kind: str, *options: object) -> None:
        self.content = content
        self._store = store
        head = head_of(content.path, _HEAD_BYTES)
        self._is_packed = is_packed(head)
        self._family = f"{kind}-{digest_of(code_version(), head, *options)}"
        self._name = f"{self._family}-{content.size}-{content.digest}"
        self._outdated: str | None = None
        self._held: bytes | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is anything of these bytes, or of a log that begins as this one does."""
        return bool(self._store.names(f"{self._family}-"))

    def same(self, wanted: type[Value]) -> Value | None:
        """What was made of just these bytes."""
        kept = self._kept(self._name, wanted)
        return kept[1] if kept is not None and kept[0].blocks == self.content.blocks else None

    def shorter(self, wanted: type[Value], usable: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """What was made of the longest log that this one begins with and that is `usable`."""
        sizes = {name: int(name.split("-")[2]) for name in self._store.names(f"{self._family}-")}
        likely = sorted((name for name in sizes if sizes[name] < self.content.size), key=lambda name: -sizes[name])
        for name in [] if self._is_packed else likely[:_MOST_COMPARED]:
            kept = self._kept(name, wanted)
            if kept is not None and usable(kept[1]) and self.content.begins_with(kept[0].size, kept[0].blocks):
                self._outdated = name
                return kept[1]
        return None

    def hold(self, value: object) -> None:
        """Holds what was made of these bytes until it is kept."""
        self._held = packed(Kept(self.content.size, self.content.blocks, value))

    def keep_held(self, unchanged: bool = False) -> None:
        """Keeps what is held in place of the shorter one that was used; not if the bytes have changed, which is looked
        for unless they are known to be `unchanged`."""
        if self._held is None or not (unchanged or self.content.still(longer=True)):
            return
        self._store.put(self._name, self._held)
        if self._outdated is not None:
            self._store.remove(self._outdated)

    def keep(self, value: object) -> None:
        """Keeps what was made of these bytes, unless they have changed."""
        self.hold(value)
        self.keep_held()

    def _kept(self, name: str, wanted: type[Value]) -> tuple[Kept, Value] | None:
        kept = kept_value(self._store, name, Kept)
        if kept is None:
            return None
        if not isinstance(kept.value, wanted):
            self._store.discard(name)
            return None
        return kept, kept.value
