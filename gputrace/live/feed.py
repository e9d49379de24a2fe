"""What a live view is fed with: a capture that grows, or an old one by its own clock."""

import re
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from gputrace.analysis.parts import part_of
from gputrace.errors import InputError, UsageError
from gputrace.ingest.inputs import ingest
from gputrace.live.segments import cut_parquet, newest
from gputrace.live.state import is_clocked
from gputrace.live.tail import Tail, is_text
from gputrace.nearest import near_path
from gputrace.rebuild.rebuild import rebuild
from gputrace.trace import Trace

# A capture that nobody has written to for so long is replayed, not followed.
QUIET_S = 60.0
# A phase that lasts longer than the window began before it: some more is kept.
_MARGIN = 1.3
MIN_SPEED, MAX_SPEED = 0.25, 100.0
_NEVER_FOLLOWED = ("truth.csv", "README.md", "README", "events.jsonl")
_STAMPED_LOG, _RAW = re.compile(r"prover-\d{6,}\.log"), ("prover.stdout", "prover.stderr")
# Replaced as a whole, never appended to.
_REPLACED = ("meta.json",)


class Clock:
    """The time of a run that is replayed: begins at `start_ns`, `speed` times as fast as `monotonic`, ends at `end_ns`.

    It can be paused and set; it never leaves the run.
    """

    def __init__(
        self, start_ns: int, end_ns: int, speed: float = 1.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.start_ns, self.end_ns, self.speed, self.paused = start_ns, end_ns, speed, False
        self._monotonic = monotonic
        self._from_ns, self._since = start_ns, monotonic()

    @property
    def now_ns(self) -> int:
        """The moment of the run."""
        passed_s = 0.0 if self.paused else (self._monotonic() - self._since) * self.speed
        return max(self.start_ns, min(self.end_ns, self._from_ns + round(passed_s * 1e9)))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.now_ns >= self.end_ns

    def seek(self, seconds: float) -> None:
        """Forward, or back where negative."""
        self._set(self.now_ns + round(seconds * 1e9))

    def pause(self) -> None:
        """Stops, or goes on."""
        self._set(self.now_ns)
        self.paused = not self.paused

    def faster(self, factor: float) -> None:
        """Changes the speed, within `MIN_SPEED` and `MAX_SPEED`."""
        self._set(self.now_ns)
        self.speed = max(MIN_SPEED, min(MAX_SPEED, self.speed * factor))

    def _set(self, now_ns: int) -> None:
        self._from_ns = max(self.start_ns, min(self.end_ns, now_ns))
        self._since = self._monotonic()


@dataclass
class Replay:
    """An old capture: read once, whole."""

    paths: list[str]
    timezone: str | None = None
    replays: bool = True
    _loaded: bool = False

    @property
    def title(self) -> str:
        """What is shown as its name."""
        return _title(self.paths)

    def load(self) -> Trace | None:
        """Everything, at the first call."""
        if self._loaded:
            return None
        trace = rebuild(ingest(self.paths, timezone=self.timezone))
        self._loaded = True
        return trace


@dataclass
class Following:
    """Files that somebody else is writing: of each only what was added is read, and only the window is kept.

    `window_s`: how far back the trace reaches. Files of a folder that are older than the window are not opened.
    `clock` is the wall clock in Unix seconds; `writing` says whether our own recorder still runs, where there is one.
    """

    paths: list[str]
    window_s: float = 300.0
    timezone: str | None = None
    clock: Callable[[], float] = time.time
    writing: Callable[[], bool] | None = None
    replays: bool = False
    grew_at: float | None = None
    waiting: str = ""
    _tails: dict[Path, Tail] = field(default_factory=dict)
    _whole: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _targets: dict[Path, Path] = field(default_factory=dict)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def title(self) -> str:
        """What is shown as its name."""
        return _title(self.paths)

    def load(self) -> Trace | None:
        """The last `window_s` seconds; None where nothing was added. `waiting` says what is missing yet, if anything.

        Raises `InputError` where a file cannot be read at all.
        """
        if not self._collect():
            return None
        self.grew_at = self.clock()
        try:
            folders = sorted(str(path) for path in self._window_folder.iterdir())
            trace = rebuild(ingest(folders, timezone=self.timezone))
        except InputError as error:
            self.waiting = str(error).replace(f"{self._window_folder}/", "")
            return None
        self.waiting = ""
        self._forget(trace)
        return last_seconds(trace, self.window_s * _MARGIN)

    def close(self) -> None:
        """Lets go of the files and removes what was put aside."""
        for tail in self._tails.values():
            tail.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def kept_bytes(self) -> int:
        """Bytes of text in memory."""
        return sum(tail.kept_bytes for tail in self._tails.values())

    @property
    def _window_folder(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="gputrace-live-")
        return Path(self._folder.name)

    def _collect(self) -> bool:
        """Brings the window's folder up to date; whether anything changed."""
        changed = False
        present = self._files()
        for path in [known for known in (*self._tails, *self._whole) if known not in present]:
            if path in self._tails:
                self._tails.pop(path).close()
            self._whole.pop(path, None)
            self._targets.pop(path).unlink(missing_ok=True)
            changed = True
        for path, target in present.items():
            self._targets[path] = target
            whole = path.name in _REPLACED or not (path in self._tails or is_text(path))
            changed |= self._take_whole(path, target) if whole else self._take_text(path, target)
        return changed

    def _files(self) -> dict[Path, Path]:
        """The files to look at, with where each is put: its own name, in a folder for each input."""
        found: dict[Path, Path] = {}
        for number, given in enumerate(self.paths):
            path, folder = Path(given), self._window_folder / str(number)
            folder.mkdir(exist_ok=True)
            inside = newest(_wanted(path), self.window_s * _MARGIN) if path.is_dir() else [path]
            found |= {file: folder / file.name for file in inside}
        return found

    def _take_text(self, path: Path, target: Path) -> bool:
        tail = self._tails.setdefault(path, Tail(path, self.clock))
        added = tail.read()
        tail.forget_before(self.clock() - self.window_s * _MARGIN)
        if added:
            target.write_bytes(tail.text())
        return bool(added)

    def _take_whole(self, path: Path, target: Path) -> bool:
        try:
            status = path.stat()
            state = status.st_mtime_ns, status.st_size
            if not status.st_size or self._whole.get(path) == state:
                return False
            target.unlink(missing_ok=True)
            if not cut_parquet(path, target, self.window_s * _MARGIN):
                target.symlink_to(path.resolve())
        except OSError:
            # It was turned into another file just now.
            return False
        self._whole[path] = state
        return True

    def _forget(self, trace: Trace) -> None:
        """After the first look at a long file: what lies before the window, by the file's mean rate of lines."""
        last_ns = max((info.last_ns or 0 for info in trace.inputs), default=0)
        known = {Path(info.path): info for info in trace.inputs}
        for path, tail in self._tails.items():
            info = known.get(self._targets[path])
            if info is None or info.first_ns is None or info.last_ns is None or info.last_ns <= info.first_ns:
                continue
            # Twice the window: the rate of lines is not the same all the time.
            surplus_ns = last_ns - round(2 * self.window_s * 1e9) - info.first_ns
            share = surplus_ns / (info.last_ns - info.first_ns)
            if share > 0.2:
                tail.forget_share(min(0.9, share))


def last_seconds(trace: Trace, seconds: float) -> Trace:
    """The end of a trace: calls that had not ended by then, with what belongs to them."""
    ends = [trace.calls["end_ns"].max(), trace.calls["start_ns"].max()]
    if is_clocked(trace) or trace.calls.is_empty():
        ends.append(trace.samples["end_ns"].max())
    known = [int(end) for end in ends if end is not None]  # type: ignore[arg-type]
    if not known:
        return trace
    cut_ns = max(known) - round(seconds * 1e9)
    ended = pl.coalesce("end_ns", "unlock_ns")
    kept = trace.calls.filter(ended.is_null() | (ended > cut_ns))["call"]
    return part_of(trace, kept, cut_ns, max(known) + 1)


def is_growing(paths: Iterable[str], clock: Callable[[], float] = time.time) -> bool:
    """Whether somebody is still writing these files. Raises `InputError` where one does not exist."""
    latest = 0.0
    for given in paths:
        if given == "-":
            raise UsageError("live follows files: pipe the log through a file, or give it as --log to a recording")
        path = Path(given)
        try:
            files = _wanted(path) if path.is_dir() else [path]
            if not files:
                raise InputError(f"{given}: the folder is empty; give the folder that `gputrace record` writes")
            latest = max(latest, *(file.stat().st_mtime for file in files))
        except OSError as error:
            near = near_path(given) if isinstance(error, FileNotFoundError) else ""
            raise InputError(f"{given}: cannot be opened: {error.strerror}{near}") from error
    return clock() - latest < QUIET_S


def _wanted(folder: Path) -> list[Path]:
    """The files of a capture that a view reads.

    A recorder's raw copies of what it has stamped line by line say nothing more while it runs.
    """
    inside = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")]
    stamped = any(_STAMPED_LOG.fullmatch(path.name) for path in inside)
    return [p for p in inside if p.name not in _NEVER_FOLLOWED and not (stamped and p.name in _RAW)]


def _title(paths: list[str]) -> str:
    name = Path(paths[0]).resolve().name
    return name if len(paths) == 1 else f"{name} and {len(paths) - 1} more"
