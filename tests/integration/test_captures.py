"""The main job on real captures: counts, edges, partitions, bytes, classes and verdicts against what is known."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis, HypothesisFinding, PhaseFinding
from gputrace.loading import load
from gputrace.trace import Trace
from tests.captures import (
    CAPTURES,
    WITH_DOCKER,
    change_trace,
    diagnosis,
    docker_lines,
    log_and_trace,
    read,
    truth_unlocks_ns,
    write_two_files,
)

# Complete calls and min/median/max in ms, from the captures' own notes.
KNOWN: dict[str, tuple[int, dict[str, tuple[float, float, float]]]] = {
    "pageable-heavy": (41, {"ntt_kernels": (457, 816, 1228), "mutex_held": (1008, 1558, 2649)}),
    "pageable-membw": (35, {"ntt_kernels": (492, 629, 732), "mutex_held": (1062, 1169, 1353)}),
    "pinned-heavy": (21, {"mutex_held": (662, 3881, 14212)}),
    "light-then-heavy": (46, {"ntt_kernels": (424, 615.5, 1191), "mutex_held": (919, 1559.5, 2880)}),
    "merged-fast": (162, {"mutex_held": (59, 66, 98)}),
    "one-worker": (25, {"ntt_kernels": (262, 312, 418), "mutex_held": (520, 580, 689)}),
}
# 3 x 32 B x n, n = 32 547 799 at 2^25 and 16 273 899 at 2^24.
PAYLOAD = 3 * 32 * 32_547_799
PAYLOAD_ONE_WORKER = 3 * 32 * 16_273_899


def phase(found: Diagnosis, name: str) -> PhaseFinding:
    return next(phase for phase in found.phases if phase.name == name)


def verdict(found: Diagnosis, name: str) -> HypothesisFinding:
    return next(finding for finding in found.hypotheses if finding.id == name)


def charged(found: Diagnosis) -> dict[str, float]:
    return {cause.cause: cause.total_s for cause in found.gaps.by_cause}


@pytest.mark.parametrize("name", CAPTURES)
def test_counts_and_durations_are_those_of_the_captures(name: str) -> None:
    count, known = KNOWN[name]
    found = diagnosis(name)
    assert found.calls.complete == count
    for phase_name, (low, middle, high) in known.items():
        own = phase(found, phase_name)
        assert (own.count, own.min_ms, own.median_ms, own.max_ms) == (count, low, middle, high)


def edges(trace: Trace, name: str, lines: list[str]) -> pl.Series:
    """Arrival of each C line less the end of the phase that it reports, ms. `lines` are those of the C lines' file."""
    arrivals = [(text, at) for _, at, text in docker_lines(name) if text.startswith("CUZK")]
    numbers = [number for number, text in enumerate(lines, 1) if text.startswith("CUZK")]
    assert [lines[number - 1] for number in numbers] == [text for text, _ in arrivals]
    at = {number: at for number, (_, at) in zip(numbers, arrivals, strict=True)}
    ends = (
        "mutex_wait",
        "msm_dtor",
        "ntt_msm_h",
        "barrier_wait",
        "batch_add",
        "tail_msm",
        "mutex_held",
        "prep_msm",
        "b_g2_msm",
    )
    placed = trace.phases.join(trace.calls.filter("complete").select("call"), on="call").filter(
        pl.col("name").is_in(ends)
    )
    assert placed["end_ns"].null_count() == 0
    # One b_g2_msm may be missing: the log ends before it is printed.
    assert placed.height >= 9 * KNOWN[name][0] - 1
    arrived = placed["line"].replace_strict(at, return_dtype=pl.Int64)
    return (arrived - placed["end_ns"]) / 1e6


def plain_lines(path: str) -> list[str]:
    data = Path(path).read_bytes()
    if path.endswith(".gz"):
        data = gzip.decompress(data)
    return [line.decode(errors="replace") for line in data.split(b"\n")]


@pytest.mark.parametrize("name", WITH_DOCKER)
@pytest.mark.parametrize("two_files", [False, True], ids=["merged", "two files"])
def test_phase_edges_are_where_the_lines_arrived(name: str, two_files: bool, tmp_path: Path) -> None:
    inputs = write_two_files(name, tmp_path) if two_files else [log_and_trace(name)[0]]
    trace = load(inputs)
    off = edges(trace, name, plain_lines(inputs[-1])).abs()
    assert off.median() < 5.0  # type: ignore[operator]
    assert off.quantile(0.99) < 25.0  # type: ignore[operator]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_complete_call_has_its_partition(name: str) -> None:
    truth = truth_unlocks_ns(name)
    complete = read(name).calls.filter("complete")
    for partition, unlock_ns in complete.select("partition", "unlock_ns").iter_rows():
        assert min(abs(unlock_ns - known) for known in truth[partition]) < 10e6
    assert complete.select("job", "partition").is_duplicated().sum() == 0


