"""Regimes of the real captures and of the told story: where they are cut, what they are called, what they lose to."""

import gzip
from dataclasses import replace

import polars as pl
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Regime
from gputrace.analysis.phases import summarise_phases
from gputrace.analysis.regimes.stretches import find_stretches
from gputrace.analysis.segments import alloc_bursts
from gputrace.render.text import TextRenderer
from tests.captures import CAPTURES, DATA, diagnosis, read
from tests.unit.schedules import run_of, steady_run, stepped


def regimes(name: str) -> tuple[Regime, ...]:
    return diagnosis(name).regimes


def truth_ns(name: str, event: str) -> int:
    with gzip.open(DATA / name / "truth.csv.gz", "rt") as lines:
        return next(int(line.split(",")[0]) for line in lines if line.rstrip().endswith(f",{event}"))


def test_light_then_heavy_is_cut_once_where_the_load_came() -> None:
    light, heavy = regimes("light-then-heavy")
    after_s = (heavy.start_ns - truth_ns("light-then-heavy", "ramp_heavy")) / 1e9
    assert -2.0 <= after_s <= 12.0
    assert light.label.startswith("pageable copy, light load")
    assert heavy.label.startswith("pageable copy under contention")
    assert light.main_cause == heavy.main_cause == "pageable-h2d"
    assert light.verdicts["pageable-h2d"] == heavy.verdicts["pageable-h2d"] == "supported"
    assert heavy.phase_medians_ms["ntt_kernels"] > 1.4 * light.phase_medians_ms["ntt_kernels"]
    assert heavy.reason.startswith("ntt_kernels 53") and "syntheses running" in heavy.reason


def test_pinned_heavy_is_cut_at_the_end_of_the_storm() -> None:
    storm, after = regimes("pinned-heavy")
    marks = read("pinned-heavy").marks
    last_line_ns = int(marks.filter(pl.col("event") == "pinned_alloc")["log_ns"].max())  # type: ignore[arg-type]
    assert abs(after.start_ns - last_line_ns) <= 5e9
    assert storm.label == "pinned buffers being allocated" and not storm.bistable
    assert storm.main_cause == "pinned-alloc-stall"
    assert storm.verdicts["prep-barrier"] == "refuted"
    assert after.label == "pinned, waiting for prep_msm, bistable" and after.bistable
    assert after.main_cause == "prep-barrier"
    assert after.verdicts["pinned-alloc-stall"] == "refuted"
    assert after.phase_medians_ms["ntt_kernels"] == 0


@pytest.mark.parametrize(
    ("name", "label", "cause"),
    [
        ("pageable-heavy", "pageable copy under contention", "pageable-h2d"),
        ("pageable-membw", "pageable copy", "pageable-h2d"),
        ("one-worker", "pageable copy, light load", "pageable-h2d"),
        ("merged-fast", "SMs idle inside kernel phases", "kernel-phase-idle"),
    ],
)
def test_steady_captures_have_one_regime(name: str, label: str, cause: str) -> None:
    (only,) = regimes(name)
    assert (only.label, only.main_cause, only.bistable) == (label, cause, False)
    assert only.calls == diagnosis(name).calls.complete
    assert "Regimes" not in TextRenderer().render(read(name), diagnosis(name))


def test_told_story_turns_heavy_after_sixteen_calls() -> None:
    """Its first job has the host nearly to itself, then twenty syntheses run at once."""
    light, heavy = regimes("told-story")
    assert (light.calls, heavy.calls) == (16, 44)
    assert light.label == "pageable copy, light load"
    assert heavy.label == "pageable copy under contention"
    assert light.main_cause == heavy.main_cause == "pageable-h2d"


@pytest.mark.parametrize("name", [*CAPTURES, "told-story"])
def test_regimes_share_out_the_window_and_its_losses(name: str) -> None:
    found = diagnosis(name)
    assert found.regimes[0].start_ns == found.window.start_ns
    assert found.regimes[-1].end_ns == found.window.end_ns
    for before, after in zip(found.regimes, found.regimes[1:], strict=False):
        assert before.end_ns == after.start_ns
    lost = sum(regime.lost_s or 0.0 for regime in found.regimes)
    assert lost == pytest.approx(found.gaps.total_s, abs=1e-6)
    assert sum(regime.duration_s or 0.0 for regime in found.regimes) == pytest.approx(found.window.duration_s)


def test_one_regime_says_what_the_whole_run_says() -> None:
    found = diagnosis("pageable-heavy")
    (only,) = found.regimes
    assert only.verdicts == {finding.id: finding.verdict for finding in found.hypotheses}
    assert only.phase_medians_ms == {phase.name: phase.median_ms for phase in found.phases}


def test_the_text_names_regimes() -> None:
    text = TextRenderer().render(read("pinned-heavy"), diagnosis("pinned-heavy"))
    assert "Regimes: 2" in text
    assert "pinned, waiting for prep_msm, bistable" in text
    assert "short and long holds of the mutex take turns" in text


def test_a_restart_begins_a_regime() -> None:
    works, limits = steady_run(5, 60)
    trace = run_of(works, limits, 5, 6, 30)
    again = pl.col("call") >= 15
    later = pl.when(again).then(pl.lit(60_000_000_000, pl.Int64)).otherwise(0)
    times = [pl.col(name) + later for name in ("start_ns", "lock_ns", "unlock_ns", "end_ns")]
    calls = trace.calls.with_columns(pl.when(again).then(1).otherwise(0).cast(pl.UInt16).alias("restart"), *times)
    first, second = find_stretches(replace(trace, calls=calls), alloc_bursts(trace))
    assert (len(first.calls), len(second.calls)) == (15, 15)
    assert second.reason == "the prover was started again (run 2)"
    assert second.start_ns - first.end_ns > 59e9


def test_a_phase_that_only_steps_is_constant_within_regimes() -> None:
    works, limits = steady_run(1, 80)
    level = [replace(work, ntt_kernels=0.6, msm_invoke=0.6, pinned=False) for work in works]
    trace = run_of(stepped(level, 40, 1.5), replace(limits, copy_slowdown=0.0), 1, 6, 60)
    stretches = find_stretches(trace, alloc_bursts(trace))
    assert len(stretches) == 2
    inside = [stretch.calls for stretch in stretches]
    whole, within = (
        next(p for p in summarise_phases(trace, [], alloc_bursts(trace), calls) if p.name == "ntt_kernels")
        for calls in ([], inside)
    )
    assert whole.phase_class == "variable"
    assert within.phase_class == "constant"
    assert "constant within each regime (medians 600, 900 ms)" in within.class_reason


def test_a_phase_that_varies_in_one_regime_is_variable_and_says_where() -> None:
    barrier = next(phase for phase in diagnosis("pinned-heavy").phases if phase.name == "barrier_wait")
    assert barrier.phase_class == "variable"
    assert barrier.class_reason.startswith("in regime 2 ")


def test_a_log_without_a_trace_has_regimes_too() -> None:
    trace = replace(read("light-then-heavy"), samples=read("light-then-heavy").samples.clear())
    found = diagnose(trace)
    assert len(found.regimes) == 2
    assert found.regimes[1].verdicts["pageable-h2d"] == "undetermined"
    assert all("no supported cause" in regime.label or "waiting" in regime.label for regime in found.regimes)
