"""A long log that has grown: the chapters that stand are not judged again, and the report is that of the whole log."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from gputrace import api
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.pipeline.scenarios import parse_scenario
from gputrace.cache.runs import Request, judged
from gputrace.cache.store import Store
from gputrace.chapters.asked import Asked
from gputrace.chapters.cut import Size
from gputrace.chapters.inputs import LongInputs
from gputrace.chapters.long_run import LongRun
from gputrace.ingest import marks, opening
from gputrace.trace import Trace
from tests.captures import folder as capture_at

_SIZE = Size(marks=300, marks_before=200, marks_after=100)
_CHANGED = 1_790_000_000
# Predictions take longest, and only the last chapter has them.
_ASKED = Asked(scenarios=())


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So short a log has many places where reading can begin again."""
    monkeypatch.setattr(opening, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(opening, "_PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(marks, "_PARSED_AT_ONCE", 40)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "store")
    assert made.open()
    yield made
    assert made.counts.broken == 0


def _log(name: str) -> bytes:
    files = capture_at(name).iterdir()
    packed = next(path for path in files if path.name in ("prover.log.gz", "prover.merged.gz"))
    return opening.ByteSource(str(packed)).read_all()


class _Log:
    """A log that is written to, and reported on."""

    def __init__(self, path: Path, store: Store, size: Size = _SIZE) -> None:
        self.path, self.store, self._size, self._changed = path, store, size, _CHANGED
        self.read_bytes = 0

    def write(self, data: bytes) -> None:
        """Makes it hold these bytes, last changed long ago."""
        self.path.write_bytes(data)
        self._changed += 60
        os.utime(self.path, (self._changed, self._changed))

    def judged(self, asked: Asked, cached: bool) -> tuple[Trace, Diagnosis]:
        """Judged in chapters; `read_bytes` is then how much was read."""
        request, self.read_bytes = Request([str(self.path)]), 0
        run = LongRun(request, LongInputs(str(self.path)), self._size)
        seen: list[int] = []
        store = self.store if cached else None
        found = judged(
            request,
            asked.gap_ms,
            asked.scenarios,
            lambda made: run.judged(asked, lambda _, size: seen.append(size), made),
            store,
        )
        # What is left out is told first, at once.
        stood = seen[0] if seen and seen[0] > opening.CHUNK_BYTES * 2 else 0
        self.read_bytes = sum(seen) - stood
        return found

    def check(self, asked: Asked = _ASKED) -> int:
        """Its report is what it is without all that is kept; how many bytes were read for it."""
        trace, diagnosis = self.judged(asked, cached=True)
        read = self.read_bytes
        expected_trace, expected = self.judged(asked, cached=False)
        assert api.report(trace, diagnosis, "json") == api.report(expected_trace, expected, "json")
        assert_frame_equal(diagnosis.states, expected.states)
        assert_frame_equal(diagnosis.blame, expected.blame)
        assert trace.inputs == expected_trace.inputs
        return read


@pytest.mark.parametrize("name", ["told-story", "light-then-heavy", "pageable-heavy"])
def test_a_log_that_grows_is_judged_as_the_whole_log_is(name: str, tmp_path: Path, store: Store) -> None:
    data, log, drawn = _log(name), _Log(tmp_path / "prover.log", store), random.Random(name)
    for end in sorted(drawn.randrange(len(data) // 2, len(data)) for _ in range(3)):
        log.write(data[:end])
        log.check()
    log.write(data)
    # Its last chapters are a half of it at most; each is longer than all the pieces that a seam can cost.
    assert log.check() < len(data) * 0.7
    assert len(store.names("standing-")) == 1


def test_another_question_on_the_same_log_reads_its_end_only(tmp_path: Path, store: Store) -> None:
    data, log = _log("told-story"), _Log(tmp_path / "prover.log", store)
    log.write(data)
    assert log.check() == len(data)
    assert log.check(Asked(scenarios=[parse_scenario("workers=4")])) < len(data) * 0.6


def test_a_log_that_was_written_anew_is_read_anew(tmp_path: Path, store: Store) -> None:
    data, log = _log("told-story"), _Log(tmp_path / "prover.log", store)
    log.write(data[: len(data) * 3 // 4])
    log.check()
    place = data.index(b"gpu_total_ms=", len(data) // 8) + len(b"gpu_total_ms=")
    log.write(data[:place] + b"9" + data[place + 1 :])
    assert log.check() == len(data)


def test_other_options_have_chapters_of_their_own(tmp_path: Path, store: Store) -> None:
    data, log = _log("told-story"), _Log(tmp_path / "prover.log", store)
    log.write(data[: len(data) * 3 // 4])
    log.check()
    log.write(data)
    assert log.check(replace(_ASKED, gap_ms=100.0)) == len(data)


def test_where_the_year_depends_on_the_end_nothing_stands(tmp_path: Path, store: Store) -> None:
    data = b"".join(
        b"Mar 13 18:%02d:%02d host cuzk[7]: " % (n // 60 % 60, n % 60) + line
        for n, line in enumerate(_log("told-story").splitlines(keepends=True))
    )
    log = _Log(tmp_path / "prover.log", store)
    log.write(data)
    log.check()
    assert store.names("standing-") == []
    log.write(data.replace(b"Mar 13 ", b"2026-03-13T").replace(b" host cuzk[7]:", b".000000Z host cuzk[7]:"))
    log.check()
    assert len(store.names("standing-")) == 1


@pytest.mark.parametrize("chapter_marks", [21, 28, 39])
def test_a_chapter_that_used_a_torn_record_stands_only_once_that_has_ended(
    chapter_marks: int, tmp_path: Path, store: Store
) -> None:
    lines = _log("told-story").splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if line.startswith(b"TIMELINE,") and b",GPU_START," in line]
    offset, event, rest = lines[starts[20]].removeprefix(b"TIMELINE,").split(b",", 2)
    other = b"CUZK_TIMING: gpu_tid=0 tail_msm_ms=%d gpu_total_ms=7\n"
    begun = [*lines[: starts[20]], b"TIMELINE,%b,%b,%b" % (offset, event, other % 99), *(other % n for n in range(18))]
    log = _Log(tmp_path / "prover.log", store, Size(chapter_marks, marks_before=10, marks_after=chapter_marks // 2 - 1))
    log.write(b"".join(begun))
    log.check()
    log.write(b"".join([*begun, rest, *lines[starts[20] + 1 : starts[20] + 200]]))
    log.check()