@pytest.mark.parametrize("name", WITH_DOCKER)
def test_two_files_bind_as_the_merged_one(name: str, tmp_path: Path) -> None:
    keys = ["partition", "job", "worker", "mutex_held_ms", "prep_msm_ms", "b_g2_msm_ms", "lock_ns"]
    two = load(write_two_files(name, tmp_path)).calls.filter("complete").select(keys)
    merged = read(name).calls.filter("complete").select(keys)
    assert two.drop("lock_ns").equals(merged.drop("lock_ns"))
    assert (two["lock_ns"] - merged["lock_ns"]).abs().max() < 2e6  # type: ignore[operator]


def test_torn_records_come_back() -> None:
    quality = read("merged-fast").quality
    # 162 partitions were finished; intact records were SYNTH_START 90, GPU_START 156, GPU_END 146.
    for event in ("SYNTH_START", "SYNTH_END", "GPU_QUEUE", "GPU_PICKUP", "GPU_START", "GPU_END"):
        assert quality.marks_by_event[event] == 162
    assert quality.torn_repaired == 99
    assert quality.torn_lost == 0
    # And no C line is lost or doubled.
    for event in ("split_vectors", "prep_msm", "b_g2_msm", "mutex_acquired", "ntt_h", "ntt_msm_h", "barrier_wait"):
        assert quality.marks_by_event[event] == 162
    for event in ("batch_add", "tail_msm", "mutex_released", "async_dealloc"):
        assert quality.marks_by_event[event] == 162


@pytest.mark.parametrize("name", ["pageable-heavy", "pageable-membw"])
def test_pageable_copies_are_found_in_ntt_kernels(name: str) -> None:
    ntt = phase(diagnosis(name), "ntt_kernels")
    assert ntt.rx_method == "overlap"
    assert ntt.rx_bytes_per_call_median == pytest.approx(PAYLOAD, rel=0.10)
    assert ntt.transfer == "staged"


def test_one_worker_copies_half_as_much() -> None:
    ntt = phase(diagnosis("one-worker"), "ntt_kernels")
    assert ntt.rx_bytes_per_call_median == pytest.approx(PAYLOAD_ONE_WORKER, rel=0.10)


def test_pinned_copies_are_found_in_coset_intt_sync() -> None:
    found = diagnosis("pinned-heavy")
    sync = phase(found, "coset_intt_sync")
    assert sync.rx_method == "fit"
    assert sync.transfer == "line-rate"
    after_storm = found.call_bytes.filter(
        (pl.col("name") == "coset_intt_sync") & (pl.col("mode") == "in-sync") & ~pl.col("bursting")
    )
    assert after_storm.height == 11
    assert after_storm["rx_payload_bytes"].median() == pytest.approx(PAYLOAD, rel=0.10)


def test_line_rate_is_the_links() -> None:
    # 55 GB/s of payload were measured on this machine's link.
    line_rate = diagnosis("pageable-heavy").gpus[0].line_rate_bytes_per_s
    assert line_rate == pytest.approx(55e9, rel=0.10)


def silence_rx(row: dict[str, str]) -> None:
    for column in ("pcie_rx_kbps", "cnt_rx_bytes", "gpm_pcie_rx_mibps"):
        row[column] = "0"


