"""The capture's folder: what is written can be read at any moment, nothing twice, and it stays within its limits."""

import errno
import json
import os
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gputrace.errors import RecordingError, UsageError
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.inputs import Ingested, ingest
from gputrace.ingest.recordings import RecordedLog, recording_at, unread_samples
from gputrace.ingest.trace_parts import extent_of, read_part
from gputrace.ingest.traces import use_traces
from gputrace.sampler import capture as capture_module
from gputrace.sampler.capture import RAW, Capture, Limits
from gputrace.sampler.compact import compact
from gputrace.sampler.host import HostRow, host_line
from gputrace.sampler.rows import csv_line
from tests.recording import MS, START_NS, FakeClock, NoPacker, S, row


def record(folder: Path, clock: FakeClock | None = None, **more: object) -> Capture:
    capture = Capture(folder, clock or FakeClock(), packer=NoPacker(), **more)  # type: ignore[arg-type]
    capture.write_meta(sampler={"gpus": [{"index": 0, "name": "NVIDIA H200"}]})
    return capture


def timing(number: int) -> bytes:
    return b"CUZK_TIMING: prep_msm_ms=%d" % number


def prep_ms(read: Ingested) -> list[int]:
    """The numbers of the log's lines, in order."""
    return [int(pair["value"]) for pairs in read.marks["values"] for pair in pairs if pair["key"] == "prep_msm_ms"]


def lines_of(folder: Path) -> list[bytes]:
    recording = recording_at(str(folder))
    assert recording is not None
    data = b"".join(RecordedLog(recording).chunks())
    assert not data or data.endswith(b"\n")
    lines = data.split(b"\n")[:-1]
    return [line.split(b" ", 2)[2] for line in lines if b" gputrace segment=" not in line]


# --- what is written is read ----------------------------------------------------------------------------------------


