"""TIMELINE records torn by other writes come back whole, and nothing beside them is lost or made up.

`eprintln!` writes a record in nine pieces (eight where the detail is empty); lines of other writers are one write each.
So a torn log is made here as the prover makes it: whole foreign lines between the pieces of one open record.
"""

import json
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gputrace.ingest import opening
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import read_log
from gputrace.ingest.opening import ByteSource
from tests.unit.support import read_text, said

C_LINE = "CUZK_TIMING: gpu_tid=0 tail_msm_ms=197 gpu_total_ms=7"
NTT_LINE = (
    "CUZK_NTT_H: d_b_alloc=0ms ntt_kernels=8104ms coset_intt_sync=122ms msm_init=1ms msm_invoke=631ms "
    "msm_dtor=0ms total=8859ms"
)
TRACING_LINE = (
    "2026-03-13T18:16:51.527911Z  INFO cuzk_core::engine: GPU_TIMING spawn_blocking prove_start worker_id=0 "
    "partition=Some(3) spawn_to_enter_ms=0 prove_start_ms=9911"
)
COLOURED_LINE = (
    "\x1b[2m2026-03-13T18:16:51.529711Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mcuzk_core::engine\x1b[0m\x1b[2m:\x1b[0m "
    "partition GPU prove complete \x1b[3mjob_id\x1b[0m\x1b[2m=\x1b[0mj \x1b[3mpartition\x1b[0m\x1b[2m=\x1b[0m3 "
    "\x1b[3mgpu_ms\x1b[0m\x1b[2m=\x1b[0m9912 \x1b[3mfilled\x1b[0m\x1b[2m=\x1b[0m0"
)
QUIET_TRACING_LINE = "2026-03-13T18:16:51.000001Z DEBUG cuzk_core::engine: nothing that anybody reads x=1"


class Record(NamedTuple):
    """One TIMELINE record."""

    offset_ms: int
    event: str
    job: str
    detail: str

    @property
    def pieces(self) -> list[str]:
        """As they are written, the newline included."""
        middle = [str(self.offset_ms), ",", self.event, ",", self.job, ","]
        return ["TIMELINE,", *middle, *([self.detail] if self.detail else []), "\n"]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Torn(NamedTuple):
    """A record and the foreign lines written before its piece number `at`."""

    record: Record
    foreign: dict[int, list[str]]

    @property
    def text(self) -> str:
        written = ""
        for number, piece in enumerate(self.record.pieces):
            written += "".join(f"{line}\n" for line in self.foreign.get(number, [])) + piece
        return written

    @property
    def untorn(self) -> str:
        foreign = [line for lines in self.foreign.values() for line in lines]
        return self.record.text + "".join(f"{line}\n" for line in foreign)


START = Record(339512, "GPU_START", "snap-1000-42", "worker=0,partition=6")
BOUNDARIES = range(1, len(START.pieces))


def check_repaired(folder: Path, torn: str, untorn: str, repaired: int) -> LogResult:
    """Reads both; what the torn one says must be what the untorn one says."""
    expected, got = read_text(folder, untorn), read_text(folder, torn)
    assert said(got.marks) == said(expected.marks)
    assert (got.torn_lost, got.torn_repaired, got.unrecognised) == (0, repaired, 0)
    return got


@pytest.mark.parametrize("line", [C_LINE, NTT_LINE, TRACING_LINE, COLOURED_LINE, QUIET_TRACING_LINE])
@pytest.mark.parametrize("at", BOUNDARIES)
def test_a_whole_line_inside_a_record(tmp_path: Path, at: int, line: str) -> None:
    torn = Torn(START, {at: [line]})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


def test_the_tear_seen_upstream(tmp_path: Path) -> None:
    # The digits of the C line's figure end where the record's offset begins: only the newline parts them.
    text = f"TIMELINE,{C_LINE}\n7,GPU_START,porep-1000-7,worker=0,partition=6\n"
    untorn = f"TIMELINE,7,GPU_START,porep-1000-7,worker=0,partition=6\n{C_LINE}\n"
    got = check_repaired(tmp_path, text, untorn, repaired=1)
    by_event = {row["event"]: row for row in got.marks.iter_rows(named=True)}
    assert {"key": "gpu_total_ms", "value": "7"} in by_event["tail_msm"]["values"]
    assert by_event["GPU_START"]["offset_ms"] == 7
    assert by_event["GPU_START"]["repaired"] and not by_event["tail_msm"]["repaired"]


def test_digits_of_a_partition_run_into_the_year(tmp_path: Path) -> None:
    text = f"TIMELINE,9,GPU_START,porep-1000-7,worker=0,partition=2{TRACING_LINE}\n\n"
    untorn = f"TIMELINE,9,GPU_START,porep-1000-7,worker=0,partition=2\n{TRACING_LINE}\n"
    got = check_repaired(tmp_path, text, untorn, repaired=1)
    assert got.marks.filter(pl.col("event") == "GPU_START")["partition"].to_list() == [2]


