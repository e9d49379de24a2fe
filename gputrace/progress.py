"""A progress line on stderr for inputs that take more than two seconds to read."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
            print(f"\r\x1b[Kreading {path}: {seen / 1e6:.0f} MB", end="", file=sys.stderr, flush=True)

    try:
        yield progress
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
