"""The host as /proc and /sys show it, from made-up trees; and that this machine's own are read."""

import os
from pathlib import Path

import pytest

from gputrace.sampler import meanings
from gputrace.sampler.bandwidth import MemoryBandwidth
from gputrace.sampler.clocks import StepDetector
from gputrace.sampler.context import gpu_place, host_context, read_status
from gputrace.sampler.driver import SystemClock
from gputrace.sampler.host import HOST_COLUMNS, HostSampler, host_line
from gputrace.sampler.processes import session_of
from gputrace.sampler.rows import SAMPLE_COLUMNS
from tests.recording import MS, FakeClock, S


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def proc(busy: int, idle: int, faults: int) -> dict[str, str]:
    return {
        # user nice system idle iowait irq softirq steal guest guest_nice
        "proc/stat": f"cpu  {busy} 0 {busy} {idle} {idle} 0 0 0 9 9\ncpu0 {2 * busy} 0 0 0 0 0 0 0 0 0\n"
        f"cpu1 0 0 0 {idle} {idle} 0 0 0 0 0\nintr 5\n",
        "proc/meminfo": "MemTotal:       4194304 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\n",
        "proc/vmstat": f"pgfault {faults}\npgmajfault 3\n",
        "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=33\n",
        "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=99\n",
        "proc/42/stat": "42 (cuzk) (x) 1) S 1 42 42 0 -1 4194304 500 0 6 0 150 50 0 0 20 0 96 0 100 1000 512 18446\n",
    }


def test_a_row_says_what_the_host_did_since_the_last(tmp_path: Path) -> None:
    clock = FakeClock()
    sampler = HostSampler(clock, tree(tmp_path, proc(100, 100, 1000)))
    clock.pass_ns(S)
    tree(tmp_path, proc(175, 125, 1600))
    row = sampler.step(42)
    assert (row.t_end_ns - row.t_start_ns, row.t_mono_ns) == (S, clock.mono)
    assert row.cpu_share == pytest.approx(0.75)
    assert row.core_busy_pct == "100;0"
    assert (row.memory_used_mib, row.memory_available_mib) == (3072.0, 1024.0)
    assert (row.psi_cpu_some_us_total, row.psi_memory_some_us_total, row.psi_memory_full_us_total) == (99, 77, 33)
    assert (row.page_faults_total, row.major_faults_total) == (1600, 3)
    assert (row.prover_pid, row.prover_threads, row.prover_cpu_s_total) == (42, 96, 2.0)
    assert (row.prover_minor_faults_total, row.prover_major_faults_total) == (500, 6)
    assert row.prover_rss_mib == 512 * os.sysconf("SC_PAGE_SIZE") / 1048576
    assert row.failed == ""
    assert host_line(row).count(",") == len(HOST_COLUMNS) - 1


def test_what_cannot_be_read_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    root = tree(tmp_path, proc(1, 1, 1))
    (root / "proc/pressure/cpu").unlink()
    (root / "proc/vmstat").unlink()
    row = HostSampler(FakeClock(), root).step(7)
    assert row.failed == "vmstat;pressure.cpu;prover"
    assert row.memory_used_mib == 3072.0 and row.page_faults_total is None and row.prover_rss_mib is None


def test_this_machine_is_read() -> None:
    sampler = HostSampler(SystemClock())
    row = sampler.step(os.getpid())
    assert row.prover_threads and row.prover_rss_mib and row.memory_used_mib and row.page_faults_total
    assert os.getpid() in session_of(os.getsid(0))
    context = host_context(prover_pid=os.getpid())
    assert context["cpu"]["threads"] == len(os.sched_getaffinity(0)) or context["cpu"]["threads"]
    assert "python" in context["prover"]["command"]


def test_every_column_has_a_meaning() -> None:
    assert tuple(meanings.SAMPLES) == SAMPLE_COLUMNS
    assert tuple(meanings.HOST) == HOST_COLUMNS


# --- memory bandwidth -----------------------------------------------------------------------------------------------


def refuse(_attr: bytes, _cpu: int) -> int:
    raise PermissionError(13, "Permission denied")


def test_resctrl_is_read_where_it_is_mounted(tmp_path: Path) -> None:
    base = "sys/fs/resctrl/mon_data/mon_L3_0"
    tree(tmp_path, {f"{base}0/mbm_total_bytes": "1000\n", f"{base}1/mbm_total_bytes": "234\n"})
    bandwidth = MemoryBandwidth(tmp_path, refuse)
    assert (bandwidth.source, bandwidth.why_not, bandwidth.read([])) == ("resctrl", None, 1234)
    (tmp_path / f"{base}1/mbm_total_bytes").write_text("Unavailable\n")
    failed: list[str] = []
    assert bandwidth.read(failed) is None and failed == ["memory_bandwidth"]


IMC = {
    "type": "14\n",
    "cpumask": "0,48\n",
    "events/cas_count_read": "event=0x04,umask=0x03\n",
    "events/cas_count_write": "event=0x04,umask=0x0c\n",
}


