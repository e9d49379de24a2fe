"""Damaged inputs end in a report or in one line that says what is wrong.

Ten thousand random mutations lie in some five hundred cases of one to eighty each, so that the whole fits into minutes.
`GPUTRACE_MUTATIONS=5` tries five times as many. A case that fails says its number; its inputs stay in the folder of
the test.
"""

import gzip
import json
import os
import random
import re
import resource
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from gputrace import schema
from gputrace.analysis.diagnose import account, diagnose
from gputrace.errors import GputraceError
from gputrace.loading import load
from gputrace.render.json_report import JsonRenderer
from gputrace.render.text import TextRenderer
from gputrace.simulate.capture import Simulation, play
from gputrace.simulate.scenarios import PRESETS
from gputrace.trace import Trace
from tests.captures import folder
from tests.integration.test_wrapped_captures import Line, encoded

EFFORT = int(os.environ.get("GPUTRACE_MUTATIONS", "1"))
CHUNKS = 16
CASES = 30 * EFFORT
# Mutations of a case: 21 in the mean, 10 080 in all.
TIMES = (1, 2, 4, 8, 16, 32, 84)
MOST_S = 20.0
MOST_MIB = 1500
MS = 1_000_000

# --- samples --------------------------------------------------------------------------------------------------------


def small(variant: str = "M", seed: int = 3, tears: float = 0.3, ansi: bool = False) -> Simulation:
    """Five calls of the small circuit, about 150 lines."""
    preset = PRESETS["small"]
    options = replace(preset.options, ansi=ansi)
    scenario = replace(preset, variant=variant, partitions=5, per_job=3, tear_share=tears, options=options)
    return play(scenario, seed)


def lines_of(simulation: Simulation) -> list[Line]:
    """(stream, ns, text) of every line."""
    return [(line.stream, line.at_ns, line.text) for line in simulation.lines]


@cache
def logs() -> dict[str, bytes]:
    """Logs of every wrapper, each of a run of its own kind."""
    plain, coloured = small(), small(ansi=True, seed=4)
    samples = {
        "torn": plain.files()["prover.merged"].encode(),
        "coloured": coloured.files()["prover.merged"].encode(),
        "V8": small("V8").files()["prover.merged"].encode(),
        "Vs": small("Vs", seed=5).files()["prover.merged"].encode(),
        "stderr": plain.files("stderr")["prover.stderr"].encode(),
        "stdout": plain.files("stdout")["prover.stdout"].encode(),
        "errors": play(replace(PRESETS["errors"], partitions=4, per_job=2, failing={1: "ntt"}), 2)
        .files()["prover.merged"]
        .encode(),
        "real": b"".join(
            gzip.decompress((folder("merged-fast") / "prover.merged.gz").read_bytes()).splitlines(True)[:150]
        ),
    }
    forms = (
        *("docker json-file", "docker --timestamps", "journalctl export", "cri", "journalctl short-precise"),
        *("syslog RFC 5424", "compose --timestamps", "ts -s, precise"),
    )
    samples |= {form: encoded(lines_of(plain), form) for form in forms}
    # Lines with colours are arrays of bytes there.
    samples["journalctl json"] = encoded(lines_of(coloured), "journalctl json")
    return samples


@cache
def readings() -> list[dict[str, float]]:
    """The simulated trace of the samples' run, row by row."""
    names, *rows = small().trace_csv().splitlines()
    return [dict(zip(names.split(","), map(float, row.split(",")), strict=True)) for row in rows]


def moment(at_ns: float, form: str) -> str:
    return time.strftime(form, time.gmtime(int(at_ns) // 10**9)) + f".{int(at_ns) // MS % 1000:03d}"


def nsight() -> bytes:
    """A small export: kernels, copies, and what they need."""
    begin = int(readings()[0]["t_wall_ns"])
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(
            f"""
            CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
            INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({begin}, '', '');
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, busLocation TEXT);
            INSERT INTO TARGET_INFO_GPU VALUES (2, 'NVIDIA H200', '0000:41:00.0');
            CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
            INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (2, 0, 77);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, bytes INTEGER,
                copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
            """
        )
        kernels = [(at * 60 * MS, at * 60 * MS + 40 * MS) for at in range(90)]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7)", kernels)
        copies = [(at * 50 * MS, at * 50 * MS + 20 * MS, 10**8, 1 + at % 2, at % 2, 2) for at in range(90)]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, ?, ?, ?, ?)", copies)
        database.commit()
        return database.serialize()