def test_a_capture_of_everything_is_read_back(tmp_path: Path) -> None:
    capture = record(tmp_path / "c")
    capture.log([(START_NS + n * S // 10, "stderr", timing(n), False) for n in range(30)])
    capture.samples([csv_line(row(number, gpu)) for number in range(30) for gpu in (0, 1)])
    for number in range(3):
        at = START_NS + number * S
        capture.host(
            host_line(HostRow(at, at + S, at, cpu_share=0.5, memory_used_mib=10.0, page_faults_total=7 * number))
        )
    capture.event("start")
    capture.close()

    read = ingest([str(tmp_path / "c")])

    assert [(info.kind, info.format, info.rows) for info in read.inputs] == [
        ("metadata", "json", 0),
        ("log", "gputrace-log", 31),
        ("samples", "gputrace-samples", 60),
        ("host", "gputrace-host", 3),
    ]
    assert prep_ms(read) == list(range(30))
    assert read.marks["arrival_ns"][3] == START_NS + 3 * S // 10
    assert read.samples.group_by("gpu").agg(pl.col("rx_wire_bytes").sum()).sort("gpu").rows() == [(0, 29e3), (1, 29e3)]
    assert {gpu.pcie_source for gpu in read.gpus} == {"counters"}
    assert read.gpus[0].name == "NVIDIA H200"
    assert read.host["page_faults_per_s"].to_list() == [7.0, 7.0]
    assert read.quality.notices == []


@pytest.mark.parametrize("packed", [False, True])
def test_segments_are_one_recording_packed_or_not(tmp_path: Path, packed: bool) -> None:
    clock, folder = FakeClock(), tmp_path / "c"
    capture = record(folder, clock)
    for number in range(3000):
        clock.pass_ns(S)
        capture.samples([csv_line(row(number))])
        capture.log([(clock.wall, "log", timing(number), False)])
        if number % 700 == 699:
            for segments in (capture._samples, capture._log):
                closed = segments.close()
                assert closed is not None
                if packed:
                    compact(closed)
    capture.close()
    names = sorted(path.name for path in folder.iterdir())
    assert f"samples-000001.{'parquet' if packed else 'csv'}" in names and "samples-000005.csv" in names

    read = ingest([str(folder)])

    assert prep_ms(read) == list(range(3000))
    assert read.samples.height == 2999 and read.samples["rx_wire_bytes"].sum() == 2999e3
    assert "rotated-log" not in {notice.code for notice in read.quality.notices}
    assert_frame_equal(in_parts(folder, 4), read.samples)


def in_parts(folder: Path, count: int) -> pl.DataFrame:
    """The samples of a recording's folder, read part by part."""
    recording = recording_at(str(folder))
    trace = unread_samples(recording, bundled_formats()) if recording else None
    extent = extent_of(trace) if trace else None
    assert trace is not None and extent is not None
    edges = np.linspace(extent.first_ns, extent.last_ns, count + 1).astype(np.int64).tolist()
    parts = []
    for from_ns, to_ns in pairwise(edges):
        part, read = read_part(trace, extent, from_ns, to_ns), Ingested()
        assert part is not None
        use_traces(read, [part], {}, True)
        parts.append(read.samples)
    return pl.concat(parts).unique(maintain_order=True)


def test_packing_keeps_every_cell(tmp_path: Path) -> None:
    capture = record(tmp_path / "c")
    rows = [row(0, power_w=85.25, failed="gpm;power", hole=True), row(1, rx_wire_bytes_total=None, gpu_util=None)]
    capture.samples([csv_line(one) for one in rows])
    capture.close()
    path = tmp_path / "c" / "samples-000001.csv"
    packed = compact(path)
    assert not path.exists() and packed.name == "samples-000001.parquet"
    frame = pl.read_parquet(packed)
    assert [dict(zip(frame.columns, cells, strict=True)) for cells in frame.rows()] == [
        {**one._asdict(), "failed": one.failed or None} for one in rows
    ]


def test_a_packed_segment_whose_source_is_still_there_counts_once(tmp_path: Path) -> None:
    capture = record(tmp_path / "c")
    capture.samples([csv_line(row(number)) for number in range(20)])
    capture.log([(START_NS, "stderr", timing(0), False)])
    capture.close()
    for name in ("samples-000001.csv", "prover-000001.log"):
        path = tmp_path / "c" / name
        data = path.read_bytes()
        compact(path)
        path.write_bytes(data)
    read = ingest([str(tmp_path / "c")])
    assert read.samples.height == 19
    assert prep_ms(read) == [0]


# --- after a crash --------------------------------------------------------------------------------------------------

pieces = st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\0", b"")), max_size=12)


@settings(max_examples=200)
@given(out=pieces, err=pieces, rotate=st.integers(0, 24), cut=st.integers(0, 160), more=pieces)
def test_every_line_comes_once_wherever_the_stamped_log_broke_off(
    out: list[bytes], err: list[bytes], rotate: int, cut: int, more: list[bytes]
) -> None:
    """The prover wrote `out`, `err`, then `more`; the recorder stamped all but `more`, and its last bytes are gone."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "c"
        capture = record(folder)
        capture.consumed = dict.fromkeys(RAW, 0)
        for number, (stream, text) in enumerate([*(("stdout", t) for t in out), *(("stderr", t) for t in err)]):
            capture.log([(START_NS + number, stream, text, False)])
            if number == rotate:
                capture._log.close()
        capture.close()
        (folder / RAW["stdout"]).write_bytes(b"".join(t + b"\n" for t in out))
        (folder / RAW["stderr"]).write_bytes(b"".join(t + b"\n" for t in [*err, *more]) + b"unfinished")
        segments = sorted(folder.glob("prover-*.log"))
        if segments:
            os.truncate(segments[-1], max(0, segments[-1].stat().st_size - cut))
        found = lines_of(folder)
        assert sorted(found) == sorted([*out, *err, *more])


@settings(max_examples=60)
@given(cut=st.integers(0, 700))
def test_a_torn_row_is_left_out_and_counted(cut: int) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "c"
        capture = record(folder)
        capture.samples([csv_line(row(number, failed="gpm;power")) for number in range(12)])
        capture.close()
        path = folder / "samples-000001.csv"
        data = path.read_bytes()[:-cut] if cut else path.read_bytes()
        path.write_bytes(data)
        read = ingest([str(folder)])
        whole = data.count(b"\n") - 1
        assert read.samples.height == whole - 1
        broken = [notice.count for notice in read.quality.notices if notice.code == "rows-broken"]
        assert broken == ([] if data.endswith(b"\n") else [1])


def test_lines_that_nobody_stamped_are_said_to_be_so(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    capture = record(folder)
    capture.consumed = dict.fromkeys(RAW, 0)
    capture.log([(START_NS, "stderr", timing(0), False)])
    (folder / RAW["stderr"]).write_bytes(timing(0) + b"\n" + timing(1) + b"\n" + timing(2) + b"\n")
    (folder / RAW["stdout"]).write_bytes(b"")
    read = ingest([str(folder)])
    assert prep_ms(read) == [0, 1, 2]
    assert read.marks["arrival_ns"].to_list() == [START_NS, None, None]
    assert [(n.code, n.count) for n in read.quality.notices] == [("log-unstamped", 2)]


def test_the_last_words_of_a_command_without_a_line_end_are_read_when_it_is_over(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    capture = record(folder)
    (folder / RAW["stderr"]).write_bytes(b"panicked")
    assert lines_of(folder) == []
    capture.write_meta(exit_code=101)
    assert lines_of(folder) == [b"panicked"]


# --- limits ---------------------------------------------------------------------------------------------------------


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_capture_stays_within_its_size_and_keeps_the_newest(tmp_path: Path) -> None:
    clock, folder, most = FakeClock(), tmp_path / "c", 4 << 20
    capture = record(folder, clock, limits=Limits(max_bytes=most))
    largest = 0
    for number in range(4000):
        clock.pass_ns(S)
        capture.samples([csv_line(row(10 * number + n, gpu)) for n in range(10) for gpu in (0, 1)])
        capture.log([(clock.wall, "log", timing(number), False)])
        capture.keep_house()
        if number % 50 == 0:
            largest = max(largest, size_of(folder))
    assert largest < 1.05 * most
    assert size_of(folder) > 0.7 * most
    read = ingest([str(folder)])
    assert prep_ms(read)[-1] == 3999
    assert read.samples["end_ns"].max() == START_NS + 40_000 * 100 * MS
    events = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
    assert "dropped" in events


def test_so_many_segments_are_kept_of_each_kind(tmp_path: Path) -> None:
    clock, folder = FakeClock(), tmp_path / "c"
    capture = record(folder, clock, limits=Limits(max_bytes=100 << 20, keep=2))
    text = "x" * (1 << 20)
    for number in range(60):
        clock.pass_ns(2 * S)
        capture.log([(clock.wall, "log", text.encode(), False)])
        capture.samples([csv_line(row(number))])
        capture.keep_house()
    assert 2 <= len(list(folder.glob("prover-*"))) <= 3
    assert len(list(folder.glob("samples-*"))) == 1


def test_raw_output_that_is_stamped_gives_its_space_back_and_nothing_is_lost(tmp_path: Path) -> None:
    clock, folder = FakeClock(), tmp_path / "c"
    capture = record(folder, clock, limits=Limits(max_bytes=1 << 30))
    capture.consumed = dict.fromkeys(RAW, 0)
    raw = folder / RAW["stderr"]
    line = b"y" * 99
    with raw.open("ab", buffering=0) as prover:
        for _ in range(8):
            prover.write((line + b"\n") * 10_000)
            capture.log([(clock.wall, "stderr", line, False)] * 10_000)
            clock.pass_ns(2 * S)
            capture.keep_house()
        prover.write(b"not stamped\n")
    if raw.stat().st_blocks * 512 > 7_000_000:
        pytest.skip("this file system cannot punch holes")
    assert raw.stat().st_blocks * 512 < 5_000_000
    found = lines_of(folder)
    assert len(found) == 80_001 and found[-1] == b"not stamped"


# --- a disk that is full or broken ----------------------------------------------------------------------------------


class BrokenDisk:
    """Writes until so many bytes are there, part of the last write, too."""

    def __init__(self, room: int, code: int) -> None:
        self.room, self.code = room, code

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(self.code, os.strerror(self.code))
        taken = data[: self.room]
        self.room -= len(taken)
        return os.write(fd, taken)


@pytest.mark.parametrize(
    ("code", "says"), [(errno.ENOSPC, "no space left"), (errno.EDQUOT, "no space left"), (errno.EIO, "Input/output")]
)
def test_a_disk_that_takes_no_more_is_one_clear_line(tmp_path: Path, code: int, says: str) -> None:
    folder = tmp_path / "c"
    capture = record(folder, write=BrokenDisk(5000, code))
    number = 0
    with pytest.raises(RecordingError, match=says) as raised:
        while True:
            capture.samples([csv_line(row(number))])
            number += 1
    assert raised.value.exit_code == 5 and "\n" not in str(raised.value)
    assert "samples-000001.csv" in str(raised.value)
    read = ingest([str(folder)])
    assert read.samples.height == number - 1


def test_recording_stops_before_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = record(tmp_path / "c")
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 100_000, 2000, 2000, 9, 9, 9, 0, 255)))
    with pytest.raises(RecordingError, match=r"no space left \(8 MB free\)"):
        capture.keep_house()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        Capture(tmp_path, FakeClock())


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match="Not a directory"):
        Capture(tmp_path / "file" / "c", FakeClock())


def test_the_recorders_own_events_do_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, "_EVENTS_BYTES", 1000)
    capture = record(tmp_path / "c")
    for _ in range(200):
        capture.event("hole", gpu=0)
    assert size_of(tmp_path / "c") < 5000
