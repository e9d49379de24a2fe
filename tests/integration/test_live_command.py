"""`gputrace live` as a user meets it, on a terminal and without one."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gputrace.cli import main
from tests.captures import SAMPLES

PAGEABLE = SAMPLES["pageable-heavy"]


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs `gputrace live` in this process."""

    def command(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["gputrace", "live", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return command


def test_once_writes_one_frame(run: Callable[..., Done]) -> None:
    done = run(str(PAGEABLE), "--once", "--speed", "10")
    assert done.returncode == 0 and done.stderr == ""
    assert "replay, at its end" in done.stdout
    assert "main cause: pageable-h2d" in done.stdout
    assert "\x1b" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 80


def test_once_at_a_moment_of_loose_files(run: Callable[..., Done]) -> None:
    files = [str(PAGEABLE / "prover.merged.gz"), str(PAGEABLE / "nvml.csv.gz")]
    done = run(*files, "--once", "--at", "40")
    assert done.returncode == 0
    assert "paused" in done.stdout and "40.0 of" in done.stdout.splitlines()[0]
    assert re.search(r"w0 +ntt_kernels +0\.2 s  partition 8", done.stdout)


def test_files_written_just_now_are_followed(tmp_path: Path, run: Callable[..., Done]) -> None:
    for name in ("prover.merged.gz", "nvml.csv.gz"):
        (tmp_path / name.removesuffix(".gz")).write_bytes(
            subprocess.run(["gzip", "-dc", str(PAGEABLE / name)], capture_output=True, check=True).stdout
        )
    done = run(str(tmp_path), "--once")
    assert done.returncode == 0
    assert "following" in done.stdout and "main cause: pageable-h2d" in done.stdout
    # Its end is the moment shown, however long ago that was by our clock.
    assert "11:48:48 UTC" in done.stdout


def test_one_line_and_a_code_for_what_cannot_be_shown(tmp_path: Path, run: Callable[..., Done]) -> None:
    (tmp_path / "old.log").write_text("nothing of a prover\n")
    os.utime(tmp_path / "old.log", (1, 1))
    for arguments, code, said in (
        ((), 2, "nothing to show"),
        ((str(PAGEABLE),), 2, "live needs a terminal; --once"),
        ((str(tmp_path / "absent"), "--once"), 3, "cannot be opened"),
        ((str(tmp_path / "old.log"), "--once"), 3, "no line of a known prover"),
        (("-",), 2, "live follows files"),
        (("--log", "x"), 2, "--log starts a recording: say where it goes"),
        ((str(PAGEABLE), "--speed", "1000"), 2, "must be 0.25 to 100"),
    ):
        done = run(*arguments)
        assert done.returncode == code, done
        assert said in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout


class Terminal:
    """A command in a terminal of 80 by 24."""

    def __init__(self, *arguments: str) -> None:
        self._own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [sys.executable, "-m", "gputrace", "live", *arguments]
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment)
        os.close(other)
        self.text = ""

    def wait_for(self, words: str, within_s: float = 30.0) -> None:
        """Reads until the words were drawn."""
        until = time.monotonic() + within_s
        while words not in self.text:
            assert time.monotonic() < until, self.text[-3000:]
            if select.select([self._own], [], [], 0.2)[0]:
                drawn = os.read(self._own, 1 << 16).decode(errors="replace")
                self.text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)

    def press(self, key: str) -> None:
        """Types."""
        os.write(self._own, key.encode())

    def close(self) -> int:
        """Reads on until it has ended; its exit code."""
        until = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < until:
            if select.select([self._own], [], [], 0.1)[0]:
                try:
                    os.read(self._own, 1 << 16)
                except OSError:
                    break
        code = self.process.wait(10)
        os.close(self._own)
        return code


def test_a_replay_in_a_terminal() -> None:
    terminal = Terminal(str(PAGEABLE), "--speed", "20", "--at", "20")
    terminal.wait_for("replay x20")
    terminal.wait_for("replay, at its end")
    terminal.wait_for("main cause: pageable-h2d")
    terminal.press("q")
    assert terminal.close() == 0


def test_an_empty_capture_waits_for_its_data(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    terminal = Terminal(str(tmp_path))
    terminal.wait_for("waiting for data")
    log = subprocess.run(["gzip", "-dc", str(PAGEABLE / "prover.merged.gz")], capture_output=True, check=True).stdout
    (tmp_path / "prover.log").write_bytes(log)
    shutil.copy(PAGEABLE / "nvml.csv.gz", tmp_path)
    terminal.wait_for("pageable-h2d")
    terminal.press("\x03")
    assert terminal.close() == 0
