"""Simulated captures: logs obey the prover's arithmetic, traces hold the schedule's bytes, all of it comes back."""

import csv
import io
import itertools
import math
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from gputrace.cli import app
from gputrace.errors import InputError, UsageError
from gputrace.loading import load
from gputrace.simulate.activity import phase_bytes
from gputrace.simulate.capture import Simulation, play, write_capture
from gputrace.simulate.planted import PLANTED
from gputrace.simulate.scenarios import PRESETS, Scenario, find_scenario, random_scenario
from gputrace.simulate.schedule import CallRecord
from gputrace.simulate.streams import delivered, torn
from gputrace.simulate.text import LogOptions
from gputrace.simulate.trace import WIRE_PER_PAYLOAD, TraceOptions
from gputrace.simulate.variants import VARIANTS

MS = 1_000_000
ANSI = re.compile("\x1b\\[[0-9;]*m")


@cache
def played(name: str, variant: str = "M", seed: int = 0) -> Simulation:
    """A preset or a random scenario, without colours."""
    scenario = random_scenario(int(name)) if name.isdigit() else PRESETS[name]
    return play(replace(scenario, variant=variant, options=LogOptions(ansi=False)), seed)


# The log's arithmetic, from its lines read back.


def figures(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d+)", text)}


def values(simulation: Simulation, pattern: str) -> list[dict[str, int]]:
    """The figures of every line that has `pattern`, in order."""
    return [figures(line.text) for line in simulation.lines if re.search(pattern, line.text)]


def single(name: str, variant: str) -> tuple[Simulation, list[CallRecord]]:
    """One run without failures, and its calls in order of locks."""
    simulation = played(name, variant)
    return simulation, simulation.runs[0].schedule.by_lock


NAMES = ("pageable", "pinned", "barrier", "alloc-storm", "one-worker", "3", "4", "5", "6")
PARTS = ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_gpu_total_is_the_sum_of_its_parts(name: str, variant: str) -> None:
    simulation, calls = single(name, variant)
    tails, batches = values(simulation, "gpu_total_ms="), values(simulation, "batch_add_ms=")
    heads, barriers = values(simulation, "ntt_msm_h_ms="), values(simulation, "barrier_wait_ms=")
    assert len(tails) == len(batches) == len(heads) == len(calls)
    assert len(barriers) == (len(calls) if VARIANTS[variant].lock_lines else 0)
    for n, tail in enumerate(tails):
        rest = tail["gpu_total_ms"] - heads[n]["ntt_msm_h_ms"] - batches[n]["batch_add_ms"] - tail["tail_msm_ms"]
        if barriers:
            assert 0 <= rest - barriers[n]["barrier_wait_ms"] <= 3
        else:
            assert rest >= 0


@pytest.mark.parametrize("variant", ["Vd", "Vg", "Vs", "M"])
@pytest.mark.parametrize("name", NAMES)
def test_ntt_h_lines_add_up(name: str, variant: str) -> None:
    simulation, calls = single(name, variant)
    heads = values(simulation, "ntt_msm_h_ms=")
    lines = [line.text for line in simulation.lines if line.text.startswith("CUZK_NTT_H")]
    assert len(lines) == len(heads) == len(calls)
    for call, text, head in zip(calls, lines, heads, strict=True):
        ms = {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d+)ms", text)}
        assert abs(ms["total"] - sum(ms[part] for part in PARTS)) <= 6
        allocation = 5 if call.new_domain else 0
        assert -1 <= head["ntt_msm_h_ms"] - ms["total"] <= 2 + allocation
    assert not values(played(name, "V12"), "CUZK_NTT_H")


