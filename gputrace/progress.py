"""Progress lines on stderr, on a terminal only: of what takes more than two seconds, of captures of a fleet."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputrace.fleet.run import Progress

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


@contextmanager
def counting() -> Iterator[Callable[["Progress"], None]]:
    """Gives `progress(of a fleet)`: a line that counts on a terminal, and in any case what it came to in the end.

    Stopped by Ctrl-C, it says how to go on and ends the command with 130, as shells expect.
    """
    last: Progress | None = None

    def progress(now: "Progress") -> None:
        nonlocal last
        last = now
        if sys.stderr.isatty():
            print(f"\r\x1b[K{_so_far(now)}", end="", file=sys.stderr, flush=True)

    def clear() -> None:
        if last is not None and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield progress
    except KeyboardInterrupt:
        clear()
        print(f"Stopped: {_so_far(last) if last else 'nothing read'}; run the same again to go on", file=sys.stderr)
        sys.exit(130)
    except BaseException:
        clear()
        raise
    clear()
    if last is not None:
        print(_so_far(last), file=sys.stderr)


def _so_far(now: "Progress") -> str:
    failed = f", {now.failed} failed" if now.failed else ""
    return f"{now.unchanged + now.done} of {now.total} captures: {now.done} analysed, {now.unchanged} unchanged{failed}"
