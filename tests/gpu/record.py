"""The sampler in a process of its own, as a recorder runs it: `python -m tests.gpu.record SETTING FOLDER`.

SETTING is counters (nothing but the lossless counters), all, or throughput (no sampler: the blocking calls in a plain
loop, as many tools do it). Runs until SIGTERM or the end of its standard input; writes SETTING.csv and SETTING.json.
"""

import json
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputrace.errors import GputraceError
from gputrace.sampler.driver import SystemClock
from gputrace.sampler.gpu import GpuSampler
from gputrace.sampler.loop import run
from gputrace.sampler.nvml import Nvml
from gputrace.sampler.one_gpu import Options
from gputrace.sampler.rows import HEADER, SampleRow, csv_line

PERIOD_S = 0.1
SETTINGS = {"counters": Options(gpm=False, readings=False, window="never"), "all": Options()}


def record(setting: str, folder: Path, stop: threading.Event) -> dict[str, Any]:
    """Rows to SETTING.csv until `stop`; what it cost."""
    clock = SystemClock()
    sampler = GpuSampler(Nvml(), clock, PERIOD_S, SETTINGS[setting])
    with (folder / f"{setting}.csv").open("w", encoding="utf-8") as out:
        out.write(HEADER + "\n")

        def on_rows(rows: Sequence[SampleRow]) -> None:
            out.write("".join(csv_line(row) + "\n" for row in rows))
            out.flush()

        began_s, cpu_s = time.monotonic(), time.process_time()
        run(sampler, PERIOD_S, on_rows, stop, clock)
        cost = {"cpu_s": time.process_time() - cpu_s, "wall_s": time.monotonic() - began_s}
    described, polls = sampler.describe(), sampler.polls_per_row(PERIOD_S)
    sampler.close()
    return cost | {"described": described, "polls_per_row": polls, "events": sampler.take_events()}


def throughput(folder: Path, stop: threading.Event) -> dict[str, Any]:
    """Both directions every 0.1 s by the blocking call, to throughput.csv: t_mono_ns, rx and tx in bytes/s."""
    nvml = Nvml()
    nvml.open()
    read = nvml.device(0).throughput()
    with (folder / "throughput.csv").open("w", encoding="utf-8") as out:
        out.write("t_mono_ns,rx_bytes_per_s,tx_bytes_per_s\n")
        began_s, cpu_s = time.monotonic(), time.process_time()
        row = 0
        while not stop.wait(max(0.0, began_s + row * PERIOD_S - time.monotonic())):
            rx, tx = read()
            out.write(f"{time.monotonic_ns()},{rx:.0f},{tx:.0f}\n")
            row += 1
        cost = {"cpu_s": time.process_time() - cpu_s, "wall_s": time.monotonic() - began_s}
    nvml.close()
    return cost


def _until_input_ends(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main(setting: str, folder: Path) -> int:
    """One recording."""
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    threading.Thread(target=_until_input_ends, args=(stop,), daemon=True).start()
    try:
        cost = throughput(folder, stop) if setting == "throughput" else record(setting, folder, stop)
    except GputraceError as error:
        print(f"{setting}: {error}", file=sys.stderr)
        return error.exit_code
    cost["rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (folder / f"{setting}.json").write_text(json.dumps(cost, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
