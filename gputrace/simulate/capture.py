"""A scenario played and written as a capture folder, with the truth beside it.

`truth.csv` has the form of real captures; `truth/calls.parquet` and `truth/phases.parquet` have every call and phase in
true times. They lie in a folder of their own, because every file of a capture's folder is taken for an input.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from gputrace.errors import UsageError
from gputrace.nearest import did_you_mean
from gputrace.simulate.activity import phase_bytes
from gputrace.simulate.lines import log_lines
from gputrace.simulate.pipeline import simulate
from gputrace.simulate.recipe import Scenario, works_of
from gputrace.simulate.schedule import CallRecord
from gputrace.simulate.streams import FORMS, as_files
from gputrace.simulate.text import Clocks, Line
from gputrace.simulate.trace import trace_csv
from gputrace.simulate.traced import TracedRun
from gputrace.simulate.variants import VARIANTS

_CALL_EDGES = {
    "pickup_ns": "pickup",
    "gpu_start_ns": "started",
    "entry_ns": "entry",
    "asked_ns": "asked",
    "lock_ns": "lock",
    "unlock_ns": "unlock",
    "returned_ns": "returned",
    "finish_ns": "finished",
}


@dataclass(frozen=True)
class Simulation:
    """A scenario as it went, run by run, and its log."""

    scenario: Scenario
    seed: int
    runs: list[TracedRun]
    lines: list[Line]

    def files(self, form: str = "merged") -> dict[str, str]:
        """The log's files: merged, two-files, stdout, stderr or cpp."""
        if form not in FORMS:
            raise UsageError(f"{form}: not a form of a log{did_you_mean(form, FORMS)}; known are {', '.join(FORMS)}")
        return as_files(self.lines, form, self.scenario.tear_share, self.seed)

    def trace_csv(self) -> str:
        """The GPU trace."""
        return trace_csv(self.runs, self.scenario.rates, self.scenario.trace, self.seed)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """The truth of every call that was picked up, in order of locks within a run (those without one last)."""
        rows = [_call_row(run, n, call) for n, run in enumerate(self.runs) for call in _in_order(run)]
        return pl.DataFrame(rows, infer_schema_length=None).with_row_index("call")

    @cached_property
    def phases(self) -> pl.DataFrame:
        """The truth of every phase: run, index of the partition, name, circuit, start, end, payload bytes in."""
        rows = [row for n, run in enumerate(self.runs) for call in _in_order(run) for row in self._spans(n, run, call)]
        return pl.DataFrame(rows)

    def _spans(self, number: int, run: TracedRun, call: CallRecord) -> Iterator[dict[str, object]]:
        moved = phase_bytes(run.schedule, call, self.scenario.rates)
        for span in call.spans:
            yield {
                "run": number,
                "index": call.index,
                "gpu": call.gpu,
                "name": span.name,
                "circuit": span.circuit,
                "start_ns": run.clocks.wall_ns(span.start),
                "end_ns": run.clocks.wall_ns(span.end),
                "rx_payload_bytes": moved.get((span.name, span.circuit), 0.0),
            }


def play(scenario: Scenario, seed: int = 0) -> Simulation:
    """Simulates all runs of a scenario and prints their log."""
    variant = VARIANTS[scenario.variant]
    limits = replace(variant.apply(scenario.limits), line_rate=scenario.rates.line_rate)
    runs: list[TracedRun] = []
    lines: list[Line] = []
    epoch_ns = scenario.epoch_ns
    for number in range(scenario.runs):
        killed = math.inf if number == scenario.runs - 1 else scenario.stop_s
        works = works_of(scenario, number, seed)
        schedule = simulate(works, limits, seed + number, killed, scenario.disturbance)
        clocks = Clocks(epoch_ns, scenario.options.drift_ppm)
        runs.append(TracedRun(schedule, clocks))
        until = None if math.isinf(killed) else killed
        lines += log_lines(schedule, variant, epoch_ns, scenario.options, seed + number, until)
        epoch_ns = clocks.wall_ns(min(killed, schedule.end) + scenario.restart_gap_s)
    return Simulation(scenario, seed, runs, lines)