@pytest.mark.parametrize("name", NAMES)
def test_identities_of_the_locks_lines(name: str) -> None:
    simulation, calls = single(name, "M")
    locks, unlocks = values(simulation, "mutex_wait_ms="), values(simulation, "total_start_fn_ms=")
    heads, tails = values(simulation, "ntt_msm_h_ms="), values(simulation, "gpu_total_ms=")
    barriers = values(simulation, "barrier_wait_ms=")
    ready = sorted((c for c in calls if not math.isnan(c.prep_end)), key=lambda c: c.prep_end)
    prep = {c.index: v["prep_msm_ms"] for c, v in zip(ready, values(simulation, "prep_msm_ms="), strict=True)}
    entered = sorted(calls, key=lambda c: c.split_end)
    splits = values(simulation, "setup_to_split_ms=")
    setup = {c.index: v["setup_to_split_ms"] for c, v in zip(entered, splits, strict=True)}
    for n, call in enumerate(calls):
        lock, unlock = locks[n], unlocks[n]
        parts = lock["pre_lock_cpu_ms"] + lock["mutex_wait_ms"] + unlock["mutex_held_ms"]
        assert 0 <= unlock["total_start_fn_ms"] - parts <= 2
        assert unlock["mutex_held_ms"] >= tails[n]["gpu_total_ms"]
        assert 0 <= lock["pre_lock_cpu_ms"] - setup[call.index] <= 2
        ahead = setup[call.index] + prep[call.index] - lock["pre_lock_cpu_ms"] - lock["mutex_wait_ms"]
        assert abs(max(0, ahead - heads[n]["ntt_msm_h_ms"]) - barriers[n]["barrier_wait_ms"]) <= 4


@pytest.mark.parametrize("name", NAMES)
def test_identities_of_the_engines_lines(name: str) -> None:
    simulation, calls = single(name, "M")
    returned = sorted(calls, key=lambda c: c.returned)
    totals = {c.index: v["total_start_fn_ms"] for c, v in zip(calls, values(simulation, "mutex_held_ms="), strict=True)}
    spawned = {}
    for call, line in zip(returned, values(simulation, "spawn_blocking prove_start"), strict=True):
        spawned[call.index] = line["spawn_to_enter_ms"]
        release = line["prove_start_ms"] - totals[call.index]
        assert 0 <= release <= (3 if call.work.pinned else 2000)
    walls = values(simulation, "prove_start returned")
    for wall, line in zip(walls, values(simulation, "spawn_blocking prove_start"), strict=True):
        assert 0 <= wall["spawn_blocking_wall_ms"] - line["spawn_to_enter_ms"] - line["prove_start_ms"] <= 3
    timeline = [line.text.split(",", 4) for line in simulation.lines if line.text.startswith("TIMELINE,")]
    starts = {(job, figures(detail)["partition"]): int(at) for _, at, e, job, detail in timeline if e == "GPU_START"}
    ends = {
        (job, figures(detail)["partition"]): (int(at), detail) for _, at, e, job, detail in timeline if e == "GPU_END"
    }
    done = {(job, int(n)): int(ms) for line in simulation.lines for job, n, ms in re.findall(
        r": partition GPU prove complete job_id=(\S+) partition=(\d+) gpu_ms=(\d+)", line.text)}  # fmt: skip
    assert len(ends) == len(calls)
    for call in calls:
        key = (call.work.job, call.work.partition or 0)
        at, detail = ends[key]
        gpu_ms = figures(detail)["gpu_ms"]
        assert done[key] == gpu_ms
        assert abs(at - gpu_ms - starts[key] - spawned[call.index]) <= 2
        assert gpu_ms >= totals[call.index]


LETTERS = {
    "mutex_wait_ms=": "4",
    "pool release threshold": "5",
    "d_a_cache": "6",
    "CUZK_NTT_H": "n",
    "ntt_msm_h_ms=": "7",
    "barrier_wait_ms=": "8",
    "batch_add_ms=": "9",
    "tail_msm_ms=": "t",
    "mutex_held_ms=": "u",
}


@pytest.mark.parametrize("name", [*NAMES, "mixed-kinds", "small"])
def test_lines_under_the_mutex_are_clean_blocks(name: str) -> None:
    simulation, calls = single(name, "M")
    letters = "".join(letter for line in simulation.lines for key, letter in LETTERS.items() if key in line.text)
    blocks = re.fullmatch(r"(45?6?n+789tu)+", letters)
    assert blocks is not None
    assert letters.count("4") == len(calls)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_line_comes_after_what_causes_it(variant: str) -> None:
    """Section by section: a call's own lines in order, prep before barrier, everything before GPU_END."""
    simulation = played("barrier", variant)
    run = simulation.runs[0]
    at: dict[str, list[int]] = defaultdict(list)
    for line in simulation.lines:
        for key in ("setup_to_split_ms", "prep_msm_ms", "b_g2_msm_ms", "ntt_msm_h_ms", "batch_add_ms", "gpu_total_ms"):
            if key in line.text:
                at[key].append(line.at_ns)
    wall = run.clocks.wall_ns
    for key, name in (("prep_msm_ms", "prep_end"), ("b_g2_msm_ms", "b_g2_end"), ("setup_to_split_ms", "split_end")):
        true = sorted(wall(getattr(call, name)) for call in run.schedule.calls)
        # Printed just before others are told.
        assert all(-20_000 <= seen - edge <= 0 for seen, edge in zip(at[key], true, strict=True))
    for key, name in (("ntt_msm_h_ms", "ntt_end"), ("gpu_total_ms", "gpu_end")):
        true = sorted(wall(getattr(call, name)) for call in run.schedule.calls)
        assert all(0 <= seen - edge <= 3 * MS for seen, edge in zip(at[key], true, strict=True))
    assert [line.at_ns for line in simulation.lines] == sorted(line.at_ns for line in simulation.lines)


