"""The exporter on captures that grow: scraped over HTTP, never falling, and in the end equal to the report."""

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal
from prometheus_client.parser import text_string_to_metric_families

from gputrace.analysis.diagnose import account
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.errors import InputError, UsageError
from gputrace.ingest.samples import WIRE_PER_PAYLOAD_OF
from gputrace.live.exporter import STEP_NS, Exporter, serve
from gputrace.live.exporter_command import exporter_command
from gputrace.live.metrics import Metrics
from gputrace.live.tally import LEAD_NS
from gputrace.loading import load
from tests.captures import ROOT, diagnosis, folder
from tests.captures import read as trace_of
from tests.growing import GrowingCapture

S = 1_000_000_000


@cache
def accounted(name: str) -> Diagnosis:
    """The capture's account: the report's figures without its predictions."""
    return account(trace_of(name))


Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Values:
    """Every sample of an exposition by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def read(metrics: Metrics) -> Values:
    from prometheus_client import generate_latest

    return parsed(generate_latest(metrics.registry).decode())


def total(values: Values, name: str, **labels: str) -> float:
    """Sum over all series of that name with these labels."""
    return sum(value for (own, at), value in values.items() if own == name and set(labels.items()) <= set(at))


def growing_only(values: Values) -> Values:
    return {key: value for key, value in values.items() if key[0].endswith(("_total", "_bucket", "_sum", "_count"))}


def assert_is_report(values: Values, report: Diagnosis, share: float = 1e-9) -> None:
    """The counters say what the report says; states to `share` of the time."""
    for gpu in report.gpus:
        own, number = report.states.filter(pl.col("gpu") == gpu.gpu), str(gpu.gpu)
        seconds = {state: float(own[f"{state}_s"].sum()) for state in ("compute", "copy_only", "idle")}
        whole = sum(seconds.values())
        found = {state: total(values, "gputrace_state_seconds_total", gpu=number, state=state) for state in seconds}
        assert sum(found.values()) == pytest.approx(whole, rel=1e-6)
        assert found == pytest.approx(seconds, abs=share * whole)
        for direction, size in (("rx", gpu.rx_payload_bytes), ("tx", gpu.tx_payload_bytes)):
            at = {"gpu": number, "direction": direction}
            assert total(values, "gputrace_pcie_payload_bytes_total", **at) == pytest.approx(size, rel=1e-6)
            wire = total(values, "gputrace_pcie_wire_bytes_total", **at)
            assert wire == pytest.approx((size or 0.0) * WIRE_PER_PAYLOAD_OF[direction], rel=1e-6)
        # Every second that was lost has a cause.
        lost = total(values, "gputrace_lost_seconds_total", gpu=number)
        assert lost == pytest.approx(found["copy_only"] + found["idle"], rel=1e-6)
    assert total(values, "gputrace_calls_completed_total") == report.calls.complete
    for worker, count in report.calls.by_worker.items():
        assert total(values, "gputrace_calls_completed_total", worker=worker) == count
    for phase in report.phases:
        at = {"phase": phase.name}
        assert total(values, "gputrace_phase_duration_seconds_count", **at) == phase.count
        mean_s = phase.mean_ms / 1e3
        assert total(values, "gputrace_phase_duration_seconds_sum", **at) == pytest.approx(
            phase.count * mean_s, abs=1e-6
        )


@pytest.mark.parametrize("name", ["pageable-heavy", "pinned-heavy"])
def test_a_finished_capture_counts_as_its_report(name: str) -> None:
    exporter = Exporter(str(folder(name)), load, from_start=True)
    exporter.update()
    values = read(exporter.metrics)
    assert_is_report(values, accounted(name))
    by_cause = {cause.cause: cause.total_s for cause in accounted(name).gaps.by_cause}
    found = {cause: total(values, "gputrace_lost_seconds_total", cause=cause) for cause in by_cause}
    assert found == pytest.approx(by_cause)
    supported = {h.id for h in accounted(name).hypotheses if h.verdict == "supported"}
    shown = {at for (metric, at), value in values.items() if metric == "gputrace_verdict_supported" and value == 1}
    assert shown == {(("cause", cause),) for cause in supported}
    assert total(values, "gputrace_main_cause") == 1


def test_an_account_is_what_the_report_says() -> None:
    short, whole = accounted("pageable-heavy"), diagnosis("pageable-heavy")
    assert_frame_equal(short.states, whole.states)
    assert_frame_equal(short.blame, whole.blame)
    assert (short.window, short.calls, short.gaps.count) == (whole.window, whole.calls, whole.gaps.count)
    # Sums made by several threads differ in their last digits.
    for one, other in zip(short.gaps.by_cause, whole.gaps.by_cause, strict=True):
        assert one.cause == other.cause
        assert one.total_s == pytest.approx(other.total_s)
    said = [
        [(h.id, h.verdict, [item.text for item in h.evidence]) for h in found.hypotheses] for found in (short, whole)
    ]
    assert said[0] == said[1]


def test_a_capture_longer_than_what_is_kept_counts_as_its_report() -> None:
    report = accounted("told-story")
    assert report.window.duration_s is not None and report.window.duration_s * S > max(STEP_NS, LEAD_NS)
    exporter = Exporter(str(folder("told-story")), load, from_start=True)
    exporter.update()
    assert_is_report(read(exporter.metrics), report, share=1e-3)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What scrapes over HTTP gave while a capture grew, and at its end."""
    capture = GrowingCapture(folder("pageable-heavy"), tmp_path_factory.mktemp("grown") / "capture", segment_rows=200)
    begin_ns, end_ns = capture.span_ns
    now = [begin_ns]
    exporter = Exporter(str(capture.folder), load, now=lambda: now[0] / 1e9)
    from prometheus_client import start_http_server

    server, thread = start_http_server(0, "127.0.0.1", exporter.metrics.registry)
    texts = []
    try:
        for at_ns in [*range(begin_ns, end_ns, 11 * S), end_ns, end_ns + 60 * S]:
            now[0] = at_ns
            capture.grow(at_ns)
            exporter.update()
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
                texts.append(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return texts


def test_counters_never_fall(scraped: list[str]) -> None:
    before: Values = {}
    for text in scraped:
        values = growing_only(parsed(text))
        assert {key for key, value in before.items() if values.get(key, -1.0) < value} == set()
        before = values


def test_counters_grow_on_the_way_and_end_as_the_report(scraped: list[str]) -> None:
    seconds = [total(parsed(text), "gputrace_state_seconds_total") for text in scraped]
    assert len({round(at, 3) for at in seconds}) > 4
    last = parsed(scraped[-1])
    assert_is_report(last, accounted("pageable-heavy"), share=2e-3)
    assert total(last, "gputrace_exporter_update_errors_total") == 0


def test_every_metric_has_help_and_type(scraped: list[str]) -> None:
    lines = scraped[-1].splitlines()
    told = {word: {line.split()[2] for line in lines if line.startswith(f"# {word} ")} for word in ("HELP", "TYPE")}
    described = {metric.name for metric in Metrics().described}
    for name in described:
        assert name in told["HELP"] and name in told["TYPE"], name
    # What is served and not described is the exporter's own process.
    others = {name for name in told["TYPE"] - described if not name.startswith("process_")}
    assert {name for name in others if not name.endswith("_created")} == set()


def test_labels_are_few_and_name_no_job(scraped: list[str]) -> None:
    values = parsed(scraped[-1])
    labels = {label for _, at in values for label, _ in at}
    assert labels == {"gpu", "worker", "phase", "cause", "state", "direction", "method", "le", "version"}
    assert len(values) < 1000


def test_counting_from_now_leaves_out_what_was(tmp_path: Path) -> None:
    capture = GrowingCapture(folder("pageable-heavy"), tmp_path / "capture", segment_rows=300)
    begin_ns, end_ns = capture.span_ns
    middle_ns = (begin_ns + end_ns) // 2
    capture.grow(middle_ns)
    now = [middle_ns]
    exporter = Exporter(str(capture.folder), load, now=lambda: now[0] / 1e9)
    exporter.update()
    values = read(exporter.metrics)
    assert total(values, "gputrace_state_seconds_total") == total(values, "gputrace_calls_completed_total") == 0
    # Verdicts are of the last minutes, whatever is counted.
    assert total(values, "gputrace_verdict_supported") > 0
    capture.grow(end_ns)
    now[0] = end_ns + 60 * S
    exporter.update()
    values = read(exporter.metrics)
    window_end_ns = accounted("pageable-heavy").window.end_ns or 0
    newest_read_ns = int(total(values, "gputrace_counted_until_timestamp_seconds") * 1e9)
    assert newest_read_ns == pytest.approx(window_end_ns, abs=1e7)
    assert total(values, "gputrace_state_seconds_total") == pytest.approx((window_end_ns - middle_ns) / 1e9, abs=0.2)
    unlocks = trace_of("pageable-heavy").calls.filter("complete")["unlock_ns"]
    assert total(values, "gputrace_calls_completed_total") == (unlocks > middle_ns).sum()


def test_an_empty_capture_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    exporter = Exporter(str(tmp_path), load, say=said.append)
    exporter.update()
    (tmp_path / "samples-000001.csv").write_text("gpu,t_start_ns,t_end_ns\n")
    (tmp_path / "prover-000001.log").write_text("")
    exporter.update()
    assert said == []
    assert total(read(exporter.metrics), "gputrace_exporter_updates_total") == 2


def test_what_fails_is_said_once_counted_and_tried_again(tmp_path: Path) -> None:
    capture = GrowingCapture(folder("pageable-heavy"), tmp_path / "capture")
    said: list[str] = []
    broken = [True]

    def sometimes(paths: list[str]) -> Any:
        if broken[0]:
            raise InputError("prover.log: a line\nof two")
        return load(paths)

    now = [capture.span_ns[1]]
    exporter = Exporter(str(capture.folder), sometimes, from_start=True, now=lambda: now[0] / 1e9, say=said.append)
    capture.grow(capture.span_ns[1])
    exporter.update()
    exporter.update()
    assert said == ["gputrace: prover.log: a line of two"]
    assert total(read(exporter.metrics), "gputrace_exporter_update_errors_total") == 2
    broken[0] = False
    now[0] += 60 * S
    exporter.update()
    assert_is_report(read(exporter.metrics), accounted("pageable-heavy"))


def test_the_recorders_troubles_are_counted(tmp_path: Path) -> None:
    rows = [
        "gpu,t_start_ns,t_end_ns,late_ms,hole,failed",
        "0,1795952850000000000,1795952850100000000,0.1,false,",
        "0,1795952850100000000,1795952850250000000,50,false,power_w;gpu_util",
        "0,1795952850250000000,1795952853250000000,2900,true,",
        "1,1795952850000000000,1795952850100000000,,,",
        "0,damaged",
    ]
    (tmp_path / "samples-000001.csv").write_text("".join(f"{row}\n" for row in rows))
    exporter = Exporter(str(tmp_path), load, from_start=True, now=lambda: 0.0)
    exporter.update()
    values = read(exporter.metrics)
    counts = [
        total(values, f"gputrace_recorder_{name}_total", gpu="0")
        for name in ("rows", "late_rows", "holes", "failed_reads")
    ]
    assert counts == [3, 2, 1, 2]
    assert total(values, "gputrace_recorder_last_row_timestamp_seconds", gpu="0") == pytest.approx(
        1795952853.25, abs=1e-5
    )
    assert total(values, "gputrace_recorder_rows_total", gpu="1") == 1


def signature(name: str) -> bool:
    """Whether the staging alert's conditions hold, its queries worked out by hand over the whole of a capture."""
    groups = yaml.safe_load((ROOT / "docs" / "deploy" / "gputrace-alerts.yml").read_text())["groups"]
    rule = next(rule for group in groups for rule in group["rules"] if rule["alert"] == "GputracePageableStaging")
    parts = [part.strip() for part in rule["expr"].split("\nand\n")]
    least_copy, most_rate, least_ntt_s = (float(part.rstrip(") \n").rsplit(" ", 1)[1]) for part in parts)
    exporter = Exporter(str(folder(name)), load, from_start=True)
    exporter.update()
    values = read(exporter.metrics)
    copy_only_s = total(values, "gputrace_state_seconds_total", state="copy_only")
    rate = total(values, "gputrace_pcie_payload_bytes_total", direction="rx") / copy_only_s
    buckets = sorted(
        (float(dict(at)["le"]), value)
        for (metric, at), value in values.items()
        if metric == "gputrace_phase_duration_seconds_bucket" and ("phase", "ntt_kernels") in at
    )
    median_at_least_s = max((bound for bound, count in buckets if count < buckets[-1][1] / 2), default=0.0)
    return (
        copy_only_s / total(values, "gputrace_state_seconds_total") > least_copy
        and rate / total(values, "gputrace_line_rate_bytes_per_second") < most_rate
        and median_at_least_s >= least_ntt_s
    )


@pytest.mark.parametrize(("name", "staged"), [("pageable-heavy", True), ("told-story", True), ("pinned-heavy", False)])
def test_the_staging_alert_tells_pageable_from_pinned(name: str, staged: bool) -> None:
    assert signature(name) == staged


def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"--prometheus 127.0.0.1:{port}: cannot listen there: .*in use"):
            serve(str(folder("pageable-heavy")), f"127.0.0.1:{port}", load)


