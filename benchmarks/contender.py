"""Commands that are timed beside one another."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# What is timed is reading and reckoning, not finding what an earlier round kept.
os.environ["GPUTRACE_CACHE"] = "off"

BYTES_PER_MEGABYTE = 1_000_000
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
    cpu_s: float = float("inf")
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
            self.cpu_s = min(self.cpu_s, usage.ru_utime + usage.ru_stime)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                stderr.seek(0)
                last_words = stderr.read().decode(errors="replace").strip().splitlines()[-1:]
                self.failure = " ".join([f"exit {process.returncode}", *last_words])
        self.best_s = min(self.best_s, elapsed_s)
        self.peak_mb = max(self.peak_mb, usage.ru_maxrss * 1024 / BYTES_PER_MEGABYTE)


def grep_awk(log: Path) -> Contender:
    """The pipeline of a user in a hurry. mawk needs half of gawk's time: the harder rival."""
    awk = "mawk" if shutil.which("mawk") else "awk"
    script = f"LC_ALL=C grep -oE '[a-z_]+=[0-9]+' {shlex.quote(str(log))} | {awk} -F= {shlex.quote(STATISTICS_PER_KEY)}"
    return Contender(f"grep -oE | {awk}", ["bash", "-o", "pipefail", "-c", script])


def rg_count(log: Path) -> Contender:
    """Next to the physical limit: how fast the lines of interest can be found at all. grep where rg is not there."""
    pattern = "CUZK_TIMING: |CUZK_NTT_H: |TIMELINE,|_TIMING |synthesis complete|GPU prove complete"
    if shutil.which("rg"):
        return Contender("rg -c", ["rg", "-c", pattern, str(log)])
    script = f"LC_ALL=C grep -cE {shlex.quote(pattern)} {shlex.quote(str(log))}"
    return Contender("grep -cE", ["bash", "-c", script])


def gputrace(*arguments: str) -> Contender:
    """A gputrace command, by the Python that runs this."""
    shown = " ".join(Path(part).name if "/" in part else part for part in arguments)
    return Contender(f"gputrace {shown}", [sys.executable, "-m", "gputrace", *arguments])


def cached(report: Contender, folder: Path, when: str) -> Contender:
    """The same command with a cache."""
    return Contender(f"{report.name} ({when})", ["env", f"GPUTRACE_CACHE={folder}", *report.command])


def race(contenders: Sequence[Contender], rounds: int) -> None:
    """Rounds are interleaved, so that a neighbour who keeps the machine busy slows all."""
    for _ in range(rounds):
        for contender in contenders:
            contender.run_once()
