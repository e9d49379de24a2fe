"""The report on a real terminal, in pipes, and where nothing but ASCII prints."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from gputrace.render.output import write
from tests.captures import DATA

# A trace without a log: the quickest of real reports.
TRACE = str(DATA / "merged-fast" / "nvml.csv.gz")
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "LINES", "TERM")
}


def piped(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "gputrace", *arguments], capture_output=True, check=False, env={**CLEAN, **environment}
    )


def on_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What a terminal of so many columns was sent: stdout and stderr together."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "gputrace", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**CLEAN, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(theirs)
    sent = bytearray()
    while True:
        try:
            chunk = os.read(ours, 1 << 16)
        except OSError:
            # Linux: the other side is closed.
            break
        if not chunk:
            break
        sent += chunk
    os.close(ours)
    assert process.wait() == 0
    return sent.decode().replace("\r\n", "\n")


def test_a_terminal_gets_its_width_and_colours() -> None:
    sent = on_terminal(100, "report", TRACE)
    assert re.search(r"\x1b\[[0-9;]*38;5;\d+m", sent)
    plain = re.sub(r"\x1b\[[0-9;]*m|\r\x1b\[K|diagnosing\.\.\.", "", sent)
    assert "\x1b" not in plain
    widths = [cell_len(line) for line in plain.splitlines()]
    assert 80 < max(widths) <= 100


def test_no_color_on_a_terminal() -> None:
    sent = on_terminal(62, "report", TRACE, NO_COLOR="1")
    # Only progress on stderr may move the cursor; nothing is coloured.
    assert not re.search(r"\x1b\[[0-9;]*m", sent)
    assert max(map(cell_len, re.sub(r"\r\x1b\[K(diagnosing\.\.\.)?", "", sent).splitlines())) <= 62


def test_a_pipe_gets_plain_text_and_no_progress() -> None:
    done = piped("report", TRACE)
    assert done.returncode == 0 and done.stderr == b""
    assert b"\x1b" not in done.stdout and b"\r" not in done.stdout
    assert "█" in done.stdout.decode()


def test_ascii_where_the_encoding_has_no_blocks(tmp_path: Path) -> None:
    capture = tmp_path / "größe-証明.csv.gz"
    capture.write_bytes(Path(TRACE).read_bytes())
    done = piped("report", str(capture), "--full", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    assert "####" in text and "Over time" in text and "gr??e-??.csv.gz" in re.sub(r"\s+", "", text)
    assert max(map(len, text.splitlines())) <= 80


def test_documents_are_utf_8_whatever_the_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    write("-", "größe \ud800\n")
    assert raw.getvalue().decode("utf-8") == "größe ?\n"


def test_names_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """In an error on stderr, and where lines of a log are explained."""
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e\r.log"
    done = piped("report", str(tmp_path / hostile))
    assert done.returncode == 3
    said = done.stderr.decode()
    assert "\\x1b]0;owned\\x07\\x1b[2J\\u202e\\r.log: cannot be opened" in said
    assert not set("\x1b\x07\r\u202e") & set(said)
    log = tmp_path / hostile
    log.write_text("CUZK_TIMING: ntt_kernels_ms=12\n")
    done = piped("formats", "check", str(log))
    assert not set(b"\x1b\x07\r") & set(done.stdout + done.stderr)


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m gputrace --help | head -1", shell=True, capture_output=True, check=False, env=CLEAN
    )
    assert done.returncode == 0 and done.stderr == b""
