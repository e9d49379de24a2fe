"""64-bit totals become samples: differences, holes as missing samples, and a wall clock that was set."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gputrace.ingest.inputs import Ingested, ingest
from gputrace.sampler.rows import HEADER, SampleRow, csv_line
from tests.recording import MS, S, row


def read(folder: Path, rows: Sequence[SampleRow]) -> Ingested:
    path = folder / "samples-000001.csv"
    path.write_text("\n".join([HEADER, *map(csv_line, rows)]) + "\n")
    return ingest([str(path)])


def codes(read: Ingested) -> list[str]:
    return [notice.code for notice in read.quality.notices]


def test_totals_beyond_32_bits_are_differences_and_nothing_is_guessed(tmp_path: Path) -> None:
    step = 6_000_000_000  # more than one wrap of a 32-bit counter a row
    rows = [row(n, rx_wire_bytes_total=step * n, tx_wire_bytes_total=5 * n) for n in range(100)]
    found = read(tmp_path, rows)
    assert found.samples["rx_wire_bytes"].to_list() == [step] * 99
    assert found.samples["coverage"].unique().to_list() == [1.0]
    assert (found.quality.counter_wraps, found.quality.counter_ambiguous, codes(found)) == (0, 0, [])


def test_a_hole_is_a_missing_sample_and_its_bytes_are_not_smeared(tmp_path: Path) -> None:
    rows = [row(n) for n in range(20)]
    later = [row(n + 10, hole=n == 20, t_start_ns=rows[-1].t_end_ns) for n in range(20, 30)]
    found = read(tmp_path, [*rows, later[0]._replace(t_end_ns=row(29).t_end_ns + 100 * MS), *later[1:]])
    assert found.samples.height == 28
    assert found.samples["rx_wire_bytes"].unique().to_list() == [1000.0]
    assert found.quality.samples_missing == 11


def test_a_row_whose_counters_were_not_read_is_one_step_with_the_next(tmp_path: Path) -> None:
    rows = [row(n) for n in range(10)]
    rows[4] = rows[4]._replace(rx_wire_bytes_total=None, tx_wire_bytes_total=None)
    found = read(tmp_path, rows)
    assert found.samples["rx_wire_bytes"].to_list() == [1000.0] * 3 + [2000.0] + [1000.0] * 4


def test_a_hole_in_a_row_without_counters_stays_one(tmp_path: Path) -> None:
    rows = [row(n) for n in range(10)]
    rows[4] = rows[4]._replace(rx_wire_bytes_total=None, tx_wire_bytes_total=None, hole=True)
    assert read(tmp_path, rows).samples["rx_wire_bytes"].to_list() == [1000.0] * 7


def test_totals_begun_anew_are_unknown_not_negative(tmp_path: Path) -> None:
    rows = [row(n, rx_wire_bytes_total=1000 * (n % 5), tx_wire_bytes_total=10 * (n % 5)) for n in range(10)]
    assert read(tmp_path, rows).samples["rx_wire_bytes"].to_list() == [1000.0] * 4 + [None] + [1000.0] * 4


def test_gpm_is_used_where_the_totals_are_dead(tmp_path: Path) -> None:
    rows = [
        row(n, rx_wire_bytes_total=0, tx_wire_bytes_total=0, gpm_rx_bytes_per_s=9.94e9, gpm_tx_bytes_per_s=9.94e6)
        for n in range(20)
    ]
    found = read(tmp_path, rows)
    assert found.gpus[0].pcie_source == "gpm"
    assert found.samples["rx_wire_bytes"][3] == pytest.approx(1e9)


def test_an_idle_link_is_zero_bytes_not_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, [row(n, rx_wire_bytes_total=0, tx_wire_bytes_total=0) for n in range(20)])
    assert found.samples["rx_wire_bytes"].to_list() == [0.0] * 19


@pytest.mark.parametrize("step_s", [5, -5])
def test_a_wall_clock_that_was_set_is_a_hole_and_is_said(tmp_path: Path, step_s: int) -> None:
    rows = [row(n) for n in range(200)]
    moved = [
        one._replace(t_start_ns=one.t_start_ns + step_s * S, t_end_ns=one.t_end_ns + step_s * S) for one in rows[100:]
    ]
    found = read(tmp_path, [*rows[:100], *moved])
    assert codes(found) == ["clock-step"]
    assert found.samples["start_ns"].is_sorted()
    assert (found.samples["end_ns"] - found.samples["start_ns"]).unique().to_list() == [100 * MS]
    assert found.samples["rx_wire_bytes"].unique().to_list() == [1000.0]
    # Backwards, 5 s of time come twice: their second coming is not used.
    assert found.samples.height == 198 if step_s > 0 else found.samples.height == 148
