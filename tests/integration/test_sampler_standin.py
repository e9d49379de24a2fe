"""The sampler and the real pynvml against a stand-in for the driver's library whose truth is known to the byte."""

import itertools
import json
import random
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gputrace.sampler.rows import SampleRow, parse_line
from tests import standin

ROOT = Path(__file__).parents[2]
LINE_RATE = 60_000_000_000


@dataclass
class Played:
    """What the sampler made of a script."""

    described: dict[str, Any]
    after: dict[str, Any]
    polls_per_row: int
    rows: list[SampleRow]
    events: list[dict[str, Any]]

    def of(self, gpu: int) -> list[SampleRow]:
        return [row for row in self.rows if row.gpu == gpu]

    def said(self) -> list[str]:
        return [event["event"] for event in self.events]


def answer(script: standin.Script, folder: Path, **asked: Any) -> dict[str, Any]:
    try:
        environment = standin.environment(script.write(folder / "script.txt"))
    except standin.NoCompiler as missing:
        pytest.skip(str(missing))
    command = [sys.executable, "-m", "tests.standin.drive", json.dumps(asked)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60)
    assert ran.returncode == 0, ran.stderr
    answered: dict[str, Any] = json.loads(ran.stdout)
    return answered


def play(script: standin.Script, folder: Path, seconds: float, **asked: Any) -> Played:
    got = answer(script, folder, seconds=seconds, **asked)
    assert "error" not in got, got
    rows = [parse_line(line) for line in got["rows"]]
    return Played(got["described"], got["after"], got["polls_per_row"], rows, got["events"])


def totals(row: SampleRow) -> tuple[int | None, int | None]:
    return row.rx_wire_bytes_total, row.tx_wire_bytes_total


def steady(seconds: float = 10.0, gpus: int = 1) -> standin.Script:
    script = standin.Script([f"gpus {gpus}"])
    for gpu in range(gpus):
        script.copies(gpu, seconds, round(seconds * LINE_RATE), round(seconds * LINE_RATE / 11))
    return script


def test_totals_are_exact_over_hundreds_of_wraps(tmp_path: Path) -> None:
    script, dice = standin.Script(), random.Random(7)
    for _ in range(400):
        seconds = dice.uniform(0.01, 0.15)
        script.copies(0, seconds, round(seconds * LINE_RATE * dice.choice([0, 0.1, 1])), dice.randrange(10**6, 10**9))
    played = play(script, tmp_path, 40)
    assert totals(played.rows[-1]) == script.total(0)
    assert script.total(0)[0] > 150 * 2**32
    assert {row.hole for row in played.rows} == {False}
    assert {row.pcie_source for row in played.rows} == {"counters"}
    assert {row.failed for row in played.rows} == {""}


def test_every_row_has_its_own_bytes(tmp_path: Path) -> None:
    played = play(steady(), tmp_path, 5)
    for before, after in itertools.pairwise(played.rows):
        expected = (after.t_mono_ns - before.t_mono_ns) * LINE_RATE / 1e9
        assert abs((after.rx_wire_bytes_total or 0) - (before.rx_wire_bytes_total or 0) - expected) <= 1
        assert after.t_end_ns - after.t_start_ns == after.t_mono_ns - before.t_mono_ns


def test_a_recorded_trace_comes_back_whole(tmp_path: Path) -> None:
    script = standin.from_recording(ROOT / "sample_logs" / "h200-pageable" / "nvml.csv.gz")
    script.copies(0, 60, 0, 0)
    played = play(script, tmp_path, 100)
    assert totals(played.rows[-1]) == script.total(0)
    assert max(row.gpm_sm_active or 0 for row in played.rows) > 0.5
    assert {row.sm_clock_mhz for row in played.rows} == {1980}


@pytest.mark.parametrize(
    ("gen", "width", "period_s", "polls"),
    [(5, 16, 0.1, 2), (4, 16, 0.1, 1), (6, 16, 0.1, 4), (5, 16, 0.02, 1), (5, 16, 10, 184), (3, 8, 1, 3)],
)
def test_counters_are_read_as_often_as_the_link_asks(
    gen: int, width: int, period_s: float, polls: int, tmp_path: Path
) -> None:
    script = standin.Script([f"link 0 {gen} {width}"]).copies(0, 30, 10**11, 10**9)
    played = play(script, tmp_path, 31, period_s=period_s)
    assert played.polls_per_row == polls
    assert totals(played.rows[-1]) == script.total(0)


