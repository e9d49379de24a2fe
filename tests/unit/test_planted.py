"""Planted causes: each shows as it does in a real system, and costs what its removal brings back."""

import csv
import io
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from gputrace.errors import InputError
from gputrace.simulate.capture import Simulation, play
from gputrace.simulate.costs import Costs, costs_of
from gputrace.simulate.disturbance import SW_POWER_CAP, Disturbance, Link, OtherProcess, Shortage, SlowSink, Throttle
from gputrace.simulate.recipe import Scenario
from gputrace.simulate.scenarios import PRESETS, find_scenario
from gputrace.simulate.schedule import CallRecord
from gputrace.simulate.text import LogOptions
from tests.labelled import CAUSES

HEALTHY = PRESETS["healthy"]


@cache
def played(name: str) -> Simulation:
    return play(replace(PRESETS[name], options=LogOptions(ansi=False, memory_lines=True)))


def calls(name: str) -> list[CallRecord]:
    """Calls after the first, which allocates."""
    return played(name).runs[0].schedule.by_lock[1:]


def costs(scenario: Scenario) -> Costs:
    return costs_of(scenario, play(scenario).runs, 0)


def lengths(name: str, phase: str) -> list[float]:
    return [span.end - span.start for call in calls(name) if (span := call.span(phase)) is not None]


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(played(name).trace_csv())))


def texts(name: str, pattern: str) -> list[str]:
    return [line.text for line in played(name).lines if re.search(pattern, line.text)]


def figures(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d+)", text)}


# What causes cost.


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("throttled", "throttled"),
        ("link-degraded", "link-degraded"),
        ("link-replays", "link-degraded"),
        ("other-process", "other-process"),
        ("slow-log-sink", "slow-log-sink"),
        ("memory-budget", "memory-budget"),
        ("host-hot-path", "host-hot-path"),
        ("launch-overhead", "launch-overhead"),
        ("device-allocation", "device-allocation"),
    ],
)
def test_a_cause_costs_what_its_removal_brings_back(name: str, cause: str) -> None:
    # Circuits are drawn by the scenario's name.
    planted, cured = costs(PRESETS[name]), costs(replace(HEALTHY, name=name))
    brought_back = planted.window_s - cured.window_s
    assert brought_back > 0.3 * cured.window_s
    assert planted.by_cause[cause] - cured.by_cause.get(cause, 0.0) == pytest.approx(brought_back, rel=0.04)


def test_contention_costs_what_calm_memory_brings_back() -> None:
    scenario = PRESETS["host-memory-contention"]
    calm = replace(scenario, limits=replace(scenario.limits, copy_slowdown=0.0, prep_slowdown=0.0))
    strained, relaxed = costs(scenario), costs(calm)
    brought_back = strained.window_s - relaxed.window_s
    assert strained.by_cause["host-memory-contention"] == pytest.approx(brought_back, rel=0.1)
    assert relaxed.by_cause["host-memory-contention"] == 0.0
    # Pinned copies would not have been slowed down: these seconds belong to both.
    assert strained.contended_s["pageable-h2d"] > 0.9 * brought_back
    assert strained.by_cause["pageable-h2d"] > strained.contended_s["pageable-h2d"]


def test_one_mutex_costs_what_a_mutex_per_gpu_brings_back() -> None:
    planted = PRESETS["mutex-contention"]
    # With room for two GPUs, so that nothing else takes over.
    limits = replace(planted.limits, parallel_syntheses=40, in_flight=60, pool_threads=48.0)
    scenario = replace(planted, limits=limits)
    one, split = costs(scenario), costs(replace(scenario, variant="V12"))
    assert one.by_cause["mutex-contention"] == pytest.approx(one.window_s - split.window_s, rel=0.1)
    assert split.by_cause.get("mutex-contention", 0.0) == 0.0


def test_a_healthy_run_loses_to_nothing() -> None:
    found = costs(HEALTHY)
    assert found.lost_s < 0.2 * found.window_s
    assert all(found.share(cause) < 0.05 for cause in CAUSES)


def test_every_cause_has_a_preset_in_which_it_weighs() -> None:
    for cause in CAUSES:
        assert costs(find_scenario(cause)).share(cause) > 0.2, cause


# How they show.


def test_throttled_kernels_last_longer_by_the_clocks_ratio() -> None:
    whole = replace(HEALTHY, disturbance=Disturbance(throttles=(Throttle(0.0, 1e3, 0.5, 0x24),)))
    held = {name: [] for name in ("msm_invoke", "tail_msm", "batch_add")}  # type: dict[str, list[float]]
    for call in play(whole).runs[0].schedule.by_lock:
        for name, ratios in held.items():
            span = call.span(name)
            assert span is not None
            ratios.append((span.end - span.start) / getattr(call.work, name))
    assert fmean(held["msm_invoke"]) == pytest.approx(2.0) == fmean(held["tail_msm"])
    # It waits for the wire as much as for its kernels.
    assert 1.2 < fmean(held["batch_add"]) < 1.6