def test_memory_controllers_are_counted_on_every_socket(tmp_path: Path) -> None:
    base = "sys/bus/event_source/devices/uncore_imc_"
    tree(tmp_path, {f"{base}{n}/{name}": text for n in (0, 1) for name, text in IMC.items()})
    asked = []

    def count(attr: bytes, cpu: int) -> int:
        asked.append((int.from_bytes(attr[:4], "little"), int.from_bytes(attr[8:16], "little"), cpu))
        fd = os.memfd_create("counter")
        os.write(fd, (10).to_bytes(8, "little") * 2)
        os.lseek(fd, 0, 0)
        return fd

    bandwidth = MemoryBandwidth(tmp_path, count)
    assert bandwidth.source == "perf"
    assert asked == [(14, config, cpu) for _ in (0, 1) for config in (0x304, 0xC04) for cpu in (0, 48)]
    assert bandwidth.read([]) == 8 * 10 * 64
    bandwidth.close()


def test_why_bandwidth_cannot_be_read_is_said(tmp_path: Path) -> None:
    nothing = MemoryBandwidth(tmp_path, refuse)
    assert nothing.source is None and nothing.read([]) is None
    assert "resctrl: not mounted" in str(nothing.why_not) and "no counters of Intel's" in str(nothing.why_not)
    tree(tmp_path, {f"sys/bus/event_source/devices/uncore_imc_0/{name}": text for name, text in IMC.items()})
    assert "CAP_PERFMON" in str(MemoryBandwidth(tmp_path, refuse).why_not)


# --- context --------------------------------------------------------------------------------------------------------


def test_the_context_of_a_two_socket_machine(tmp_path: Path) -> None:
    cpus = "\n".join(
        f"processor\t: {n}\nmodel name\t: AMD EPYC 9654\nphysical id\t: {n // 2}\ncore id\t\t: {n % 2}\n"
        for n in range(4)
    )
    bridge = "sys/devices/pci0000:15/0000:15:01.0/0000:1a:00.0"
    node = "sys/devices/system/node/node"
    tree(
        tmp_path,
        {
            "proc/cpuinfo": cpus,
            "proc/meminfo": "MemTotal: 2097152 kB\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu\n",
            "proc/42/cmdline": "/opt/cuzk/cuzk-daemon\0--config\0cuzk.toml\0",
            "proc/42/cgroup": "0::/system.slice/cuzk.service\n",
            "proc/42/status": "Name:\tcuzk\nCpus_allowed_list:\t0-47\n",
            "sys/fs/cgroup/system.slice/cuzk.service/memory.max": "107374182400\n",
            "sys/fs/cgroup/system.slice/cuzk.service/cpu.max": "max 100000\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            f"{node}0/cpulist": "0-1\n",
            f"{node}0/meminfo": "Node 0 MemTotal:       1048576 kB\n",
            f"{node}0/distance": "10 21\n",
            f"{node}1/cpulist": "2-3\n",
            f"{bridge}/numa_node": "1\n",
            f"{bridge}/vendor": "0x10de\n",
            f"{bridge}/class": "0x030200\n",
            f"{bridge}/max_link_speed": "32.0 GT/s PCIe\n",
        },
    )
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / "0000:1a:00.0").symlink_to(tmp_path / bridge)
    (tmp_path / "proc/42/cwd").symlink_to("/etc/cuzk")
    (tmp_path / "proc/42/exe").symlink_to("/opt/cuzk/cuzk-daemon")

    context = host_context(tmp_path, 42)

    assert context["cpu"]["model"] == "AMD EPYC 9654"
    assert [context["cpu"][name] for name in ("threads", "cores", "sockets")] == [4, 4, 2]
    assert [(n["node"], n["cpus"], n["memory_mib"]) for n in context["numa"]] == [(0, "0-1", 1024), (1, "2-3", None)]
    assert context["numa"][0]["distances"] == [10, 21]
    assert context["driver"] == "570.86.15"
    assert context["transparent_hugepage"]["enabled"] == "madvise"
    assert context["limits"] == {"/system.slice/cuzk.service": {"memory.max": "107374182400"}}
    assert context["prover"]["config"] == "/etc/cuzk/cuzk.toml"
    assert context["prover"]["cpus_allowed"] == "0-47"
    (gpu,) = context["gpus"]
    assert (gpu["numa_node"], gpu["path"][-2:]) == (1, ["0000:15:01.0", "0000:1a:00.0"])
    assert gpu_place(tmp_path, "00000000:1A:00.0")["max_link_speed"] == "32.0 GT/s PCIe"


def test_an_empty_machine_has_a_context(tmp_path: Path) -> None:
    context = host_context(tmp_path)
    assert context["gpus"] == [] and context["numa"] == [] and context["driver"] is None


def test_a_prover_that_has_just_begun_or_is_over_has_no_command(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/42/cmdline": ""})
    assert host_context(tmp_path, 42)["prover"]["command"] == ""


def test_a_prover_that_does_not_answer_is_said() -> None:
    assert "refused" in read_status("127.0.0.1:1")["error"]


# --- clocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [5, -5, 0.1])
def test_a_step_of_the_wall_clock_is_noticed_once_and_measured(step_s: float) -> None:
    clock = FakeClock()
    steps = StepDetector(clock)
    for _ in range(100):
        clock.pass_ns(100 * MS)
        assert steps.step_ns() is None
    clock.wall += round(step_s * 1e9)
    assert steps.step_ns() == round(step_s * 1e9)
    clock.pass_ns(S)
    assert steps.step_ns() is None
