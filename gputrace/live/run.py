"""What `gputrace live` does with its arguments."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gputrace.errors import UsageError
from gputrace.live import recording
from gputrace.live.feed import MAX_SPEED, MIN_SPEED, Following, Replay, is_growing
from gputrace.live.plain import frame
from gputrace.live.session import Session

_WIDTH = 80


def live(
    inputs: Sequence[str],
    speed: float | None = None,
    window_s: float = 300.0,
    start_s: float = 0.0,
    once: bool = False,
    timezone: str | None = None,
) -> None:
    """Shows a run that is being written, or replays an old one (always with `speed`).

    `once` writes a single frame to stdout: of an old run at `start_s`, or at its end where that is 0. Raises
    `InputError` where an input cannot be used.
    """
    if speed is not None and not MIN_SPEED <= speed <= MAX_SPEED:
        raise UsageError(f"--speed {speed:g}: must be {MIN_SPEED:g} to {MAX_SPEED:g}")
    paths = list(inputs)
    follow = is_growing(paths) and speed is None
    feed = Following(paths, window_s, timezone) if follow else Replay(paths, timezone)
    try:
        session = Session(feed, window_s, speed or 1.0, start_s, paused=once)
        _show(session, once, whole=not start_s)
    finally:
        if isinstance(feed, Following):
            feed.close()


def record_and_show(options: Sequence[str], folder: str, window_s: float = 300.0) -> None:
    """Starts a recorder with these options of `gputrace record` and shows what it writes, until the view is closed.

    Closing the view ends the recording. Raises `InputError` where the recorder cannot start.
    """
    started = recording.start(options, Path(folder))
    feed = Following([folder], window_s, writing=lambda: started.running)
    try:
        _show(Session(feed, window_s), once=False)
    finally:
        feed.close()
        started.stop()
        print(f"Wrote {folder}", file=sys.stderr)


def _show(session: Session, once: bool, whole: bool = True) -> None:
    if not once and not (sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("live needs a terminal; --once writes one frame as text")
    # Here, so that an input that cannot be used is one line and no screen.
    session.work()
    if not once:
        from gputrace.live.app import LiveApp

        LiveApp(session).run()
        return
    if session.clock is not None and whole:
        session.seek(float("1e9"))
        session.work(at_once=True)
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if sys.stdout.isatty() else _WIDTH
    sys.stdout.write(frame(session.shown(), max(_WIDTH, width)))