def test_the_first_build_holds_one_mutex_for_the_whole_call() -> None:
    simulation = played("two-gpus", "V4")
    letters = "".join(
        letter
        for line in simulation.lines
        for key, letter in {"setup_to_split": "1", "prep_msm_ms": "2", "b_g2": "3", "pre_destructor": "e"}.items()
        if key in line.text
    )
    assert re.fullmatch(r"(123e)+", letters)
    assert any(re.fullmatch(r"TIMELINE,\d+,CHAN_SEND,[^,]+,", line.text) for line in simulation.lines)


def test_timeline_shapes_through_history() -> None:
    shapes = {
        variant: {
            re.sub(r"\d+", "N", line.text.split(",", 4)[4])
            for line in played("mixed-kinds", variant).lines
            if re.match(r"TIMELINE,\d+,(GPU_QUEUE|CHAN_SEND),", line.text)
        }
        for variant in ("V4", "V8", "Vg", "M")
    }
    assert shapes["V4"] == {""}
    assert shapes["V8"] == {"partition=N", ""}
    assert shapes["Vg"] == {"partition=N", "snap_partition=N", ""}
    assert shapes["M"] == {"partition=N", "monolithic"}


def test_failures_leave_out_what_the_prover_leaves_out() -> None:
    simulation = played("errors")
    calls = simulation.runs[0].schedule.calls
    n = {
        outcome: sum(call.outcome == outcome for call in calls) for outcome in ("ntt", "batch_add", "tail", "finalize")
    }
    assert all(count == 1 for count in n.values())
    entered = sum(not math.isnan(call.entry) for call in calls)
    assert len(values(simulation, "mutex_held_ms=")) == entered
    assert len(values(simulation, "ntt_msm_h_ms=")) == entered - 1
    assert len(values(simulation, "batch_add_ms=")) == entered - 2
    assert len(values(simulation, "gpu_total_ms=")) == entered - 3
    assert len(values(simulation, "spawn_blocking prove_start")) == entered - 3
    assert len(values(simulation, ",GPU_END,")) == entered - 4
    assert len(values(simulation, "ERROR .*panicked")) == 4
    assert len(values(simulation, "FIN_TIMING finalizer")) == entered - 3


def test_all_gpus_print_tid_0_and_workers_name_their_gpu() -> None:
    simulation = played("two-gpus")
    assert {line["gpu_tid"] for line in values(simulation, "gpu_tid=")} == {0}
    assert [v["gpu"] for v in values(simulation, "pipeline GPU worker started")] == [0, 0, 1, 1]
    assert {call.gpu for call in simulation.runs[0].schedule.calls} == {0, 1}


def test_colours_change_nothing_else() -> None:
    plain = played("pageable")
    coloured = play(replace(plain.scenario, options=replace(plain.scenario.options, ansi=True)))
    assert any("\x1b[" in line.text for line in coloured.lines)
    assert [ANSI.sub("", line.text) for line in coloured.lines] == [line.text for line in plain.lines]


def test_torn_records_lose_nothing() -> None:
    lines = played("small").lines
    broken = torn(lines, 0.3, seed=1)
    text, whole = ("".join(sorted("".join(line.text for line in some))) for some in (broken, lines))
    assert text == whole
    damaged = [line for line in broken if "TIMELINE" in line.text and line not in lines]
    assert len(damaged) > 30
    again = delivered(lines, 0.001, seed=1)
    for stream in ("stdout", "stderr"):
        assert [a.text for a in again if a.stream == stream] == [a.text for a in lines if a.stream == stream]