def test_64_bit_counters_need_no_polls(tmp_path: Path) -> None:
    script = standin.Script(["counters 0 64", "start 0 99999999999 5"]).copies(0, 3, 10**11, 10**9).copies(0, 9, 0, 0)
    played = play(script, tmp_path, 5)
    assert played.polls_per_row == 1
    assert totals(played.rows[-1]) == (10**11, 10**9)


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetFieldValues", "nvmlGpmSampleGet", "nvmlDeviceGetPowerUsage"])
def test_a_blocked_call_leaves_one_hole_and_no_smear(symbol: str, tmp_path: Path) -> None:
    script = steady().add(f"block 2.02 3.73 0 {symbol}")
    played = play(script, tmp_path, 6)
    holes = [row for row in played.rows if row.hole]
    assert len(holes) == 1
    began, ended = (holes[0].t_mono_ns - (holes[0].t_end_ns - holes[0].t_start_ns)) / 1e9, holes[0].t_mono_ns / 1e9
    # Power is read in every fifth row.
    assert began <= 2.5
    assert 3.72 <= ended <= 4.3
    # The difference over the hole is a lower bound, and every other row's rate is the true one.
    previous = played.rows[played.rows.index(holes[0]) - 1]
    seen = (holes[0].rx_wire_bytes_total or 0) - (previous.rx_wire_bytes_total or 0)
    assert seen < (ended - began) * LINE_RATE
    others = [row for row in played.rows if row is not holes[0]]
    for before, after in itertools.pairwise(others):
        if after.t_mono_ns - before.t_mono_ns < 150_000_000:
            seen = (after.rx_wire_bytes_total or 0) - (before.rx_wire_bytes_total or 0)
            assert seen == pytest.approx((after.t_mono_ns - before.t_mono_ns) * LINE_RATE / 1e9, abs=2)
    # Deadlines keep to the grid they began on.
    assert {round(row.t_mono_ns / 1e6) % 100 for row in played.rows if row.late_ms < 1} == {0}


@pytest.mark.parametrize("kind", ["64", "none"])
def test_a_blocked_call_is_a_hole_where_no_counter_could_come_round(kind: str, tmp_path: Path) -> None:
    played = play(steady().add(f"counters 0 {kind}", "block 2.02 2.53 0 nvmlGpmSampleGet"), tmp_path, 4)
    (hole,) = (row for row in played.rows if row.hole)
    assert 2.5 < hole.t_mono_ns / 1e9 < 2.8
    assert hole.t_end_ns - hole.t_start_ns > 200_000_000


def test_a_lost_gpu_is_said_and_found_again_while_the_other_goes_on(tmp_path: Path) -> None:
    script = steady(20, gpus=2).add("fail 2.05 4.5 15 0 *")
    played = play(script, tmp_path, 12)
    lost = [row for row in played.of(0) if row.failed]
    assert {row.failed for row in lost} == {"gpu_lost"}
    assert all(row.hole and row.rx_wire_bytes_total is None and row.pcie_source == "none" for row in lost)
    assert 2.0 < lost[0].t_mono_ns / 1e9 < 2.2
    assert 4.4 < lost[-1].t_mono_ns / 1e9 < 6
    assert played.said().count("gpu-lost") == 1
    assert played.said().count("gpu-back") == 1
    back = [row for row in played.of(0) if row.t_mono_ns > lost[-1].t_mono_ns]
    assert [row.hole for row in back] == [True] + [False] * (len(back) - 1)
    assert back[-1].rx_wire_bytes_total is not None
    # Opening the driver again cost the other GPU nothing: its totals are still exact.
    other = played.of(1)[-1]
    assert other.rx_wire_bytes_total == pytest.approx(other.t_mono_ns * LINE_RATE / 1e9, abs=2)
    assert len(played.of(0)) == len(played.of(1))


def test_a_driver_reload_is_a_hole(tmp_path: Path) -> None:
    script = steady(20).add("fail 2.05 4.5 1 -1 *", "fail 2.05 4.5 9 -1 nvmlInitWithFlags")
    played = play(script, tmp_path, 12)
    lost = [row for row in played.rows if row.failed]
    assert {row.failed for row in lost} == {"driver_lost"}
    assert all(row.hole for row in lost)
    assert played.said() == ["driver-lost", "gpu-back"]
    assert played.rows[-1].pcie_source == "counters"
    assert not played.rows[-1].hole
    assert 100 <= len(played.rows) <= 121


