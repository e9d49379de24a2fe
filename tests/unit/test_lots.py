"""A log's marks lot by lot: the same marks as those of the whole, and counts that go with the lots given so far."""

import threading
from pathlib import Path

import polars as pl
import pytest

from gputrace import schema
from gputrace.ingest import marks as reading
from gputrace.ingest import opening
from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.log_result import LogResult, up_to_resume
from gputrace.ingest.marks import marks_of, read_log
from gputrace.ingest.opening import ByteSource

FORMATS = bundled_formats()
# Every tenth record is torn by a line of another writer, every seventh line is of a known family but not known.
_RECORD = "TIMELINE,{ms},GPU_END,porep-1000-7,worker=0,partition=3,gpu_ms={ms}\n"
_TORN = "TIMELINE,{ms},GPU_ENDCUZK_TIMING: prep_msm_ms={ms}\n,porep-1000-7,worker=0,partition=3,gpu_ms={ms}\n"


def _log(folder: Path, records: int) -> str:
    texts = []
    for ms in range(records):
        texts.append((_TORN if ms % 10 == 9 else _RECORD).format(ms=ms))
        texts.append("some other program says something\n" * 3)
        if ms % 7 == 6:
            texts.append("TIMELINE,not a record\n" if ms % 2 else "CUZK_TIMING: of a later version\n")
    path = folder / "prover.log"
    path.write_text("".join(texts), encoding="utf-8")
    return str(path)


@pytest.fixture
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(reading, "_PARSED_AT_ONCE", 50)


def _counts(result: LogResult) -> tuple[int, int, int, int]:
    return result.lines, result.torn_repaired, result.torn_lost, result.unrecognised


def test_lots_are_the_marks_of_the_whole(tmp_path: Path, small_lots: None) -> None:
    path = _log(tmp_path, 2000)
    whole = read_log(ByteSource(path), None, FORMATS)
    result = LogResult(schema.MARKS.empty())
    lots = list(marks_of(ByteSource(path), result, FORMATS))

    assert len(lots) > 10
    assert all(lot.schema == schema.MARKS.polars() for lot in lots)
    assert pl.concat(lots).equals(whole.marks)
    assert _counts(result) == _counts(whole)
    assert (result.unrecognised_lines, result.resume) == (whole.unrecognised_lines, whole.resume)
    assert whole.torn_repaired > 0
    assert whole.unrecognised > 0


def test_counts_are_those_of_the_lots_given(tmp_path: Path, small_lots: None) -> None:
    path = _log(tmp_path, 1000)
    lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    result = LogResult(schema.MARKS.empty())
    settled = 0
    for number, lot in enumerate(marks_of(ByteSource(path), result, FORMATS)):
        assert lot["line"].is_sorted()
        assert lot["line"].is_between(settled + 1, result.lines).all()
        settled = result.lines
        if number == 5:
            # What was counted so far is what a log that ends here would give.
            head = tmp_path / "head.log"
            head.write_text("".join(lines[:settled]), encoding="utf-8")
            assert _counts(result) == _counts(read_log(ByteSource(str(head)), None, FORMATS))
            assert settled < len(lines)
    assert settled == len(lines)


def test_a_grown_log_goes_on_in_lots(tmp_path: Path, small_lots: None) -> None:
    path = _log(tmp_path, 1000)
    before = read_log(ByteSource(path), None, FORMATS)
    assert before.resume is not None
    with Path(path).open("a", encoding="utf-8") as log:
        log.writelines(_RECORD.format(ms=ms) for ms in range(1000, 1500))
    result = up_to_resume(before)
    lots = list(marks_of(ByteSource(path, before.resume.offset), result, FORMATS))
    whole = read_log(ByteSource(path), None, FORMATS)
    assert pl.concat([result.marks, *lots]).equals(whole.marks)
    assert _counts(result) == _counts(whole)


def test_the_wrapper_is_known_with_the_first_lot(tmp_path: Path, small_lots: None) -> None:
    plain = Path(_log(tmp_path, 300)).read_text(encoding="utf-8").splitlines()
    path = tmp_path / "docker.log"
    stamp = "2026-03-13T18:16:51.000000001Z"
    path.write_text("".join(f"{stamp} {line}\n" for line in plain), encoding="utf-8")
    result = LogResult(schema.MARKS.empty())
    lots = marks_of(ByteSource(str(path)), result, FORMATS, detect=lambda lines: wrapper_of(lines, FORMATS))
    assert next(lots)["arrival_ns"].null_count() == 0
    assert result.wrapper is not None


def test_nothing_runs_on_where_reading_is_broken_off(tmp_path: Path, small_lots: None) -> None:
    before = set(threading.enumerate())
    lots = marks_of(ByteSource(_log(tmp_path, 2000)), LogResult(schema.MARKS.empty()), FORMATS)
    next(lots)
    assert set(threading.enumerate()) - before
    lots.close()  # type: ignore[attr-defined]
    assert not set(threading.enumerate()) - before