# The trace.


def rows_of(simulation: Simulation) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(simulation.trace_csv())))


@pytest.mark.parametrize("name", ["pageable", "pinned", "alloc-storm", "two-gpus"])
def test_bytes_in_the_trace_are_the_schedules(name: str) -> None:
    # At 0.05 s the counters cannot wrap unseen.
    scenario = replace(PRESETS[name], trace=TraceOptions(step_s=0.05, start_stall_s=0.0))
    simulation = play(scenario)
    rows = rows_of(simulation)
    assert ("gpu" in rows[0]) == (scenario.limits.gpus > 1)
    for gpu in range(scenario.limits.gpus):
        own = [row for row in rows if int(row.get("gpu", 0)) == gpu]
        counted = [int(row["cnt_rx_bytes"]) for row in own]
        moved = sum((b - a) % (1 << 32) for a, b in itertools.pairwise(counted))
        seconds = (int(own[-1]["cnt_ts_us"]) - int(own[0]["cnt_ts_us"])) / 1e6
        true = [
            amount
            for call in simulation.runs[0].schedule.calls
            if call.gpu == gpu
            for amount in phase_bytes(simulation.runs[0].schedule, call, scenario.rates).values()
        ]
        payload = (moved - seconds * scenario.rates.idle_wire) / WIRE_PER_PAYLOAD
        assert payload == pytest.approx(sum(true), rel=1e-6)
    schedule = simulation.runs[0].schedule
    copied = {call.index: phase_bytes(schedule, call, scenario.rates) for call in schedule.calls}
    where = {call.index: "coset_intt_sync" if call.work.pinned else "ntt_kernels" for call in schedule.calls}
    assert all(own[where[index], 0] == pytest.approx(96 * 32_547_799) for index, own in copied.items())


def test_gpm_reads_low_and_the_link_is_not_exceeded() -> None:
    simulation = played("pageable")
    trace = simulation.trace_csv()
    rows = list(csv.DictReader(io.StringIO(trace)))
    gpm = sum(float(row["gpm_pcie_rx_mibps"]) * float(row["gpm_interval_ms"]) for row in rows) * (1 << 20) / 1e3
    true = float(simulation.phases["rx_payload_bytes"].sum()) * WIRE_PER_PAYLOAD
    assert gpm == pytest.approx(true * 0.994, rel=0.01)
    assert max(float(row["gpm_pcie_rx_mibps"]) for row in rows) * (1 << 20) < 63e9


# Captures, scenarios, the command.


def test_capture_has_log_trace_and_truth(tmp_path: Path) -> None:
    simulation = played("restarts")
    files = write_capture(simulation, tmp_path / "c", "two-files")
    assert [str(file.relative_to(tmp_path / "c")) for file in files] == [
        "prover.stdout", "prover.stderr", "nvml.csv", "meta.json", "truth.csv", "truth/calls.parquet",
        "truth/phases.parquet",
    ]  # fmt: skip
    calls = pl.read_parquet(tmp_path / "c" / "truth" / "calls.parquet")
    assert calls["run"].n_unique() == 3
    locked = calls.filter(pl.col("lock_ns").is_not_null())
    assert locked.filter(pl.col("run") == 2)["unlock_ns"].null_count() == 0
    assert (locked["lock_ns"].diff().drop_nulls() > 0).all()
    text = (tmp_path / "c" / "truth.csv").read_text()
    assert text.count("timeline_epoch") == 3 and "release_abc_ms=" in text


