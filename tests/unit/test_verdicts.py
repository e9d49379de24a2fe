"""Each hypothesis on small traces: supported where its signs are, refuted where they are not, undetermined else."""

import random
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from gputrace import schema
from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.hypotheses import ALL
from gputrace.analysis.hypotheses.case import Decided
from gputrace.analysis.segments import alloc_bursts
from gputrace.analysis.signs.contention import relate
from gputrace.analysis.signs.waits import COMPUTING, waits, whole_call_mutex
from gputrace.trace import Trace
from tests.unit.prover import Planned, schedule
from tests.unit.traces import LINE_RATE, USUAL, Activity, charged, ns, queue_frame, run, trace_of

PINNED = {**USUAL, "ntt_kernels": Activity(0.0, 0.0), "coset_intt_sync": Activity(0.9 * LINE_RATE, 0.3)}


def verdict(trace: Trace, name: str) -> HypothesisFinding:
    return next(finding for finding in diagnose(trace).hypotheses if finding.id == name)


def said(finding: HypothesisFinding) -> str:
    return "; ".join(item.text for item in finding.evidence)


def with_marks(trace: Trace, *marks: tuple[str, float, dict[str, str]]) -> Trace:
    """The trace with more records: event, time in ms, values."""
    rows = [
        {
            "source": 0,
            "line": 5000 + n,
            "event": event,
            "log_ns": ns(at),
            "values": [{"key": key, "value": value} for key, value in values.items()],
        }
        for n, (event, at, values) in enumerate(marks)
    ]
    more = pl.DataFrame(rows, schema_overrides=schema.MARKS.polars(), infer_schema_length=None)
    trace.marks = pl.concat([trace.marks, schema.MARKS.fit(more)])
    for event, _, _ in marks:
        counts = trace.quality.marks_by_event
        counts[event] = counts.get(event, 0) + 1
    return trace