def test_a_gpu_lost_from_the_start_does_not_stop_the_others(tmp_path: Path) -> None:
    played = play(steady(20, gpus=2).add("fail 0 99 15 0 *"), tmp_path, 3)
    assert {row.failed for row in played.of(0)} == {"gpu_lost"}
    assert played.described["gpus"][0]["lost"] == "gpu_lost"
    assert totals(played.of(1)[-1])[0] == pytest.approx(played.of(1)[-1].t_mono_ns * LINE_RATE / 1e9, abs=2)


def test_dead_counters_are_called_dead_and_gpm_takes_over(tmp_path: Path) -> None:
    played = play(steady().add("counters 0 dead"), tmp_path, 5)
    assert {row.pcie_source for row in played.rows} == {"gpm"}
    assert {totals(row) for row in played.rows} == {(None, None)}
    assert played.said() == ["counters-dead"]
    assert "dead" in played.after["gpus"][0]["unavailable"]["counters-dead"]
    assert played.rows[-1].gpm_rx_bytes_per_s == pytest.approx(LINE_RATE, rel=1e-6)


def test_counters_that_die_on_the_way_leave_a_hole_where_they_come_back(tmp_path: Path) -> None:
    # Dead means: the totals stand still and GPM does not, which needs other totals than the counters': a lag does it.
    script = standin.Script(["has 0 gpm_lag_ms 2500"]).copies(0, 1, LINE_RATE, 10**9).copies(0, 6.02, 0, 0)
    played = play(script.copies(0, 20, 20 * 10**9, 10**9), tmp_path, 10)
    assert played.said() == ["counters-dead", "counters-alive"]
    dead = [row for row in played.rows if row.pcie_source == "gpm"]
    assert dead
    assert {totals(row) for row in dead} == {(None, None)}
    back = [row for row in played.rows if row.t_mono_ns > dead[-1].t_mono_ns]
    assert [row.hole for row in back] == [True] + [False] * (len(back) - 1)


def test_counters_of_an_idle_gpu_that_say_0_are_believed_once_they_move(tmp_path: Path) -> None:
    script = standin.Script(["start 0 0 0"]).copies(0, 3.02, 0, 0).copies(0, 1, 10**9, 10**8).copies(0, 9, 0, 0)
    played = play(script, tmp_path, 6)
    assert {row.pcie_source for row in played.rows[:29]} == {"gpm"}
    assert played.said() == []
    assert totals(played.rows[-1]) == (10**9, 10**8)


def test_without_counters_and_gpm_the_window_is_read_beside(tmp_path: Path) -> None:
    played = play(steady(30).add("counters 0 none", "has 0 gpm 0"), tmp_path, 2.5, real=True)
    described = played.described["gpus"][0]
    assert described["sources"] == {"counters": False, "gpm": False, "window": True}
    assert described["unavailable"]["counters"] == "Not Supported"
    assert {row.pcie_source for row in played.rows[1:]} == {"window"}
    rates = [row.rx_window_bytes_per_s for row in played.rows if row.rx_window_bytes_per_s is not None]
    assert len(rates) > 3
    assert statistics.median(rates) == pytest.approx(LINE_RATE, rel=0.01)
    # The call that blocks 41 ms holds no row up.
    assert statistics.median(row.late_ms for row in played.rows) < 35


def test_dead_counters_without_gpm_are_found_dead_by_the_window(tmp_path: Path) -> None:
    played = play(steady(30).add("counters 0 dead", "has 0 gpm 0"), tmp_path, 3, real=True)
    assert played.said() == ["counters-dead"]
    assert played.rows[-1].pcie_source == "window"


def test_no_source_of_pcie_is_said(tmp_path: Path) -> None:
    script = steady().add("counters 0 none", "has 0 gpm 0", "has 0 window 0", "has 0 mig 1", "has 0 virtualization 2")
    played = play(script, tmp_path, 1, real=True)
    described = played.described["gpus"][0]
    assert set(described["unavailable"]) == {"counters", "gpm"}
    assert set(played.after["gpus"][0]["unavailable"]) == {"counters", "gpm", "window"}
    assert (described["mig"], described["virtualization"]) == ("on", "vgpu")
    assert played.rows[-1].sm_clock_mhz == 1980
    assert played.rows[-1].pcie_source == "none"
    assert {row.rx_window_bytes_per_s for row in played.rows} == {None}


