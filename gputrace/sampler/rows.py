"""One reading of one GPU over one interval, as a row of text: what the sampler makes and the recorder writes.

One row per GPU and step. Empty is null: not read, not supported or failed (`failed` says which reads failed). Numbers
are plain decimals, `hole` is `true` or `false`; no value holds a comma, a quote or a line end.
"""

from typing import NamedTuple

from gputrace.errors import InputError


class SampleRow(NamedTuple):
    """What one GPU did between `t_start_ns` and `t_end_ns`; the fields are the columns of a capture's samples.

    `*_wire_bytes_total` count from the recorder's start, unwrapped, at `t_end_ns`; over a hole (`hole` true: the
    interval was not observed) their difference is a lower bound and belongs to no moment in it. Rates of GPM are means
    over the `gpm_interval_ms` before the row; those of the window are one 20 ms reading.
    """

    gpu: int
    t_start_ns: int
    t_end_ns: int
    t_mono_ns: int
    late_ms: float
    rx_wire_bytes_total: int | None = None
    tx_wire_bytes_total: int | None = None
    pcie_source: str = "none"
    rx_window_bytes_per_s: float | None = None
    tx_window_bytes_per_s: float | None = None
    gpm_interval_ms: float | None = None
    gpm_rx_bytes_per_s: float | None = None
    gpm_tx_bytes_per_s: float | None = None
    gpm_sm_active: float | None = None
    gpm_dram_active: float | None = None
    gpu_util: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    clock_event_reasons: int | None = None
    memory_used_mib: int | None = None
    power_w: float | None = None
    link_gen: int | None = None
    link_width: int | None = None
    link_gen_max: int | None = None
    link_width_max: int | None = None
    pcie_replays: int | None = None
    processes: int | None = None
    other_processes: int | None = None
    hole: bool = False
    failed: str = ""


SAMPLE_COLUMNS = SampleRow._fields
PCIE_SOURCES = ("counters", "gpm", "window", "none")
HEADER = ",".join(SAMPLE_COLUMNS)

_TEXT = frozenset({"pcie_source", "failed"})
_REAL = frozenset(
    {
        "late_ms",
        "rx_window_bytes_per_s",
        "tx_window_bytes_per_s",
        "gpm_interval_ms",
        "gpm_rx_bytes_per_s",
        "gpm_tx_bytes_per_s",
        "gpm_sm_active",
        "gpm_dram_active",
        "power_w",
    }
)


def _cell(value: float | str | bool | None) -> str:
    if value is None:
        return ""
    if value is True or value is False:
        return "true" if value else "false"
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def csv_line(row: SampleRow) -> str:
    """The row as one line of CSV, without its line end; floats to seven digits."""
    return ",".join(map(_cell, row))


def parse_line(line: str) -> SampleRow:
    """The row that `csv_line` wrote; a torn or foreign line raises InputError."""
    cells = line.rstrip("\r\n").split(",")
    if len(cells) != len(SAMPLE_COLUMNS):
        raise InputError(f"a sample has {len(SAMPLE_COLUMNS)} values, this line has {len(cells)}")
    try:
        return SampleRow(*(_value(name, cell) for name, cell in zip(SAMPLE_COLUMNS, cells, strict=True)))
    except ValueError as error:
        raise InputError(f"a sample's value cannot be read: {error}") from error


def _value(name: str, cell: str):  # type: ignore[no-untyped-def]  # one type per column
    if name in _TEXT:
        return cell
    if name == "hole":
        if cell not in {"true", "false"}:
            raise ValueError(f"hole is {cell!r}, neither true nor false")
        return cell == "true"
    if not cell:
        return None
    return float(cell) if name in _REAL else int(cell)
