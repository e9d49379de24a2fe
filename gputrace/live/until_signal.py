"""Ends a long-running command cleanly when it is told to."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def until_signal() -> Iterator[Event]:
    """An event that SIGINT, SIGTERM and SIGHUP set, in the main thread."""
    stop = Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in _ENDS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
