"""Each wrapper gives back the lines it was put around; stamps mean what they say; what is not a wrapper is left."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace import schema
from gputrace.errors import InputError, UsageError
from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import TIME_FORMS, WrapperFormat, bundled_formats, load_format
from gputrace.ingest.inputs import ingest
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.rotation import Chained, rotated_sets
from gputrace.ingest.stamps import check_timezone, settle, stamp_ns
from gputrace.ingest.wrappers import export_to_json, join_parts, json_twin, unwrap

FORMATS = bundled_formats()
WRAPPERS = {wrapper.name: wrapper for wrapper in FORMATS.wrappers}
S_NS = 1_000_000_000
MARCH_13 = 1_773_425_801 * S_NS


def raw_lines(*raw: str) -> pl.DataFrame:
    return pl.DataFrame({"line": range(1, len(raw) + 1), "raw": raw}, schema={"line": pl.UInt32, "raw": pl.String})


# --- wrapping and unwrapping ---------------------------------------------------------------------------------------

# journald and docker carry any byte; what a terminal would not show (colours, what a bare carriage return overwrote)
# is taken out of plain lines, too, so a wrapped line must give what the plain line gives.
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\n"),
        st.sampled_from('\x1b[m\r\\"|: TIMELINE,'),
    ),
    max_size=60,
)
lines_of_text = st.lists(texts, min_size=1, max_size=6)
nanoseconds = st.integers(0, 2**31 * S_NS)


def rfc3339(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // S_NS, UTC):%Y-%m-%dT%H:%M:%S}.{at_ns % S_NS:09}Z"


def journal_json(at_ns: int, text: str) -> str:
    printable = text.isprintable()
    return json.dumps(
        {"MESSAGE": text if printable else list(text.encode()), "__REALTIME_TIMESTAMP": str(at_ns // 1000)}
    )


def day(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // S_NS, UTC):%b %e %H:%M:%S}.{at_ns % S_NS // 1000:06}"


CARRIERS: dict[str, Callable[[int, str], str]] = {
    "docker-json": lambda at, text: json.dumps({"log": text + "\n", "stream": "stdout", "time": rfc3339(at)}),
    "docker-timestamps": lambda at, text: f"{rfc3339(at)} {text}",
    "compose": lambda _, text: f"cuzk-1  | {text}",
    "compose-timestamps": lambda at, text: f"cuzk-1  | {rfc3339(at)} {text}",
    "cri": lambda at, text: f"{rfc3339(at)} stderr F {text}",
    "gputrace-log": lambda at, text: f"{10**18 + at} stderr {text}",
    "journal-short": lambda at, text: f"{day(at)} host cuzk[42]: {text}",
    "journal-iso": lambda at, text: f"{rfc3339(at)} host cuzk[42]: {text}",
    "journal-unix": lambda at, text: f"{10**9 + at // S_NS}.000001 host cuzk[42]: {text}",
    "journal-json": journal_json,
    "syslog-rfc5424": lambda at, text: f'<14>1 {rfc3339(at)} host cuzk 42 - [a@1 b="c\\]"] {text}',
    "ts": lambda at, text: f"{day(at)} {text}",
    "ts-local": lambda at, text: f"{rfc3339(at)[:-1]} {text}",
    "ts-unix": lambda at, text: f"{10**9 + at // S_NS}.000001 {text}",
    "ts-relative": lambda at, text: f"{timedelta(seconds=at // S_NS % 86400)!s:0>8} {text}",
}


def test_every_wrapper_has_a_carrier() -> None:
    assert set(CARRIERS) | {"journal-export"} == set(WRAPPERS)


@pytest.mark.parametrize("name", CARRIERS)
@settings(max_examples=60)
@given(texts=lines_of_text, at_ns=nanoseconds)
def test_unwrapping_gives_back_what_was_wrapped(name: str, texts: list[str], at_ns: int) -> None:
    if name == "syslog-rfc5424":
        # A byte order mark before the text says that it is UTF-8.
        texts = [text.lstrip("\ufeff") for text in texts]
    wrapped = raw_lines(*(CARRIERS[name](at_ns, text) for text in texts))
    inner = unwrap(wrapped, WRAPPERS[name])
    assert inner["text"].to_list() == unwrap(raw_lines(*texts), None)["text"].to_list()
    if WRAPPERS[name].time_form == "rfc3339" and name != "compose":
        assert set(inner["arrival_ns"].to_list()) == {at_ns}


def exported(text: str, binary: bool) -> bytes:
    data = text.encode()
    field = b"MESSAGE\n" + len(data).to_bytes(8, "little") + data if binary else b"MESSAGE=" + data
    return b"__REALTIME_TIMESTAMP=1773425801616361\n_PID=42\n" + field + b"\nPRIORITY=6\n\n"


@settings(max_examples=60)
@given(texts=st.lists(st.tuples(texts, st.booleans()), min_size=1, max_size=6), sizes=st.integers(1, 80))
def test_the_export_format_gives_back_what_was_wrapped(texts: list[tuple[str, bool]], sizes: int) -> None:
    data = b"".join(exported(text, binary) for text, binary in texts)
    chunks = (data[at : at + sizes] for at in range(0, len(data), sizes))
    entries = b"".join(export_to_json(chunks, WRAPPERS["journal-export"])).decode().split("\n")[:-1]
    inner = unwrap(raw_lines(*entries), json_twin(WRAPPERS["journal-export"]))
    assert inner["text"].to_list() == unwrap(raw_lines(*(text for text, _ in texts)), None)["text"].to_list()
    assert set(inner["arrival_ns"].to_list()) == {1773425801616361000}


def test_what_is_no_export_record_does_not_stop_the_reader() -> None:
    data = b"-- No entries --\nsome prose\nCAPITALS\n12345678 and more\n" + exported("x", True)
    assert b'"x"' in b"".join(export_to_json(iter([data]), WRAPPERS["journal-export"]))


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def docker_parts(stream: str, text: str, size: int) -> list[str]:
    entry = {"stream": stream, "time": rfc3339(MARCH_13)}
    return [json.dumps({"log": part, **entry}, separators=(",", ":")) for part in cut(text + "\n", size)]


def cri_parts(stream: str, text: str, size: int) -> list[str]:
    parts = cut(text, size) or [""]
    return [
        f"{rfc3339(MARCH_13)} {stream} {'F' if number == len(parts) else 'P'} {part}"
        for number, part in enumerate(parts, 1)
    ]


@pytest.mark.parametrize(("name", "parts_of"), [("docker-json", docker_parts), ("cri", cri_parts)])
@settings(max_examples=60)
@given(data=st.data(), size=st.integers(2, 30))
def test_parts_are_joined_whatever_comes_between(
    name: str, parts_of: Callable[[str, str, int], list[str]], data: st.DataObject, size: int
) -> None:
    said = {stream: data.draw(lines_of_text) for stream in ("stdout", "stderr")}
    waiting = {s: [part for text in said[s] for part in parts_of(s, text, size)] for s in said}
    written = []
    while any(waiting.values()):
        stream = data.draw(st.sampled_from([s for s in waiting if waiting[s]]))
        written.append(waiting[stream].pop(0))
    whole, unfinished, _ = join_parts(raw_lines(*written), WRAPPERS[name])
    inner = unwrap(whole, WRAPPERS[name])
    assert unfinished is None
    for stream, texts in said.items():
        got = inner.filter(pl.col("stream") == stream)["text"].to_list()
        assert got == unwrap(raw_lines(*texts), None)["text"].to_list()


def test_a_part_without_its_end_is_left_for_the_next_chunk() -> None:
    lines = [*cri_parts("stdout", "whole", 99), *cri_parts("stderr", "abcdef", 2)[:2], *cri_parts("stdout", "x", 9)]
    _, unfinished, _ = join_parts(raw_lines(*lines), WRAPPERS["cri"])
    assert unfinished == 2


# --- detection -----------------------------------------------------------------------------------------------------


def wrapper_name(*raw: str) -> tuple[str | None, bool]:
    wrapper, told = wrapper_of(raw_lines(*raw), FORMATS)
    return wrapper.name if wrapper else None, told


@pytest.mark.parametrize("name", CARRIERS)
def test_a_wrapper_is_told_by_its_records(name: str) -> None:
    records = ["CUZK_TIMING: prep_msm_ms=7", "TIMELINE,5,GPU_START,j,worker=0,partition=6", "other text"]
    assert wrapper_name(*(CARRIERS[name](MARCH_13, record) for record in records)) == (name, True)


def test_plain_wins_a_tie_and_nothing_tells_nothing() -> None:
    wrapped = CARRIERS["cri"](MARCH_13, "CUZK_TIMING: prep_msm_ms=7")
    assert wrapper_name("CUZK_TIMING: prep_msm_ms=7", "ERROR of something else") == (None, True)
    # Read as cri, both are records.
    assert wrapper_name("CUZK_TIMING: prep_msm_ms=7", wrapped) == ("cri", True)
    assert wrapper_name("a line", "ERROR of something else") == (None, False)


def test_records_after_many_lines_that_look_like_some() -> None:
    noise = ["ERROR of something else"] * 5000
    assert wrapper_name(*noise, CARRIERS["cri"](MARCH_13, "CUZK_TIMING: prep_msm_ms=7")) == ("cri", True)


def test_one_journal_entry_is_a_log_and_not_metadata(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(journal_json(MARCH_13, "\x1b[0mCUZK_TIMING: prep_msm_ms=7") + "\n")
    read = ingest([str(path)])
    assert read.inputs[0].format == "journal-json"
    assert read.marks["event"].to_list() == ["prep_msm"]


def test_zeroes_that_a_crash_left_do_not_make_a_log_binary(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"CUZK_TIMING: prep_msm_ms=7\n" + b"\0" * 4096 + b"\nCUZK_TIMING: prep_msm_ms=8\n")
    assert ingest([str(path)]).marks.height == 2


def test_a_coloured_error_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        "\x1b[2m2026-03-13T18:16:51.529711Z\x1b[0m \x1b[31mERROR\x1b[0m \x1b[2mcuzk_core::engine\x1b[0m\x1b[2m:\x1b[0m "
        "partition GPU proving failed \x1b[3mjob_id\x1b[0m\x1b[2m=\x1b[0mj\n"
    )
    assert ingest([str(path)]).marks["event"].to_list() == ["error"]


# --- stamps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("rfc3339", "2026-03-13T18:16:41Z", MARCH_13),
        ("rfc3339", "2026-03-13T18:16:41.1Z", MARCH_13 + 100_000_000),
        ("rfc3339", "2026-03-13T18:16:41,123456789Z", MARCH_13 + 123_456_789),
        ("rfc3339", "2026-03-13T12:46:41-0530", MARCH_13),
        ("rfc3339", "2026-03-14T00:01:41+05:45", MARCH_13),
        ("rfc3339", "2026-02-30T00:00:00Z", None),
        ("rfc3339", "-", None),
        ("local", "2026-03-13 18:16:41.5", MARCH_13 + 500_000_000),
        ("month-day", "Feb 29 00:00:00", 951_782_400 * S_NS),
        ("month-day", "Feb  9 00:00:00", 950_054_400 * S_NS),
        ("month-day", "Foo 13 18:16:41", None),
        ("unix", "1773425801.000000001", MARCH_13 + 1),
        ("unix", "1773425801", MARCH_13),
        ("unix-us", "1773425801616361", MARCH_13 + 616_361_000),
        ("unix-ns", "1773425801616361042", MARCH_13 + 616_361_042),
        ("unix-ns", "-", None),
        ("elapsed", "100:00:01.5", 360_001 * S_NS + 500_000_000),
        ("elapsed", "0.000001", 1000),
    ],
)
def test_a_stamp_is_read_exactly(form: str, text: str, expected: int | None) -> None:
    assert form in TIME_FORMS
    assert pl.DataFrame({"t": [text]}).select(stamp_ns(pl.col("t"), form)).item() == expected


def test_every_time_form_is_used() -> None:
    assert {wrapper.time_form for wrapper in WRAPPERS.values()} == set(TIME_FORMS)


def marks_at(stamps: list[int | None], log: list[int | None]) -> pl.DataFrame:
    frame = pl.DataFrame({"arrival_ns": stamps, "log_ns": log}, schema={"arrival_ns": pl.Int64, "log_ns": pl.Int64})
    return schema.MARKS.fit(frame)


def in_2000(moment: datetime) -> int:
    return int(moment.replace(year=2000, tzinfo=UTC).timestamp()) * S_NS


def settled(wrapper: str, marks: pl.DataFrame, timezone: str | None = None, now: datetime | None = None) -> list[int]:
    reference = int((now or datetime(2026, 12, 1, tzinfo=UTC)).timestamp()) * S_NS
    found: list[int] = settle(marks, WRAPPERS[wrapper], "log", timezone, reference).marks["arrival_ns"].to_list()
    return found


@pytest.mark.parametrize("hours", [-12, -9.5, -0.25, 0, 5.75, 14])
def test_year_and_zone_come_from_the_lines(hours: float) -> None:
    local = datetime.fromtimestamp(MARCH_13 // S_NS, UTC) + timedelta(hours=hours)
    marks = marks_at([None, in_2000(local), in_2000(local) + S_NS], [None, MARCH_13 - 30_000_000, None])
    assert settled("ts", marks) == [None, MARCH_13, MARCH_13 + S_NS]


@pytest.mark.parametrize("hours", [-8, 0, 9])
def test_a_new_year_within_the_log(hours: float) -> None:
    eve = int(datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * S_NS
    times = [eve + second * S_NS - int(hours * 3600) * S_NS for second in range(4)]
    local = [in_2000(datetime.fromtimestamp(at // S_NS, UTC) + timedelta(hours=hours)) for at in times]
    assert settled("ts", marks_at([*local], [None, times[1], None, None])) == times


def test_summer_time_begins_within_the_log() -> None:
    before = int(datetime(2026, 3, 29, 0, 59, 0, tzinfo=UTC).timestamp()) * S_NS
    after = before + 120 * S_NS
    local = [before + 3600 * S_NS, after + 7200 * S_NS, after + 7201 * S_NS]
    assert settled("ts-local", marks_at([*local], [before, after, None])) == [before, after, after + S_NS]


def test_29_february_is_kept_in_a_leap_year() -> None:
    leap = int(datetime(2028, 2, 29, 12, tzinfo=UTC).timestamp()) * S_NS
    stamp = in_2000(datetime(2028, 2, 29, 12))
    assert settled("ts", marks_at([stamp], [leap])) == [leap]


def test_relative_times_need_a_line_that_says_when() -> None:
    stamps: list[int | None] = [0, 5 * S_NS, 9 * S_NS + 1]
    assert settled("ts-relative", marks_at(stamps, [None, MARCH_13, None]))[2] == MARCH_13 + 4 * S_NS + 1
    assert settled("ts-relative", marks_at(stamps, [None, None, None])) == [None] * 3
    # Times since the line before rise and fall.
    assert settled("ts-relative", marks_at([5, 0, 7], [None, MARCH_13, None])) == [None] * 3


def test_a_zone_that_is_none_is_a_usage_error() -> None:
    check_timezone("America/St_Johns")
    with pytest.raises(UsageError, match="Nowhere/At_All"):
        check_timezone("Nowhere/At_All")


# --- rotation ------------------------------------------------------------------------------------------------------


class Given:
    """A log in chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        yield from self._chunks


