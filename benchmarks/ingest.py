"""Times gputrace on a large prover log against what a user would otherwise type.

The rival is `grep -oE | awk`: it, too, reads the whole log once and gives count, mean, minimum and maximum of
every key, but knows nothing of partitions, workers or idle time. If the full answer cost much more than the
rough one, people would stay with the rough one. Machines differ, so only the ratio within one run is a goal;
the rounds are interleaved so that a busy machine slows both.

A missed goal is shown, never an error: a timing that fails a build teaches people to rerun builds.
"""

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.make_log import BYTES_PER_MEGABYTE, write_log

DATA = Path(__file__).parent / "data"
HELP_ROUNDS = 5
RATIO_GOAL = 2.0
PEAK_GOAL_MB = 600.0
HELP_GOAL_S = 0.4
STATISTICS_PER_KEY = (
    "{ if (!n[$1]++) lo[$1] = hi[$1] = $2; s[$1] += $2; "
    "if ($2 < lo[$1]) lo[$1] = $2; if ($2 > hi[$1]) hi[$1] = $2 } "
    "END { for (k in n) print k, n[k], s[k] / n[k], lo[k], hi[k] }"
)


@dataclass
class Contender:
    """A command and the best it has done so far."""

    name: str
    command: list[str]
    best_s: float = float("inf")
    peak_mb: float = 0.0
    failure: str | None = None

    def run_once(self) -> None:
        """One more round. A command that has failed is not run again: its times would mean nothing."""
        if self.failure is not None:
            return
        with tempfile.TemporaryFile() as stderr:
            started_s = time.perf_counter()
            process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=stderr)
            # wait4, unlike Popen.wait, tells the peak memory of this child and of those it waited for.
            _, status, usage = os.wait4(process.pid, 0)
            elapsed_s = time.perf_counter() - started_s
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                stderr.seek(0)
                last_words = stderr.read().decode(errors="replace").strip().splitlines()[-1:]
                self.failure = " ".join([f"exit {process.returncode}", *last_words])
        self.best_s = min(self.best_s, elapsed_s)
        self.peak_mb = max(self.peak_mb, usage.ru_maxrss * 1024 / BYTES_PER_MEGABYTE)


def existing_log(megabytes: float) -> Path:
    """The log to read, made if it is not there. It gets its name only once it is whole."""
    log = DATA / f"prover-{megabytes:g}mb.log"
    if not log.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        unfinished = log.with_suffix(".part")
        print(f"making {log.name} ...", file=sys.stderr)
        write_log(unfinished, megabytes=megabytes)
        unfinished.replace(log)
    return log


def grep_awk(log: Path) -> Contender:
    """The pipeline of a user in a hurry. mawk needs half of gawk's time: the harder rival."""
    awk = "mawk" if shutil.which("mawk") else "awk"
    script = f"LC_ALL=C grep -oE '[a-z_]+=[0-9]+' {shlex.quote(str(log))} | {awk} -F= {shlex.quote(STATISTICS_PER_KEY)}"
    return Contender(f"grep -oE | {awk}", ["bash", "-o", "pipefail", "-c", script])


def verdict(*, met: bool) -> str:
    return "ok" if met else "missed"


def row(contender: Contender, ratio: str = "-", goal: str = "-", result: str = "") -> str:
    if contender.failure is not None:
        return f"{contender.name:<26}failed: {contender.failure}"
    figures = f"{contender.best_s:>8.2f}{ratio:>13}{contender.peak_mb:>10.0f}"
    return f"{contender.name:<26}{figures}   {goal:<22}{result}".rstrip()


def table(rival: Contender, report: Contender, start_up: Contender) -> str:
    ratio = report.best_s / rival.best_s
    return "\n".join(
        [
            f"{'what':<26}{'best s':>8}{'x grep|awk':>13}{'peak MB':>10}   goal",
            row(rival, ratio="1.00"),
            row(
                report,
                ratio="-" if rival.failure else f"{ratio:.2f}",
                goal=f"x <= {RATIO_GOAL:.1f}, < {PEAK_GOAL_MB:.0f} MB",
                result=verdict(met=not rival.failure and ratio <= RATIO_GOAL and report.peak_mb < PEAK_GOAL_MB),
            ),
            row(start_up, goal=f"< {HELP_GOAL_S} s", result=verdict(met=start_up.best_s < HELP_GOAL_S)),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ingest", description="Times gputrace on a large prover log."
    )
    parser.add_argument("--megabytes", type=float, default=300, help="size of the log, in 10^6 bytes")
    parser.add_argument("--rounds", type=int, default=5, help="the best of so many rounds counts")
    chosen = parser.parse_args()

    log = existing_log(chosen.megabytes)
    gputrace = [sys.executable, "-m", "gputrace"]
    rival = grep_awk(log)
    report = Contender("gputrace report --json -", [*gputrace, "report", str(log), "--json", "-"])
    start_up = Contender("gputrace --help", [*gputrace, "--help"])
    for _ in range(chosen.rounds):
        rival.run_once()
        report.run_once()
    for _ in range(HELP_ROUNDS):
        start_up.run_once()

    megabytes = log.stat().st_size / BYTES_PER_MEGABYTE
    python = f"Python {platform.python_version()}"
    print(f"{log.name}: {megabytes:.1f} MB, best of {chosen.rounds}, {os.cpu_count()} CPUs, {python}")
    print(table(rival, report, start_up))
    return int(any(contender.failure for contender in (rival, report, start_up)))


if __name__ == "__main__":
    sys.exit(main())
