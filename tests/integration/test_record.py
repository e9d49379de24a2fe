"""Recorders as processes: killed, told to stop, on a full disk, and a prover that never notices any of it.

`GPUTRACE_KILLS=200` kills as often as the product promises; without it a fifth of that.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from gputrace.errors import InputError
from gputrace.ingest.inputs import Ingested, ingest
from gputrace.ingest.recordings import RecordedLog, recording_at
from gputrace.sampler.processes import writers_of
from tests import standin

ROOT = Path(__file__).parents[2]
PROVER = str(ROOT / "tests/stand_in_prover.py")
KILLS = int(os.environ.get("GPUTRACE_KILLS", "40"))
AT_ONCE = 4
S = 1_000_000_000

pytestmark = pytest.mark.xdist_group("record")


def prover(lines: int, pause_s: float, *how: str) -> list[str]:
    return [sys.executable, "-S", PROVER, str(lines), str(pause_s), *how]


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.recorder_process", str(folder), *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RECORDER_PACKS": "no", **environment},
    )


def wait_for(condition: object, limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def child_of(folder: Path) -> int | None:
    """The command's process, once the recorder has told it."""
    try:
        log = json.loads((folder / "meta.json").read_text()).get("log")
    except (OSError, ValueError):
        return None
    return int(log["pid"]) if log else None


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def seen_lines(folder: Path) -> list[str]:
    recording = recording_at(str(folder))
    assert recording is not None
    text = b"".join(RecordedLog(recording).chunks()).decode()
    return [line.split(" ", 1)[1] for line in text.splitlines() if " gputrace segment=" not in line]


def prep_ms(read: Ingested) -> list[int]:
    return [int(pair["value"]) for pairs in read.marks["values"] for pair in pairs if pair["key"] == "prep_msm_ms"]


def all_lines(count: int) -> list[str]:
    return sorted(
        [f"stdout out {n}" for n in range(count)] + [f"stderr CUZK_TIMING: prep_msm_ms={n}" for n in range(count)]
    )


def stop_reading(process: subprocess.Popen[str]) -> str:
    try:
        said = process.communicate(timeout=20)[1]
    finally:
        process.kill()
    assert "Traceback" not in said
    return said


# --- killed at random moments -----------------------------------------------------------------------------------------


def kill_once(parent: Path, number: int) -> str:
    """One recording killed at a random moment; what was checked: nothing begun, no prover yet, or all of it."""
    chance = random.Random(number)
    folder, lines = parent / f"c{number}", 250
    begun_s = time.monotonic()
    recorder = start(folder, "--", *prover(lines, 0.004), RECORDER_SEGMENT_BYTES=str(chance.choice([3000, 20_000])))
    time.sleep(chance.uniform(0.1, 1.6))
    killed_ns = time.monotonic_ns()
    recorder.kill()
    stop_reading(recorder)
    raw = folder / "prover.stderr"
    if not raw.exists():
        assert not folder.exists() or not list(folder.glob("prover*"))
        return "nothing begun"
    # The prover never notices: it writes all its lines.
    wait_for(lambda: raw.read_bytes().count(b"\n") == lines or not (raw.stat().st_size or writers_of([raw])))
    if not raw.stat().st_size:
        # Killed after the prover's files were made and before it was started.
        return "nothing begun"
    assert sorted(seen_lines(folder)) == all_lines(lines)
    read = ingest([str(folder)])
    assert sorted(prep_ms(read)) == list(range(lines))
    rows = sorted(folder.glob("samples-*.csv"))
    if not rows:
        # It was killed before its first second with a prover was over.
        assert killed_ns - begun_s * 1e9 < 2 * S
        return "log only"
    frame = pl.concat([pl.read_csv(path, infer_schema=False, truncate_ragged_lines=True) for path in rows])
    whole = frame.filter(pl.col("hole").is_in(["true", "false"])).cast(
        {"t_mono_ns": pl.Int64, "rx_wire_bytes_total": pl.Int64}
    )
    assert killed_ns - int(whole["t_mono_ns"].max()) < S  # type: ignore[arg-type]
    for _, gpu in whole.group_by("gpu"):
        assert gpu["rx_wire_bytes_total"].to_list() == [1000 * (n + 1) for n in range(gpu.height)]
    assert read.samples.height >= whole.height - 4
    return "all"


