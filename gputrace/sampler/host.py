"""What the host did, from /proc alone: CPU, memory, pressure, page faults and the prover's process."""

import os
from pathlib import Path
from typing import NamedTuple

from gputrace.sampler.bandwidth import MemoryBandwidth
from gputrace.sampler.driver import Clock

_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 1048576
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class HostRow(NamedTuple):
    """The host between `t_start_ns` and `t_end_ns`; the fields are the columns of a capture's host files.

    `*_total` count since boot (of the prover: since it began) and are read at `t_end_ns`; shares are of the interval.
    `core_busy_pct` holds a whole per cent for each core online, in order, joined by `;`. None is null.
    """

    t_start_ns: int
    t_end_ns: int
    t_mono_ns: int
    cpu_share: float | None = None
    core_busy_pct: str = ""
    memory_used_mib: float | None = None
    memory_available_mib: float | None = None
    psi_cpu_some_us_total: int | None = None
    psi_memory_some_us_total: int | None = None
    psi_memory_full_us_total: int | None = None
    page_faults_total: int | None = None
    major_faults_total: int | None = None
    memory_bytes_total: int | None = None
    prover_pid: int | None = None
    prover_rss_mib: float | None = None
    prover_threads: int | None = None
    prover_cpu_s_total: float | None = None
    prover_minor_faults_total: int | None = None
    prover_major_faults_total: int | None = None
    failed: str = ""


HOST_COLUMNS = HostRow._fields
HOST_HEADER = ",".join(HOST_COLUMNS)


def host_line(row: HostRow) -> str:
    """The row as one line of CSV, without its line end."""
    return ",".join("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in row)


class HostSampler:
    """Reads /proc; a file that is missing or unreadable is named in `failed` of its row, and the rest goes on."""

    def __init__(self, clock: Clock, root: Path = Path("/"), bandwidth: MemoryBandwidth | None = None) -> None:
        self._clock, self._proc = clock, root / "proc"
        self._bandwidth = bandwidth
        self._last_ns = clock.wall_ns()
        self._last_cpu = self._cpu(self._text("stat", []) or "")

    def step(self, prover_pid: int | None = None) -> HostRow:
        """The row of the interval since the last call."""
        failed: list[str] = []
        stat = self._text("stat", failed) or ""
        memory = _keyed(self._text("meminfo", failed) or "")
        vmstat = _keyed(self._text("vmstat", failed) or "")
        pressure = self._text("pressure/memory", failed) or ""
        cpu_pressure = self._text("pressure/cpu", failed) or ""
        prover = self._prover(prover_pid, failed) if prover_pid is not None else {}
        end_ns, mono_ns = self._clock.wall_ns(), self._clock.mono_ns()
        cpu = self._cpu(stat)
        used = memory["MemTotal"] - memory["MemAvailable"] if {"MemTotal", "MemAvailable"} <= set(memory) else None
        available = memory.get("MemAvailable")
        row = HostRow(
            self._last_ns,
            end_ns,
            mono_ns,
            cpu_share=_share(self._last_cpu.get("cpu"), cpu.get("cpu")),
            core_busy_pct=self._cores(cpu),
            memory_used_mib=None if used is None else used / 1024,
            memory_available_mib=None if available is None else available / 1024,
            psi_cpu_some_us_total=_pressure(cpu_pressure, "some"),
            psi_memory_some_us_total=_pressure(pressure, "some"),
            psi_memory_full_us_total=_pressure(pressure, "full"),
            page_faults_total=vmstat.get("pgfault"),
            major_faults_total=vmstat.get("pgmajfault"),
            memory_bytes_total=self._bandwidth.read(failed) if self._bandwidth is not None else None,
            prover_pid=prover_pid,
            failed=";".join(failed),
        )
        self._last_ns, self._last_cpu = end_ns, cpu
        return row._replace(**prover)  # type: ignore[arg-type]

    def _text(self, name: str, failed: list[str]) -> str | None:
        try:
            return (self._proc / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            failed.append(name.replace("/", "."))
            return None

    @staticmethod
    def _cpu(stat: str) -> dict[str, tuple[int, int]]:
        """Busy and all ticks of `cpu` (all cores) and each `cpuN`; idle and iowait are not busy, guests are in user."""
        found = {}
        for line in stat.splitlines():
            if not line.startswith("cpu"):
                break
            name, *words = line.split()
            ticks = [int(word) for word in words[:8]]
            found[name] = (sum(ticks) - sum(ticks[3:5]), sum(ticks))
        return found

    def _cores(self, cpu: dict[str, tuple[int, int]]) -> str:
        shares = [_share(self._last_cpu.get(name), ticks) for name, ticks in cpu.items() if name != "cpu"]
        return ";".join("" if share is None else str(round(share * 100)) for share in shares)

    def _prover(self, pid: int, failed: list[str]) -> dict[str, float | int]:
        text = self._text(f"{pid}/stat", [])
        if text is None:
            failed.append("prover")
            return {}
        # proc(5): the name may hold blanks and brackets, the rest does not; field 3 is the first of `fields`.
        fields = text.rpartition(")")[2].split()
        return {
            "prover_minor_faults_total": int(fields[7]),
            "prover_major_faults_total": int(fields[9]),
            "prover_cpu_s_total": (int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
            "prover_threads": int(fields[17]),
            "prover_rss_mib": int(fields[21]) * _PAGE_MIB,
        }


def _keyed(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found


def _share(before: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    return min(1.0, max(0.0, (now[0] - before[0]) / (now[1] - before[1])))


def _pressure(text: str, kind: str) -> int | None:
    for line in text.splitlines():
        if line.startswith(kind):
            return int(line.rpartition("total=")[2])
    return None
