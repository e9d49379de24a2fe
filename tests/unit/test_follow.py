"""The follower loses and doubles no line, whatever is done to the file between two looks."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace.sampler.follow import QUIET_NS, Follower

S = 1_000_000_000


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Prover:
    """Writes numbered lines in pieces, and has its log rotated."""

    def __init__(self, folder: Path, append: bool = True) -> None:
        self.path = folder / "cuzk.log"
        self._append = append
        self.fd = self._open()
        self.written: list[bytes] = []
        self._begun = b""
        self._rotations = 0
        self.renamed = False

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if self._append else 0), 0o644)

    def begin(self) -> None:
        """Half a line."""
        if not self._begun:
            self._begun = b"half of " + b"x" * (len(self.written) % 7)
            os.write(self.fd, self._begun)

    def line(self) -> None:
        """A line, or the rest of the one begun."""
        rest = b"line %d" % len(self.written)
        os.write(self.fd, rest + b"\n")
        self.written.append(self._begun + rest)
        self._begun = b""

    def rename(self) -> None:
        """What logrotate does first; the prover still writes to what it has open."""
        if not self.renamed:
            self._rotations += 1
            self.path.rename(self.path.with_name(f"cuzk.log.{self._rotations}"))
            self.renamed = True

    def reopen(self) -> None:
        """What the prover does when told to, between two lines."""
        if self.renamed:
            if self._begun:
                self.line()
            os.close(self.fd)
            self.fd = self._open()
            self.renamed = False

    def copytruncate(self) -> None:
        if not self.renamed:
            self._rotations += 1
            shutil.copyfile(self.path, self.path.with_name(f"cuzk.log.{self._rotations}"))
            os.truncate(self.path, 0)

    def close(self) -> None:
        if self._begun:
            self.line()
        os.close(self.fd)


STEPS = st.lists(
    st.sampled_from(["line", "line", "line", "begin", "look", "look", "rename", "reopen", "copytruncate"]), max_size=60
)


@settings(max_examples=400)
@given(steps=STEPS, append=st.booleans())
def test_no_line_is_lost_or_doubled_however_the_file_is_rotated(steps: list[str], append: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prover = Prover(Path(folder), append)
        follower = Follower(prover.path, from_start=True)
        seen: list[bytes] = []
        looked, now_ns = False, 0

        def look() -> None:
            nonlocal looked, now_ns
            now_ns += S // 10
            seen.extend(line.text for line in follower.poll(now_ns))
            looked = prover.path.exists() and prover.path.stat().st_size > 0

        for step in steps:
            if step == "look":
                look()
                continue
            if step in ("rename", "copytruncate") and not looked:
                # A file that came and went between two looks is lost to any follower.
                look()
            getattr(prover, step)()
            if step in ("rename", "copytruncate", "reopen"):
                looked = False
        prover.reopen()
        prover.close()
        look()
        seen.extend(line.text for line in follower.close())
        assert seen == prover.written


def test_a_file_that_is_there_is_followed_from_its_last_line_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\nbeg")
    follower = Follower(path)
    with path.open("ab") as file:
        file.write(b"un\nnew\nopen")
    assert [line.text for line in follower.poll(0)] == [b"begun", b"new"]
    assert [line.text for line in follower.close()] == [b"open"]


def test_a_file_that_comes_later_is_read_from_its_start(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "log")
    assert not follower.found
    assert follower.poll(0) == []
    (tmp_path / "log").write_bytes(b"first\n")
    assert [line.text for line in follower.poll(1)] == [b"first"]


def test_a_renamed_file_is_let_go_when_it_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    before = open_files()
    follower = Follower(path)
    for number in range(200):
        path.rename(tmp_path / f"log.{number}")
        path.write_bytes(b"%d\n" % number)
        assert [line.text for line in follower.poll(number * 3 * QUIET_NS)] == [b"%d" % number]
        assert open_files() <= before + 6
    follower.close()
    assert open_files() == before


def test_a_file_truncated_and_grown_longer_than_before_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    follower = Follower(path, from_start=True)
    assert len(follower.poll(0)) == 2
    path.write_bytes(b"a new log that is longer\n")
    assert [line.text for line in follower.poll(1)] == [b"a new log that is longer"]


def test_an_endless_line_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputrace.sampler.follow._MOST_LINE_BYTES", 10)
    path = tmp_path / "log"
    path.write_bytes(b"x" * 25)
    follower = Follower(path, from_start=True)
    lines = follower.poll(0)
    with path.open("ab") as file:
        file.write(b"y\n")
    lines += follower.poll(1)
    assert [(line.text, line.part) for line in lines] == [(b"x" * 10, True), (b"x" * 10, True), (b"xxxxxy", False)]
