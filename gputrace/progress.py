"""A progress line on stderr, on a terminal only, for what takes more than two seconds."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gputrace.printable import printable

QUIET_S = 2.0


@contextmanager
def reading(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str, int], None]]:
    """Gives `progress(path, bytes)`; shows it only on a terminal, and takes it away when reading is done."""
    begun = clock()
    seen = 0
    shown = False

    def progress(path: str, size: int) -> None:
        nonlocal seen, shown
        seen += size
        if clock() - begun >= QUIET_S and sys.stderr.isatty():
            shown = True
            print(f"\r\x1b[Kreading {printable(path)}: {seen / 1e6:.0f} MB", end="", file=sys.stderr, flush=True)

    try:
        yield progress
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def working(what: str, quiet_s: float = QUIET_S) -> Iterator[None]:
    """Says what is being done, once it has taken a while, and takes it away when it is done."""
    if not sys.stderr.isatty():
        yield
        return
    shown = threading.Event()

    def show() -> None:
        shown.set()
        print(f"\r\x1b[K{what}...", end="", file=sys.stderr, flush=True)

    timer = threading.Timer(quiet_s, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
