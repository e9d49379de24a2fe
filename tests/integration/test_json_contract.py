"""The JSON report, version 1: keys that others rely on."""

import json

import pytest

from gputrace.render.json_report import JsonRenderer
from tests.captures import diagnosis, read

TOP = (
    "schema", "headline", "headline_stable", "headline_variations", "inputs", "quality", "clock", "window", "gpus",
    "calls", "jobs", "phases", "regimes", "gaps", "hypotheses", "bounds", "what_if", "what_if_missing", "replay",
    "interleaving",
)  # fmt: skip
KEYS = {
    "inputs": ("path", "kind", "format", "rows", "first_ns", "last_ns", "used"),
    "gpus": (
        "gpu", "name", "link_gen", "link_width", "link_limit_bytes_per_s", "line_rate_bytes_per_s", "compute_share",
        "copy_only_share", "idle_share", "mutex_held_share", "rx_payload_bytes", "tx_payload_bytes", "state_source",
    ),
    "jobs": ("job", "kind", "partitions", "done", "queue_s", "synth_s", "gpu_s", "finalise_s", "total_s"),
    "phases": (
        "name", "contains_others", "count", "min_ms", "p5_ms", "median_ms", "mean_ms", "p95_ms", "max_ms", "class",
        "class_reason", "under_mutex", "share_of_mutex_held", "rx_bytes_per_s", "rx_bytes_per_call_median",
        "rx_method", "sm_share_median", "transfer", "drivers",
    ),
    "regimes": (
        "start_ns", "end_ns", "calls", "label", "reason", "phase_medians_ms", "main_cause", "verdicts", "lost_s",
        "duration_s", "bistable",
    ),
    "bounds": ("resource", "servers", "service_ms", "busy_share", "max_calls_per_s", "what"),
    "what_if": (
        "scenario", "title", "calls_per_s", "mutex_held_ms_median", "compute_share", "saved_s", "saved_s_low",
        "saved_s_high", "limited_by", "level", "notes", "gains",
    ),
    "hypotheses": (
        "id", "title", "verdict", "confidence", "lost_s", "recoverable_s", "evidence", "knob", "next_step",
        "changes_mind", "stretched_s",
    ),
}  # fmt: skip
OBJECTS = {
    "quality": (
        "lines", "marks", "marks_by_event", "marks_placed", "marks_unplaced", "torn_repaired", "torn_lost",
        "unrecognised_of_known_family", "samples", "samples_missing", "counter_wraps", "counter_ambiguous", "notices",
    ),
    "replay": (
        "rate", "mutex_wait_median", "barrier_wait_s", "barrier_wait_share", "unlock_worst", "held_median",
    ),
    "clock": ("method", "unique", "offset_s", "uncertainty_s", "drift_ppm", "runner_up_margin"),
    "window": ("start_ns", "end_ns", "duration_s", "ramp_up_s", "drain_s"),
    "calls": ("count", "complete", "failed", "warmup", "per_s", "by_worker", "residual_ms_median"),
    "gaps": ("threshold_ms", "count", "total_s", "below_threshold_s", "share_of_window", "by_cause", "list"),
}  # fmt: skip
ALL_HYPOTHESES = {
    "pageable-h2d", "pinned-alloc-stall", "host-memory-contention", "mutex-contention", "prep-barrier",
    "no-work-queued", "host-hot-path", "memory-budget", "launch-overhead", "device-allocation", "link-degraded",
    "throttled", "other-process", "release-abc", "slow-log-sink",
}  # fmt: skip


@pytest.mark.parametrize("name", ["pageable-heavy", "pinned-heavy", "told-story"])
def test_keys_of_the_contract(name: str) -> None:
    report = json.loads(JsonRenderer(calls=True).render(read(name), diagnosis(name)))
    assert tuple(report) == (*TOP, "calls_list")
    assert report["schema"] == "gputrace.report/1"
    for key, keys in KEYS.items():
        assert report[key]
        for entry in report[key]:
            assert set(keys) <= set(entry)
    for key, keys in OBJECTS.items():
        assert set(keys) <= set(report[key])
    assert {finding["id"] for finding in report["hypotheses"]} >= ALL_HYPOTHESES
    for finding in report["hypotheses"]:
        assert finding["verdict"] in ("supported", "refuted", "undetermined")
        assert (finding["lost_s"] is None) == (finding["verdict"] != "supported")
        assert finding["next_step"]
        for item in finding["evidence"]:
            assert set(item) == {"text", "value", "unit", "supports", "lines", "sources"}
            assert len(item["lines"]) == len(item["sources"])
    for gap in report["gaps"]["list"]:
        assert {"gpu", "start_ns", "end_ns", "duration_ms", "state", "cause", "phase", "call", "rx_bytes_per_s"} <= set(
            gap
        )
    call = report["calls_list"][0]
    assert {
        "call",
        "gpu",
        "worker",
        "partition",
        "job",
        "complete",
        "warmup",
        "start_ns",
        "lock_ns",
        "unlock_ns",
    } <= set(call)
    assert set(call["lines"]) == {"first", "last"}
    assert isinstance(call["phases"]["ntt_kernels"]["start_ns"], int)


def test_interleaving_is_in_the_report() -> None:
    report = json.loads(JsonRenderer().render(read("pageable-heavy"), diagnosis("pageable-heavy")))
    (finding,) = report["interleaving"]
    assert set(finding) == {
        "gpu", "workers", "calls", "window_s", "held_s", "mutex_utilisation", "overlap_efficiency", "off_gpu",
        "waited_s", "waited_unheld_s", "waits", "handovers_waited", "handovers_unwaited", "handover_uncertainty_ms",
        "alternation_share", "longest_run", "shortest", "notes",
    }  # fmt: skip
    assert set(finding["waits"][0]) == {"waiter", "holder", "waits", "total_s", "by_phase_s"}
    assert set(finding["handovers_waited"]) == {"count", "total_s", "median_ms", "p95_ms", "max_ms"}
    assert set(finding["off_gpu"][0]) == {"kind", "total_s", "under_other_s", "under_own_s", "exposed_s"}
    assert set(finding["shortest"][0]) == {"id", "title", "shortest_s", "limited_by", "limits_s", "assumes"}
    alone = json.loads(JsonRenderer().render(read("one-worker"), diagnosis("one-worker")))
    assert alone["interleaving"] == []


def test_the_same_input_gives_the_same_bytes() -> None:
    renderer = JsonRenderer(calls=True)
    first = renderer.render(read("one-worker"), diagnosis("one-worker"))
    assert first == renderer.render(read("one-worker"), diagnosis("one-worker"))
    assert "NaN" not in first and "Infinity" not in first