def test_throttling_shows_in_clocks_and_reasons_under_load() -> None:
    loaded = [row for row in rows("throttled") if float(row["gpm_sm_util"]) > 60]
    slow = [row for row in loaded if int(row["clock_event_reasons"]) & SW_POWER_CAP]
    assert len(slow) > 0.5 * len(loaded)
    assert all(int(row["sm_clock_max_mhz"]) == 1980 for row in loaded)
    assert all(0.45 < int(row["sm_clock_mhz"]) / 1980 < 0.75 for row in slow)
    assert len({row["sm_clock_mhz"] for row in slow}) > 5
    assert any(int(row["clock_event_reasons"]) == 1 for row in rows("throttled"))
    assert {row["clock_event_reasons"] for row in rows("healthy")} <= {"0", "1"}


def test_a_narrow_link_slows_what_streams() -> None:
    share = Link(gen=4, width=4).share
    assert share == pytest.approx(0.125, rel=0.01)
    for name in ("batch_add", "coset_intt_sync"):
        assert fmean(lengths("link-degraded", name)) > 3 * fmean(lengths("healthy", name))
    assert fmean(lengths("link-degraded", "tail_msm")) == pytest.approx(fmean(lengths("healthy", "tail_msm")), rel=0.02)
    seen = rows("link-degraded")
    assert {(row["pcie_gen"], row["pcie_width"], row["pcie_gen_max"], row["pcie_width_max"]) for row in seen} == {
        ("4", "4", "5", "16")
    }
    assert max(float(row["gpm_pcie_rx_mibps"]) for row in seen) * (1 << 20) < 1.01 * share * 55e9 * 276 / 256


def test_the_same_bytes_move_over_a_bad_link() -> None:
    def moved(scenario: Scenario) -> float:
        return float(play(scenario).phases["rx_payload_bytes"].sum())

    narrow = PRESETS["link-degraded"]
    assert moved(narrow) == pytest.approx(moved(replace(narrow, disturbance=Disturbance())), rel=1e-9)


def test_replays_grow_on_a_link_that_looks_right() -> None:
    seen = rows("link-replays")
    assert {(row["pcie_gen"], row["pcie_width"]) for row in seen} == {("5", "16")}
    replays = [int(row["pcie_replays"]) for row in seen]
    assert replays == sorted(replays) and replays[-1] > replays[0] + 1000
    assert len({row["pcie_replays"] for row in rows("healthy")}) == 1


def test_a_link_that_rests_when_idle_is_fast_under_load() -> None:
    resting = play(replace(HEALTHY, disturbance=Disturbance(link=Link(idle_gen=1))))
    seen = list(csv.DictReader(io.StringIO(resting.trace_csv())))
    assert {row["pcie_gen"] for row in seen} == {"1", "5"}
    busy = [row for row in seen if float(row["pcie_rx_kbps"]) > 1e6]
    assert busy and all(row["pcie_gen"] == "5" for row in busy)


def test_another_process_is_seen_outside_calls_and_slows_kernels() -> None:
    run = played("other-process").runs[0]
    inside = [span.end - span.start for call in calls("other-process") if 8 < call.lock < 17 for span in call.gpu_spans
              if span.name == "tail_msm"]  # fmt: skip
    assert fmean(inside) == pytest.approx(1.8 * fmean(lengths("healthy", "tail_msm")), rel=0.1)
    first = min(call.lock for call in run.schedule.by_lock)
    early = replace(HEALTHY, disturbance=Disturbance(others=(OtherProcess(0.5, first - 0.5, 0.7),)))
    alone = list(csv.DictReader(io.StringIO(play(early).trace_csv())))
    zero_ns = int(alone[0]["t_wall_ns"]) + 4_000_000_000
    before = [row for row in alone if 1.5e9 < int(row["t_wall_ns"]) - zero_ns < (first - 1.0) * 1e9]
    assert fmean(float(row["gpm_sm_util"]) for row in before) == pytest.approx(70, abs=3)
    assert "other_processes" not in alone[0]
    assert {row["other_processes"] for row in rows("other-process")} == {"0", "1"}
    assert max(float(row["gpm_sm_util"]) for row in rows("other-process")) <= 100


