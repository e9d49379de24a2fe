"""Where the prover's log comes from, never in the prover's way: a file, the journal, docker, a process, a command."""

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gputrace.errors import InputError
from gputrace.sampler.capture import RAW
from gputrace.sampler.driver import Clock
from gputrace.sampler.follow import Follower
from gputrace.sampler.processes import session_of, writers_of
from gputrace.sampler.segments import cannot_record

_LOOK_FOR_WRITER_NS = 30_000_000_000
_SESSION_NS = 10_000_000_000

# Unix ns at which it was seen, stream, text without its end, whether the rest is still to come.
SeenLine = tuple[int, str, bytes, bool]


class LogSource(Protocol):
    """A log being followed."""

    def poll(self) -> list[SeenLine]:
        """Lines that came since the last call; never blocks."""

    def paths(self) -> list[Path]:
        """Files whose growth means that there are lines."""

    def fds(self) -> list[int]:
        """Descriptors that can be read when there are lines."""

    def prover_pid(self) -> int | None:
        """The prover's process, where it is known."""

    def prover_pids(self) -> frozenset[int]:
        """All of its processes that are known."""

    def close(self) -> list[SeenLine]:
        """The last lines."""

    def describe(self) -> dict[str, Any]:
        """For meta.json."""


class FileLog:
    """Files that somebody else writes, by stream."""

    def __init__(self, files: dict[str, Path], clock: Clock, pid: int | None = None, from_start: bool = False) -> None:
        self._clock, self._pid, self._files = clock, pid, files
        self._given, self._look_ns = pid is not None, clock.mono_ns()
        self._followers = {stream: Follower(path, from_start) for stream, path in files.items()}

    def poll(self) -> list[SeenLine]:
        """New whole lines of all files."""
        now_ns = self._clock.mono_ns()
        return self._seen((stream, follower.poll(now_ns)) for stream, follower in self._followers.items())

    def _seen(self, found: Any) -> list[SeenLine]:
        seen_ns = self._clock.wall_ns()
        return [(seen_ns, stream, line.text, line.part) for stream, lines in found for line in lines]

    def paths(self) -> list[Path]:
        """The files."""
        return list(self._files.values())

    def fds(self) -> list[int]:
        """None: files are always readable."""
        return []

    def prover_pid(self) -> int | None:
        """As given, or the only process that writes to the files."""
        now_ns = self._clock.mono_ns()
        gone = self._pid is None or not Path(f"/proc/{self._pid}").exists()
        if not self._given and gone and now_ns >= self._look_ns:
            writers = writers_of(self.paths())
            self._pid = writers[0] if len(writers) == 1 else None
            self._look_ns = now_ns + _LOOK_FOR_WRITER_NS
        return self._pid

    def prover_pids(self) -> frozenset[int]:
        """That process."""
        return frozenset() if self._pid is None else frozenset({self._pid})

    def close(self) -> list[SeenLine]:
        """What is left, a line without its end included."""
        return self._seen((stream, follower.close()) for stream, follower in self._followers.items())

    def describe(self) -> dict[str, Any]:
        """The files."""
        return {"how": "pid" if self._given else "file", "files": {k: str(p) for k, p in self._files.items()}}