def test_what_cannot_be_served() -> None:
    with pytest.raises(UsageError):
        serve(str(folder("pageable-heavy")), "nowhere", load)
    with pytest.raises(InputError, match="cannot listen there"):
        serve(str(folder("pageable-heavy")), "host.invalid:0", load)
    with pytest.raises(InputError, match="not a folder"):
        serve("/nonexistent", "0", load)


def test_it_says_who_can_reach_it(tmp_path: Path) -> None:
    for address, words in (("127.0.0.1:0", "this host only"), ("0.0.0.0:0", "reachable from other hosts")):
        said: list[str] = []
        stop = threading.Event()
        stop.set()
        serve(str(tmp_path), address, load, stop=stop, say=said.append)
        assert len(said) == 1 and words in said[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    capture = GrowingCapture(folder("pageable-heavy"), tmp_path / "capture")
    capture.grow(capture.span_ns[1])
    os.utime(capture.folder / "prover.log", (0, 0))
    command = exporter_command(str(capture.folder), "0")
    ran = subprocess.Popen([*command[:4], "--from-start", *command[4:]], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert ran.stderr is not None
    try:
        said = ran.stderr.readline()
        address = said.split()[1]
        with urllib.request.urlopen(address, timeout=10) as answer:
            values = parsed(answer.read().decode())
    finally:
        ran.send_signal(number)
        rest = ran.communicate(timeout=30)[1]
    assert (ran.returncode, rest) == (0, "")
    assert address.startswith("http://127.0.0.1:") and "this host only" in said
    assert total(values, "gputrace_calls_completed_total") == accounted("pageable-heavy").calls.complete


@pytest.mark.parametrize(("address", "code"), [("nowhere", 2), ("256.0.0.1:1", 3)])
def test_the_commands_errors_are_one_line(tmp_path: Path, address: str, code: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "gputrace", "export", str(tmp_path), "--prometheus", address],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert ran.returncode == code
    assert len(ran.stderr.splitlines()) == 1 and ran.stderr.startswith("gputrace: --prometheus ")


def test_memory_does_not_grow_with_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The same seconds, shortened: what is kept is bounded by what is needed, not by what was read.
    monkeypatch.setattr("gputrace.live.tally.LEAD_NS", 20 * S)
    monkeypatch.setattr("gputrace.live.tally.PATIENCE_NS", 10 * S)
    capture = GrowingCapture(folder("told-story"), tmp_path / "capture", segment_rows=500)
    begin_ns, end_ns = capture.span_ns
    now = [begin_ns]
    exporter = Exporter(str(capture.folder), load, now=lambda: now[0] / 1e9)
    kept = []
    for at_ns in range(begin_ns, end_ns, 20 * S):
        now[0] = at_ns
        capture.grow(at_ns)
        exporter.update()
        kept.append(sum(len(series.kept) for series in exporter._follower.series.values()))
    half = len(kept) // 2
    assert max(kept[half:]) <= 1.3 * max(kept[:half])