@pytest.mark.parametrize("at", BOUNDARIES)
def test_two_foreign_lines_at_one_boundary(tmp_path: Path, at: int) -> None:
    torn = Torn(START, {at: [C_LINE, TRACING_LINE]})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in (1, 3, 5) for b in BOUNDARIES if a < b])
def test_two_foreign_lines_at_two_boundaries(tmp_path: Path, first: int, second: int) -> None:
    torn = Torn(START, {first: [NTT_LINE], second: [TRACING_LINE]})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


def test_a_foreign_line_at_every_boundary(tmp_path: Path) -> None:
    torn = Torn(START, {at: [C_LINE] for at in BOUNDARIES})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


def test_two_torn_records_in_a_row(tmp_path: Path) -> None:
    first = Torn(START, {4: [C_LINE]})
    second = Torn(Record(339600, "GPU_END", "snap-1000-42", "worker=0,partition=6,gpu_ms=88"), {8: [TRACING_LINE]})
    check_repaired(tmp_path, first.text + second.text, first.untorn + second.untorn, repaired=2)


def test_other_lines_between_the_pieces_are_not_pieces(tmp_path: Path) -> None:
    torn = Torn(START, {5: [C_LINE, "a line of some other program", "key=9 of nobody"]})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


def test_another_line_before_the_newline_alone(tmp_path: Path) -> None:
    ended = Record(349425, "GPU_END", "snap-1000-42", "worker=0,partition=6,gpu_ms=9912")
    torn = Torn(ended, {8: [C_LINE, "a line of some other program"]})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


# Before 2026-02-20 the detail was empty: eight pieces.
OLD = Record(19, "CHAN_SEND", "porep-1000-7", "")


@pytest.mark.parametrize("at", range(1, len(OLD.pieces) - 1))
def test_a_record_of_an_old_build_with_an_empty_detail(tmp_path: Path, at: int) -> None:
    torn = Torn(OLD, {at: [C_LINE]})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


def test_the_newline_alone_of_a_record_with_an_empty_detail(tmp_path: Path) -> None:
    torn = Torn(OLD, {len(OLD.pieces) - 1: [C_LINE]})
    check_repaired(tmp_path, torn.text, torn.untorn, repaired=1)


def test_a_record_that_never_ends_is_lost_and_its_foreign_lines_kept(tmp_path: Path) -> None:
    text = f"TIMELINE,339512,GPU_ST{C_LINE}\n{NTT_LINE}\n"
    got = read_text(tmp_path, text)
    assert said(got.marks) == said(read_text(tmp_path, f"{C_LINE}\n{NTT_LINE}\n").marks)
    assert (got.torn_repaired, got.torn_lost) == (0, 1)


def test_a_record_that_never_ends_does_not_swallow_the_next(tmp_path: Path) -> None:
    text = f"TIMELINE,339512,{C_LINE}\n{START.text}{TRACING_LINE}\n"
    got = read_text(tmp_path, text)
    assert said(got.marks) == said(read_text(tmp_path, f"{C_LINE}\n{START.text}{TRACING_LINE}\n").marks)
    assert (got.torn_repaired, got.torn_lost) == (0, 1)


def test_a_record_cut_off_by_the_logs_end_is_lost(tmp_path: Path) -> None:
    got = read_text(tmp_path, f"{START.text}TIMELINE,339600,GPU_EN")
    assert got.marks["event"].to_list() == ["GPU_START"]
    assert (got.torn_repaired, got.torn_lost) == (0, 1)


def test_a_tracing_line_that_quotes_a_record_is_not_torn(tmp_path: Path) -> None:
    quoting = '2026-03-13T18:16:51.5Z ERROR cuzk_core::engine: TIMELINE, not a record job_id=j reason="TIMELINE,5,GPU_"'
    got = read_text(tmp_path, f"{quoting}\n{START.text}")
    assert sorted(got.marks["event"].to_list()) == ["GPU_START", "error"]
    assert (got.torn_repaired, got.torn_lost) == (0, 0)


def docker_line(stream: str, text: str, second: int) -> str:
    record = {"log": f"{text}\n", "stream": stream, "time": f"2026-03-13T18:16:{second:02}.5Z"}
    return json.dumps(record, separators=(",", ":")) + "\n"


def test_under_docker_only_lines_of_the_same_stream_are_pieces(tmp_path: Path) -> None:
    lines = [
        docker_line("stderr", f"TIMELINE,339512,GPU_START{C_LINE}", 1),
        docker_line("stdout", ",not-a-piece,worker=9,partition=9", 2),
        docker_line("stdout", TRACING_LINE, 3),
        docker_line("stderr", ",snap-1000-42,worker=0,partition=6", 4),
    ]
    path = tmp_path / "docker.json"
    path.write_text("".join(lines), encoding="utf-8")
    wrapper = next(w for w in bundled_formats().wrappers if w.name == "docker-json")
    got = read_log(ByteSource(str(path)), wrapper, bundled_formats())
    started = got.marks.filter(pl.col("event") == "GPU_START").row(0, named=True)
    assert (started["job"], started["worker"], started["partition"]) == ("snap-1000-42", 0, 6)
    # The first piece says when the record was begun.
    assert started["arrival_ns"] == 1773425761_500_000_000
    assert sorted(got.marks["event"].to_list()) == ["GPU_START", "prove_start_spawned", "tail_msm"]
    assert (got.torn_repaired, got.torn_lost) == (1, 0)