def test_a_slow_log_shows_between_the_figures_and_never_in_them() -> None:
    """Who measures what when: facts that the identities of the log give away."""
    name = "slow-log-sink"
    held, totals = texts(name, "mutex_held_ms="), texts(name, "gpu_total_ms=")
    heads, ntts = texts(name, "ntt_msm_h_ms="), texts(name, "CUZK_NTT_H")
    batches, barriers = texts(name, "batch_add_ms="), texts(name, "barrier_wait_ms=")
    spans = played(name).runs[0].schedule.by_lock
    for n, call in enumerate(spans):
        ms = {line: 1e3 * (end - start) for line, (start, end) in call.blocked.items()}
        total = figures(totals[n])
        inside = sum(figures(text[n])[key] for text, key in (
            (heads, "ntt_msm_h_ms"), (barriers, "barrier_wait_ms"), (batches, "batch_add_ms")))  # fmt: skip
        rest = total["gpu_total_ms"] - inside - total["tail_msm_ms"]
        assert rest == pytest.approx(ms["ntt_msm_h"] + ms["barrier"] + ms["batch_add"], abs=4)
        ntt_total = int(re.findall(r"total=(\d+)ms", ntts[n])[0])
        allocated = 4 if call.new_domain else 0
        assert figures(heads[n])["ntt_msm_h_ms"] - ntt_total == pytest.approx(ms["ntt_h 0"] + allocated, abs=3)
        outside = figures(held[n])["mutex_held_ms"] - total["gpu_total_ms"]
        assert outside == pytest.approx(ms["lock"] + ms["tail_msm"] + 1e3 * call.work.after_gpu, abs=3)
        assert ms["unlock"] == pytest.approx(1e3 * (call.unlock - call.held_end), abs=0.1)


def test_memory_pressure_is_told_and_no_synthesis_begins() -> None:
    name = "memory-budget"
    assert len(texts(name, "evicted for memory pressure")) == 2
    assert len(texts(name, "SRS evicted")) == 2
    loads = [figures(text)["elapsed_ms"] for text in texts(name, "SRS loaded successfully")]
    assert len(loads) == 3 and min(loads) > 1000
    shortages = PRESETS[name].disturbance.shortages
    starts = [synthesis.start for synthesis in played(name).runs[0].schedule.syntheses]
    assert not any(shortage.start <= at < shortage.end for at in starts for shortage in shortages)
    lines = played(name).lines
    enqueued = [line.at_ns for line in lines if "job enqueued" in line.text]
    assert max(enqueued) - lines[0].at_ns < 50_000_000
    assert len(texts("healthy", "SRS loaded successfully")) == 1 and not texts("healthy", "evicted")


def test_the_hot_path_waits_for_the_trimming_finalizer() -> None:
    name = "host-hot-path"
    checks = [figures(text) for text in texts(name, "GPU_TIMING hot_path")]
    assert fmean(line["fail_check_ms"] for line in checks) > 400
    assert all(
        0 <= line["total_overhead_ms"] - line["status_ms"] - line["fail_check_ms"] - line["mark_busy_ms"] <= 2
        for line in checks
    )
    assert fmean(figures(text)["malloc_trim_ms"] for text in texts(name, "malloc_trim")) > 400


def test_launches_copy_nothing() -> None:
    phases = played("launch-overhead").phases
    launches = phases.filter(phases["name"] == "ntt_kernels")
    assert launches["rx_payload_bytes"].sum() == 0
    assert fmean(lengths("launch-overhead", "ntt_kernels")) == pytest.approx(0.7, rel=0.1)


def test_a_copy_follows_the_syntheses_only_where_memory_is_short() -> None:
    def spread(copy_slowdown: float) -> float:
        limits = replace(PRESETS["host-memory-contention"].limits, copy_slowdown=copy_slowdown)
        run = play(replace(PRESETS["host-memory-contention"], limits=limits, spread=0.0)).runs[0]
        copies = [s.end - s.start for c in run.schedule.by_lock for s in c.gpu_spans if s.name == "ntt_kernels"]
        return max(copies) / min(copies)

    assert spread(0.0) == pytest.approx(1.0)
    assert spread(0.3) > 1.8


def test_sizes_by_turns_allocate_again_and_again() -> None:
    assert len(texts("domain-switch", "d_a_cache allocated")) > 20
    assert len(texts("healthy", "d_a_cache allocated")) == 1


def test_a_disturbance_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "healthy"\n[disturbance]\nlists_processes = true\n[disturbance.link]\ngen = 3\n'
        "[disturbance.sink]\nlow = 0.02\nhigh = 0.05\nwindows = [[0, 10]]\n"
        "[[disturbance.throttles]]\nstart = 1\nend = 2\nclock = 0.5\n"
        "[[disturbance.others]]\nstart = 1\nend = 2\nsm = 0.5\n"
        "[[disturbance.shortages]]\nstart = 1\nend = 9\nreload = 4\n"
    )
    assert find_scenario(str(path)).disturbance == Disturbance(
        (Throttle(1, 2, 0.5),), (OtherProcess(1, 2, 0.5),), Link(gen=3), SlowSink(0.02, 0.05, windows=((0.0, 10.0),)),
        (Shortage(1, 9, 4),), True,
    )  # fmt: skip
    path.write_text("[disturbance.link]\nlanes = 8\n")
    with pytest.raises(InputError, match="lanes"):
        find_scenario(str(path))