def test_a_killed_recorder_loses_no_line_and_less_than_a_second_of_rows(tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        checked = list(pool.map(lambda number: kill_once(tmp_path, number), range(KILLS)))
    # Most of the moments lie in the middle of a recording.
    assert checked.count("all") > KILLS / 2
    print({what: checked.count(what) for what in sorted(set(checked))})


def test_a_capture_is_read_while_it_is_written_and_packed(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    recorder = start(folder, "--", *prover(500, 0.006), RECORDER_SEGMENT_BYTES="10000", RECORDER_PACKS="yes")
    read_lines, last = 0, 0
    while recorder.poll() is None:
        try:
            read = ingest([str(folder)])
        except InputError:
            time.sleep(0.05)
            continue
        found = sorted(prep_ms(read))
        assert found == list(range(len(found))) and len(found) >= last
        last, read_lines = len(found), read_lines + 1
    assert recorder.returncode == 0
    assert read_lines > 3 and sorted(seen_lines(folder)) == all_lines(500)
    assert list(folder.glob("samples-*.parquet"))


# --- told to stop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_recording_and_not_the_prover(tmp_path: Path, number: signal.Signals) -> None:
    folder, told = tmp_path / "c", tmp_path / "told"
    recorder = start(folder, "--", *prover(200, 0.01, f"signals={told}"))
    wait_for(lambda: (folder / "prover-000001.log").exists() and list(folder.glob("samples-*")))
    child = child_of(folder)
    assert child is not None
    # To the whole group, as a terminal does.
    recorder.send_signal(number)
    said = stop_reading(recorder)
    assert recorder.returncode == 0
    assert f"{number.name}; the command goes on as process {child}" in said
    assert is_alive(child)
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["ended"] == number.name
    events = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
    assert events[0] == "start" and events[-1] == "stop"
    wait_for(lambda: not is_alive(child))
    assert not told.exists()
    assert sorted(seen_lines(folder)) == all_lines(200)


def test_a_terminals_interrupt_does_not_reach_the_prover(tmp_path: Path) -> None:
    folder, told = tmp_path / "c", tmp_path / "told"
    recorder = subprocess.Popen(
        [sys.executable, "-m", "tests.recorder_process", str(folder), "--", *prover(60, 0.01, f"signals={told}")],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: child_of(folder) is not None and (folder / "prover-000001.log").exists())
    os.killpg(recorder.pid, signal.SIGINT)
    stop_reading(recorder)
    child = child_of(folder)
    assert child is not None
    wait_for(lambda: not is_alive(child))
    assert not told.exists() and sorted(seen_lines(folder)) == all_lines(60)


# --- what the command does --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code", "closes"),
    [([], 0, False), (["exit=7"], 7, False), (["close"], 0, True), (["fork", "exit=3"], 3, False)],
    ids=["ends", "fails", "closes its stdout", "forks"],
)
def test_a_commands_exit_code_and_all_its_lines(tmp_path: Path, how: Sequence[str], code: int, closes: bool) -> None:
    folder = tmp_path / "c"
    recorder = start(folder, "--", *prover(60, 0.004, *how))
    said = stop_reading(recorder)
    assert recorder.returncode == code, said
    lines = all_lines(60)
    if closes:
        lines = [line for line in lines if line.startswith("stderr") or int(line.rpartition(" ")[2]) < 30]
    assert sorted(seen_lines(folder)) == lines
    stamped = ingest([str(folder)]).marks["arrival_ns"]
    assert stamped.null_count() == 0


def test_a_command_ended_by_a_signal_gives_what_a_shell_gives(tmp_path: Path) -> None:
    recorder = start(tmp_path / "c", "--", "sh", "-c", "echo begun; kill -9 $$")
    stop_reading(recorder)
    assert recorder.returncode == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    recorder = start(tmp_path / "c", "--", "/no/such/prover")
    said = stop_reading(recorder)
    assert recorder.returncode == 3
    assert said == "gputrace: /no/such/prover: cannot be started: No such file or directory\n"


def test_lines_are_stamped_as_they_come(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do date +'CUZK_TIMING: prep_msm_ms=%s%N' >&2; sleep 0.07; done"
    stop_reading(start(folder, "--", "sh", "-c", script))
    read = ingest([str(folder)])
    late_ms = sorted((at - said) / 1e6 for at, said in zip(read.marks["arrival_ns"], prep_ms(read), strict=True))
    assert len(late_ms) == 12 and late_ms[0] > 0
    # The median: other work on the machine may hold one up.
    assert late_ms[6] < 8.0


# --- a log that somebody else writes ----------------------------------------------------------------------------------


def writer(path: Path, lines: int, pause_s: float) -> subprocess.Popen[bytes]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        return subprocess.Popen(prover(lines, pause_s), stdout=subprocess.DEVNULL, stderr=file)
    finally:
        os.close(file)


def test_a_file_is_followed_through_copytruncate_at_random_moments(tmp_path: Path) -> None:
    log, folder = tmp_path / "cuzk.log", tmp_path / "c"
    log.touch()
    recorder = start(folder, "--log", str(log))
    wait_for(lambda: (folder / "events.jsonl").exists())
    written = writer(log, 400, 0.003)
    chance, at = random.Random(5), 0
    while written.poll() is None:
        time.sleep(chance.uniform(0.05, 0.2))
        # Between copying and truncating nobody may write: that loss is logrotate's own.
        written.send_signal(signal.SIGSTOP)
        at += 1
        shutil.copyfile(log, tmp_path / f"cuzk.log.{at}")
        os.truncate(log, 0)
        written.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    recorder.terminate()
    stop_reading(recorder)
    assert at > 3
    assert prep_ms(ingest([str(folder)])) == list(range(400))


def test_a_process_is_found_and_its_file_followed(tmp_path: Path) -> None:
    log, folder = tmp_path / "cuzk.log", tmp_path / "c"
    written = writer(log, 200, 0.01)
    recorder = start(folder, "--pid", str(written.pid))
    written.wait()
    time.sleep(0.3)
    recorder.terminate()
    stop_reading(recorder)
    found = prep_ms(ingest([str(folder)]))
    assert found == list(range(found[0], 200))
    host = pl.read_csv(next(folder.glob("host-*.csv")))
    assert host["prover_pid"].to_list()[0] == written.pid


def test_a_process_whose_output_is_a_pipe_is_told_what_to_do(tmp_path: Path) -> None:
    piped = subprocess.Popen(["sleep", "30"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        recorder = start(tmp_path / "c", "--pid", str(piped.pid))
        said = stop_reading(recorder)
    finally:
        piped.kill()
        piped.communicate()
    assert recorder.returncode == 3 and "--log FILE" in said
    assert not (tmp_path / "c").exists()


# --- a full disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=3m", "none", disk], capture_output=True).returncode
    ):
        pytest.skip("a small tmpfs cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_ends_the_recording_with_one_line_and_the_command_runs_on(small_disk: Path) -> None:
    folder = small_disk / "c"
    recorder = start(folder, "--gpus", "8", "--", *prover(1500, 0.004))
    wait_for(lambda: child_of(folder) is not None)
    child = child_of(folder)
    (small_disk / "others").write_bytes(b"x" * 2_600_000)
    said = stop_reading(recorder)
    assert recorder.returncode == 5
    assert child is not None and is_alive(child)
    last = said.splitlines()[-1]
    assert "no space left" in last and f"the command goes on as process {child}" in last
    assert len(said.splitlines()) == 2
    read = ingest([str(folder)])
    assert read.samples.height > 10
    wait_for(lambda: not is_alive(child))
    assert sorted(seen_lines(folder)) == all_lines(1500)


def test_a_file_that_may_not_grow_ends_the_recording_and_not_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    recorder = start(folder, "--gpus", "8", "--", *prover(400, 0.005))
    wait_for(lambda: list(folder.glob("samples-*")))
    # The limit holds for the recorder alone, and is met by its rows; SIGXFSZ is ignored by Python, so write fails.
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (60_000, 60_000))
    said = stop_reading(recorder)
    child = child_of(folder)
    assert recorder.returncode == 5 and "no space left" in said and child is not None
    wait_for(lambda: not is_alive(child))
    assert sorted(seen_lines(folder)) == all_lines(400)
    assert ingest([str(folder)]).samples.height > 10


def test_the_command_line_records_a_gpu_to_the_byte(tmp_path: Path) -> None:
    """The real sampler and pynvml on the stand-in for the driver: what passed while it ran is what the report reads."""
    script = standin.Script(["gpus 2", "name 1 NVIDIA H200"]).copies(1, 30, 30 * 50_000_000_000, 30 * 4_000_000_000)
    try:
        environment = standin.environment(script.write(tmp_path / "script"))
    except standin.NoCompiler as missing:
        pytest.skip(str(missing))
    folder = tmp_path / "c"
    command = [sys.executable, "-m", "gputrace", "record", "-o", str(folder), "--gpu", "1", "--", *prover(300, 0.01)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, env=environment)
    assert ran.returncode == 0 and "1 GPU, the host" in ran.stderr, ran.stderr
    read = ingest([str(folder)])
    assert [(gpu.gpu, gpu.name, gpu.pcie_source) for gpu in read.gpus] == [(1, "NVIDIA H200", "counters")]
    # Over the time that was observed: on a busy machine a late poll makes a hole, whose bytes belong to no sample.
    duration_s = (pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9
    seconds, rx, tx = read.samples.select(duration_s, *(pl.col(f"{way}_wire_bytes").sum() for way in ("rx", "tx"))).row(
        0
    )
    assert seconds > 1.0
    assert rx / seconds == pytest.approx(50e9, rel=0.005)
    assert tx / seconds == pytest.approx(4e9, rel=0.005)


def test_the_command_line_records_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "gputrace",
            "record",
            "-o",
            str(folder),
            "--max-size",
            "1GB",
            "--",
            *prover(5, 0.01, "exit=9"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    first, last = ran.stderr.splitlines()
    assert ran.returncode == 9 and ran.stdout == ""
    assert first.startswith(f"gputrace: recording to {folder}: ") and "the log (command as process" in first
    assert last == "gputrace: recording ended (the command ended)"
    assert "GPU" in first
    assert prep_ms(ingest([str(folder)])) == list(range(5))