class ChildLog:
    """A command that we start: its stdout and stderr are files in the capture, which it writes itself.

    It has a session of its own: no signal of the terminal reaches it, and it lives on when the recorder ends.
    Raises `InputError` where it cannot be started.
    """

    def __init__(self, command: Sequence[str], folder: Path, clock: Clock) -> None:
        self._clock, self._command = clock, list(command)
        files = {}
        try:
            for stream, name in RAW.items():
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                files[stream] = os.open(folder / name, flags, 0o644)
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=files["stdout"],
                stderr=files["stderr"],
                start_new_session=True,
            )
        except OSError as error:
            if error.filename in (None, *map(str, (folder / name for name in RAW.values()))):
                raise cannot_record(folder, error) from error
            raise InputError(f"{command[0]}: cannot be started: {error.strerror}") from error
        finally:
            for fd in files.values():
                os.close(fd)
        self._session: dict[int, int] = {}
        self._look_ns, self._looked = clock.mono_ns(), False
        self._paths = {stream: folder / name for stream, name in RAW.items()}
        self._followers = {s: Follower(p, from_start=True, last_part_kept=True) for s, p in self._paths.items()}

    def poll(self) -> list[SeenLine]:
        """New whole lines of both streams."""
        now_ns, seen_ns = self._clock.mono_ns(), self._clock.wall_ns()
        found = [(stream, follower.poll(now_ns)) for stream, follower in self._followers.items()]
        return [(seen_ns, stream, line.text, line.part) for stream, lines in found for line in lines]

    def paths(self) -> list[Path]:
        """Both files."""
        return list(self._paths.values())

    def fds(self) -> list[int]:
        """None: files are always readable."""
        return []

    def prover_pid(self) -> int | None:
        """The largest process of the command's session: a script may have started the prover."""
        self._look_around()
        return max(self._session, key=lambda pid: self._session[pid], default=None)

    def prover_pids(self) -> frozenset[int]:
        """All processes of the command's session."""
        self._look_around()
        return frozenset(self._session)

    def _look_around(self) -> None:
        now_ns = self._clock.mono_ns()
        if now_ns >= self._look_ns:
            self._session = session_of(self.process.pid)
            # Soon again while a script may still be starting it.
            self._look_ns = now_ns + (_SESSION_NS if self._looked else _SESSION_NS // 10)
            self._looked = True

    def exit_code(self) -> int | None:
        """None while it runs; 128 + N after signal N, as a shell says it."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def heirs(self) -> list[int]:
        """Processes that still write to its files: what it started and left behind."""
        return writers_of(self.paths())

    def close(self) -> list[SeenLine]:
        """The last whole lines. A last one without its end stays in the raw file, which a reader reads, too."""
        lines = self.poll()
        for follower in self._followers.values():
            follower.close()
        return lines

    def describe(self) -> dict[str, Any]:
        """The command and its process."""
        raw = {stream: path.name for stream, path in self._paths.items()}
        return {"how": "command", "command": self._command, "pid": self.process.pid, "raw": raw}


def files_of_process(pid: int, root: Path = Path("/")) -> dict[str, Path]:
    """The files that a process writes its stdout and stderr to, by stream; both in one file count once.

    Raises `InputError`, saying what to do instead, where neither is a file.
    """
    base = root / "proc" / str(pid)
    found: dict[str, Path] = {}
    seen: set[tuple[int, int]] = set()
    instead = []
    for fd, stream in ((1, "stdout"), (2, "stderr")):
        link = base / "fd" / str(fd)
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            if not base.exists():
                raise InputError(f"--pid {pid}: there is no such process") from None
            continue
        except PermissionError:
            raise InputError(f"--pid {pid}: its open files may not be read; run as its user or as root") from None
        if not target.startswith("/") or target.startswith("/dev/"):
            instead.append(_instead(target, base))
            continue
        # A file that was removed can still be read through the process.
        path = link if target.endswith(" (deleted)") else Path(target)
        with contextlib.suppress(OSError):
            stat = path.stat()
            if (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                found[stream] = path
    if len(found) == 1 and not instead:
        # One file for both streams.
        return {"log": next(iter(found.values()))}
    if not found:
        raise InputError(f"--pid {pid}: its output is not a file: {'; '.join(dict.fromkeys(instead)) or 'closed'}")
    return found


def streams_left_out(pid: int, found: Mapping[str, Path], root: Path = Path("/")) -> list[str]:
    """Of a process whose other stream is a file: each stream that is not, with what it is and what to do about it."""
    base = root / "proc" / str(pid)
    left_out = []
    for fd, stream in ((1, "stdout"), (2, "stderr")):
        if stream in found or "log" in found:
            continue
        with contextlib.suppress(OSError):
            target = str((base / "fd" / str(fd)).readlink())
            left_out.append(f"{stream} of process {pid} is not recorded: {_instead(target, base)}")
    return left_out


def _instead(target: str, base: Path) -> str:
    if target.startswith("pipe:"):
        with contextlib.suppress(OSError):
            group = (base / "cgroup").read_text()
            if "docker" in group or "containerd" in group:
                return "a pipe to docker: use --docker NAME"
        return "a pipe: give the file that its reader writes with --log FILE, or start it with -- COMMAND"
    if target.startswith("socket:"):
        with contextlib.suppress(OSError):
            if unit := re.search(r"/([^/\n]+\.service)", (base / "cgroup").read_text()):
                return f"the journal: use --journal {unit[1]}"
        return "the journal: use --journal UNIT"
    if target.startswith(("/dev/pts", "/dev/tty")):
        return "a terminal: start it with its output in a file and give that with --log FILE, or with -- COMMAND"
    return f"{target}: start it with -- COMMAND"