def test_every_preset_is_written_from_the_command_line(tmp_path: Path) -> None:
    target = tmp_path / "c"
    done = CliRunner().invoke(app, ["simulate", "small", "-o", str(target), "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert (target / "prover.merged").exists()
    again = CliRunner().invoke(app, ["simulate", "small", "-o", str(target)])
    assert isinstance(again.exception, UsageError) and "--force" in str(again.exception)
    assert CliRunner().invoke(app, ["simulate", "small", "-o", str(target), "--force"]).exit_code == 0
    unknown = CliRunner().invoke(app, ["simulate", "nothing", "-o", str(tmp_path / "d")])
    assert isinstance(unknown.exception, UsageError)
    from gputrace.commands.simulate import simulate_run

    for name in PRESETS:
        assert re.search(rf"\b{name}\b", simulate_run.__doc__ or "")


def test_a_scenario_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "pinned"\npartitions = 7\n[limits]\ngpus = 2\n[circuit]\nprep_msm = 0.9\n[failing]\n3 = "ntt"\n'
    )
    scenario = find_scenario(str(path))
    assert (scenario.name, scenario.partitions, scenario.pinned, scenario.limits.gpus) == ("mine", 7, "yes", 2)
    assert scenario.circuits[0].prep_msm == 0.9 and scenario.failing == {3: "ntt"}
    for text, said in (("partition = 7", "unknown key"), ("base = 'x'", "none of"), ("a =", "mine.toml"),
                       ("[limits]\ngpu = 1", "limits")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(InputError, match=re.escape(said)):
            find_scenario(str(path))


# The round trip: what is written comes back.


def misplaced(simulation: Simulation, into: Path, form: str) -> list[str]:
    """Loads the capture; every call that does not come back with its ids, or whose unlock is off by over 10 ms."""
    write_capture(simulation, into / "c", form)
    trace = load([str(into / "c")])
    found = defaultdict(list)
    keys = ("restart", "job", "partition", "worker")
    for row in trace.calls.filter(pl.col("unlock_ns").is_not_null()).iter_rows(named=True):
        found[tuple(row[key] for key in keys)].append(row)
    wrong = []
    for row in simulation.calls.filter(pl.col("unlock_ns").is_not_null()).iter_rows(named=True):
        # A WindowPoSt worker does not say which partition it has.
        partition = None if row["kind"] == "window-post" else row["partition"]
        own = found[row["run"], row["job"], partition, row["worker"]]
        # The last line under the mutex has its figures from before its thread waited for the log.
        unlock_ns = row["unlock_ns"] - row["unlock_blocked_ns"]
        off_ms = min((abs(other["unlock_ns"] - unlock_ns) / MS for other in own), default=math.inf)
        if off_ms > 10 or any(other["gpu"] != row["gpu"] for other in own):
            wrong.append(f"{row['job']}/{row['partition']} on {row['worker']} ({row['outcome']}): {off_ms:.0f} ms off")
    return wrong


# V4 names no partition: there is nothing to match its calls by.
ONE_GPU = [name for name, scenario in PRESETS.items() if scenario.limits.gpus == 1 and scenario.variant != "V4"]


FORMS_OF = [
    (name, form) for name in ONE_GPU for form in ("merged", "two-files")[: 1 if PRESETS[name] in PLANTED else 2]
]


@pytest.mark.parametrize(("name", "form"), FORMS_OF)
def test_round_trip(name: str, form: str, tmp_path: Path) -> None:
    assert misplaced(play(PRESETS[name]), tmp_path, form) == []


@pytest.mark.parametrize("seed", range(16))
def test_round_trip_of_random_scenarios(seed: int, tmp_path: Path) -> None:
    simulation = play(random_scenario(seed), seed)
    assert misplaced(simulation, tmp_path, ("merged", "two-files")[seed % 2]) == []


@pytest.mark.parametrize("form", ["merged", "two-files"])
@pytest.mark.parametrize(
    "name",
    [
        "two-gpus",
        pytest.param(
            "eight-gpus",
            marks=pytest.mark.xfail(reason="eight GPUs whose C++ lines have no time are told apart only in part"),
        ),
    ],
)
def test_round_trip_of_several_gpus(name: str, form: str, tmp_path: Path) -> None:
    assert misplaced(play(PRESETS[name]), tmp_path, form) == []


def test_presets_do_what_they_say() -> None:
    def share(name: str, phase: str) -> float:
        phases = played(name).phases
        lengths = phases.filter(pl.col("name") == phase).select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
        held = (
            phases.filter(pl.col("name") == "mutex_held").select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
        )
        return float(lengths / held)

    assert share("pageable", "ntt_kernels") > 0.45
    assert share("pinned", "ntt_kernels") < 0.01
    assert share("barrier", "barrier_wait") > 0.3
    assert share("pinned", "barrier_wait") < 0.2
    storm = played("alloc-storm").phases.with_columns(((pl.col("end_ns") - pl.col("start_ns")) / MS).alias("ms"))
    assert storm.filter(pl.col("name") == "ntt_kernels")["ms"].max() > 3 * 800  # type: ignore[operator]
    assert all(isinstance(scenario, Scenario) for scenario in PRESETS.values())
