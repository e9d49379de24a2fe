"""Which of several GPU traces is taken, and on what clock."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from gputrace.ingest.inputs import ingest
from tests.captures import DATA, log_and_trace
from tests.unit.trace_inputs import LOG, codes, said, write


def shifted_query(minutes: int, tmp_path: Path) -> str:
    """nvidia-smi's CSV of the capture, as a machine would have written it whose clock is `minutes` ahead of UTC."""
    text = gzip.decompress((DATA / "pageable-heavy" / "smi.csv.gz").read_bytes()).decode()
    header, *rows = text.splitlines()
    times = pl.Series([row.split(",")[0] for row in rows]).str.to_datetime("%Y/%m/%d %H:%M:%S%.f", time_unit="ns")
    moved = times.dt.offset_by(f"{minutes}m").dt.strftime("%Y/%m/%d %H:%M:%S%.3f")
    lines = [f"{time},{row.split(',', 1)[1]}" for time, row in zip(moved, rows, strict=True)]
    return write(tmp_path / "smi.csv", "\n".join([header, *lines]) + "\n")


@pytest.mark.parametrize(("minutes", "zone"), [(60, "UTC+01:00"), (-480, "UTC-08:00"), (345, "UTC+05:45"), (0, "")])
def test_local_times_are_moved_to_where_they_meet_the_log(minutes: int, zone: str, tmp_path: Path) -> None:
    expected = ingest([str(DATA / "pageable-heavy" / "smi.csv.gz")]).samples["start_ns"][0]
    read = ingest([LOG, shifted_query(minutes, tmp_path)])
    assert read.samples["start_ns"][0] == expected
    assert zone in said(read, "trace-timezone-inferred")
    assert ("trace-timezone-inferred" in codes(read)) is bool(zone)


def test_a_zone_that_is_told_is_taken(tmp_path: Path) -> None:
    expected = ingest([str(DATA / "pageable-heavy" / "smi.csv.gz")]).samples["start_ns"][0]
    told = ingest([shifted_query(60, tmp_path)], timezone="Europe/Berlin")
    assert told.samples["start_ns"][0] == expected
    assert "trace-timezone-assumed" not in codes(told)


def test_a_trace_of_another_day_is_not_moved(tmp_path: Path) -> None:
    read = ingest([LOG, shifted_query(3 * 24 * 60, tmp_path)])
    assert "trace-timezone-inferred" not in codes(read)


def test_rotated_parts_of_one_recording_are_put_together(tmp_path: Path) -> None:
    text = gzip.decompress((DATA / "pageable-heavy" / "smi.csv.gz").read_bytes()).decode()
    header, *rows = text.splitlines()
    middle = len(rows) // 2
    paths = [
        write(tmp_path / name, "\n".join([header, *part]) + "\n")
        for name, part in (("b", rows[:middle]), ("a", rows[middle:]))
    ]
    whole, parts = ingest([str(DATA / "pageable-heavy" / "smi.csv.gz")]), ingest(paths)
    assert parts.samples.equals(whole.samples)
    assert all(info.used for info in parts.inputs)


def test_the_sampler_that_sees_most_is_taken(tmp_path: Path) -> None:
    capture = DATA / "pageable-heavy"
    read = ingest([LOG, str(capture / "dmon.txt.gz"), str(capture / "smi.csv.gz"), log_and_trace("pageable-heavy")[1]])
    assert [info.used for info in read.inputs] == [True, False, False, True]
    assert codes(read).count("same-gpu") == 2