def set_to(**columns: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Sample columns set to a value in every row."""
    return lambda samples: schema.SAMPLES.fit(
        samples.with_columns(*(pl.lit(value).alias(name) for name, value in columns.items()))
    )


def test_every_hypothesis_says_what_would_change_its_verdict_and_what_to_do() -> None:
    findings = diagnose(trace_of(run(12), USUAL)).hypotheses
    assert len({hypothesis.id for hypothesis in ALL}) == len(ALL) == len(findings) == 17
    for finding in findings:
        assert finding.changes_mind and finding.knob and finding.next_step and finding.main_reason
        assert "Risk" in finding.knob or finding.id == "kernel-phase-idle"
    for hypothesis in ALL:
        assert hypothesis.overturned_by != hypothesis.revived_by


# --- confidence ------------------------------------------------------------------------------------------------------


def test_firmness_grows_with_the_distance_from_the_threshold() -> None:
    assert Decided(0.05, 0.05, 9).firmness == 0.5
    assert Decided(0.1, 0.05, 9).firmness == Decided(0.025, 0.05, 9).firmness == 0.75
    assert Decided(0.2, 0.05, 9).firmness == 0.875
    assert Decided(0.0, 0.05, 9).firmness == Decided(100.0, 0.05, 9).firmness < 1.0


def test_confidence_grows_with_calls_and_falls_without_a_trace() -> None:
    few, many = (verdict(trace_of(run(n, ntt_kernels=3000.0), USUAL), "pageable-h2d") for n in (3, 30))
    assert few.verdict == many.verdict == "supported"
    assert few.confidence < many.confidence < 1.0
    plan = run(30, ntt_kernels=3000.0, prep=9000.0)
    sampled, log_alone = (verdict(trace_of(plan, activity), "prep-barrier") for activity in (USUAL, None))
    assert sampled.verdict == log_alone.verdict == "supported"
    assert log_alone.confidence < sampled.confidence


# --- throttled -------------------------------------------------------------------------------------------------------


def clocked(**columns: object) -> HypothesisFinding:
    return verdict(trace_of(run(12), USUAL, change_samples=set_to(**columns)), "throttled")


def test_a_power_cap_is_throttling_and_its_seconds_are_compute() -> None:
    own = clocked(sm_clock_mhz=1188.0, sm_clock_max_mhz=1980.0, clock_event_reasons=0x4)
    assert own.verdict == "supported"
    assert own.lost_s == 0.0
    compute_s = next(item.value for item in own.evidence if "full clock" in item.text)
    assert own.stretched_s == compute_s
    trace = trace_of(run(12), USUAL)
    busy = trace.samples.filter(pl.col("sm_active") > 0.5)
    inside = busy.filter(pl.col("start_ns") >= trace.calls["lock_ns"].min())
    assert own.stretched_s == pytest.approx(0.4 * 0.1 * float(inside["sm_active"].sum()), rel=0.05)
    assert "power cap" in said(own)


@pytest.mark.parametrize("reasons", [0x0, 0x1, 0x2])
def test_a_clock_set_low_on_purpose_is_not_throttling(reasons: int) -> None:
    assert clocked(sm_clock_mhz=1188.0, sm_clock_max_mhz=1980.0, clock_event_reasons=reasons).verdict == "refuted"


def test_a_power_cap_that_costs_nothing_is_not_throttling() -> None:
    assert clocked(sm_clock_mhz=1965.0, sm_clock_max_mhz=1980.0, clock_event_reasons=0x4).verdict == "refuted"


def test_a_flat_clock_says_nothing_without_reasons_or_a_maximum() -> None:
    assert clocked(sm_clock_mhz=1980.0).verdict == "undetermined"
    assert clocked(sm_clock_mhz=1980.0, sm_clock_max_mhz=1980.0).verdict == "refuted"
    assert clocked(sm_clock_mhz=1300.0, sm_clock_max_mhz=1980.0).verdict == "supported"
    assert verdict(trace_of(run(12)), "throttled").verdict == "undetermined"


# --- link-degraded ---------------------------------------------------------------------------------------------------


def linked(rate: float = LINE_RATE, **columns: object) -> HypothesisFinding:
    activity = {**USUAL, "batch_add": Activity(rate, 0.3)}
    return verdict(trace_of(run(12), activity, change_samples=set_to(**columns)), "link-degraded")


def test_a_link_below_its_width_is_degraded_and_takes_its_part_of_the_copies() -> None:
    activity = {**USUAL, "batch_add": Activity(0.24 * LINE_RATE, 0.3)}
    narrow = set_to(link_gen=5, link_width=4, link_gen_max=5, link_width_max=16)
    trace = trace_of(run(12), activity, change_samples=narrow)
    own = verdict(trace, "link-degraded")
    assert own.verdict == "supported"
    seconds = charged(trace)
    assert seconds["link-degraded"] == pytest.approx(3.0 * seconds["line-rate-copy"], rel=1e-6)
    assert own.lost_s == pytest.approx(seconds["link-degraded"])


def test_a_link_at_its_most_that_carries_what_it_should_is_healthy() -> None:
    own = linked(link_gen=5, link_width=16, link_gen_max=5, link_width_max=16, pcie_replays=7)
    assert own.verdict == "refuted"
    assert "0 packets again" in said(own)


def test_a_pinned_stream_far_below_the_link_is_a_shared_link() -> None:
    own = linked(rate=0.3 * LINE_RATE, link_gen=5, link_width=16, link_gen_max=5, link_width_max=16)
    assert own.verdict == "supported"
    assert own.lost_s


def test_growing_replays_are_a_bad_link() -> None:
    def replays(samples: pl.DataFrame) -> pl.DataFrame:
        return schema.SAMPLES.fit(samples.with_columns((pl.int_range(pl.len()) * 50).alias("pcie_replays")))

    own = verdict(trace_of(run(12), USUAL, change_samples=replays), "link-degraded")
    assert own.verdict == "supported"


def test_an_idle_link_at_gen_1_is_not_a_slow_link() -> None:
    def asleep(samples: pl.DataFrame) -> pl.DataFrame:
        gen = pl.when(pl.col("rx_wire_bytes") > 1e7).then(5).otherwise(1)
        return schema.SAMPLES.fit(samples.with_columns(gen.alias("link_gen"), pl.lit(5).alias("link_gen_max")))

    plan = run(12, between_ms=4000.0)
    assert verdict(trace_of(plan, USUAL, change_samples=asleep), "link-degraded").verdict == "refuted"


def test_small_circuits_do_not_show_what_a_link_carries() -> None:
    activity = {**USUAL, "batch_add": Activity(0.13 * LINE_RATE, 0.8), "msm_invoke": Activity(1e9, 0.9)}
    plan = run(30, batch_add=6.0, msm_invoke=60.0, tail_msm=30.0, ntt_kernels=400.0)
    assert verdict(trace_of(plan, activity), "link-degraded").verdict == "undetermined"


# --- other-process ---------------------------------------------------------------------------------------------------


def test_sm_activity_in_barrier_waits_is_somebody_elses() -> None:
    plan = run(12, prep=6000.0)
    busy = {**USUAL, "barrier_wait": Activity(0.0, 0.7)}
    assert verdict(trace_of(plan, busy), "other-process").verdict == "supported"
    assert verdict(trace_of(plan, USUAL), "other-process").verdict == "refuted"
    alone = trace_of(plan, busy, change_samples=set_to(other_processes=0))
    assert verdict(alone, "other-process").verdict == "refuted"


def test_the_ntts_of_a_copy_are_not_somebody_elses() -> None:
    activity = {**USUAL, "ntt_kernels": Activity(6e9, 0.15)}
    assert verdict(trace_of(run(12, ntt_kernels=900.0), activity), "other-process").verdict == "refuted"


def paced(factor: float, calls: int = 20, both: bool = True) -> Trace:
    """Pinned calls without quiet time; the kernels of every second stretch of five take longer."""
    rng = random.Random(1)
    plan = run(calls, ntt_kernels=0.3, coset_intt_sync=140.0)
    at = plan[0].start
    for n, call in enumerate(plan):
        slow = factor if (n // 5) % 2 else 1.0
        call.pinned, call.start = True, at
        call.msm_invoke = 600.0 * slow * rng.uniform(0.98, 1.02)
        call.tail_msm = 190.0 * (slow if both else 1.0) * rng.uniform(0.98, 1.02)
        call.lock = call.asks
        at = call.end + 1.0
    steady = set_to(sm_clock_mhz=1980.0, sm_clock_max_mhz=1980.0)
    trace = trace_of(plan, PINNED, change_samples=steady)
    return with_marks(trace, *[("capacity_hint", 10.0 * n, {"num_constraints": "500"}) for n in range(calls)])


def test_kernels_that_change_their_pace_together_have_company() -> None:
    assert verdict(paced(1.5), "other-process").verdict == "supported"
    assert verdict(paced(1.0), "other-process").verdict != "supported"
    assert verdict(paced(1.5, both=False), "other-process").verdict != "supported"


def test_circuits_of_two_sizes_change_the_pace_too() -> None:
    trace = with_marks(paced(1.5), ("capacity_hint", 9e3, {"num_constraints": "1000"}))
    assert verdict(trace, "other-process").verdict != "supported"


# --- slow-log-sink ---------------------------------------------------------------------------------------------------


def printing(ms_a_print: float, places: tuple[str, ...] = ("ntt", "gpu", "hold")) -> Trace:
    """A trace whose prints under the mutex take so long; the phases after a print are later by it."""
    plan = run(12)
    trace = trace_of(plan, USUAL)
    extra = {"ntt": 1 * ms_a_print, "gpu": 3 * ms_a_print, "hold": 2 * ms_a_print}
    own = {place: (extra[place] if place in places else 0.0) for place in extra}
    totals = [
        (n, call.ntt_h + own["ntt"], call.gpu_total + own["ntt"] + own["gpu"], call.gpu_total + sum(own.values()) + 2.0)
        for n, call in enumerate(plan)
    ]
    figures = pl.DataFrame(
        {
            "call": pl.Series([row[0] for row in totals], dtype=pl.UInt32),
            "ntt_msm_h_ms": [round(row[1]) for row in totals],
            "gpu_total_ms": [round(row[2]) for row in totals],
            "mutex_held_ms": [round(row[3]) for row in totals],
        }
    )
    trace.calls = schema.CALLS.fit(
        trace.calls.drop("ntt_msm_h_ms", "gpu_total_ms", "mutex_held_ms").join(figures, on="call")
    )
    # The hold begins earlier by what was printed in it.
    trace.calls = trace.calls.with_columns(pl.col("lock_ns") - round(sum(own.values()) * 1e6))
    return trace


def test_slow_prints_hold_the_mutex() -> None:
    trace = printing(100.0)
    own = verdict(trace, "slow-log-sink")
    assert own.verdict == "supported", said(own)
    assert own.lost_s == pytest.approx(charged(trace, "mutex_held")["slow-log-sink"])


def test_quick_prints_do_not() -> None:
    own = verdict(printing(0.4), "slow-log-sink")
    assert own.verdict == "refuted"
    assert all(item.value is not None and item.value < 3.0 for item in own.evidence[:-1])


@pytest.mark.parametrize("place", ["ntt", "gpu", "hold"])
def test_time_in_one_place_only_is_not_the_log(place: str) -> None:
    trace = printing(100.0, (place,))
    assert verdict(trace, "slow-log-sink").verdict == "refuted"
    assert "slow-log-sink" not in charged(trace)


def test_a_build_that_prints_less_leaves_the_sink_undetermined() -> None:
    trace = trace_of(run(12), USUAL)
    trace.phases = trace.phases.filter(~pl.col("name").is_in(["mutex_held", "barrier_wait", "d_b_alloc"]))
    assert verdict(trace, "slow-log-sink").verdict == "undetermined"


# --- memory-budget and no-work-queued --------------------------------------------------------------------------------


def starved(*marks: tuple[str, float, dict[str, str]]) -> Trace:
    plan = run(10, between_ms=1500.0)
    trace = trace_of(plan, USUAL, queue=[(call.start - 1.0, call.start - 0.5) for call in plan])
    return with_marks(trace, *marks) if marks else trace


def test_starvation_after_a_wait_for_the_budget_is_memory() -> None:
    trace = starved(*[("budget_wait", 1000.0 * n, {"needed_gib": "9"}) for n in range(45)])
    assert verdict(trace, "memory-budget").verdict == "supported"
    assert verdict(trace, "no-work-queued").verdict == "refuted"
    assert charged(trace)["memory-budget"] == pytest.approx(charged(starved())["no-work-queued"], rel=0.1)


def test_starvation_without_a_word_of_memory_is_undetermined_at_level_info() -> None:
    trace = starved()
    assert verdict(trace, "no-work-queued").verdict == "supported"
    own = verdict(trace, "memory-budget")
    assert own.verdict == "undetermined"
    assert "RUST_LOG=debug" in own.next_step
    told = starved(*[("budget_acquired", 2500.0 * n, {}) for n in range(10)])
    assert verdict(told, "memory-budget").verdict == "refuted"


def test_only_the_starvation_under_pressure_is_memory() -> None:
    trace = starved(("evicted", 1200.0, {"entry": "srs:porep-32g"}))
    seconds = charged(trace)
    assert 0.0 < seconds["memory-budget"] < seconds["no-work-queued"]


def test_the_first_load_of_an_srs_is_no_sign_of_memory() -> None:
    def load(circuit: str, at: float) -> tuple[str, float, dict[str, str]]:
        return ("srs_loaded", at, {"circuit_id": circuit, "elapsed_ms": "900"})

    assert "memory-budget" not in charged(starved(load("porep-32g", 900.0), load("snap-32g", 4000.0)))
    assert charged(starved(load("porep-32g", 900.0), load("porep-32g", 9000.0)))["memory-budget"] > 0


# --- host-hot-path ---------------------------------------------------------------------------------------------------


def test_late_entries_are_the_hosts_and_their_records_are_named() -> None:
    plan = run(10, between_ms=1500.0)
    trace = trace_of(plan, USUAL, queue=[(call.start - 1480.0, call.start) for call in plan])
    spawned = [("prove_start_spawned", call.end, {"spawn_to_enter_ms": "1400"}) for call in plan]
    own = verdict(with_marks(trace, *spawned), "host-hot-path")
    assert own.verdict == "supported"
    item = next(item for item in own.evidence if "spawn_to_enter_ms" in item.text)
    assert item.supports and item.value == 1400.0 and item.lines == (5000, 5001)


# --- host-memory-contention ------------------------------------------------------------------------------------------


def loaded(effect: float, seed: int = 2, calls: int = 40) -> Trace:
    """Pageable copies beside 1 to 12 syntheses by turns of five calls; each makes them longer by `effect` of alone."""
    rng = random.Random(seed)
    plan = run(calls)
    at, beside = plan[0].start, []
    for n, call in enumerate(plan):
        running = (1, 12, 6)[n // 5 % 3]
        call.start, call.pinned = at, False
        call.ntt_kernels = 900.0 * (1.0 + effect * running) * rng.uniform(0.95, 1.05)
        call.lock = call.asks
        beside += [(call.lock, call.unlock)] * running
        at = call.end + 1.0
    trace = trace_of(plan, {**USUAL, "ntt_kernels": Activity(0.0, 0.02)})
    # Every copy moves the same bytes, at its own rate.
    step = pl.col("end_ns") - pl.col("start_ns")
    extra = pl.lit(0.0)
    for call in plan:
        start, end = call.edges["ntt_kernels"]
        both = (pl.min_horizontal("end_ns", ns(end)) - pl.max_horizontal("start_ns", ns(start))).clip(0)
        extra = extra + both * (4e9 / (ns(end) - ns(start)))
    trace.samples = trace.samples.with_columns((pl.col("rx_wire_bytes") + extra * (step > 0)).alias("rx_wire_bytes"))
    spans = queue_frame([(0.0, 0.0)] * len(beside))
    trace.syntheses = spans.with_columns(
        pl.Series("start_ns", [ns(start) for start, _ in beside]), pl.Series("end_ns", [ns(end) for _, end in beside])
    )
    return trace


def test_a_copy_that_slows_with_the_load_is_contended_and_stays_pageable() -> None:
    trace = loaded(0.1)
    own = verdict(trace, "host-memory-contention")
    assert own.verdict == "supported", said(own)
    assert own.lost_s == 0.0
    # At one synthesis copies take 1.1 of alone, at 12 and 6 twice and 1.45 times as much.
    copied = float(trace.phases.filter(pl.col("name") == "ntt_kernels")["duration_ms"].sum()) / 1e3
    assert own.stretched_s is not None
    assert own.stretched_s / copied == pytest.approx(1 - 1.1 * 3 / (1.1 + 2.2 + 1.6), abs=0.06)
    assert diagnose(trace).hypotheses[0].id == "pageable-h2d"


def test_a_copy_that_does_not_mind_the_load_is_not_contended() -> None:
    assert verdict(loaded(0.0), "host-memory-contention").verdict == "refuted"


def test_pinned_copies_at_line_rate_are_not_contended() -> None:
    plan = run(20, ntt_kernels=0.3, coset_intt_sync=340.0)
    for call in plan:
        call.pinned = True
    assert verdict(trace_of(plan, PINNED), "host-memory-contention").verdict == "refuted"


def test_a_load_that_drifts_beside_a_drifting_rate_is_less_sure_than_its_calls_are_many() -> None:
    n = np.arange(60, dtype=float)
    rng = np.random.default_rng(3)
    drifting = relate("load", n // 30 * 60 + rng.normal(0, 3, 60), -n + rng.normal(0, 3, 60))
    shuffled = rng.permutation(60)
    mixed = relate("load", (n + rng.normal(0, 3, 60))[shuffled], (-n + rng.normal(0, 3, 60))[shuffled])
    assert drifting is not None and mixed is not None
    assert drifting.spearman < -0.7 and mixed.spearman < -0.9
    assert drifting.p_value > mixed.p_value
    assert mixed.spearman_interval[1] < drifting.spearman_interval[1]
    assert mixed.slope == pytest.approx(-1.0, abs=0.15)
    assert mixed.slope_low < mixed.slope < mixed.slope_high


def test_a_load_that_changes_only_between_the_calls_that_are_looked_at_has_no_relation() -> None:
    load, value = np.full(10_000, 9.0), np.arange(10_000.0)
    load[1] = 3.0
    assert relate("load", load, value) is None


def test_noise_is_seldom_taken_for_contention() -> None:
    rng = np.random.default_rng(7)
    found = [relate("load", rng.integers(1, 12, 40).astype(float), rng.normal(4.0, 1.0, 40)) for _ in range(40)]
    assert sum(relation is not None and relation.falls for relation in found) <= 2


# --- mutex-contention ------------------------------------------------------------------------------------------------


def queueing(count: int = 12, ntt_kernels: float = 800.0) -> Trace:
    plan = schedule(
        Planned(n % 2, n, start=1000.0 + 900.0 * n, prep=100.0, ntt_kernels=ntt_kernels) for n in range(count)
    )
    trace = trace_of(plan, USUAL)
    waited = pl.Series("mutex_wait_ms", [round(call.lock - call.asks) for call in plan])
    trace.calls = trace.calls.with_columns(waited)
    return trace


def test_waits_are_the_holders_and_add_up() -> None:
    trace = queueing(ntt_kernels=3000.0)
    found = waits(trace, diagnose(trace).blame)
    total = float(trace.calls["mutex_wait_ms"].sum()) / 1e3
    assert float(found["wait_s"].sum()) == pytest.approx(total, rel=1e-6)
    by_cause = dict(found.group_by("cause").agg(pl.col("wait_s").sum()).iter_rows())
    assert max(by_cause, key=lambda cause: by_cause[cause]) == "pageable-h2d"
    assert by_cause[COMPUTING] > 0
    # Nobody waits for itself, and a call waits for those before it.
    held = found.drop_nulls("holder")
    assert (held["holder"] < held["waiter"]).all()


def test_a_queue_before_a_busy_holder_is_a_symptom() -> None:
    own = verdict(queueing(ntt_kernels=3000.0), "mutex-contention")
    assert own.verdict == "refuted"
    assert "pageable-h2d" in own.main_reason
    assert "no PCIe traffic" in said(own)


def test_one_worker_waits_for_nobody() -> None:
    own = verdict(trace_of(run(10), USUAL), "mutex-contention")
    assert own.verdict == "refuted" and "one worker" in said(own)


def in_turn(*events: str) -> Trace:
    rows = [{"source": 0, "line": n, "event": event} for n, event in enumerate(events)]
    return Trace(marks=schema.MARKS.fit(pl.DataFrame(rows)))


def test_calls_that_never_begin_inside_another_share_one_mutex() -> None:
    whole = ["split_vectors", "GPU_START", "tail_msm"]
    beside = ["GPU_START", "split_vectors", "tail_msm"]
    assert whole_call_mutex(in_turn(*whole * 12))
    assert not whole_call_mutex(in_turn("split_vectors", *beside * 12))
    # Nobody at the door: nothing can be told.
    assert not whole_call_mutex(in_turn(*["split_vectors", "tail_msm"] * 12))
    assert not whole_call_mutex(in_turn(*whole * 3))


# --- launch-overhead, device-allocation ------------------------------------------------------------------------------


def test_long_launches_from_pinned_memory_are_launch_overhead() -> None:
    plan = run(12, ntt_kernels=700.0)
    for call in plan:
        call.pinned = True
    own = verdict(trace_of(plan, {**USUAL, "ntt_kernels": Activity(0.0, 0.0)}), "launch-overhead")
    assert own.verdict == "supported"
    slow_copy = verdict(trace_of(run(12, ntt_kernels=3000.0), USUAL), "launch-overhead")
    assert slow_copy.verdict == "refuted"
    assert "no PCIe traffic" in slow_copy.main_reason


def test_allocation_counts_after_the_first_call_only() -> None:
    plan = run(12)
    plan[0].d_b_alloc = 6000.0
    for call in plan[1:]:
        call.start += 6000.0
        call.lock = call.asks
    first = frozenset({0})
    assert verdict(trace_of(plan, USUAL, warmup=first), "device-allocation").verdict == "refuted"
    again = run(12, d_b_alloc=400.0)
    own = verdict(trace_of(again, USUAL, warmup=first), "device-allocation")
    assert own.verdict == "supported"
    assert next(item for item in own.evidence if "d_b_alloc takes" in item.text).lines


# --- pageable-h2d: what the log believes -----------------------------------------------------------------------------


@pytest.mark.parametrize(("claimed", "agree"), [(1.0, True), (0.25, False), (3.0, False)])
def test_a_wrong_belief_about_the_volume_is_caught(claimed: float, agree: bool) -> None:
    trace = trace_of(run(12, ntt_kernels=3000.0), USUAL)
    copied = 3.0 * 3e9 * 256 / 276
    hints = [("capacity_hint", 10.0 * n, {"num_constraints": str(round(claimed * copied / 96))}) for n in range(12)]
    own = verdict(with_marks(trace, *hints), "pageable-h2d")
    item = next(item for item in own.evidence if "num_constraints" in item.text)
    assert item.supports is agree
    assert ("they agree" in item.text) is agree
    assert own.verdict == "supported"


def test_buffer_sizes_are_beliefs_too() -> None:
    trace = trace_of(run(12, ntt_kernels=3000.0), USUAL)
    gib = 3.0 * 3e9 * 256 / 276 / 3 / 2**30
    own = verdict(with_marks(trace, ("pinned_attempt", 5.0, {"buf_gib": f"{gib:.6f}"})), "pageable-h2d")
    assert "3 x buf_gib" in said(own) and "they agree" in said(own)


def test_bursts_are_not_needed() -> None:
    assert alloc_bursts(trace_of(run(3))).is_empty()


# --- prep-barrier, release-abc ---------------------------------------------------------------------------------------


def test_what_shares_the_pool_with_prep_msm_is_named() -> None:
    plan = run(12, prep=6000.0)
    trace = trace_of(plan, USUAL)
    rows = []
    for n, call in enumerate(plan):
        for name, start, end in (
            ("prep_msm", call.entry, call.entry + 6000.0),
            ("b_g2_msm", call.entry + 500.0, call.entry + 5500.0),
        ):
            rows.append(
                {
                    "call": n,
                    "gpu": 0,
                    "name": name,
                    "duration_ms": int(end - start),
                    "start_ns": ns(start),
                    "end_ns": ns(end),
                    "under_mutex": False,
                    "line": 9000 + n,
                }
            )
    trace.phases = pl.concat([trace.phases, schema.PHASES.fit(pl.DataFrame(rows))])
    own = verdict(trace, "prep-barrier")
    assert own.verdict == "supported"
    assert "the same C++ pool" in said(own)


def test_release_is_compared_with_that_of_pinned_calls() -> None:
    plan = run(12, release=800.0)
    for call in plan[6:]:
        call.pinned, call.release = True, 1.0
    for call in plan[:6]:
        call.pinned = False
    trace = trace_of(plan, USUAL, queue=[(0.0, plan[-1].end)])
    assert "800 ms from pageable memory and 1 ms from pinned" in said(verdict(trace, "release-abc"))
