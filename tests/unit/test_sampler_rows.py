"""A row is written and read back as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputrace.errors import InputError
from gputrace.sampler.rows import HEADER, SAMPLE_COLUMNS, SampleRow, csv_line, parse_line

whole = st.none() | st.integers(0, 2**63)
real = st.none() | st.floats(0, 1e12)


@given(
    rx=whole,
    rate=real,
    gen=whole,
    late=st.floats(-10, 1e6),
    hole=st.booleans(),
    failed=st.lists(st.sampled_from(["gpm", "counters", "power_mw"]), unique=True),
)
def test_a_row_comes_back(
    rx: int | None, rate: float | None, gen: int | None, late: float, hole: bool, failed: list[str]
) -> None:
    row = SampleRow(
        0,
        1,
        2,
        3,
        late,
        rx,
        pcie_source="gpm",
        gpm_rx_bytes_per_s=rate,
        link_gen=gen,
        hole=hole,
        failed=";".join(failed),
    )
    back = parse_line(csv_line(row) + "\n")
    assert back._replace(late_ms=0, gpm_rx_bytes_per_s=None) == row._replace(late_ms=0, gpm_rx_bytes_per_s=None)
    assert back.late_ms == pytest.approx(row.late_ms, rel=1e-6)
    assert (back.gpm_rx_bytes_per_s is None) == (rate is None)
    assert (back.gpm_rx_bytes_per_s or 0.0) == pytest.approx(rate or 0.0, rel=1e-6)


def test_the_header_names_every_column_once() -> None:
    assert HEADER.split(",") == list(SAMPLE_COLUMNS)
    assert len(set(SAMPLE_COLUMNS)) == len(SAMPLE_COLUMNS) == 30


LINE = csv_line(SampleRow(0, 1, 2, 3, 0.5, 7, 8, "counters"))


@pytest.mark.parametrize(
    "torn",
    [LINE[: len(LINE) // 2], "", LINE + ",1", LINE.replace("false", "fal"), LINE.replace("counters", "counters,")],
)
def test_a_torn_line_is_refused(torn: str) -> None:
    with pytest.raises(InputError):
        parse_line(torn)


def test_unknown_is_empty() -> None:
    assert LINE == "0,1,2,3,0.5,7,8,counters" + "," * 21 + "false,"