def test_chained_logs_are_one(wrapper: WrapperFormat = WRAPPERS["cri"]) -> None:
    whole = b"".join(f"{line}\n".encode() for line in cri_parts("stderr", "abcdefgh" * 9, 5))
    for at in (1, 30, 80, len(whole) - 1):
        assert b"".join(Chained([Given(whole[:at]), Given(whole[at:])], wrapper).chunks()) == whole


def test_a_log_whose_last_line_lacks_its_end_is_not_run_into_the_next() -> None:
    one, two = (CARRIERS["cri"](MARCH_13, text).encode() for text in ("one", "two"))
    assert b"".join(Chained([Given(one), Given(two)], WRAPPERS["cri"]).chunks()) == one + b"\n" + two


def log_of(log_s: tuple[int, int] | None = None, offset_ms: tuple[int, int] | None = None) -> LogResult:
    rows: list[dict[str, object]] = []
    rows += [{"family": "tracing", "log_ns": at * S_NS} for at in log_s or ()]
    rows += [{"family": "timeline", "offset_ms": at} for at in offset_ms or ()]
    return LogResult(schema.MARKS.fit(pl.DataFrame(rows)), lines=len(rows))


def test_pieces_are_put_in_order_by_what_they_say() -> None:
    logs = [log_of((300, 400)), log_of((100, 200)), log_of((200, 300))]
    assert rotated_sets(logs) == [[1, 2, 0]]
    offsets = [log_of(offset_ms=(30_000, 40_000)), log_of(offset_ms=(0, 30_000))]
    assert rotated_sets(offsets) == [[1, 0]]


def test_logs_of_the_same_time_are_two_logs() -> None:
    assert rotated_sets([log_of((100, 300)), log_of((150, 320))]) == [[0], [1]]
    # Two streams without a common time cannot be put in order.
    assert rotated_sets([log_of((100, 300)), log_of(offset_ms=(0, 90_000))]) == [[0], [1]]


# --- descriptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('layout = "pattern"', "pattern"),
        ('layout = "json"', "text_key"),
        ('layout = "pattern"\npattern = "^(?P<text>.*)$"\ntime_from = "unix"', "time_from"),
        ('layout = "xml"\ntext_key = "x"', "layout"),
        ('layout = "pattern"\npattern = "(?P<text>.*)"\ntime_form = "roman"', "time_form"),
        ('layout = "pattern"\npattern = "^(.*)$"', "text"),
    ],
)
def test_a_broken_wrapper_is_refused_by_name(tmp_path: Path, lines: str, says: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(f'kind = "wrapper"\nname = "broken"\ntitle = "t"\n{lines}\n[[sample]]\nline = "x"\ntext = "x"\n')
    with pytest.raises(InputError, match=says) as refused:
        load_format(path)
    assert str(path) in str(refused.value)