@cache
def traces() -> dict[str, bytes]:
    """GPU traces of every layout over the time of the logs."""
    rows = readings()
    at = [row["t_wall_ns"] for row in rows]
    dmon = [
        "#Date       Time        gpu    pwr     sm   rxpci  txpci",
        "#YYYYMMDD   HH:MM:SS    Idx      W      %   MB/s   MB/s",
    ]
    query = [
        "timestamp, index, name, utilization.gpu [%], memory.used [MiB], clocks.current.sm [MHz], power.draw [W], "
        "pcie.link.gen.current, pcie.link.width.current"
    ]
    nvtop, prometheus, scrapes = [], [], []
    for row, ns in zip(rows, at, strict=True):
        rx, tx, busy = row["pcie_rx_kbps"], row["pcie_tx_kbps"], row["util_gpu"]
        dmon.append(
            f" {moment(ns, '%Y%m%d   %H:%M:%S')[:-4]}      0     90   {busy:4.0f}  {rx / 1e3:6.0f} {tx / 1e3:6.0f}"
        )
        query.append(
            f"{moment(ns, '%Y/%m/%d %H:%M:%S')}, 0, NVIDIA H200, {busy:.0f} %, 637 MiB, 1980 MHz, 90.00 W, 5, 16"
        )
        stamp = f"{ns / 1e9:.6f} "
        nvtop.append(
            f'{stamp}[\n{stamp} {{"device_name": "NVIDIA H200", "gpu_clock": "1980MHz", "power_draw": "90W", '
            f'"gpu_util": "{busy:.0f}%", "pcie_rx": "{rx:.0f} KiB/s", "pcie_tx": "{tx:.0f} KiB/s"}}\n{stamp}]'
        )
        labels = '{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H200"}'
        for name, value in (("RX_BYTES", rx * 1e3), ("TX_BYTES", tx * 1e3)):
            prometheus.append(f"DCGM_FI_PROF_PCIE_{name}{labels} {value:.6g} {ns // MS:.0f}")
        scrapes.append([ns / 1e9, f"{busy / 100:.2f}"])
    series = [
        {"metric": {"__name__": f"DCGM_FI_PROF_{name}", "gpu": str(gpu)}, "values": scrapes}
        for gpu in range(2)
        for name in ("SM_ACTIVE", "PCIE_RX_BYTES")
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    texts = {
        "nvml.csv": small().trace_csv(),
        "dmon": "\n".join(dmon) + "\n",
        "query": "\n".join(query) + "\n",
        "nvtop": "\n".join(nvtop) + "\n",
        "prometheus": "\n".join(prometheus) + "\n",
        "range query": json.dumps(answer).replace("], [", "],\n ["),
    }
    return {name: text.encode() for name, text in texts.items()} | {"nsight": nsight()}


# --- mutations ------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_FIELD = re.compile(rb"(?<=[=,:])[^=,:\s\"}]+")
_NUMBERS = b"""
    0 -1 -0 1 -2147483648 2147483648 4294967295 9223372036854775807 -9223372036854775808 18446744073709551616 1e308
    1e-320 NaN inf -inf 0.1 99999999999999999999999999 1700000000000000000 0x10 1_000 +5 00000000000000000007 86400000
""".split()
_TEXTS = (
    *(b"", b"\0", b"\0" * 40, b"\r", b"\r\n", b"\n\n", b"\xff\xfe", b"\xc3", "\ufeff\u2028".encode(), b"\x1b[3"),
    *(b'"', b"\\", b"{", b"}]", b"=", b",", b",,", b"N/A", b"x" * 3000),
    *(b"TIMELINE,", b"CUZK_TIMING: ", b"2026-03-13T18:16:51.527911Z  INFO "),
)


def splice(data: bytes, start: int, end: int, new: bytes) -> bytes:
    return data[:start] + new + data[end:]


def somewhere(chance: random.Random, data: bytes) -> int:
    return chance.randrange(len(data) + 1)


def flip(chance: random.Random, data: bytes) -> bytes:
    at = somewhere(chance, data)
    return splice(data, at, at + 1, bytes([chance.randrange(256)]))


def insert(chance: random.Random, data: bytes) -> bytes:
    at = somewhere(chance, data)
    return splice(data, at, at, chance.choice(_TEXTS))


def cut_out(chance: random.Random, data: bytes) -> bytes:
    at = somewhere(chance, data)
    return splice(data, at, at + chance.choice((1, 2, 8, 40, 300)), b"")


def truncate(chance: random.Random, data: bytes) -> bytes:
    at = somewhere(chance, data)
    return data[at // 4 :] if chance.random() < 0.3 else data[: max(at, len(data) // 3)]


def number(chance: random.Random, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data, max(0, somewhere(chance, data) - 200)))[:20]
    if not found:
        return data
    one = chance.choice(found)
    return splice(data, *one.span(), chance.choice(_NUMBERS))


def field(chance: random.Random, data: bytes) -> bytes:
    found = list(_FIELD.finditer(data, max(0, somewhere(chance, data) - 200)))[:20]
    if not found:
        return data
    one = chance.choice(found)
    return splice(data, *one.span(), chance.choice((b"", b"", b" ", b"-", b"[N/A]", b"true", b"Some()", b"None")))


def by_lines(change: Callable[[random.Random, list[bytes], int], None]) -> Callable[[random.Random, bytes], bytes]:
    def changed(chance: random.Random, data: bytes) -> bytes:
        lines = data.split(b"\n")
        change(chance, lines, chance.randrange(len(lines)))
        return b"\n".join(lines)

    return changed


def drop(chance: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at : at + chance.choice((1, 1, 1, 3, 30))]


def double(chance: random.Random, lines: list[bytes], at: int) -> None:
    lines[at:at] = lines[at : at + chance.choice((1, 1, 2, 20))] * chance.choice((1, 1, 3))


def swap(chance: random.Random, lines: list[bytes], at: int) -> None:
    other = min(len(lines) - 1, at + chance.choice((1, 1, 2, 10, 80)))
    lines[at], lines[other] = lines[other], lines[at]


def glue(_: random.Random, lines: list[bytes], at: int) -> None:
    lines[at : at + 2] = [b"".join(lines[at : at + 2])]


def cut_line(chance: random.Random, lines: list[bytes], at: int) -> None:
    lines[at] = lines[at][: somewhere(chance, lines[at])]


def tear(chance: random.Random, lines: list[bytes], at: int) -> None:
    cut = somewhere(chance, lines[at])
    lines[at : at + 1] = [lines[at][:cut], lines[at][cut:]]


def head(chance: random.Random, lines: list[bytes], _: int) -> None:
    """Damage to the first lines: a table's header."""
    at = min(len(lines) - 1, chance.choice((0, 0, 1)))
    words = re.split(rb"([, ]+)", lines[at])
    word = chance.randrange(len(words))
    words[word] = chance.choice((b"", words[word][:-1], words[word] * 2, chance.choice(words), b"x"))
    lines[at] = b"".join(words)


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip, insert, cut_out, truncate, number, number, number, field, field,
    *map(by_lines, (drop, double, swap, glue, cut_line, tear, head)),
)  # fmt: skip


