"""What people really have: half of the streams, the wrong trace, damaged files. Never a traceback or a silent guess."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.errors import InputError
from gputrace.loading import load
from tests.captures import DATA, change_trace, diagnosis, folder, log_and_trace, read, write_two_files


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "gputrace", *arguments], input=stdin, capture_output=True, check=False)


def codes(trace_quality: object) -> set[str]:
    return {notice.code for notice in trace_quality.notices}  # type: ignore[attr-defined]


UNUSABLE = {
    "empty": b"",
    "prose": b"hello\nworld\n",
    "binary": bytes(range(256)) * 100,
    "json": b'{"a": [1, 2',
    "header only": b"t_wall_ns,cnt_rx_bytes,cnt_tx_bytes\n",
    "not gzip": b"\x1f\x8bnot gzip at all",
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_unusable_input_gets_one_line_and_code_3(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(UNUSABLE[kind])
    done = run("report", str(path))
    assert done.returncode == 3
    assert done.stdout == b""
    message = done.stderr.decode().splitlines()
    assert len(message) == 1
    assert str(path) in message[0]


def test_missing_file_and_empty_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.log", tmp_path):
        done = run("report", str(path))
        assert done.returncode == 3
        assert str(path) in done.stderr.decode()
        assert b"Traceback" not in done.stderr


def test_truncated_gzip_gives_a_partial_report(tmp_path: Path) -> None:
    whole = (folder("pageable-heavy") / "prover.merged.gz").read_bytes()
    cut = tmp_path / "cut.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    done = run("report", str(cut), "--json", "-")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert 0 < report["calls"]["complete"] < 41
    assert any(
        notice["code"] == "input-damaged" and str(cut) in notice["text"] for notice in report["quality"]["notices"]
    )


def later(row: dict[str, str]) -> None:
    row["t_wall_ns"] = str(int(row["t_wall_ns"]) + 10**13)
    row["cnt_ts_us"] = str(int(row["cnt_ts_us"]) + 10**10)


def test_another_runs_trace_is_not_used(tmp_path: Path) -> None:
    trace = load([log_and_trace("one-worker")[0], change_trace("pageable-heavy", tmp_path, later)])
    assert "no-overlap" in codes(trace.quality)
    found = diagnose(trace)
    assert found.gpus[0].copy_only_share is None
    assert found.gpus[0].rx_payload_bytes is None
    assert next(f for f in found.hypotheses if f.id == "pageable-h2d").verdict == "undetermined"


def test_a_trace_whose_clock_is_off_is_moved_to_the_log(tmp_path: Path) -> None:
    trace = load([log_and_trace("pageable-heavy")[0], change_trace("pageable-heavy", tmp_path, later)])
    assert "trace-clock-moved" in codes(trace.quality)
    known = read("pageable-heavy").samples["start_ns"][0]
    assert abs(trace.samples["start_ns"][0] - known) / 1e9 < 0.1
    assert diagnose(trace).hypotheses[0].id == "pageable-h2d"


def test_stdout_alone_says_what_it_can(tmp_path: Path) -> None:
    stdout, _ = write_two_files("pageable-heavy", tmp_path)
    found = diagnose(load([stdout, log_and_trace("pageable-heavy")[1]]))
    assert found.calls.complete == 0
    assert found.calls.count >= 41
    assert found.gpus[0].compute_share == pytest.approx(diagnosis("pageable-heavy").gpus[0].compute_share, abs=0.02)
    assert found.gpus[0].mutex_held_share is None
    assert "stderr" in found.headline
    assert found.jobs


def test_stderr_alone_finds_its_clock_in_the_trace(tmp_path: Path) -> None:
    _, stderr = write_two_files("pageable-heavy", tmp_path)
    trace = load([stderr, log_and_trace("pageable-heavy")[1]])
    assert trace.clock.method == "correlation"
    assert trace.clock.unique
    assert trace.clock.runner_up_margin is not None and trace.clock.runner_up_margin > 0.1
    known = diagnosis("pageable-heavy")
    found = diagnose(trace)
    assert found.window.start_ns is not None and known.window.start_ns is not None
    assert abs(found.window.start_ns - known.window.start_ns) / 1e9 < (trace.clock.uncertainty_s or 0.0)
    assert found.calls.complete == 41
    assert "pageable" in found.headline


def test_stderr_alone_without_trace_has_no_absolute_times(tmp_path: Path) -> None:
    _, stderr = write_two_files("one-worker", tmp_path)
    done = run("report", stderr, "--json", "-", "--calls")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["clock"]["method"] == "none"
    assert report["window"]["start_ns"] is None
    assert report["window"]["duration_s"] == pytest.approx(diagnosis("one-worker").window.duration_s, abs=0.1)
    assert report["calls"]["complete"] == 25
    assert all(call["lock_ns"] is None for call in report["calls_list"])
    ntt = next(phase for phase in report["phases"] if phase["name"] == "ntt_kernels")
    assert ntt["rx_bytes_per_call_median"] is None


def test_a_trace_that_does_not_fit_is_said_not_to(tmp_path: Path) -> None:
    _, stderr = write_two_files("one-worker", tmp_path)
    trace = load([stderr, log_and_trace("pageable-heavy")[1]])
    assert trace.clock.method == "none"
    assert "not-aligned" in codes(trace.quality)


def test_trace_alone_shows_what_the_gpu_did() -> None:
    found = diagnose(load([log_and_trace("pageable-heavy")[1]]))
    assert found.gpus[0].compute_share == pytest.approx(0.20, abs=0.02)
    assert "no prover log" in found.headline
    assert {cause.cause for cause in found.gaps.by_cause} == {"unexplained"}
    # What only a log can tell is neither said nor denied.
    assert {finding.id for finding in found.hypotheses if finding.verdict != "undetermined"} <= {
        "link-degraded", "throttled", "other-process",
    }  # fmt: skip


def test_one_second_readings_do_not_speak_for_phases(tmp_path: Path) -> None:
    dmon = tmp_path / "dmon.txt"
    dmon.write_bytes(gzip.decompress((DATA / "pageable-heavy" / "dmon.txt.gz").read_bytes()))
    trace = load([log_and_trace("pageable-heavy")[0], str(dmon)])
    assert "pcie-windows" in codes(trace.quality)
    found = diagnose(trace)
    assert next(p for p in found.phases if p.name == "ntt_kernels").rx_bytes_per_s is None
    assert next(f for f in found.hypotheses if f.id == "pageable-h2d").verdict == "undetermined"


def test_a_trace_without_pcie_says_so(tmp_path: Path) -> None:
    smi = tmp_path / "smi.csv"
    smi.write_bytes(gzip.decompress((DATA / "pageable-heavy" / "smi.csv.gz").read_bytes()))
    trace = load([log_and_trace("pageable-heavy")[0], str(smi)])
    assert "no-pcie" in codes(trace.quality)
    found = diagnose(trace)
    assert found.gpus[0].state_source == "inferred from phases"
    assert found.gpus[0].copy_only_share is None


def test_forms_of_one_log_are_counted_once(tmp_path: Path) -> None:
    two = write_two_files("one-worker", tmp_path)
    docker = str(DATA / "one-worker" / "prover.docker.json.gz")
    merged = log_and_trace("one-worker")[0]
    trace = load([*two, docker, merged])
    assert trace.quality.marks_by_event["mutex_released"] == 25
    # The form with arrival times wins.
    assert [item.path for item in trace.inputs if item.used] == [docker]
    assert sum(notice.code == "same-log" for notice in trace.quality.notices) == 3


def test_docker_form_gives_the_same_calls() -> None:
    columns = ["worker", "partition", "job", "mutex_held_ms", "prep_msm_ms", "b_g2_msm_ms"]
    docker = load([str(DATA / "light-then-heavy" / "prover.docker.json.gz")]).calls.filter("complete")
    merged = load([log_and_trace("light-then-heavy")[0]]).calls.filter("complete")
    assert docker.select(columns).equals(merged.select(columns))


def test_stdin_and_docker_timestamps(tmp_path: Path) -> None:
    with gzip.open(DATA / "one-worker" / "prover.docker.json.gz", "rt") as lines:
        entries = [json.loads(line) for line in lines]
    stamped = "".join(f"{entry['time']} {entry['log']}" for entry in entries)
    done = run("report", "-", "--json", "-", stdin=stamped.encode())
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["inputs"][0]["format"] == "docker-timestamps"
    assert report["calls"]["complete"] == 25


def test_load_says_what_is_wrong_as_an_exception(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    with pytest.raises(InputError, match="empty"):
        load([str(empty)])
