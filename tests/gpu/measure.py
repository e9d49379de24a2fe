"""The sampler against copies of known size on a real GPU: `python -m tests.gpu.measure FOLDER`.

From the repository's root, with nvidia-ml-py to be found; takes under five minutes and 6 GiB of memory. The same
phases (pinned bursts, pinned without pause, pageable, back to the host, compute, all in turn) are run three times:
with the counters alone, with everything, and with everything beside nvidia-smi dmon and a plain loop of the throughput
call. The first GPU by its PCI address is used.

Prints a table and writes FOLDER/report.md, FOLDER/report.json and the rows of every recorder as CSV.
Exit code 1: a target was missed; 3: it could not be measured.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu import truth
from tests.gpu.cuda import Copier, CudaError, Gpu
from tests.gpu.truth import Phase
from tests.gpu.watchers import Dmon, Recorder

BURST_BYTES, PIECE_BYTES = 2 << 30, 256 << 20
BURST_EVERY_S = 0.5
QUIET_S = 1.0
PAYLOAD_ERROR = 0.005
CPU_SHARE = {"counters": 0.015, "all": 0.022}
STEP_P99_MS = 105.0
# Seconds of each phase at --scale 1: 55 s of them and a second of quiet after each.
SECONDS = {
    "pinned bursts": 14.0,
    "pinned sustained": 6.0,
    "pageable": 10.0,
    "to host": 5.0,
    "compute": 5.0,
    "interleaved": 12.0,
}


class Driver:
    """Runs the phases on one GPU."""

    def __init__(self, gpu: Copier, scale: float) -> None:
        self._gpu, self._scale = gpu, scale
        self._doing: dict[str, Callable[[float], tuple[int, int]]] = {
            "pinned bursts": self._bursts,
            "pinned sustained": lambda until_s: (self._repeat(until_s, lambda: gpu.to_gpu(BURST_BYTES, True)), 0),
            "pageable": lambda until_s: (self._repeat(until_s, lambda: gpu.to_gpu(PIECE_BYTES, False)), 0),
            "to host": lambda until_s: (0, self._repeat(until_s, lambda: gpu.to_host(BURST_BYTES))),
            "compute": self._compute,
            "interleaved": self._interleaved,
        }

    def run(self) -> list[Phase]:
        """All phases, with quiet around each."""
        phases = []
        time.sleep(QUIET_S)
        for name, do in self._doing.items():
            start_ns = time.monotonic_ns()
            rx, tx = do(time.monotonic() + SECONDS[name] * self._scale)
            self._gpu.finish()
            phases.append(Phase(name, start_ns, time.monotonic_ns(), rx, tx))
            time.sleep(QUIET_S)
        return phases

    def _repeat(self, until_s: float, copy: Callable[[], int]) -> int:
        copied = 0
        while time.monotonic() < until_s:
            copied += copy()
        return copied

    def _bursts(self, until_s: float) -> tuple[int, int]:
        copied, next_s = 0, time.monotonic()
        while next_s < until_s:
            time.sleep(max(0.0, next_s - time.monotonic()))
            copied += self._gpu.to_gpu(BURST_BYTES, True)
            next_s += BURST_EVERY_S
        return copied, 0

    def _compute(self, until_s: float) -> tuple[int, int]:
        while time.monotonic() < until_s:
            self._gpu.compute(wait=True)
        return 0, 0

    def _interleaved(self, until_s: float) -> tuple[int, int]:
        def turn() -> int:
            for _ in range(3):
                self._gpu.compute(wait=False)
            copied = self._gpu.to_gpu(PIECE_BYTES * 3, True)
            copied += self._gpu.to_gpu(PIECE_BYTES, False)
            self._gpu.compute(wait=True)
            return copied

        return self._repeat(until_s, turn), 0


@dataclass
class Round:
    """One pass over the phases, and what its watchers cost."""

    name: str
    sampler: str
    phases: list[Phase]
    costs: dict[str, dict[str, Any]]
    results: list[dict[str, Any]] = field(default_factory=list)
    pace: dict[str, Any] = field(default_factory=dict)


def drive(driver: Driver, name: str, sampler: str, others: bool, folder: Path) -> Round:
    """One pass with a sampler, and with the other tools where wished."""
    folder.mkdir(parents=True, exist_ok=True)
    recorders = [Recorder(setting, folder) for setting in ([sampler, "throughput"] if others else [sampler])]
    dmon = Dmon() if others else None
    costs: dict[str, dict[str, Any]] = {}
    try:
        for recorder in recorders:
            recorder.wait_until_writing()
        phases = driver.run()
        time.sleep(1.0)
    finally:
        dmon_cost = dmon.stop() if dmon is not None else None
        for recorder in recorders:
            costs[recorder.setting] = recorder.stop()
    if dmon_cost is not None and dmon is not None:
        costs["nvidia-smi dmon"] = dmon_cost
        lines = (f"{at},{rx:.0f},{tx:.0f}\n" for at, rx, tx in dmon.readings)
        (folder / "dmon.csv").write_text("t_mono_ns,rx_bytes_per_s,tx_bytes_per_s\n" + "".join(lines), encoding="utf-8")
    return Round(name, sampler, phases, costs)


def evaluate(done: Round, folder: Path, factor: float) -> None:
    """Fills `results`, one entry a phase, and `pace`: what each watcher saw, in payload bytes and error."""
    rows = truth.read_rows(folder / f"{done.sampler}.csv")
    rates = {
        tool: truth.read_rates(folder / file)
        for tool, file in (("throughput", "throughput.csv"), ("dmon", "dmon.csv"))
        if (folder / file).exists()
    }
    done.pace = asdict(truth.pace(rows))
    for phase in done.phases:
        way = 1 if phase.tx_bytes else 0
        copied = (phase.rx_bytes, phase.tx_bytes)[way]
        counted = truth.counted(rows, phase)
        seen: dict[str, float | None] = {"counters": counted[way] / factor if counted is not None else None}
        by_gpm = truth.by_gpm(rows, phase)
        seen["gpm"] = by_gpm[way] / factor if by_gpm is not None else None
        for tool, readings in rates.items():
            by_rate = truth.by_rates(readings, phase)
            seen[tool] = by_rate[way] / factor if by_rate is not None else None
        done.results.append(
            {
                "phase": phase.name,
                "direction": ("rx", "tx")[way],
                "seconds": (phase.end_ns - phase.start_ns) / 1e9,
                "payload_bytes": copied,
                "seen_payload_bytes": seen,
                "error": {
                    tool: value / copied - 1 if value is not None and copied else None for tool, value in seen.items()
                },
                "holes": counted[2] if counted is not None else None,
                "sm_active": truth.sm_active(rows, phase),
            }
        )


def missed(rounds: list[Round]) -> list[str]:
    """What a target was and was not reached, one line each."""
    lines = []
    for done in rounds:
        for result in done.results:
            error = result["error"]["counters"]
            if result["payload_bytes"] and (error is None or abs(error) > PAYLOAD_ERROR):
                shown = "nothing was counted" if error is None else f"{error:+.2%}"
                lines.append(f"{done.name}, {result['phase']}: payload {shown}, target ±{PAYLOAD_ERROR:.1%}")
        if done.pace["p99_ms"] > STEP_P99_MS:
            lines.append(f"{done.name}: step p99 {done.pace['p99_ms']:.1f} ms, target {STEP_P99_MS:g} ms")
        share = done.costs[done.sampler]["cpu_s"] / done.costs[done.sampler]["wall_s"]
        if "throughput" not in done.costs and share > CPU_SHARE[done.sampler]:
            lines.append(f"{done.name}: {share:.2%} of a core, target {CPU_SHARE[done.sampler]:.1%}")
    return lines


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.2%}"


def markdown(rounds: list[Round], about: dict[str, Any]) -> str:
    """The report as two tables."""
    said = "as the device's control register says" if about["mps_known"] else "assumed: the register cannot be read"
    lines = [
        f"{about['name']}, driver {about['driver']}; payload = wire / {about['wire_per_payload']:.4f} "
        f"(MPS {about['mps']} bytes, {said})",
        "",
        "| run | phase | s | copied GB | GB/s | counters | GPM | throughput call | dmon | holes | SM |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for done in rounds:
        for result in done.results:
            seconds, error, sm = result["seconds"], result["error"], result["sm_active"]
            cells = [
                done.name,
                f"{result['phase']} ({result['direction']})",
                f"{seconds:.1f}",
                f"{result['payload_bytes'] / 1e9:.2f}",
                f"{result['payload_bytes'] / 1e9 / seconds:.2f}",
                *(_percent(error.get(tool)) for tool in ("counters", "gpm", "throughput", "dmon")),
                "" if result["holes"] is None else str(result["holes"]),
                "" if sm is None else f"{sm:.0%}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "| run | watcher | CPU, % of a core | memory MiB | rows | step median / p99 ms | late p99 ms | holes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for done in rounds:
        for watcher, cost in done.costs.items():
            own = watcher == done.sampler
            pace = done.pace
            cells = [
                done.name,
                watcher,
                f"{100 * cost['cpu_s'] / cost['wall_s']:.2f}",
                f"{cost.get('rss_mib', 0):.0f}",
                str(pace["rows"]) if own else "",
                f"{pace['median_ms']:.1f} / {pace['p99_ms']:.1f}" if own else "",
                f"{pace['late_p99_ms']:.2f}" if own else "",
                str(pace["holes"]) if own else "",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where rows and reports go")
    parser.add_argument("--scale", type=float, default=1.0, help="lengthens or shortens every phase")
    parser.add_argument("--only", choices=["counters", "all", "beside"], help="one of the three runs")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rounds: list[Round] = []
    try:
        gpu = Gpu(0, BURST_BYTES)
        factor, mps, mps_known = truth.wire_per_payload(gpu.pci_bus_id)
        driver = Driver(gpu, asked.scale)
        for name, sampler, others in (
            ("counters", "counters", False), ("all", "all", False), ("beside", "all", True)
        ):  # fmt: skip
            if asked.only in {None, name}:
                print(f"run {name}: {sum(SECONDS.values()) * asked.scale + 8 * QUIET_S:.0f} s", file=sys.stderr)
                rounds.append(drive(driver, name, sampler, others, asked.folder / name))
                evaluate(rounds[-1], asked.folder / name, factor)
    except (CudaError, RuntimeError, OSError) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        if not rounds:
            return 3
    described = rounds[0].costs[rounds[0].sampler]["described"]
    about = {
        "name": described["gpus"][0].get("name"),
        "driver": described["driver"],
        "wire_per_payload": factor,
        "mps": mps,
        "mps_known": mps_known,
    }
    failures = missed(rounds)
    report = {"about": about, "rounds": [asdict(done) for done in rounds], "missed": failures}
    (asked.folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    text = markdown(rounds, about)
    (asked.folder / "report.md").write_text(text, encoding="utf-8")
    print(text)
    print("\n".join(f"MISSED: {line}" for line in failures) or "Every target was reached.")
    return 1 if failures or len(rounds) < (1 if asked.only else 3) else 0


if __name__ == "__main__":
    sys.exit(main())
