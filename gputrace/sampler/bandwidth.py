"""Bytes that the host's memory moved, where it lets one read them: resctrl, or the memory controllers' counters.

resctrl: `mbm_total_bytes` of every L3 domain of the root group (kernel documentation, filesystems/resctrl.rst); it
counts what the cores of that group moved and misses copies by devices. perf: `cas_count_read` and `cas_count_write` of
Intel's `uncore_imc_*` (64 bytes each); they see all traffic of the socket, devices' included.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_ATTR_BYTES = 112
_CAS_BYTES = 64


def _perf_open(attr: bytes, cpu: int) -> int:
    """perf_event_open(2) for all processes on one CPU. Raises OSError."""
    number = _PERF_EVENT_OPEN.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "perf_event_open is not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    close_on_exec = 8
    fd = libc.syscall(number, ctypes.c_char_p(attr), -1, cpu, -1, ctypes.c_ulong(close_on_exec))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(fd)


class MemoryBandwidth:
    """The best source that can be read. `source` names it; `why_not` says, where it is None, what was tried."""

    def __init__(self, root: Path = Path("/"), perf_open: Callable[[bytes, int], int] = _perf_open) -> None:
        self.source: str | None = None
        self._files: list[Path] = []
        self._counters: list[int] = []
        reasons = []
        for name, find in (("resctrl", self._find_resctrl), ("perf", self._find_perf)):
            if (reason := find(root, perf_open)) is None:
                self.source = name
                break
            reasons.append(f"{name}: {reason}")
        self.why_not = None if self.source else "; ".join(reasons)

    def _find_resctrl(self, root: Path, _open: Callable[[bytes, int], int]) -> str | None:
        files = sorted((root / "sys/fs/resctrl/mon_data").glob("mon_L3_*/mbm_total_bytes"))
        if not files:
            return "not mounted, or the CPU does not monitor bandwidth (mount -t resctrl resctrl /sys/fs/resctrl)"
        try:
            for file in files:
                int(file.read_text())
        except (OSError, ValueError) as error:
            return f"{files[0]} cannot be read ({error})"
        self._files = files
        return None

    def _find_perf(self, root: Path, perf_open: Callable[[bytes, int], int]) -> str | None:
        devices = sorted((root / "sys/bus/event_source/devices").glob("uncore_imc_[0-9]*"))
        if not devices:
            return "no counters of Intel's memory controllers (uncore_imc) on this machine"
        try:
            for device in devices:
                kind = int((device / "type").read_text())
                for event in ("cas_count_read", "cas_count_write"):
                    config = _config_of((device / "events" / event).read_text())
                    attr = struct.pack("=IIQ", kind, _ATTR_BYTES, config).ljust(_ATTR_BYTES, b"\0")
                    for cpu in (device / "cpumask").read_text().strip().split(","):
                        self._counters.append(perf_open(attr, int(cpu.partition("-")[0])))
        except (OSError, ValueError) as error:
            self.close()
            return f"{error}; needs CAP_PERFMON, or kernel.perf_event_paranoid at 0 or below"
        return None

    def read(self, failed: list[str]) -> int | None:
        """Bytes counted so far, reads and writes together; None where nothing can be read."""
        try:
            if self._files:
                return sum(int(file.read_text()) for file in self._files)
            if self._counters:
                return _CAS_BYTES * sum(int.from_bytes(os.read(fd, 8), sys.byteorder) for fd in self._counters)
        except (OSError, ValueError):
            failed.append("memory_bandwidth")
        return None

    def close(self) -> None:
        """Gives the counters back."""
        for fd in self._counters:
            os.close(fd)
        self._counters = []


def _config_of(text: str) -> int:
    """`event=0x04,umask=0x03` as perf's config: the event in bits 0-7, the umask in bits 8-15."""
    parts = dict(part.split("=") for part in text.strip().split(","))
    return int(parts["event"], 16) | int(parts.get("umask", "0"), 16) << 8
