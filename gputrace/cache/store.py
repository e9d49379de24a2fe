"""A folder of entries: owned by the user, bounded, whole or not there. Nothing that goes wrong in it is an error."""

import contextlib
import os
import stat
import tempfile
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from gputrace.errors import UsageError

GB = 10**9
DEFAULT_MOST_BYTES = 2 * GB
FOLDER_VARIABLE, SIZE_VARIABLE = "GPUTRACE_CACHE", "GPUTRACE_CACHE_MAX_GB"
_MAGIC = b"gputrace-cache-1\n"
_DIGEST_BYTES = 20
_SUFFIX = ".entry"
_UNFINISHED = ".unfinished"
_UNFINISHED_S = 3600.0
# One entry must not push out all others.
_LARGEST_SHARE = 0.25


@dataclass
class Counts:
    """What a store did: entries found, not found, written, removed to make room; unreadable ones, also removed."""

    found: int = 0
    missing: int = 0
    written: int = 0
    evicted: int = 0
    broken: int = 0


@dataclass
class Store:
    """Entries by name, the least recently used of which go when there are more than `most_bytes` of them.

    A folder that others may write to, or that is another user's, is not used: `open` says so.
    """

    folder: Path
    most_bytes: int = DEFAULT_MOST_BYTES
    counts: Counts = field(default_factory=Counts)

    def open(self) -> bool:
        """Makes the folder where it is missing; whether it can be trusted and used."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            told = self.folder.lstat()
        except OSError:
            return False
        if not stat.S_ISDIR(told.st_mode):
            return False
        return not hasattr(os, "geteuid") or (told.st_uid == os.geteuid() and not told.st_mode & 0o022)

    def get(self, name: str) -> bytes | None:
        """What was put under a name; None where there is nothing, or nothing whole."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except OSError:
            self.counts.missing += 1
            return None
        begin = len(_MAGIC) + _DIGEST_BYTES
        if not data.startswith(_MAGIC) or data[len(_MAGIC) : begin] != _digest(data[begin:]):
            self.discard(name)
            return None
        self.counts.found += 1
        with contextlib.suppress(OSError):
            os.utime(path)
        return data[begin:]

    def put(self, name: str, data: bytes) -> None:
        """Keeps `data` under a name, unless it is too large or the disk does not want it."""
        if len(data) > self.most_bytes * _LARGEST_SHARE:
            return
        unfinished = None
        try:
            handle, unfinished = tempfile.mkstemp(suffix=_UNFINISHED, dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + _digest(data) + data)
            Path(unfinished).replace(self._path(name))
        except OSError:
            if unfinished is not None:
                with contextlib.suppress(OSError):
                    Path(unfinished).unlink()
            return
        self.counts.written += 1
        self._make_room()

    def discard(self, name: str) -> None:
        """Removes an entry that cannot be read."""
        self.counts.broken += 1
        self.remove(name)

    def remove(self, name: str) -> None:
        """Removes an entry, if it is there."""
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def names(self, prefix: str = "") -> list[str]:
        """Names of the entries that begin so."""
        return sorted(
            entry.name.removesuffix(_SUFFIX)
            for entry in self._entries()
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX)
        )

    def size_bytes(self) -> int:
        """What all entries take on the disk."""
        return sum(_size(told) for told in self._sizes().values())

    def clear(self) -> int:
        """Removes every entry; how many there were."""
        names = self.names()
        for name in names:
            self.remove(name)
        for entry in self._entries():
            if entry.name.endswith(_UNFINISHED):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()
        return len(names)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def _entries(self) -> list["os.DirEntry[str]"]:
        try:
            with os.scandir(self.folder) as found:
                return list(found)
        except OSError:
            return []

    def _sizes(self) -> dict[Path, os.stat_result]:
        told = {}
        for entry in self._entries():
            if entry.name.endswith((_SUFFIX, _UNFINISHED)):
                # Another process may have removed it.
                with contextlib.suppress(OSError):
                    told[Path(entry.path)] = entry.stat(follow_symlinks=False)
        return told

    def _make_room(self) -> None:
        told = self._sizes()
        total = sum(map(_size, told.values()))
        for path, one in sorted(told.items(), key=lambda item: item[1].st_mtime_ns):
            left_behind = path.name.endswith(_UNFINISHED) and time.time() - one.st_mtime > _UNFINISHED_S
            if total <= self.most_bytes and not left_behind:
                continue
            if path.name.endswith(_UNFINISHED) and not left_behind:
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                total -= _size(one)
                self.counts.evicted += 1


def default_folder() -> Path:
    """The user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gputrace" / "read"


def user_store() -> Store | None:
    """The store that the environment asks for; None where it is off or cannot be used.

    Raises `UsageError` where the environment's size is no number.
    """
    asked = os.environ.get(FOLDER_VARIABLE, "")
    if asked.lower() in ("off", "0", "no"):
        return None
    try:
        folder = Path(asked) if asked else default_folder()
    except RuntimeError:
        # A user without a home.
        return None
    store = Store(folder, _asked_bytes())
    return store if store.open() else None


def _asked_bytes() -> int:
    asked = os.environ.get(SIZE_VARIABLE)
    if not asked:
        return DEFAULT_MOST_BYTES
    try:
        most = float(asked)
    except ValueError:
        most = -1.0
    if not 0 <= most < 1e6:
        raise UsageError(f"{SIZE_VARIABLE}={asked}: a size in GB is wanted, as 2")
    return int(most * GB)


def _size(told: os.stat_result) -> int:
    return max(told.st_size, 4096)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
