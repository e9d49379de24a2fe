"""What a recording says of copies whose size is known."""

import csv
import itertools
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gputrace.sampler.rows import SampleRow, parse_line

# Rows are taken from this long before a phase to this long after it: nothing is copied between phases.
MARGIN_NS = 250_000_000
GPM_LAG_NS = 300_000_000


@dataclass(frozen=True)
class Phase:
    """What was copied, payload bytes, between two moments of the monotonic clock."""

    name: str
    start_ns: int
    end_ns: int
    rx_bytes: int
    tx_bytes: int


def wire_per_payload(pci_bus_id: str, sysfs: Path = Path("/sys/bus/pci/devices")) -> tuple[float, int, bool]:
    """(MPS + 20) / MPS of the GPU's device control register, the MPS, and whether it could be read (else 256)."""
    domain, rest = pci_bus_id.lower().split(":", 1)
    try:
        config = (sysfs / f"{domain[-4:]}:{rest}" / "config").read_bytes()
    except OSError:
        config = b""
    mps, known = 256, False
    at = config[0x34] if len(config) > 0x40 else 0
    for _ in range(48):  # capabilities; PCI Express is number 0x10
        if not at or at + 10 > len(config):
            break
        if config[at] == 0x10:
            mps, known = 128 << (config[at + 8] >> 5 & 7), True
            break
        at = config[at + 1]
    return (mps + 20) / mps, mps, known


def read_rows(path: Path) -> list[SampleRow]:
    """The rows of a recording of one GPU."""
    with path.open(encoding="utf-8") as stream:
        next(stream)
        return [row for row in map(parse_line, stream) if row.gpu == 0]


def counted(rows: Sequence[SampleRow], phase: Phase) -> tuple[int, int, int] | None:
    """rx and tx wire bytes by the counters over the phase, and holes in it; None where its ends were not recorded."""
    known = [row for row in rows if row.rx_wire_bytes_total is not None]
    times = [row.t_mono_ns for row in known]
    first = bisect_right(times, phase.start_ns - MARGIN_NS) - 1
    last = bisect_left(times, phase.end_ns + MARGIN_NS)
    if first < 0 or last >= len(known):
        return None
    before, after = known[first], known[last]
    assert before.rx_wire_bytes_total is not None and after.rx_wire_bytes_total is not None
    assert before.tx_wire_bytes_total is not None and after.tx_wire_bytes_total is not None
    holes = sum(row.hole for row in rows if before.t_mono_ns < row.t_mono_ns <= after.t_mono_ns)
    return (
        after.rx_wire_bytes_total - before.rx_wire_bytes_total,
        after.tx_wire_bytes_total - before.tx_wire_bytes_total,
        holes,
    )


def by_gpm(rows: Sequence[SampleRow], phase: Phase) -> tuple[float, float] | None:
    """rx and tx wire bytes by GPM over the phase, and its lag."""
    inside = [
        row
        for row in rows
        if phase.start_ns - MARGIN_NS < row.t_mono_ns <= phase.end_ns + MARGIN_NS + GPM_LAG_NS
        and row.gpm_rx_bytes_per_s is not None
        and row.gpm_tx_bytes_per_s is not None
        and row.gpm_interval_ms is not None
    ]
    if not inside:
        return None
    pairs = [(row.gpm_rx_bytes_per_s or 0, row.gpm_tx_bytes_per_s or 0, row.gpm_interval_ms or 0) for row in inside]
    return sum(rx * ms / 1e3 for rx, _, ms in pairs), sum(tx * ms / 1e3 for _, tx, ms in pairs)


def by_rates(readings: Sequence[tuple[int, float, float]], phase: Phase) -> tuple[float, float] | None:
    """rx and tx bytes of readings (monotonic ns, rx, tx in bytes/s) that each stand for the time since the last."""
    rx = tx = 0.0
    found = False
    for before, after in itertools.pairwise(readings):
        if phase.start_ns - MARGIN_NS < after[0] <= phase.end_ns + MARGIN_NS:
            found = True
            rx += after[1] * (after[0] - before[0]) / 1e9
            tx += after[2] * (after[0] - before[0]) / 1e9
    return (rx, tx) if found else None


def sm_active(rows: Sequence[SampleRow], phase: Phase) -> float | None:
    """The median of GPM's SM activity well inside the phase."""
    values = [
        row.gpm_sm_active
        for row in rows
        if row.gpm_sm_active is not None and phase.start_ns + GPM_LAG_NS < row.t_mono_ns <= phase.end_ns
    ]
    return statistics.median(values) if values else None


def read_rates(path: Path) -> list[tuple[int, float, float]]:
    """The readings of throughput.csv."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [
            (int(row["t_mono_ns"]), float(row["rx_bytes_per_s"]), float(row["tx_bytes_per_s"]))
            for row in csv.DictReader(stream)
        ]


@dataclass(frozen=True)
class Pace:
    """How steady the rows came."""

    rows: int
    median_ms: float
    p99_ms: float
    late_p99_ms: float
    holes: int


def pace(rows: Sequence[SampleRow]) -> Pace:
    """Steps between rows; those over holes (a call blocked) are counted and left out."""
    steps = sorted(
        (after.t_mono_ns - before.t_mono_ns) / 1e6 for before, after in itertools.pairwise(rows) if not after.hole
    )
    late = sorted(row.late_ms for row in rows if not row.hole)
    at = int(0.99 * (len(steps) - 1))
    return Pace(len(rows), statistics.median(steps), steps[at], late[at], sum(row.hole for row in rows))
