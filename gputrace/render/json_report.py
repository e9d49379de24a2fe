"""The JSON report, version 1. Keys keep their meaning within a major version; new ones may be added."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.trace import Trace

SCHEMA = "gputrace.report/1"
WHAT_IF_SCHEMA = "gputrace.what-if/1"
# Keys whose values are wall-clock times; without a clock they are null.
_TIME_SUFFIX = "_ns"


def _plain(value: Any, clocked: bool) -> Any:
    """Finite numbers, lists and objects only; unknown is null."""
    if isinstance(value, dict):
        return {
            key: None if key.endswith(_TIME_SUFFIX) and not clocked else _plain(item, clocked)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, clocked) for item in value]
    if isinstance(value, float):
        # Nine digits: sums made by several threads differ in the last of seventeen.
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def report_object(trace: Trace, diagnosis: Diagnosis, calls: bool = False) -> dict[str, Any]:
    """The report as plain values, in the order of the contract."""
    clocked = trace.clock.method != "none"
    quality = asdict(trace.quality)
    quality["notices"] = quality.pop("notices")
    phases = []
    for phase in diagnosis.phases:
        entry = asdict(phase)
        entry["class"] = entry.pop("phase_class")
        phases.append(entry)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "headline": diagnosis.headline,
        "headline_stable": diagnosis.headline_stable,
        "headline_variations": [asdict(variation) for variation in diagnosis.variations],
        "inputs": [_input(asdict(item)) for item in trace.inputs],
        "quality": quality,
        "clock": asdict(trace.clock),
        "window": _plain(asdict(diagnosis.window), clocked),
        "gpus": [asdict(gpu) for gpu in diagnosis.gpus],
        "calls": asdict(diagnosis.calls),
        "jobs": [asdict(job) for job in diagnosis.jobs],
        "phases": phases,
        "regimes": _plain([asdict(regime) for regime in diagnosis.regimes], clocked),
        "gaps": _plain(asdict(diagnosis.gaps), clocked),
        "hypotheses": [asdict(finding) for finding in diagnosis.hypotheses],
        "bounds": [asdict(bound) for bound in diagnosis.bounds],
        "what_if": [{**asdict(effect), "gains": effect.gains} for effect in diagnosis.what_if],
        "what_if_missing": diagnosis.what_if_missing or None,
        "replay": None if diagnosis.replay is None else asdict(diagnosis.replay),
        "interleaving": [asdict(finding) for finding in diagnosis.interleaving],
    }
    if calls:
        report["calls_list"] = _plain(_calls_list(trace, diagnosis), clocked)
    plain = _plain(report, True)
    assert isinstance(plain, dict)
    return plain


def what_if_object(trace: Trace, diagnosis: Diagnosis) -> dict[str, Any]:
    """What-ifs alone: the keys of the report that they rest on."""
    whole = report_object(trace, diagnosis)
    kept = ("inputs", "clock", "window", "calls", "bounds", "replay", "what_if", "what_if_missing")
    return {"schema": WHAT_IF_SCHEMA, **{key: whole[key] for key in kept}}


_CALL_COLUMNS = (
    "call",
    "restart",
    "gpu",
    "worker",
    "partition",
    "job",
    "complete",
    "failed",
    "missing",
    "warmup",
    "start_ns",
    "lock_ns",
    "unlock_ns",
    "end_ns",
    "uncertainty_ms",
    "residual_ms",
    "first_line",
    "last_line",
)


def _input(item: dict[str, Any]) -> dict[str, Any]:
    return {key: item[key] for key in ("path", "kind", "format", "rows", "first_ns", "last_ns", "used")}


def _calls_list(trace: Trace, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    phases: dict[int, dict[str, dict[str, int | None]]] = {}
    columns = trace.phases.select("call", "name", "start_ns", "end_ns", "duration_ms")
    for call, name, start_ns, end_ns, duration_ms in columns.iter_rows():
        own = phases.setdefault(call, {})
        if name in own:
            # Several circuits in one call: from the first start to the last end.
            own[name]["end_ns"] = end_ns
            own[name]["duration_ms"] = (own[name]["duration_ms"] or 0) + (duration_ms or 0)
        else:
            own[name] = {"start_ns": start_ns, "end_ns": end_ns, "duration_ms": duration_ms}
    from gputrace.analysis.compare.per_call import ACCOUNT, LOST, per_call

    accounts = {row["call"]: row for row in per_call(trace, diagnosis).iter_rows(named=True)}
    listed = []
    for row in trace.calls_in_focus.sort("call").select(_CALL_COLUMNS).iter_rows(named=True):
        lines = {"first": row.pop("first_line"), "last": row.pop("last_line")}
        known = accounts[row["call"]]
        lost = {key.removeprefix(LOST): known[key] for key in known if key.startswith(LOST) and known[key] is not None}
        account = {**{name: known.get(name) for name in ACCOUNT}, "lost_s": lost}
        listed.append({**row, "phases": phases.get(row["call"], {}), "account": account, "lines": lines})
    return listed


@dataclass(frozen=True)
class JsonRenderer:
    """One JSON object; with `calls`, every call with its phases."""

    calls: bool = False
    extension: str = "json"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The report as indented JSON."""
        return _dumped(report_object(trace, diagnosis, self.calls))


@dataclass(frozen=True)
class WhatIfJsonRenderer:
    """One JSON object with what-ifs and bounds only."""

    extension: str = "json"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The what-ifs as indented JSON."""
        return _dumped(what_if_object(trace, diagnosis))


def _dumped(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
