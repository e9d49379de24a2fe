"""Fleets for tests: simulated captures on disk, and made summaries that need none."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gputrace.fleet.analyse import analysis_version
from gputrace.fleet.summary import CaptureSummary, GpuDay
from gputrace.simulate.capture import play, write_capture
from gputrace.simulate.scenarios import find_scenario

DAY_NS = 86_400_000_000_000
FIRST_NS = 1_773_360_000_000_000_000
FIRST_DAY = "2026-03-13"
_KINDS = ("pageable", "barrier", "healthy")


def day_of(number: int) -> str:
    """The name of a day, 0 being the first."""
    return f"2026-03-{13 + number:02d}"


def write_fleet(folder: Path, captures: int, hosts: int = 6) -> list[Path]:
    """Simulated captures of ten calls: hosts of three kinds, a capture a day, a deploy after half of the days."""
    days = -(-captures // hosts)
    written = []
    for number in range(captures):
        host, day = number % hosts, number // hosts
        scenario = replace(
            find_scenario(_KINDS[host % len(_KINDS)]),
            partitions=10,
            epoch_ns=FIRST_NS + day * DAY_NS + host * 1_000_000,
        )
        target = folder / f"host-{host:02d}" / f"day-{day:02d}"
        write_capture(play(scenario, number), target)
        meta = json.loads((target / "meta.json").read_text())
        meta |= {"host": f"prover-{host:02d}", "deploy": "v2" if day >= days / 2 else "v1"}
        (target / "meta.json").write_text(json.dumps(meta))
        written.append(target)
    return written


def spoil(capture: Path) -> None:
    """Leaves nothing in a capture that can be read."""
    for file in capture.iterdir():
        if file.is_file():
            file.write_bytes(bytes(range(256)) * 8)


def summary(
    host: str | None,
    day: int = 0,
    causes: Mapping[str, float] | None = None,
    *,
    window_s: float = 100.0,
    calls: int = 50,
    gpu: int = 0,
    deploy: str | None = None,
    supported: bool = True,
    name: str | None = None,
    model: str | None = "NVIDIA H200",
) -> CaptureSummary:
    """A capture of one GPU and one day that lost what `causes` says."""
    lost = dict(causes if causes is not None else {"pageable-h2d": 30.0, "unexplained": 1.0})
    start_ns = FIRST_NS + day * DAY_NS
    lost_s = sum(lost.values())
    return CaptureSummary(
        capture=name or f"/fleet/{host}/{day:02d}-{gpu}",
        analysis=analysis_version(),
        host=host,
        deploy=deploy,
        start_ns=start_ns,
        end_ns=start_ns + round(window_s * 1e9),
        gpus={gpu: model},
        days=(GpuDay(gpu, day_of(day), window_s, window_s - lost_s, None, None, calls, lost),),
        calls=calls,
        calls_complete=calls,
        calls_failed=0,
        calls_per_s=calls / window_s,
        phase_medians_ms={},
        verdicts=dict.fromkeys(lost, "supported" if supported else "undetermined"),
        main_cause=None,
        headline="made",
        clock="receipt",
    )
