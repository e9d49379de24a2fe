"""Long runs: judged in chapters, a log gives what it gives when it is held whole, as far as that can be."""

import gzip
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.cache.runs import Request
from gputrace.chapters.asked import Asked
from gputrace.chapters.cut import Size
from gputrace.chapters.inputs import LongInputs, long_inputs
from gputrace.chapters.long_run import LongRun
from gputrace.ingest.recordings import recording_at
from gputrace.loading import load
from gputrace.sampler.capture import Capture
from gputrace.sampler.host import HostRow, host_line
from gputrace.sampler.rows import csv_line
from gputrace.simulate.capture import play, write_capture
from gputrace.simulate.scenarios import PRESETS
from gputrace.trace import Trace
from tests.captures import folder as capture_at
from tests.captures import log_and_trace
from tests.recording import START_NS, FakeClock, NoPacker, row

_SIZES = {
    "told-story": Size(marks=900, marks_before=500, marks_after=300),
    "light-then-heavy": Size(marks=500, marks_before=300, marks_after=200),
    "pageable-heavy": Size(marks=300, marks_before=200, marks_after=100),
    "one-worker": Size(marks=300, marks_before=200, marks_after=100),
}
_LOGS = tuple(_SIZES)


def _log(name: str) -> str:
    return str(next(path for path in capture_at(name).iterdir() if path.name in ("prover.log.gz", "prover.merged.gz")))


@cache
def _both(name: str) -> tuple[tuple[Trace, Diagnosis], tuple[Trace, Diagnosis]]:
    """The run held whole and judged in chapters."""
    path = _log(name)
    trace = load(path, cache=False)
    in_chapters = LongRun(Request([path]), LongInputs(path), _SIZES[name]).judged(Asked())
    return (trace, diagnose(trace, scenarios=())), in_chapters


@pytest.mark.parametrize("name", _LOGS)
def test_what_is_counted_is_counted_once(name: str) -> None:
    (whole_trace, whole), (trace, chapters) = _both(name)
    assert next(notice for notice in trace.quality.notices if notice.code == "in-chapters").count > 1
    for count in ("count", "complete", "failed", "warmup", "by_worker"):
        assert getattr(chapters.calls, count) == getattr(whole.calls, count), count
    assert chapters.calls.per_s == pytest.approx(whole.calls.per_s)
    assert trace.quality.marks_by_event == whole_trace.quality.marks_by_event
    for count in ("lines", "marks", "torn_repaired", "torn_lost", "unrecognised_of_known_family"):
        assert getattr(trace.quality, count) == getattr(whole_trace.quality, count), count
    assert {job.job: (job.partitions, job.done) for job in chapters.jobs} == {
        job.job: (job.partitions, job.done) for job in whole.jobs
    }


@pytest.mark.parametrize("name", _LOGS)
def test_seconds_add_up_to_the_windows(name: str) -> None:
    (_, whole), (_, chapters) = _both(name)
    assert chapters.window.duration_s == pytest.approx(whole.window.duration_s, abs=0.02)
    for own, other in zip(chapters.gpus, whole.gpus, strict=True):
        assert own.compute_share == pytest.approx(other.compute_share, abs=1e-3)
        assert own.mutex_held_share == pytest.approx(other.mutex_held_share, abs=1e-3)
    assert chapters.gaps.total_s == pytest.approx(whole.gaps.total_s, abs=0.05)
    told = {total.cause: total.total_s for total in chapters.gaps.by_cause}
    assert sum(told.values()) == pytest.approx(chapters.gaps.total_s, rel=1e-6)
    for total in whole.gaps.by_cause:
        assert told.get(total.cause, 0.0) == pytest.approx(total.total_s, abs=0.02 * (whole.gaps.total_s or 0.0))


@pytest.mark.parametrize("name", _LOGS)
def test_phases_have_the_quantiles_of_all_calls(name: str) -> None:
    (_, whole), (_, chapters) = _both(name)
    by_name = {phase.name: phase for phase in chapters.phases}
    assert list(by_name) == [phase.name for phase in whole.phases]
    for phase in whole.phases:
        own = by_name[phase.name]
        for figure in ("count", "min_ms", "p5_ms", "median_ms", "mean_ms", "p95_ms", "max_ms", "share_of_mutex_held"):
            assert getattr(own, figure) == pytest.approx(getattr(phase, figure)), (phase.name, figure)


@pytest.mark.parametrize("name", _LOGS)
def test_verdicts_are_those_of_the_whole_run_where_most_is_at_stake(name: str) -> None:
    (_, whole), (_, chapters) = _both(name)
    told = {finding.id: finding for finding in chapters.hypotheses}
    first = whole.gaps.by_cause[0].cause
    assert told[first].verdict == next(finding.verdict for finding in whole.hypotheses if finding.id == first)
    assert any("chapters" in item.text for item in told[first].evidence)


def test_a_short_log_through_a_pipe_is_held_whole() -> None:
    path = _log("told-story")
    trace, diagnosis = LongRun(Request([path]), LongInputs(path)).judged(Asked())
    whole = load(path, cache=False)
    assert trace.calls.equals(whole.calls)
    assert diagnosis.headline == diagnose(whole).headline


