"""Wakes the recorder when a followed file grows: inotify(7) by libc. Where it does not work, the steady look does."""

import contextlib
import ctypes
import os
from pathlib import Path

_MODIFY, _ATTRIB, _MOVE_SELF = 0x2, 0x4, 0x800
_IN_DIR = 0x100 | 0x80  # created, moved here


class Notifier:
    """One inotify descriptor. `fd` is None where inotify cannot be had."""

    def __init__(self) -> None:
        self.fd: int | None = None
        self._watched: dict[Path, tuple[int, int]] = {}
        with contextlib.suppress(OSError, AttributeError):
            self._libc = ctypes.CDLL(None, use_errno=True)
            fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self.fd = fd if fd >= 0 else None

    def watch(self, paths: list[Path]) -> None:
        """Watches the files now at these paths, and their folders for new files there."""
        if self.fd is None:
            return
        for path in paths:
            with contextlib.suppress(OSError):
                stat = path.stat()
                if self._watched.get(path) != (stat.st_dev, stat.st_ino):
                    self._libc.inotify_add_watch(self.fd, os.fsencode(path), _MODIFY | _ATTRIB | _MOVE_SELF)
                    self._libc.inotify_add_watch(self.fd, os.fsencode(path.parent), _IN_DIR)
                    self._watched[path] = (stat.st_dev, stat.st_ino)

    def drain(self) -> None:
        """Takes what has come."""
        if self.fd is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self.fd, 1 << 16):
                    pass

    def close(self) -> None:
        """Gives the descriptor back."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