def test_reads_that_fail_are_named_and_null_and_the_rest_goes_on(tmp_path: Path) -> None:
    script = steady().add("fail 1.95 3.0 999 0 nvmlDeviceGetClockInfo", "fail 1.95 3.0 999 0 nvmlGpmMetricsGet")
    played = play(script, tmp_path, 5)
    failed = [row for row in played.rows if row.failed]
    assert {row.failed for row in failed} == {"gpm;sm_clock_mhz"}
    assert {(row.sm_clock_mhz, row.gpm_sm_active) for row in failed} == {(None, None)}
    assert 10 <= len(failed) <= 12
    assert not any(row.hole for row in played.rows)
    assert totals(played.rows[-1])[0] == pytest.approx(played.rows[-1].t_mono_ns * LINE_RATE / 1e9, abs=2)


def test_counters_that_could_not_be_read_leave_a_hole(tmp_path: Path) -> None:
    played = play(steady().add("fail 1.95 3.0 999 0 nvmlDeviceGetFieldValues"), tmp_path, 5)
    failed = [row for row in played.rows if row.failed]
    assert {row.failed for row in failed} == {"counters"}
    unread = [row for row in failed if row.rx_wire_bytes_total is None]
    assert len(unread) >= 9
    assert [row.hole for row in played.rows if row.rx_wire_bytes_total is not None].count(True) == 1
    assert next(row for row in played.rows if row.t_mono_ns > unread[-1].t_mono_ns).hole


def test_processes_of_others_are_told_from_the_provers(tmp_path: Path) -> None:
    script = steady().add("state 0 0 0 0 0 1980 637 80000 5 16 0 3 0")
    known = play(script, tmp_path, 1, own_pids=[1001]).rows[-1]
    assert (known.processes, known.other_processes) == (3, 2)
    unknown = play(script, tmp_path, 1).rows[-1]
    assert (unknown.processes, unknown.other_processes) == (3, None)


def test_a_step_of_the_wall_clock_moves_rows_and_stretches_none(tmp_path: Path) -> None:
    played = play(steady(), tmp_path, 5, step_at_s=2.5, step_s=-5)
    lengths = {round((row.t_end_ns - row.t_start_ns) / 1e6) for row in played.rows}
    assert lengths == {100}
    jumps = [after.t_start_ns - before.t_end_ns for before, after in itertools.pairwise(played.rows)]
    assert [round(jump / 1e9) for jump in jumps if abs(jump) > 10_000_000] == [-5]
    assert totals(played.rows[-1])[0] == pytest.approx(played.rows[-1].t_mono_ns * LINE_RATE / 1e9, abs=2)


def test_rows_leave_no_time_out_whatever_happens(tmp_path: Path) -> None:
    script = steady(30).add(
        "block 1.02 2.4 0 nvmlGpmMetricsGet", "fail 3.55 5 15 0 nvmlDeviceGetClockInfo", "block 8.01 8.3 0 *"
    )
    played = play(script, tmp_path, 12)
    assert {"", "gpu_lost"} == {row.failed for row in played.rows}
    for before, after in itertools.pairwise(played.rows):
        assert after.t_start_ns <= before.t_end_ns + 1000
        assert after.t_mono_ns >= before.t_mono_ns


def test_without_a_driver_one_line_says_so(tmp_path: Path) -> None:
    got = answer(steady().add("fail 0 99 9 -1 nvmlInitWithFlags"), tmp_path, seconds=1)
    assert got == {"error": "the NVIDIA driver does not answer (Driver Not Loaded): no GPU can be sampled"}


def test_in_the_machines_own_time_rows_keep_their_pace(tmp_path: Path) -> None:
    played = play(steady(30), tmp_path, 3, real=True)
    # However late a busy machine makes them, the deadlines are those of the grid, and none comes twice.
    deadlines_ms = [row.t_mono_ns / 1e6 - row.late_ms for row in played.rows]
    steps = [(after - before) / 100 for before, after in itertools.pairwise(deadlines_ms)]
    assert all(step > 0.5 and abs(step - round(step)) < 1e-3 for step in steps)
    assert sum(map(round, steps)) >= 28
    assert min(row.late_ms for row in played.rows) >= -2