class HalveRx:
    """Halves what every source of rx shows."""

    def __init__(self) -> None:
        self.before: int | None = None
        self.counter = 0

    def __call__(self, row: dict[str, str]) -> None:
        for column in ("pcie_rx_kbps", "gpm_pcie_rx_mibps"):
            row[column] = str(float(row[column]) / 2)
        now = int(row["cnt_rx_bytes"])
        if self.before is not None:
            self.counter = (self.counter + (now - self.before) % 2**32 // 2) % 2**32
        self.before = now
        row["cnt_rx_bytes"] = str(self.counter)


def test_bytes_come_from_the_trace(tmp_path: Path) -> None:
    log = log_and_trace("pageable-heavy")[0]
    silent = diagnose(load([log, change_trace("pageable-heavy", tmp_path, silence_rx)]))
    assert phase(silent, "ntt_kernels").rx_bytes_per_call_median == 0.0
    assert phase(silent, "ntt_kernels").transfer == "none"
    assert verdict(silent, "pageable-h2d").verdict != "supported"
    assert charged(silent).get("pageable-h2d", 0.0) == 0.0
    assert "pageable" not in silent.headline

    halved = diagnose(load([log, change_trace("pageable-heavy", tmp_path, HalveRx())]))
    assert phase(halved, "ntt_kernels").rx_bytes_per_call_median == pytest.approx(PAYLOAD / 2, rel=0.10)
    assert halved.gpus[0].line_rate_bytes_per_s == pytest.approx(55e9 / 2, rel=0.10)


def test_classes_of_pageable_heavy() -> None:
    found = diagnosis("pageable-heavy")
    classes = {own.name: own.phase_class for own in found.phases}
    assert classes["ntt_kernels"] == "variable"
    assert classes["barrier_wait"] == "variable"
    assert classes["msm_invoke"] == "constant"
    assert classes["coset_intt_sync"] == "constant"
    assert "p5 to p95" in phase(found, "ntt_kernels").class_reason


@pytest.mark.parametrize("name", CAPTURES)
def test_every_lost_second_is_charged_once(name: str) -> None:
    found = diagnosis(name)
    states = found.states
    parts = states["compute_s"] + states["copy_only_s"] + states["idle_s"]
    assert parts.to_list() == pytest.approx(((states["end_ns"] - states["start_ns"]) / 1e9).to_list())
    lost = float((states["copy_only_s"] + states["idle_s"]).sum())
    assert found.gaps.total_s == pytest.approx(lost)
    assert sum(charged(found).values()) == pytest.approx(lost)
    assert found.window.duration_s == pytest.approx(float(parts.sum()), rel=1e-6)
    assert charged(found).get("unexplained", 0.0) < 0.03 * lost


def test_pageable_heavy_is_pageable() -> None:
    found = diagnosis("pageable-heavy")
    own = verdict(found, "pageable-h2d")
    assert own.verdict == "supported"
    assert own.lost_s == pytest.approx(31.5, abs=2.0)
    assert found.hypotheses[0].id == "pageable-h2d"
    assert "pageable" in found.headline
    assert found.headline_stable
    assert verdict(found, "pinned-alloc-stall").verdict == "refuted"


def test_pageable_membw_is_pageable() -> None:
    found = diagnosis("pageable-membw")
    assert found.hypotheses[0].id == "pageable-h2d"
    assert verdict(found, "prep-barrier").verdict == "refuted"


def test_pinned_heavy_stalls_then_waits() -> None:
    found = diagnosis("pinned-heavy")
    stall, barrier = verdict(found, "pinned-alloc-stall"), verdict(found, "prep-barrier")
    assert stall.verdict == "supported"
    assert stall.lost_s == pytest.approx(40.0, abs=3.0)
    assert barrier.verdict == "supported"
    assert barrier.lost_s == pytest.approx(12.0, abs=1.5)
    assert verdict(found, "pageable-h2d").verdict == "refuted"
    # None of the pinned calls is charged with it.
    pinned = read("pinned-heavy").calls.filter("pinned")["call"]
    blamed = found.blame.filter((pl.col("cause") == "pageable-h2d") & pl.col("call").is_in(pinned.implode()))
    assert blamed.is_empty()


def test_one_worker_loses_a_quarter_to_the_release() -> None:
    found = diagnosis("one-worker")
    own = verdict(found, "release-abc")
    assert own.verdict == "supported"
    assert own.lost_s is not None and found.window.duration_s is not None
    assert own.lost_s / found.window.duration_s == pytest.approx(0.25, abs=0.05)
    assert phase(found, "release_abc").median_ms == pytest.approx(200, abs=20)
    # It sits in stretches of 0.2 s between the calls.
    gaps = diagnose(read("one-worker"), gap_ms=100.0).gaps.list
    released = [gap.causes["release-abc"] for gap in gaps if "release-abc" in gap.causes]
    assert len(released) >= 20
    assert sorted(released)[len(released) // 2] == pytest.approx(0.2, abs=0.08)


def test_told_story_ends_as_told() -> None:
    found = diagnosis("told-story")
    own = verdict(found, "pageable-h2d")
    assert own.verdict == "supported"
    assert charged(found)["pageable-h2d"] > 0.9 * (found.gaps.total_s or 0.0)
    ntt = phase(found, "ntt_kernels")
    assert (ntt.min_ms, ntt.max_ms) == (287, 8918)
    for name, told_ms in (("msm_invoke", 631), ("batch_add", 401), ("tail_msm", 197)):
        assert phase(found, name).median_ms == pytest.approx(told_ms, rel=0.01)
        assert phase(found, name).phase_class == "constant"
    # The volume that the bandwidth implies, not the two gigabytes that were believed.
    assert ntt.rx_bytes_per_call_median == pytest.approx(7.78e9, rel=0.03)
    assert verdict(found, "no-work-queued").verdict == "refuted"
    assert verdict(found, "prep-barrier").verdict == "refuted"
    assert read("told-story").quality.counter_wraps > 50


@pytest.mark.parametrize("name", CAPTURES)
def test_jobs_have_stages(name: str) -> None:
    jobs = diagnosis(name).jobs
    assert jobs
    done = [job for job in jobs if job.done == job.partitions]
    assert done
    for job in done:
        assert job.kind == "porep-c2"
        assert job.total_s is not None and job.synth_s is not None and job.total_s >= job.synth_s > 0
        assert job.finalise_s is not None and job.finalise_s >= 0


def test_drivers_of_the_copy_are_found() -> None:
    drivers = {driver.name: driver for driver in phase(diagnosis("light-then-heavy"), "ntt_kernels").drivers}
    assert drivers["concurrent syntheses"].spearman > 0.5
    assert drivers["concurrent syntheses"].p_value < 0.01