# --- properties ---------------------------------------------------------------------------------------------------

_JOB_CHARACTERS = "abcz019-_.[], :"
job_ids = st.one_of(
    st.uuids().map(str),
    st.builds(lambda miner, sector: f"ps-snap-{miner}-{sector}-7", st.integers(1, 9999), st.integers(1, 99999)),
    st.lists(st.integers(0, 255), min_size=1, max_size=8).map(lambda b: f"wdpost-1000-2-[{' '.join(map(str, b))}]"),
    # A caller may send anything, commas included. It neither begins nor ends in a comma or blank.
    st.builds(
        lambda first, rest, last: first + rest + last,
        st.sampled_from("abcz019"),
        st.text(_JOB_CHARACTERS, max_size=20),
        st.sampled_from("abcz019]"),
    ),
)
small = st.integers(0, 99)
details = st.one_of(
    st.builds(lambda p: f"partition={p}", small),
    st.builds(lambda w, p: f"worker={w},partition={p}", small, small),
    st.builds(lambda w, p, ms: f"worker={w},partition={p},gpu_ms={ms}", small, small, st.integers(0, 99999)),
    st.builds(lambda p: f"snap_partition={p}", small),
    st.sampled_from(["monolithic", "kind=snap-update", "worker=1"]),
)
records = st.builds(
    Record,
    st.integers(0, 10**8),
    st.sampled_from(["SYNTH_START", "SYNTH_END", "GPU_QUEUE", "GPU_PICKUP", "GPU_START", "GPU_END", "CHAN_SEND"]),
    job_ids,
    details,
)
ours = st.one_of(
    st.sampled_from([NTT_LINE, TRACING_LINE, COLOURED_LINE, QUIET_TRACING_LINE]),
    st.builds(lambda ms: f"CUZK_TIMING: prep_msm_ms={ms}", st.integers(-5, 99999)),
    st.builds(lambda w, h: f"CUZK_TIMING: pre_lock_cpu_ms={w} mutex_wait_ms={h}", small, small),
)
foreign_lines = st.builds(
    lambda first, more: [first, *more],
    ours,
    st.lists(st.one_of(ours, st.sampled_from(["a line of some other program", "ends in digits 20"])), max_size=2),
)
# Before the newline only lines that are recognised.
before_newline = st.one_of(st.just({}), st.builds(lambda lines: {8: lines}, st.lists(ours, min_size=1, max_size=2)))
inside = st.dictionaries(st.integers(1, 7), foreign_lines, max_size=3)
tears = st.builds(lambda within, last: within | last, inside, before_newline)
torn_records = st.builds(Torn, records, tears)
logs = st.lists(st.one_of(torn_records, foreign_lines), min_size=1, max_size=12)


def written(log: list[Torn | list[str]], torn: bool) -> str:
    """The log as text, its records torn or not."""
    parts = []
    for part in log:
        if isinstance(part, Torn):
            parts.append(part.text if torn else part.untorn)
        else:
            parts.append("".join(f"{line}\n" for line in part))
    return "".join(parts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torn")


@settings(max_examples=120)
@given(log=logs)
def test_reading_a_torn_log_gives_what_the_untorn_log_gives(folder: Path, log: list[Torn | list[str]]) -> None:
    torn = sum(isinstance(part, Torn) and bool(part.foreign) for part in log)
    check_repaired(folder, written(log, torn=True), written(log, torn=False), repaired=torn)


@settings(max_examples=40)
@given(log=logs, chunk_bytes=st.integers(64, 4096), torn=st.booleans())
def test_where_chunks_end_makes_no_difference(
    folder: Path, log: list[Torn | list[str]], chunk_bytes: int, torn: bool
) -> None:
    text = written(log, torn)
    expected = read_text(folder, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "CHUNK_BYTES", chunk_bytes)
        got = read_text(folder, text)
    assert_frame_equal(got.marks, expected.marks)
    assert (got.lines, got.torn_repaired, got.torn_lost) == (expected.lines, expected.torn_repaired, expected.torn_lost)
    assert got.unrecognised_lines == expected.unrecognised_lines


@pytest.mark.parametrize("chunk_bytes", [500, 4096])
def test_a_long_torn_log_in_small_chunks(folder: Path, chunk_bytes: int) -> None:
    parts: list[Torn | list[str]] = []
    for number in range(150):
        record = Record(number * 10, "GPU_START", f"job,{number}", f"worker={number % 2},partition={number}")
        parts.append(Torn(record, {1 + number % 8: [C_LINE]} if number % 3 == 0 else {}))
        parts.append([f"CUZK_TIMING: prep_msm_ms={number}", "a line of some other program"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "CHUNK_BYTES", chunk_bytes)
        check_repaired(folder, written(parts, torn=True), written(parts, torn=False), repaired=50)
