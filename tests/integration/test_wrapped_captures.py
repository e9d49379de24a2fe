"""Real captures in the form of every collector give the calls that the plain log gives, and nothing is lost."""

import gzip
import json
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from gputrace.ingest.inputs import ingest
from gputrace.loading import load
from gputrace.rebuild.rebuild import rebuild
from gputrace.trace import Trace
from tests.captures import DATA, WITH_DOCKER, docker_lines

Line = tuple[str, int, str]
IDENTITY = ["worker", "partition", "job", "mutex_held_ms", "prep_msm_ms"]
PLUS_ONE = timezone(timedelta(hours=1))
MINUS_FIVE_THIRTY = timezone(-timedelta(hours=5, minutes=30))
HOST = "prover1 cuzk[4242]: "


def moment(at_ns: int, zone: timezone | None = None) -> datetime:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, zone or UTC).replace(microsecond=at_ns // 1000 % 1_000_000)


def rfc3339(at_ns: int) -> str:
    return f"{moment(at_ns):%Y-%m-%dT%H:%M:%S}.{at_ns % 1_000_000_000:09}Z"


def docker_json(stream: str, at_ns: int, text: str) -> str:
    """As docker: text over 16 KiB in parts, of which only the last ends in a newline; time without trailing zeros."""
    whole = text + "\n"
    parts = [whole[at : at + 16384] for at in range(0, len(whole), 16384)]
    time = rfc3339(at_ns)[:-1].rstrip("0").rstrip(".") + "Z"
    return "\n".join(
        json.dumps({"log": part, "stream": stream, "time": time}, separators=(",", ":"), ensure_ascii=False)
        for part in parts
    )


def cri(stream: str, at_ns: int, text: str) -> str:
    parts = [text[at : at + 16384] for at in range(0, len(text), 16384)] or [""]
    tags = ["P"] * (len(parts) - 1) + ["F"]
    return "\n".join(f"{rfc3339(at_ns)} {stream} {tag} {part}" for tag, part in zip(tags, parts, strict=True))


def journal_json(_: str, at_ns: int, text: str) -> str:
    """As journald: whatever is not printable makes the message an array of byte numbers."""
    message = list(text.encode()) if "\x1b" in text else text
    entry = {"__REALTIME_TIMESTAMP": str(at_ns // 1000), "_PID": "4242", "MESSAGE": message, "PRIORITY": "6"}
    return json.dumps(entry, separators=(",", ":"))


def journal_export(_: str, at_ns: int, text: str) -> bytes:
    data = text.encode()
    message = b"MESSAGE=" + data
    if b"\x1b" in data:
        message = b"MESSAGE\n" + len(data).to_bytes(8, "little") + data
    return f"__CURSOR=s=1\n__REALTIME_TIMESTAMP={at_ns // 1000}\n_PID=4242\n".encode() + message + b"\nPRIORITY=6\n"


FORMS: dict[str, tuple[str, Callable[[str, int, str], str | bytes]]] = {
    "plain": ("plain", lambda _s, _at, text: text),
    "plain with CRLF": ("plain", lambda _s, _at, text: text + "\r"),
    "docker json-file": ("docker-json", docker_json),
    "docker -t json-file": ("docker-json", lambda s, at, text: docker_json(s, at, text + "\r")),
    "docker --timestamps": ("docker-timestamps", lambda _s, at, text: f"{rfc3339(at)} {text}"),
    "podman --timestamps": ("docker-timestamps", lambda _s, at, text: f"{moment(at, PLUS_ONE).isoformat()} {text}"),
    "compose": ("compose", lambda _s, _at, text: f"cuzk-1  | {text}"),
    "compose, coloured": ("compose", lambda _s, _at, text: f"\x1b[36mcuzk-1  |\x1b[0m {text}"),
    "compose --timestamps": ("compose-timestamps", lambda _s, at, text: f"cuzk-1  | {rfc3339(at)} {text}"),
    "cri": ("cri", cri),
    "journalctl short": ("journal-short", lambda _s, at, t: f"{moment(at, PLUS_ONE):%b %d %H:%M:%S} {HOST}{t}"),
    "journalctl short-precise": (
        "journal-short",
        lambda _s, at, t: f"{moment(at, MINUS_FIVE_THIRTY):%b %d %H:%M:%S.%f} {HOST}{t}",
    ),
    "journalctl short-iso": (
        "journal-iso",
        lambda _s, at, t: f"{moment(at, PLUS_ONE):%Y-%m-%dT%H:%M:%S%z} {HOST}{t}",
    ),
    "journalctl short-iso-precise": (
        "journal-iso",
        lambda _s, at, t: f"{moment(at, MINUS_FIVE_THIRTY).isoformat(timespec='microseconds')} {HOST}{t}",
    ),
    "journalctl short-unix": ("journal-unix", lambda _s, at, t: f"{at // 1000 / 1e6:.6f} {HOST}{t}"),
    "journalctl json": ("journal-json", journal_json),
    "journalctl export": ("journal-export", journal_export),
    "syslog RFC 3164": ("journal-short", lambda _s, at, t: f"<14>{moment(at):%b %e %H:%M:%S} {HOST}{t}"),
    "syslog RFC 3164, escaped": (
        "journal-short",
        lambda _s, at, t: f"{moment(at):%b %e %H:%M:%S} {HOST}" + t.replace("\x1b", "#033"),
    ),
    "syslog RFC 5424": (
        "syslog-rfc5424",
        lambda _s, at, t: f"<14>1 {moment(at, PLUS_ONE).isoformat()} prover1 cuzk 4242 - - {t}",
    ),
    "ts": ("ts", lambda _s, at, t: f"{moment(at, PLUS_ONE):%b %d %H:%M:%S} {t}"),
    "ts iso": ("docker-timestamps", lambda _s, at, t: f"{moment(at, PLUS_ONE):%Y-%m-%dT%H:%M:%S%z} {t}"),
    "ts local": ("ts-local", lambda _s, at, t: f"{moment(at, PLUS_ONE):%Y-%m-%d %H:%M:%S.%f} {t}"),
    "ts unix": ("ts-unix", lambda _s, at, t: f"{at // 1000 / 1e6:.6f} {t}"),
    "ts -s": ("ts-relative", lambda _s, at, t: f"{timedelta(seconds=at // 10**9 % 3600)!s:0>8} {t}"),
    "ts -s, precise": ("ts-relative", lambda _s, at, t: f"{at % 10**13 / 1e9:.6f} {t}"),
}
# In these the time of arrival is kept: it is exact.
EXACT = {
    "docker json-file",
    "docker -t json-file",
    "docker --timestamps",
    "podman --timestamps",
    "compose --timestamps",
    "cri",
    "journalctl short-precise",
    "journalctl short-iso-precise",
    "journalctl short-unix",
    "journalctl json",
    "journalctl export",
    "syslog RFC 5424",
    "ts local",
    "ts unix",
    "ts -s, precise",
}


def encoded(lines: list[Line], form: str) -> bytes:
    """The lines in this form."""
    write = FORMS[form][1]
    wrapped = (write(*line) for line in lines)
    return b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in wrapped)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


@cache
def plain_of(name: str) -> Trace:
    """The capture's lines without any wrapper, read as one log."""
    import tempfile

    with tempfile.TemporaryDirectory() as into:
        return load([write(Path(into) / "prover.log", encoded(docker_lines(name), "plain"))])


@cache
def stamped_of(name: str) -> Trace:
    """The capture as docker itself wrote it."""
    return load([str(DATA / name / "prover.docker.json.gz")])


def check_same(got: Trace, name: str, stamped: bool = False) -> None:
    """Same calls at the same times, and no record more or less.

    `stamped`: as docker's own file gives them. Exact times of arrival tell apart two calls that began together.
    """
    known = stamped_of(name) if stamped else plain_of(name)
    mine, theirs = (trace.calls.sort("lock_ns", "partition") for trace in (got, known))
    assert mine.select(IDENTITY).equals(theirs.select(IDENTITY))
    off_ms = (mine["lock_ns"] - theirs["lock_ns"]).abs().max()
    assert mine["lock_ns"].null_count() == theirs["lock_ns"].null_count()
    assert isinstance(off_ms, int) and off_ms <= 2_000_000
    assert got.quality.marks_by_event == known.quality.marks_by_event
    assert (got.quality.torn_repaired, got.quality.torn_lost) == (
        known.quality.torn_repaired,
        known.quality.torn_lost,
    )
    assert got.quality.unrecognised_of_known_family == known.quality.unrecognised_of_known_family


def codes(trace: Trace) -> set[str]:
    return {notice.code for notice in trace.quality.notices}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["pageable-heavy", "pinned-heavy", "one-worker"])
def test_every_form_gives_the_same_calls(name: str, form: str, tmp_path: Path) -> None:
    lines = docker_lines(name)
    got = load([write(tmp_path / "log", encoded(lines, form))])
    assert got.inputs[0].format == FORMS[form][0]
    check_same(got, name, stamped=form in EXACT)
    arrivals = got.marks["arrival_ns"].drop_nulls()
    if form not in EXACT:
        assert len(arrivals) == 0
        return
    assert len(arrivals) == got.marks.height
    if form == "ts -s, precise":
        # Placed by the lines that print a time: true to how late lines arrive.
        stamped = got.marks.filter(pl.col("log_ns").is_not_null())
        off = (stamped["arrival_ns"] - stamped["log_ns"]).abs().median()
        assert isinstance(off, float) and off < 5_000_000
    else:
        assert set((arrivals // 1000).to_list()) <= {at // 1000 for _, at, _ in lines}


@pytest.mark.parametrize("name", WITH_DOCKER)
def test_the_two_references_agree(name: str) -> None:
    """The plain log and docker's own file: the same calls; only which of two calls that began within 5 ms of each
    other printed which prep_msm line is known from times of arrival alone."""
    plain, stamped = (trace.calls.sort("lock_ns", "partition") for trace in (plain_of(name), stamped_of(name)))
    assert plain.drop("prep_msm_ms").select(IDENTITY[:-1]).equals(stamped.select(IDENTITY[:-1]))
    assert plain["prep_msm_ms"].sort().equals(stamped["prep_msm_ms"].sort())
    differing = (plain["prep_msm_ms"] != stamped["prep_msm_ms"]).fill_null(False)
    starts = stamped.filter(differing)["start_ns"]
    assert (len(starts), name) in {(0, name), (2, "pinned-heavy")}
    assert len(starts) == 0 or starts[1] - starts[0] < 5_000_000


@pytest.mark.parametrize("form", FORMS)
def test_colours_may_have_been_stripped(form: str, tmp_path: Path) -> None:
    import re

    stripped = [(stream, at, re.sub(r"\x1b\[[0-9;]*m", "", text)) for stream, at, text in docker_lines("one-worker")]
    check_same(load([write(tmp_path / "log", encoded(stripped, form))]), "one-worker")


@pytest.mark.parametrize(
    "form", ["plain", "docker json-file", "cri", "journalctl short", "journalctl export", "compose"]
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rotated_log_in_any_order(form: str, seed: int, tmp_path: Path) -> None:
    lines = docker_lines("light-then-heavy")
    a, b = len(lines) // 3, 2 * len(lines) // 3
    parts = [encoded(part, form) for part in (lines[:a], lines[a:b], lines[b:])]
    chance = random.Random(seed)
    names = ["prover.log", "prover.log.1", "prover-20260314.log"]
    chance.shuffle(names)
    paths = [write(tmp_path / name, part) for name, part in zip(names, parts, strict=True)]
    in_time = list(paths)
    write(tmp_path / names[0], gzip.compress(parts[0]))
    chance.shuffle(paths)
    got = load(paths)
    check_same(got, "light-then-heavy")
    notice = next(notice for notice in got.quality.notices if notice.code == "rotated-log")
    assert notice.text.endswith(", ".join(in_time))
    whole = ingest([write(tmp_path / "whole", encoded(lines, form))]).marks
    assert got.marks.drop("source").equals(whole.drop("source"))


@pytest.mark.parametrize("form", ["docker json-file", "cri"])
def test_a_log_rotated_between_the_parts_of_a_line(form: str, tmp_path: Path) -> None:
    lines = docker_lines("one-worker")
    at = next(i for i, line in enumerate(lines) if "GPU_TIMING hot_path" in line[2] and i > 40)
    stream, arrival, text = lines[at]
    padding = "p" * (16384 - 4 - text.index("GPU_TIMING") - len("pad= "))
    first, rest = encoded(
        [(stream, arrival, text.replace("worker_id", f"pad={padding} worker_id", 1))], form
    ).splitlines(keepends=True)
    old = write(tmp_path / "log.1", encoded(lines[:at], form) + first)
    new = write(tmp_path / "log", rest + encoded(lines[at + 1 :], form))
    check_same(load([new, old]), "one-worker")


@pytest.mark.parametrize("form", ["plain", "docker json-file", "journalctl json"])
@pytest.mark.parametrize("share", [0.31, 0.5, 0.77])
def test_a_log_rotated_in_the_middle_of_a_record(form: str, share: float, tmp_path: Path) -> None:
    data = encoded(docker_lines("one-worker"), form)
    # In the middle of the next TIMELINE line, whatever is around it.
    cut = data.index(b"TIMELINE,", int(len(data) * share)) + 14
    new, old = write(tmp_path / "a.log", data[cut:]), write(tmp_path / "b.log", data[:cut])
    check_same(load([new, old]), "one-worker")


def test_stderr_pieces_without_any_time_of_day(tmp_path: Path) -> None:
    stderr = [line for line in docker_lines("one-worker") if line[0] == "stderr"]
    half = len(stderr) // 2
    old = write(tmp_path / "z", encoded(stderr[:half], "plain"))
    new = write(tmp_path / "a", encoded(stderr[half:], "plain"))
    whole = ingest([write(tmp_path / "whole", encoded(stderr, "plain"))])
    assert ingest([new, old]).marks.drop("source").equals(whole.marks.drop("source"))


def test_stdout_and_stderr_each_rotated(tmp_path: Path) -> None:
    paths = []
    for stream in ("stdout", "stderr"):
        own = [line for line in docker_lines("pageable-membw") if line[0] == stream]
        half = len(own) // 2
        paths += [
            write(tmp_path / f"{stream}.1", encoded(own[:half], "docker --timestamps")),
            write(tmp_path / f"{stream}", encoded(own[half:], "docker --timestamps")),
        ]
    got = load([paths[3], paths[0], paths[2], paths[1]])
    assert got.quality.marks_by_event == plain_of("pageable-membw").quality.marks_by_event
    assert sum(notice.code == "rotated-log" for notice in got.quality.notices) == 2
    assert got.calls.filter("complete").height == plain_of("pageable-membw").calls.filter("complete").height


def test_names_do_not_matter(tmp_path: Path) -> None:
    marks = []
    for out, err in (("a", "b"), ("d", "c")):
        for stream, file in (("stdout", out), ("stderr", err)):
            write(tmp_path / file, encoded([i for i in docker_lines("one-worker") if i[0] == stream], "plain"))
        marks.append(ingest([str(tmp_path / out), str(tmp_path / err)]).marks.drop("source"))
    assert marks[0].equals(marks[1])


@pytest.mark.parametrize("form", ["plain", "docker --timestamps", "cri", "journalctl short-iso", "syslog RFC 5424"])
def test_bytes_that_are_not_text_in_other_lines(form: str, tmp_path: Path) -> None:
    lines: list[Line] = []
    for number, (stream, at, text) in enumerate(docker_lines("one-worker")):
        lines.append((stream, at, text))
        if number % 7 == 0:
            lines.append((stream, at, f"NOTTEXT{number}"))
    data = encoded(lines, form).replace(b"NOTTEXT", b"\xff\xfe\x00\x80")
    check_same(load([write(tmp_path / "log", data)]), "one-worker")


@pytest.mark.parametrize("form", ["docker json-file", "docker -t json-file", "cri"])
def test_a_line_that_the_collector_cut(form: str, tmp_path: Path) -> None:
    lines = docker_lines("one-worker")
    at = next(i for i, line in enumerate(lines) if "GPU_TIMING hot_path" in line[2] and i > 40)
    stream, arrival, text = lines[at]
    # A cut lies in the middle of the words by which the record is known.
    padding = "p" * (16384 - 4 - text.index("GPU_TIMING") - len("pad= "))
    padded = text.replace("worker_id", f"pad={padding} worker_id", 1)
    assert padded[16384:].startswith("TIMING hot_path")
    padded += f' note="{"x" * 24 * 1024}"'
    other = (lines[at + 1][0], arrival, "y" * 40 * 1024)
    assert len(encoded([(stream, arrival, padded)], form).splitlines()) == 3
    # Parts of another stream's line come between.
    first, *rest = encoded([(stream, arrival, padded)], form).splitlines(keepends=True)
    flipped = "stderr" if stream == "stdout" else "stdout"
    between = encoded([(flipped, arrival, other[2])], form).splitlines(keepends=True)
    middle = first + between[0] + b"".join(rest) + b"".join(between[1:])
    data = encoded(lines[:at], form) + middle + encoded(lines[at + 1 :], form)
    check_same(load([write(tmp_path / "log", data)]), "one-worker")


def test_progress_lines_overwritten_by_a_bare_carriage_return(tmp_path: Path) -> None:
    lines = [
        (s, at, f"loading 10%\r\x1b[2Kloading 99%\r{text}" if i % 3 else text)
        for i, (s, at, text) in enumerate(docker_lines("one-worker"))
    ]
    for form in ("plain", "docker json-file"):
        check_same(load([write(tmp_path / "log", encoded(lines, form))]), "one-worker")


@pytest.mark.parametrize("form", ["plain", "docker json-file", "journalctl export", "journalctl short"])
def test_a_log_that_begins_with_much_else(form: str, tmp_path: Path) -> None:
    lines = docker_lines("one-worker")
    other: list[Line] = [
        ("stdout", lines[0][1], f"line {n} of a program that starts first " + "z" * 150) for n in range(60_000)
    ]
    got = load([write(tmp_path / "log", encoded(other + lines, form))])
    assert got.inputs[0].format == FORMS[form][0]
    check_same(got, "one-worker")


def test_lines_of_other_programs_lie_between(tmp_path: Path) -> None:
    """And the pieces of a torn record lie around them."""
    at = docker_lines("one-worker")[0][1]
    stamp = f"{moment(at):%b %d %H:%M:%S}"
    mine, other = f"{stamp} host cuzk[42]: ", f"{stamp} host sshd[7]: "
    text = (
        f"{mine}TIMELINE,5,GPU_STARTCUZK_TIMING: prep_msm_ms=7\n{other},j,worker=3,partition=9\n"
        f"{other}session opened\n{mine},j,worker=1,partition=2\n"
    )
    marks = ingest([write(tmp_path / "log", text.encode())]).marks
    started = marks.filter(pl.col("event") == "GPU_START").row(0, named=True)
    assert (started["worker"], started["partition"], started["repaired"]) == (1, 2, True)
    assert marks["stream"].null_count() == marks.height


# --- what a stamp does not say ------------------------------------------------------------------------------------


def stderr_only(name: str, form: str, keep: str = "") -> bytes:
    return encoded([line for line in docker_lines(name) if line[0] == "stderr" and line[2].startswith(keep)], form)


def first_arrival_ns(name: str) -> int:
    return next(at for stream, at, _ in docker_lines(name) if stream == "stderr")


def test_without_a_zone_utc_is_assumed_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "log", stderr_only("one-worker", "ts local"))
    got = ingest([path])
    assert "timezone-assumed" in {notice.code for notice in got.quality.notices}
    # It was written at +01:00.
    assert got.marks["arrival_ns"][0] // 1000 == (first_arrival_ns("one-worker") + 3600 * 10**9) // 1000


def test_the_zone_may_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "log", stderr_only("one-worker", "ts local"))
    got = ingest([path], timezone="Europe/Berlin")
    assert got.quality.notices == []
    assert got.marks["arrival_ns"][0] // 1000 == first_arrival_ns("one-worker") // 1000


def test_without_a_year_the_latest_possible_is_assumed(tmp_path: Path) -> None:
    path = write(tmp_path / "log", stderr_only("one-worker", "journalctl short-precise"))
    first_ns = first_arrival_ns("one-worker")
    for now, year in ((moment(first_ns) + timedelta(days=3), 2026), (datetime(2026, 6, 1, tzinfo=UTC), 2025)):
        got = ingest([path], timezone="UTC", now_ns=int(now.timestamp()) * 10**9)
        assert [notice.code for notice in got.quality.notices] == ["year-assumed"]
        assert moment(got.marks["arrival_ns"][0]).year == year


def test_the_files_own_time_bounds_the_year(tmp_path: Path) -> None:
    path = write(tmp_path / "log", stderr_only("one-worker", "journalctl short-precise"))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert moment(ingest([path], timezone="UTC").marks["arrival_ns"][0]).year == 2022


def test_whole_seconds_are_used_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    with_offsets = ingest([write(tmp_path / "log", stderr_only("one-worker", "ts iso"))])
    assert with_offsets.marks["arrival_ns"].count() == 0
    assert with_offsets.arrival_resolution_ns == 0
    short = ingest([write(tmp_path / "short", stderr_only("one-worker", "journalctl short"))])
    assert [notice.code for notice in short.quality.notices] == ["arrival-coarse"]
    c_only = ingest([write(tmp_path / "c", stderr_only("one-worker", "ts iso", keep="CUZK_"))])
    assert c_only.marks["arrival_ns"].null_count() == 0
    assert c_only.arrival_resolution_ns == 10**9
    for got in (with_offsets, c_only):
        assert [notice.code for notice in got.quality.notices] == ["arrival-coarse"]
    placed = rebuild(c_only)
    assert (placed.clock.method, placed.clock.uncertainty_s) == ("wrapper", 1.0)
    assert placed.calls.drop_nulls("lock_ns")["uncertainty_ms"].min() == 1000.0


def test_stamps_of_batches_are_not_believed(tmp_path: Path) -> None:
    batched = [(s, at - at % 700_000_000 + 123_456, text) for s, at, text in docker_lines("one-worker")]
    got = load([write(tmp_path / "log", encoded(batched, "journalctl json"))])
    assert codes(got) == {"arrival-batched"}
    check_same(got, "one-worker")


def test_an_old_log_sent_through_ts_today(tmp_path: Path) -> None:
    sent = [(s, at + 40 * 86_400 * 10**9, text) for s, at, text in docker_lines("one-worker")]
    got = load([write(tmp_path / "log", encoded(sent, "ts local"))])
    assert codes(got) == {"arrival-unrelated"}
    check_same(got, "one-worker")
