"""What the machine was when the recording began: CPU, NUMA, places of GPUs, memory settings, limits, the prover."""

import contextlib
import itertools
import os
import platform
import re
import shlex
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_STATUS_WAIT_S = 2.0
_STATUS_MOST_BYTES = 1 << 20
_NVIDIA, _DISPLAY_CLASS = "0x10de", "0x03"
_CONFIG_OPTIONS = ("--config", "-c")
_LIMITS = ("memory.max", "memory.high", "cpu.max", "cpuset.cpus.effective", "cpuset.mems.effective", "pids.max")


def host_context(root: Path = Path("/"), prover_pid: int | None = None, bus_ids: Iterable[str] = ()) -> dict[str, Any]:
    """Facts by subject; what cannot be read is null or missing."""
    return {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu(root),
        "numa": _numa(root),
        "memory_mib": _memory_mib(root),
        "transparent_hugepage": {
            name: _chosen(_text(root / "sys/kernel/mm/transparent_hugepage" / name))
            for name in ("enabled", "defrag", "khugepaged/defrag")
        },
        "driver": _driver(root),
        "gpus": [gpu_place(root, bus_id) for bus_id in bus_ids or _nvidia_devices(root)],
        "limits": _limits(root, prover_pid),
        "prover": _prover(root, prover_pid),
    }


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _chosen(text: str | None) -> str | None:
    """The word in brackets: `always [madvise] never`."""
    found = re.search(r"\[(.+?)\]", text or "")
    return found[1] if found else text


def _cpu(root: Path) -> dict[str, Any]:
    info = _text(root / "proc/cpuinfo") or ""
    blocks = [dict(re.findall(r"^([^\t:]+?)\s*: ?(.*)$", block, re.M)) for block in info.split("\n\n") if block]
    cores = {(block.get("physical id"), block.get("core id")) for block in blocks}
    return {
        "model": blocks[0].get("model name") if blocks else None,
        "threads": len(blocks),
        "cores": len(cores) if all(None not in core for core in cores) else None,
        "sockets": len({block.get("physical id") for block in blocks}) if blocks else None,
        "online": _text(root / "sys/devices/system/cpu/online"),
        "governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def _numa(root: Path) -> list[dict[str, Any]]:
    nodes = []
    for node in sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        total = re.search(r"MemTotal:\s*(\d+) kB", _text(node / "meminfo") or "")
        nodes.append(
            {
                "node": int(node.name[4:]),
                "cpus": _text(node / "cpulist"),
                "memory_mib": int(total[1]) // 1024 if total else None,
                "distances": [int(word) for word in (_text(node / "distance") or "").split()],
            }
        )
    return nodes


def _memory_mib(root: Path) -> int | None:
    total = re.search(r"MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo") or "")
    return int(total[1]) // 1024 if total else None


def _driver(root: Path) -> str | None:
    found = re.search(r"Kernel Module\D*?(\d+\.\d+[.\d]*)", _text(root / "proc/driver/nvidia/version") or "")
    return found[1] if found else None


def _nvidia_devices(root: Path) -> list[str]:
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        is_display = (_text(device / "class") or "").startswith(_DISPLAY_CLASS)
        if _text(device / "vendor") == _NVIDIA and is_display:
            found.append(device.name)
    return found


def gpu_place(root: Path, bus_id: str) -> dict[str, Any]:
    """Where a GPU sits; `path` is its chain of PCIe bridges, root port first. NVML's `00000000:1A:00.0` is known."""
    domain, _, rest = bus_id.lower().partition(":")
    device = root / "sys/bus/pci/devices" / f"{domain[-4:]}:{rest}"
    node = _text(device / "numa_node")
    chain = re.findall(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", str(device.resolve()))
    return {
        "bus_id": bus_id,
        # -1: the firmware does not say
        "numa_node": int(node) if node and node != "-1" else None,
        "local_cpus": _text(device / "local_cpulist"),
        "path": chain,
        **{
            name: _text(device / name)
            for name in ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
        },
    }


def _limits(root: Path, pid: int | None) -> dict[str, Any]:
    """Limits of the prover's cgroup (v2), or of our own, at each level that sets one."""
    group = re.search(r"^0::(/.*)$", _text(root / "proc" / (str(pid) if pid else "self") / "cgroup") or "", re.M)
    if group is None:
        return {}
    place, found = group[1].strip("/"), {}
    while True:
        folder = root / "sys/fs/cgroup" / place
        values = {name: value for name in _LIMITS if (value := _text(folder / name)) and not value.startswith("max")}
        if values:
            found["/" + place] = values
        if not place:
            return found
        place = place.rpartition("/")[0]


def _prover(root: Path, pid: int | None) -> dict[str, Any] | None:
    if pid is None:
        return None
    base = root / "proc" / str(pid)
    raw = _text(base / "cmdline") or ""
    command = [word for word in raw.split("\0") if word]
    config = None
    for word, following in itertools.zip_longest(command, command[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name in _CONFIG_OPTIONS and (value if equals else following):
            config = value if equals else following
    folder = program = None
    with contextlib.suppress(OSError):
        folder, program = str((base / "cwd").readlink()), str((base / "exe").readlink())
    affinity = re.search(r"^Cpus_allowed_list:\s*(\S+)", _text(base / "status") or "", re.M)
    return {
        "pid": pid,
        "command": shlex.join(command),
        "program": program,
        "folder": folder,
        "config": os.path.normpath(Path(folder or "/") / config) if config else None,
        "cpus_allowed": affinity[1] if affinity else None,
    }


def read_status(url: str) -> dict[str, Any]:
    """The prover's /status as it is now: {"url", "answer"}, or {"url", "error"}."""
    import json
    import urllib.request

    address = url if "://" in url else f"http://{url}"
    if address.count("/") == 2:
        address += "/status"
    try:
        with urllib.request.urlopen(address, timeout=_STATUS_WAIT_S) as reply:
            return {"url": address, "answer": json.loads(reply.read(_STATUS_MOST_BYTES))}
    except (OSError, ValueError) as error:
        return {"url": address, "error": str(error)}