def mutated(chance: random.Random, data: bytes, times: int) -> bytes:
    """The data after some mutations; truncation at most once, else nothing is left."""
    once = [truncate] if chance.random() < 0.15 else []
    for _ in range(times):
        mutation = chance.choice(MUTATIONS)
        while mutation is truncate and not once:
            mutation = chance.choice(MUTATIONS)
        if mutation is truncate:
            once.clear()
        data = mutation(chance, data)
    return data


# --- what must hold -------------------------------------------------------------------------------------------------


class Slow(BaseException):
    """A case took longer than any may."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raises `Slow` in what takes longer."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise Slow(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_BEGINNINGS = re.compile(rb"CUZK_TIMING: |CUZK_NTT_H: |TIMELINE,|\d{4}-\d\d-\d\dT")
_COLOURS = re.compile(rb"(?:\x1b|\\u001b|#033)\[[0-9;?]*[A-Za-z]")
_BYTES = re.compile(rb"\[\s*\d+(?:\s*,\s*\d+)*\s*\]")


def records_in(data: bytes) -> int:
    """How many records the data can hold at most: places where one begins, in plain text and in arrays of bytes."""
    arrays = (bytes(int(byte) % 256 for byte in re.findall(rb"\d+", array)) for array in _BYTES.findall(data))
    text = b"\n".join([data, *arrays])
    # A carriage return or a colour may stand within a needle.
    return sum(1 for _ in _BEGINNINGS.finditer(_COLOURS.sub(b"", text)))


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def check_trace(trace: Trace) -> None:
    """Frames of the promised shape, whose rows belong together."""
    for frame_schema in schema.FRAMES:
        frame = getattr(trace, frame_schema.name)
        assert frame.schema == frame_schema.polars(), frame_schema.name
    assert trace.calls["call"].is_unique().all()
    assert trace.phases["call"].is_in(trace.calls["call"].implode()).all()
    assert trace.quality.marks == trace.marks.height == sum(trace.quality.marks_by_event.values())
    assert trace.marks["source"].is_between(0, len(trace.inputs) - 1).all()
    assert (trace.samples["end_ns"] > trace.samples["start_ns"]).all()


def check_report(trace: Trace) -> None:
    """A report in numbers and in words, of finite numbers that add up."""
    # Regimes and predictions take longer than all else: one in eight, whichever it is.
    whole = trace.quality.lines % 8 == 0
    diagnosis = diagnose(trace) if whole else account(trace)
    report = json.loads(JsonRenderer(True).render(trace, diagnosis), parse_constant=refuse_constant)
    assert report["headline"] or not whole
    assert TextRenderer(80).render(trace, diagnosis).strip()


def check_counts(trace: Trace, log: bytes, form: str) -> None:
    """Every line is counted, and no record is made up."""
    lines = log.count(b"\n") + (not log.endswith(b"\n") and bool(log))
    quality = trace.quality
    if form == "journalctl export":
        assert quality.lines <= lines
    else:
        assert quality.lines == lines
    # A record of a known family whose event is unknown is a mark and unrecognised.
    known = quality.marks - quality.marks_by_event.get("unknown", 0)
    assert known + quality.torn_lost + quality.unrecognised_of_known_family <= records_in(log)
    assert trace.marks["line"].is_between(1, max(lines, 1)).all()


def try_case(into: Path, chance: random.Random) -> str:
    """One case; what came of it."""
    log_form, trace_form = chance.choice(list(logs())), chance.choice(list(traces()))
    which = chance.choice(("log", "log", "trace", "both", "log of both", "trace of both"))
    times = chance.choice(TIMES)
    log, trace = logs()[log_form], traces()[trace_form]
    if which != "trace" and which != "trace of both":
        log = mutated(chance, log, times if which != "both" else max(1, times // 2))
    if which != "log" and which != "log of both":
        trace = mutated(chance, trace, times if which != "both" else max(1, times // 2))
    paths = []
    for name, data, given in (("log", log, which != "trace"), ("trace", trace, which != "log")):
        if given:
            (into / name).write_bytes(data)
            paths.append(str(into / name))
    try:
        loaded = load(paths)
    except GputraceError as error:
        assert "\n" not in str(error)
        return "refused"
    check_trace(loaded)
    is_log = {info.path: info.kind == "log" and info.used for info in loaded.inputs}
    if is_log.get(str(into / "log")) and not is_log.get(str(into / "trace"), False):
        check_counts(loaded, log, log_form)
    check_report(loaded)
    return "read"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_mutation_is_a_bug(chunk: int, tmp_path: Path) -> None:
    came: Counter[str] = Counter()
    for case in range(CASES):
        into = tmp_path / str(case)
        into.mkdir()
        try:
            with bounded(MOST_S):
                came[try_case(into, random.Random(f"{chunk} {case}"))] += 1
        except BaseException as error:
            error.add_note(f"chunk {chunk}, case {case}; its inputs are in {into}")
            raise
        for file in into.iterdir():
            file.unlink()
    assert came["read"] > 0.6 * CASES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MOST_MIB * 1024
