"""A stand-in for the NVIDIA driver's library, and the scripts that it plays.

`library()` builds it (gcc or cc), and a process with `environment(script)` gets it as libnvidia-ml.so.1: pynvml and the
sampler then run as on a machine with a GPU. Times in a script are seconds since the library was loaded.

    driver VERSION                    gpus NUMBER                    speed FACTOR (of the machine's time)
    repeat SECONDS                    points and states start over, totals go on
    name GPU TEXT                     link GPU MAX_GEN MAX_WIDTH
    counters GPU 32|64|dead|none      start GPU RX TX                what the counters said at 0
    has GPU gpm|window|mig|virtualization|gpm_lag_ms NUMBER
    point GPU T RX TX                 wire bytes passed by then; between two points evenly
    live FILE                         instead: rx and tx of each GPU as 64-bit numbers in a file of `LIVE_BYTES`
    state GPU T SM DRAM UTIL CLOCK_MHZ MEMORY_MIB POWER_MW GEN WIDTH REPLAYS PROCESSES REASONS    from then on
    block FROM TO GPU SYMBOL          the first such call from then on blocks for as long (GPU -1: any; SYMBOL *: any)
    fail FROM TO CODE GPU SYMBOL      such calls answer CODE; 15 (lost) and 1 hold until NVML is started again after TO
"""

import csv
import gzip
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent / "nvml.c"
BUILD = Path(__file__).parents[2] / "build" / "standin"
LIVE_BYTES = 16 * 2 * 8
LIBRARY = BUILD / "libnvidia-ml.so.1"


class NoCompiler(Exception):
    """There is neither gcc nor cc: the stand-in cannot be built."""


def library() -> Path:
    """The library, built where it is not newer than its source."""
    if LIBRARY.exists() and LIBRARY.stat().st_mtime >= SOURCE.stat().st_mtime:
        return LIBRARY
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler("no gcc or cc: the stand-in for NVML cannot be built, tests that need it are skipped")
    BUILD.mkdir(parents=True, exist_ok=True)
    # Built beside and moved: several test processes may come here at once.
    new = BUILD / f"building-{os.getpid()}.so"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(new), str(SOURCE), "-lm", "-lpthread"], check=True)
    new.replace(LIBRARY)
    return LIBRARY


def environment(script: Path) -> dict[str, str]:
    """The environment of a process that is to find the stand-in instead of the driver."""
    paths = [str(library().parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return os.environ | {"LD_LIBRARY_PATH": ":".join(paths), "GPUTRACE_STANDIN_SCRIPT": str(script)}


@dataclass
class Script:
    """Lines of a script; rates are laid end to end, so that the truth is known to the byte."""

    lines: list[str] = field(default_factory=list)
    _at: dict[int, tuple[float, int, int]] = field(default_factory=dict)

    def add(self, *lines: str) -> "Script":
        """More lines, as they are."""
        self.lines += lines
        return self

    def copies(self, gpu: int, seconds: float, rx_bytes: int, tx_bytes: int) -> "Script":
        """So many wire bytes, evenly over the next so many seconds of this GPU."""
        at, rx, tx = self._at.get(gpu, (0.0, 0, 0))
        if gpu not in self._at:
            self.lines.append(f"point {gpu} 0 0 0")
        at, rx, tx = at + seconds, rx + rx_bytes, tx + tx_bytes
        self.lines.append(f"point {gpu} {at:.9f} {rx} {tx}")
        self._at[gpu] = (at, rx, tx)
        return self

    def total(self, gpu: int) -> tuple[int, int]:
        """rx and tx wire bytes of all copies so far."""
        return self._at[gpu][1:]

    def write(self, path: Path) -> Path:
        """The script as a file."""
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        return path


def _number(cell: str) -> float:
    value = float(cell or 0)
    return value if value == value else 0.0


def from_recording(samples: Path, gpu: int = 0) -> Script:
    """A script that plays a recorded nvml.csv.gz again: its counters, activity, clocks, power, memory and link."""
    script = Script([f"link {gpu} 5 16"])
    with gzip.open(samples, "rt", encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["cnt_ts_us"]]
    first_us = int(rows[0]["cnt_ts_us"])
    rx = tx = 0
    last = rows[0]
    script.add(f"start {gpu} {last['cnt_rx_bytes']} {last['cnt_tx_bytes']}")
    for row in rows:
        rx += (int(row["cnt_rx_bytes"]) - int(last["cnt_rx_bytes"])) % 2**32
        tx += (int(row["cnt_tx_bytes"]) - int(last["cnt_tx_bytes"])) % 2**32
        last = row
        at = (int(row["cnt_ts_us"]) - first_us) / 1e6
        sm, dram = _number(row["gpm_sm_util"]) / 100, _number(row["gpm_dram_bw_util"]) / 100
        numbers = ("util_gpu", "sm_clock_mhz", "gpu_mem_used_mib", "power_mw", "pcie_gen", "pcie_width")
        rest = " ".join(str(int(_number(row[name]))) for name in numbers)
        script.add(f"point {gpu} {at:.6f} {rx} {tx}", f"state {gpu} {at:.6f} {sm:.4f} {dram:.4f} {rest} 0 1 0")
        script._at[gpu] = (at, rx, tx)
    return script
