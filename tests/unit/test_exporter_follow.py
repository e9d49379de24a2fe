"""A capture is read on as it grows: no line lost, none twice, whatever becomes of its files."""

from pathlib import Path

import polars as pl
import pytest

from gputrace.live.follow import MOST_LINES, Follower, Series

S = 1_000_000_000
T0 = 1_795_952_850 * S
HEADER = "gpu,t_start_ns,t_end_ns,late_ms,hole,failed"


def row(second: int) -> str:
    return f"0,{T0 + (second - 1) * S},{T0 + second * S},0.5,false,"


def table(*seconds: int, header: bool = True) -> str:
    return "".join(f"{line}\n" for line in [*([HEADER] if header else []), *map(row, seconds)])


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_rows_are_read_once_over_segments(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    append(tmp_path / "samples-000001.csv", table(1, 2))
    assert follower.read() == {"samples.csv": [row(1), row(2)]}
    assert follower.read() == {"samples.csv": []}
    append(tmp_path / "samples-000001.csv", table(3, header=False))
    append(tmp_path / "samples-000002.csv", table(4))
    assert follower.read() == {"samples.csv": [row(3), row(4)]}
    assert follower.last_ns() == T0 + 4 * S


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    whole = table(1, 2)
    append(tmp_path / "samples-000001.csv", whole[:-7])
    assert follower.read() == {"samples.csv": [row(1)]}
    append(tmp_path / "samples-000001.csv", whole[-7:])
    assert follower.read() == {"samples.csv": [row(2)]}


def test_a_segment_torn_by_a_crash_does_not_spoil_the_next(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    append(tmp_path / "samples-000001.csv", table(1, 2)[:-7])
    append(tmp_path / "samples-000002.csv", table(3))
    assert follower.read() == {"samples.csv": [row(1), row(3)]}


@pytest.mark.parametrize("read_before", [0, 1, 3])
def test_a_segment_turned_into_parquet_is_read_on(tmp_path: Path, read_before: int) -> None:
    follower = Follower(tmp_path)
    text = tmp_path / "samples-000001.csv"
    seconds = range(1, 6)
    new: list[str] = []
    if read_before:
        append(text, table(*seconds[:read_before]))
        new += follower.read()["samples.csv"]
        append(text, table(*seconds[read_before:], header=False))
    else:
        append(text, table(*seconds))
    pl.read_csv(text).write_parquet(tmp_path / "samples-000001.parquet")
    text.unlink()
    append(tmp_path / "samples-000002.csv", table(6))
    new += follower.read()["samples.csv"]
    new += follower.read()["samples.csv"]
    times = [line.split(",")[2] for line in new]
    assert times == [str(T0 + second * S) for second in range(1, 7)]


def test_both_forms_for_a_moment_are_one_segment(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    append(tmp_path / "samples-000001.csv", table(1, 2))
    pl.read_csv(tmp_path / "samples-000001.csv").write_parquet(tmp_path / "samples-000001.parquet")
    assert follower.read() == {"samples.csv": [row(1), row(2)]}


def test_reading_up_to_a_time(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    append(tmp_path / "samples-000001.csv", table(1, 2, 3))
    assert follower.read(T0 + 2 * S) == {"samples.csv": [row(1), row(2)]}
    assert follower.next_ns() == T0 + 3 * S
    assert follower.read() == {"samples.csv": [row(3)]}
    assert follower.next_ns() is None


def test_log_lines_without_a_time_go_with_the_one_before(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    lines = [f"{T0} stdout a", "CUZK_TIMING: x", "2026-11-29T11:47:31.250000Z INFO b", "TIMELINE,1"]
    append(tmp_path / "prover-000001.log", "".join(f"{line}\n" for line in lines))
    follower.read()
    assert [at for at, _ in follower.series["prover.log"].kept] == [T0, T0, T0 + S + S // 4, T0 + S + S // 4]


def test_a_log_cut_back_is_read_anew(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    log = tmp_path / "prover.log"
    log.write_text(f"{T0} stdout first line\n{T0} stdout second\n")
    follower.read()
    log.write_text(f"{T0 + S} stdout new\n")
    assert follower.read() == {"prover.log": [f"{T0 + S} stdout new"]}


def test_what_the_recorder_stamped_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "prover-000001.log").write_text(f"{T0} stdout a\n")
    (tmp_path / "prover.stdout").write_text("a\n")
    (tmp_path / "meta.json").write_text("{}")
    (tmp_path / "events.jsonl").write_text("{}\n")
    (tmp_path / "cpu.txt").write_text("16 cores\n")
    (tmp_path / "samples-000001.csv.tmp").write_text("half")
    assert Follower(tmp_path).read() == {"prover.log": [f"{T0} stdout a"]}


def test_what_is_kept_is_written_as_a_capture(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    follower = Follower(tmp_path / "from")
    append(tmp_path / "from" / "samples-000001.csv", table(1, 2, 3))
    odd = f"{T0 + 2 * S} stdout \udcff\n".encode("utf-8", "surrogateescape")
    (tmp_path / "from" / "prover-000001.log").write_bytes(
        b"1795952850000000000 stdout pipeline GPU worker started\n" + odd
    )
    (tmp_path / "from" / "meta.json").write_text('{"gpu_name": "x"}')
    follower.read()
    follower.trim(T0 + 2 * S)
    follower.write(tmp_path / "to")
    assert (tmp_path / "to" / "samples.csv").read_text() == table(2, 3)
    # Which worker is on which GPU is said once: it stays.
    log = (tmp_path / "to" / "prover.log").read_bytes()
    assert log.splitlines() == [b"1795952850000000000 stdout pipeline GPU worker started", odd.rstrip()]
    assert (tmp_path / "to" / "meta.json").exists()


def test_old_samples_are_left_out_when_starting_at_the_end(tmp_path: Path) -> None:
    for number in range(1, 6):
        append(tmp_path / f"samples-{number:06d}.csv", table(number))
    follower = Follower(tmp_path)
    follower.start_at_end()
    assert follower.read() == {"samples.csv": [row(4), row(5)]}


def test_memory_is_bounded(tmp_path: Path) -> None:
    series = Series("prover.log", table=False)
    log = tmp_path / "prover.log"
    log.write_text(f"{T0} stdout x\n" * (MOST_LINES + 10))
    while series.take({"prover": log}, None):
        pass
    assert len(series.kept) == MOST_LINES
    for number in range(5):
        series.take({f"prover-{number:06d}": log}, None)
    assert len(series.positions) == 1
