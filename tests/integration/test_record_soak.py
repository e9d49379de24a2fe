"""A week of recording with time run fast: memory, open files and the folder's size stay where they are."""

import gc
import random
from pathlib import Path
from typing import Any

from gputrace.sampler.capture import Capture, Limits
from gputrace.sampler.clocks import StepDetector
from gputrace.sampler.compact import compact
from gputrace.sampler.follow import Follower
from gputrace.sampler.host import HostRow, host_line
from gputrace.sampler.rows import SampleRow, csv_line
from tests.recording import START_NS, FakeClock, NoPacker, S, row

WEEK_S = 7 * 86_400
# The week's rows at 0.1 s are six million a GPU. Here a step is 20 s and has eight rows, a twenty-fifth of them; limits
# are as much smaller, so that as many segments are closed and dropped.
STEP_S, ROWS = 20, 8


def memory_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_week_leaves_memory_and_open_files_flat(tmp_path: Path) -> None:
    clock, folder, most = FakeClock(), tmp_path / "c", 8 << 20
    log = tmp_path / "cuzk.log"
    log.touch()
    follower, steps = Follower(log), StepDetector(clock)
    capture = Capture(folder, clock, Limits(max_bytes=most), NoPacker())
    capture.write_meta()
    lines, memory, files, largest = 0, [], [], 0
    for second in range(0, WEEK_S, STEP_S):
        clock.pass_ns(STEP_S * S)
        with log.open("ab") as prover:
            prover.write(b"CUZK_TIMING: prep_msm_ms=%d\n" % second)
        seen = follower.poll(clock.mono)
        lines += len(seen)
        capture.log([(clock.wall, "log", line.text, line.part) for line in seen])
        first = second // STEP_S * ROWS
        capture.samples([csv_line(row(first + n)) for n in range(ROWS)])
        capture.host(host_line(HostRow(clock.wall - S, clock.wall, clock.mono, cpu_share=0.5)))
        assert steps.step_ns() is None
        capture.keep_house()
        if second % 86_400 == 0:
            gc.collect()
            memory.append(memory_mib())
            files.append(open_files())
            largest = max(largest, sum(path.stat().st_size for path in folder.iterdir()))
        if second % 3600 == 0:
            # The log is rotated every hour, by turns in both ways.
            if second % 7200:
                log.rename(tmp_path / "cuzk.log.1")
                log.touch()
            else:
                (tmp_path / "cuzk.log.1").write_bytes(log.read_bytes())
                log.write_bytes(b"")
    print(f"memory by day, MiB: {[round(value, 1) for value in memory]}; folder at most {largest / 1e6:.1f} MB")
    assert lines == WEEK_S // STEP_S
    # After the first day nothing grows: less than two bytes a row.
    assert memory[-1] - memory[1] < 0.5
    assert max(files) - min(files) <= 2
    assert largest < 1.05 * most


def test_the_size_of_a_day_is_what_the_documentation_says(tmp_path: Path) -> None:
    """Rows with all readings, noisy as real ones are; an hour's worth stands for the day."""
    chance, rows = random.Random(1), 36_000
    rx = tx = 0
    capture = Capture(tmp_path / "c", FakeClock(), packer=NoPacker())
    for number in range(rows):
        rx, tx = rx + chance.randrange(5_500_000_000), tx + chance.randrange(300_000_000)
        jitter_ns = chance.randrange(2_000_000)
        full: dict[str, Any] = {
            "t_end_ns": START_NS + number * S // 10 + jitter_ns,
            "t_mono_ns": 10**15 + number * S // 10 + jitter_ns,
            "late_ms": chance.random(),
            "rx_wire_bytes_total": rx,
            "tx_wire_bytes_total": tx,
            "gpm_interval_ms": 100 + chance.random(),
            "gpm_rx_bytes_per_s": chance.random() * 5e10,
            "gpm_tx_bytes_per_s": chance.random() * 3e9,
            "gpm_sm_active": chance.random(),
            "gpm_dram_active": chance.random(),
            "gpu_util": chance.randrange(101),
            "sm_clock_mhz": chance.choice([1965, 1980]),
            "sm_clock_max_mhz": 1980,
            "clock_event_reasons": chance.choice([0, 4]),
            "memory_used_mib": 40_000 + chance.randrange(4) * 512,
            "power_w": 300 + 100 * chance.random(),
            "link_gen_max": 5,
            "link_width_max": 16,
            "pcie_replays": 0,
            "processes": 1,
            "other_processes": 0,
        }
        capture.samples([csv_line(SampleRow(**{**row(number)._asdict(), **full}))])
    capture.close()
    path = tmp_path / "c" / "samples-000001.csv"
    text_mb = path.stat().st_size * 24 / 1e6
    packed_mb = compact(path).stat().st_size * 24 / 1e6
    print(f"a GPU and day at 0.1 s: {text_mb:.0f} MB as text, {packed_mb:.0f} MB packed")
    assert text_mb < 210
    assert packed_mb < 85
