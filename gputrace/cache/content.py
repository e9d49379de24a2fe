"""What a file holds, told by a digest of all its bytes; a file that the system says is unchanged is not read again.

Unchanged is what has the same device, inode, size, time of change and time of status change, the last of which no
ordinary program can set back. A time that lies less than two seconds before the digest was taken proves nothing: the
clock of file times is coarse, and a second change may bear the same.
"""

import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from gputrace.cache.codec import UnreadableError, pack, unpack
from gputrace.cache.store import Store

BLOCK_BYTES = 8 << 20
_PIECE_BYTES = 1 << 18
_DIGEST_BYTES = 16
_SETTLED_NS = 2_000_000_000
_THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class FileState:
    """What the system says of a file; `changed_ns` is its mtime, `status_ns` its ctime."""

    device: int
    inode: int
    size: int
    changed_ns: int
    status_ns: int

    @classmethod
    def of(cls, path: str) -> "FileState | None":
        """That of a plain file; None for a pipe, a device, or what cannot be looked at."""
        try:
            told = Path(path).stat()
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(told.st_mode):
            return None
        return cls(told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)


@dataclass(frozen=True)
class Content:
    """The first `state.size` bytes of a file, as digests of its blocks of 8 MiB, the last one shorter.

    `settled`: the file had not been changed shortly before, so that its state tells a later change.
    """

    path: str
    state: FileState
    blocks: tuple[str, ...]
    settled: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return self.state.size

    @property
    def digest(self) -> str:
        """Of all bytes."""
        return digest_of(self.size, *self.blocks)

    def begins_with(self, size: int, blocks: tuple[str, ...]) -> bool:
        """Whether its first bytes are those of a shorter content; the part of a block at its end is read for it."""
        whole = size // BLOCK_BYTES
        if size > self.size or self.blocks[:whole] != blocks[:whole]:
            return False
        return size % BLOCK_BYTES == 0 or _block(self.path, whole * BLOCK_BYTES, size) == blocks[whole]

    def still(self, longer: bool = False) -> bool:
        """Whether the file has had these bytes all the while, and with `longer` perhaps more behind them."""
        now = FileState.of(self.path)
        if now is None or now.size < self.size or (now.size > self.size and not longer):
            return False
        return (self.settled and now == self.state) or _blocks(self.path, self.size) == self.blocks


class Contents:
    """Contents of files, remembered in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Content] = {}

    def of(self, path: str) -> Content | None:
        """The content of a plain file, once and for all of this object's life; None for anything else."""
        if path in self._known:
            return self._known[path]
        state = FileState.of(path) if path != "-" else None
        if state is None:
            return None
        name = f"seen-{digest_of(state.device, state.inode)}"
        if (blocks := self._remembered(name, state)) is not None:
            content = Content(path, state, blocks, settled=True)
        else:
            settled = os.name == "posix" and time.time_ns() - max(state.changed_ns, state.status_ns) > _SETTLED_NS
            if (blocks := _blocks(path, state.size)) is None:
                return None
            content = Content(path, state, blocks, settled)
            if settled and FileState.of(path) == state:
                self._store.put(name, pack((state, blocks)))
        self._known[path] = content
        return content

    def _remembered(self, name: str, state: FileState) -> tuple[str, ...] | None:
        if os.name != "posix" or (data := self._store.get(name)) is None:
            return None
        try:
            then, blocks = unpack(data)
        except (UnreadableError, ValueError, TypeError):
            self._store.discard(name)
            return None
        return blocks if then == state else None


def digest_of(*parts: object) -> str:
    """One digest of several texts or numbers."""
    return blake2b("\0".join(map(repr, parts)).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def head_of(path: str, size: int) -> bytes:
    """The first bytes of a file; fewer where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _blocks(path: str, size: int) -> tuple[str, ...] | None:
    """Digests of a file's blocks, taken in several threads; None where the bytes are not there."""

    def ends() -> Iterator[tuple[int, int]]:
        for begin in range(0, size, BLOCK_BYTES):
            yield begin, min(begin + BLOCK_BYTES, size)

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        found = list(pool.map(lambda span: _block(path, *span), ends()))
    told = tuple(one for one in found if one is not None)
    return told if len(told) == len(found) else None


def _block(path: str, begin: int, end: int) -> str | None:
    digest, left = blake2b(digest_size=_DIGEST_BYTES), end - begin
    try:
        with Path(path).open("rb", buffering=0) as file:
            file.seek(begin)
            while left and (piece := file.read(min(left, _PIECE_BYTES))):
                digest.update(piece)
                left -= len(piece)
    except OSError:
        return None
    return None if left else digest.hexdigest()
