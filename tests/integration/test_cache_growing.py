"""A log that was read when it was shorter, and read on, gives what the whole log gives read at once: all forms."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gputrace.cache import log_entries
from gputrace.cache import logs as cached_logs
from gputrace.cache.content import Contents
from gputrace.cache.logs import CachedReader
from gputrace.cache.store import Store
from gputrace.ingest import opening
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.reader import Reader
from tests.captures import docker_lines, folder
from tests.integration.test_wrapped_captures import FORMS
from tests.unit.test_torn import Torn, logs, written

LONG = "2026-03-13T18:16:51.527911Z DEBUG cuzk_core::engine: " + "long text " * 4000


def read(path: Path, reader: Reader) -> LogResult:
    return reader.read_log(reader.open(str(path)), bundled_formats(), lambda _: None)


def check_same(got: LogResult, expected: LogResult) -> None:
    assert_frame_equal(got.marks, expected.marks)
    for name in ("wrapper", "open_end", "lines", "torn_repaired", "torn_lost", "unrecognised", "unrecognised_lines"):
        assert getattr(got, name) == getattr(expected, name), name


def grow(data: bytes, cuts: list[int], place: Path, chunk_bytes: int) -> int:
    """Reads a log at every length in `cuts` and whole, each time on from the last; how often only a tail was read."""
    path = place / "growing.log"
    store = Store(place / "store")
    assert store.open()
    resumed = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_logs, "LEAST_BYTES", 1)
        patch.setattr(cached_logs, "RESUMED_BYTES", 1)
        patch.setattr(log_entries, "_HEAD_BYTES", 8)
        patch.setattr(opening, "CHUNK_BYTES", chunk_bytes)
        for end in [*sorted(cuts), len(data)]:
            path.write_bytes(data[:end])
            reader = CachedReader(store, Contents(store))
            seen: list[int] = []
            expected = read(path, Reader())
            got = reader.read_log(reader.open(str(path)), bundled_formats(), seen.append)
            check_same(got, expected)
            check_same(read(path, CachedReader(store, Contents(store))), expected)
            resumed += sum(seen) < end
    assert store.counts.broken == 0
    return resumed


def in_form(name: str, count: int = 400) -> bytes:
    """A real capture's lines in a collector's form, with some that the collector cuts in parts."""
    _, line = FORMS[name]
    lines = docker_lines("pageable-heavy")[:count]
    parts = []
    for number, (stream, at_ns, text) in enumerate(lines):
        said = line(stream, at_ns, LONG if number % 60 == 30 else text)
        parts.append(said if isinstance(said, bytes) else said.encode())
    return b"".join(part + b"\n" for part in parts)


@pytest.mark.parametrize(
    "form",
    [
        "plain",
        "plain with CRLF",
        "docker json-file",
        "cri",
        "journalctl json",
    ],
)
def test_a_log_of_any_form_is_read_on(form: str, tmp_path: Path) -> None:
    data = in_form(form)
    drawn = random.Random(form)
    cuts = [drawn.randrange(len(data) // 3, len(data)) for _ in range(3)]
    assert grow(data, cuts, tmp_path, chunk_bytes=1 << 16) >= 2


def test_a_form_that_cannot_be_read_on_is_read_anew(tmp_path: Path) -> None:
    data = in_form("journalctl export", 300)
    assert grow(data, [len(data) // 2], tmp_path, chunk_bytes=1 << 16) == 0


@pytest.mark.parametrize("name", ["merged-fast", "light-then-heavy", "pageable-membw"])
def test_a_merged_log_with_torn_records_is_read_on(name: str, tmp_path: Path) -> None:
    data = opening.ByteSource(str(folder(name) / "prover.merged.gz")).read_all()
    drawn = random.Random(name)
    cuts = [drawn.randrange(len(data) // 4, len(data)) for _ in range(3)]
    assert grow(data, cuts, tmp_path, chunk_bytes=1 << 16) >= 2


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("growing")


@settings(max_examples=15)
@given(log=logs, at=st.floats(0.05, 0.95), chunk_bytes=st.integers(64, 4096))
def test_a_torn_log_cut_anywhere_is_read_on(
    place: Path, log: list[Torn | list[str]], at: float, chunk_bytes: int
) -> None:
    data = written(log, torn=True).encode()
    (place / "store").mkdir(mode=0o700, exist_ok=True)
    Store(place / "store").clear()
    grow(data, [int(len(data) * at)], place, chunk_bytes)


def test_parts_of_two_streams_across_the_seam(tmp_path: Path) -> None:
    record = "CUZK_TIMING: gpu_tid=0 tail_msm_ms=197 gpu_total_ms=7"
    lines = [f"2026-03-13T18:16:5{n % 10}.5Z stderr F {record}" for n in range(1200)]
    # The long line of stdout begins before stderr's and ends after it; a torn record lies between its parts.
    lines += ["2026-03-13T18:17:01.5Z stdout P a", "2026-03-13T18:17:01.5Z stderr P CUZK_TIMING: gpu_tid=0 "]
    lines += ["2026-03-13T18:17:01.6Z stderr F tail_msm_ms=198 gpu_total_ms=7"]
    lines += ["2026-03-13T18:17:01.6Z stderr F TIMELINE,85,GPU_START2026-11-29T11:52:43.2Z  INFO x"]
    lines += [f"2026-03-13T18:17:02.5Z stderr F {record}" for _ in range(1100)]
    lines += ["2026-03-13T18:17:03.5Z stdout F b", f"2026-03-13T18:17:03.5Z stderr F {record}"]
    data = "".join(f"{line}\n" for line in lines).encode()
    for upto in (1202, 1204, 2000):
        cut = len("".join(f"{line}\n" for line in lines[:upto]))
        assert grow(data, [cut], tmp_path, chunk_bytes=1 << 20) == 1
        Store(tmp_path / "store").clear()