@pytest.mark.parametrize("scenario", ["restarts", "two-gpus"])
def test_restarts_and_gpus_are_told_apart_over_chapters(scenario: str, tmp_path: Path) -> None:
    write_capture(play(PRESETS[scenario], 1), tmp_path)
    path = str(next(tmp_path.glob("prover*")))
    _, chapters = LongRun(Request([path]), LongInputs(path), _SIZES["told-story"]).judged(Asked())
    whole = diagnose(load(path, cache=False), scenarios=())
    assert chapters.calls.count == whole.calls.count
    assert chapters.window.duration_s == pytest.approx(whole.window.duration_s, abs=0.02)
    assert chapters.calls.per_s == pytest.approx(whole.calls.per_s, rel=2e-3)
    assert [gpu.mutex_held_share for gpu in chapters.gpus] == pytest.approx(
        [gpu.mutex_held_share for gpu in whole.gpus], abs=1e-3
    )


def _record(name: str, folder: Path) -> str:
    """The capture as a recorder would have written it: each line stamped when the last line with a time came."""
    trace = load(log_and_trace(name), cache=False)
    capture = Capture(folder, FakeClock(), packer=NoPacker())
    capture.write_meta(sampler={"gpus": [{"index": 0, "name": "NVIDIA H200"}]})
    text = gzip.decompress(Path(_log(name)).read_bytes())
    stamp_re = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+)Z")
    at_ns, lines = int(trace.calls["start_ns"].drop_nulls()[0]), []
    for line in text.splitlines():
        if (stamp := stamp_re.search(line)) is not None:
            at_ns = max(at_ns, int(np.datetime64(stamp[1].decode(), "ns").astype(np.int64)))
        lines.append((at_ns, "stderr", line, False))
    capture.log(lines)
    samples = trace.samples.sort("start_ns")
    totals = samples.select(pl.col("rx_wire_bytes", "tx_wire_bytes").fill_null(0.0).cum_sum().cast(pl.Int64))
    capture.samples(
        [
            csv_line(row(0, t_start_ns=low, t_end_ns=high, t_mono_ns=high - START_NS, rx_wire_bytes_total=rx,
                         tx_wire_bytes_total=tx, gpm_sm_active=sm, gpm_interval_ms=100.0))
            for low, high, sm, (rx, tx) in zip(
                samples["start_ns"], samples["end_ns"], samples["sm_active"], totals.iter_rows(), strict=True
            )
        ]
    )  # fmt: skip
    for number in range(0, samples.height, 10):
        low = samples["start_ns"][number]
        host = HostRow(low, low + 10**9, low - START_NS, cpu_share=0.9, memory_used_mib=1.0, page_faults_total=number)
        capture.host(host_line(host))
    capture.close()
    return str(folder)


def test_a_recording_is_judged_in_chapters(tmp_path: Path) -> None:
    folder = _record("light-then-heavy", tmp_path / "c")
    recording = recording_at(folder)
    assert recording is not None and long_inputs([folder], 1000, 1000) == LongInputs(recording=recording)
    assert long_inputs([folder]) is None
    # With samples, chapters are three times as long.
    size = replace(_SIZES["light-then-heavy"], marks=150)
    trace, chapters = LongRun(Request([folder]), LongInputs(recording=recording), size).judged(Asked())
    whole_trace = load(folder, cache=False)
    whole = diagnose(whole_trace, scenarios=())
    assert any(notice.code == "in-chapters" for notice in trace.quality.notices)
    assert [info.kind for info in trace.inputs] == ["metadata", "log", "samples", "host"]
    assert [info.rows for info in trace.inputs] == pytest.approx([info.rows for info in whole_trace.inputs], abs=1)
    assert trace.clock.method == whole_trace.clock.method
    assert trace.gpus[0].name == "NVIDIA H200"
    assert chapters.calls.count == whole.calls.count
    assert chapters.gaps.total_s == pytest.approx(whole.gaps.total_s, rel=5e-3)
    for own, other in zip(chapters.gpus, whole.gpus, strict=True):
        assert own.compute_share == pytest.approx(other.compute_share, abs=2e-3)
        assert own.rx_payload_bytes == pytest.approx(other.rx_payload_bytes, rel=2e-2)
    first = whole.gaps.by_cause[0]
    assert chapters.gaps.by_cause[0].cause == first.cause
    assert chapters.gaps.by_cause[0].total_s == pytest.approx(first.total_s, rel=0.05)


def test_rows_that_nobody_can_place_are_counted(tmp_path: Path) -> None:
    folder = _record("one-worker", tmp_path / "c")
    segment = next(Path(folder).glob("samples-*.csv"))
    header, first, *rest = segment.read_text().splitlines()
    without_time = first.split(",")
    without_time[header.split(",").index("t_end_ns")] = ""
    segment.write_text("\n".join([header, first, ",".join(without_time), *rest]) + "\n")
    recording = recording_at(folder)
    assert recording is not None
    trace, _ = LongRun(
        Request([folder]), LongInputs(recording=recording), Size(40, marks_before=60, marks_after=40)
    ).judged(Asked())
    assert "in-chapters" in {notice.code for notice in trace.quality.notices}
    assert [notice.count for notice in trace.quality.notices if notice.code == "rows-broken"] == [1]
    whole = load(folder, cache=False)
    assert [notice.count for notice in whole.quality.notices if notice.code == "rows-broken"] == [1]