def write_capture(simulation: Simulation, folder: Path | str, form: str = "merged", force: bool = False) -> list[Path]:
    """Writes the capture and returns its files. Raises `UsageError` where the folder is not empty, unless `force`."""
    target = Path(folder)
    if target.exists() and not force and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already; --force overwrites it")
    texts = {
        **simulation.files(form),
        "nvml.csv": simulation.trace_csv(),
        "meta.json": json.dumps(_metadata(simulation, form), indent=1) + "\n",
        "truth.csv": _truth_csv(simulation),
    }
    truth = target / "truth"
    truth.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    simulation.calls.write_parquet(truth / "calls.parquet")
    simulation.phases.write_parquet(truth / "phases.parquet")
    return [*(target / name for name in texts), truth / "calls.parquet", truth / "phases.parquet"]


def _in_order(run: TracedRun) -> list[CallRecord]:
    return sorted(run.schedule.calls, key=lambda call: (math.isnan(call.lock), call.lock, call.pickup))


def _ns(run: TracedRun, at: float) -> int | None:
    return None if math.isnan(at) else run.clocks.wall_ns(at)


def _call_row(run: TracedRun, number: int, call: CallRecord) -> dict[str, object]:
    work = call.work
    row: dict[str, object] = {
        "run": number,
        "index": call.index,
        "gpu": call.gpu,
        "worker": call.worker,
        "job": work.job,
        "attempt": work.attempt,
        "partition": work.partition,
        "kind": work.kind,
        "pinned": work.pinned,
        "warmup": call.warmup,
        "outcome": call.outcome,
    }
    row |= {column: _ns(run, getattr(call, name)) for column, name in _CALL_EDGES.items()}
    blocked_from, blocked_to = call.blocked.get("unlock", (0.0, 0.0))
    row["unlock_blocked_ns"] = round((blocked_to - blocked_from) * 1e9)
    for span in call.spans:
        if span.circuit == 0:
            row |= {f"{span.name}_start_ns": _ns(run, span.start), f"{span.name}_end_ns": _ns(run, span.end)}
    return row


def _truth_csv(simulation: Simulation) -> str:
    """wall_ns, mono_ns, event: the epochs, entries and returns, as the driver of real captures writes them."""
    events: list[tuple[int, str]] = []
    for run in simulation.runs:
        events.append((run.clocks.epoch_ns, "timeline_epoch"))
        for call in run.schedule.calls:
            pinned = "true" if call.work.pinned else "false"
            where = f"{'' if call.work.partition is None else call.work.partition},{pinned}"
            if not math.isnan(call.entry):
                events.append((run.clocks.wall_ns(call.entry), f"prove_start_enter,{where}"))
            if not math.isnan(call.returned):
                release_ms = run.clocks.steady_ms(call.unlock, call.returned)
                done = f"prove_start_done,{where},release_abc_ms={release_ms}"
                events.append((run.clocks.wall_ns(call.returned), done))
    zero_ns = simulation.scenario.epoch_ns - 25_000_000_000
    return "".join(f"{at},{at - zero_ns},{event}\n" for at, event in sorted(events))


def _metadata(simulation: Simulation, form: str) -> dict[str, object]:
    scenario = simulation.scenario
    return {
        "name": scenario.name,
        "what": scenario.what,
        "simulated": True,
        "gpu_name": "simulated GPU",
        "seed": simulation.seed,
        "variant": scenario.variant,
        "log_form": form,
        "runs": len(simulation.runs),
        "gpus": scenario.limits.gpus,
        "workers_per_gpu": scenario.limits.workers_per_gpu,
        "calls": simulation.calls.height,
        "calls_per_s": [run.schedule.calls_per_s for run in simulation.runs],
        "log_lines": len(simulation.lines),
    }
