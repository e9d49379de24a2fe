"""docs/sampling.md says what the sampler does."""

import re

from gputrace.sampler import link
from gputrace.sampler.loop import LONGEST_PERIOD_S, SHORTEST_PERIOD_S
from gputrace.sampler.one_gpu import READ_EVERY_S
from gputrace.sampler.rows import PCIE_SOURCES, SAMPLE_COLUMNS
from tests.captures import ROOT
from tests.gpu import measure

TEXT = (ROOT / "docs" / "sampling.md").read_text()
FLAT = re.sub(r"\s+", " ", TEXT)


def column_table() -> dict[str, str]:
    """Column -> what the table says of how often it is read."""
    rows = (line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| `") and line.count("|") == 4)
    return {name: cells[2].strip() for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}


def test_every_column_is_explained() -> None:
    assert set(SAMPLE_COLUMNS) <= set(column_table())


def test_how_often_each_is_read_is_as_said() -> None:
    said = column_table()
    for name, every_s in READ_EVERY_S.items():
        expected = f"{every_s:g} s" if every_s else "every row"
        assert said["power_w" if name == "power_mw" else name] == expected


def test_every_source_is_explained() -> None:
    assert all(f"| `{source}` |" in TEXT for source in PCIE_SOURCES)


def test_the_table_of_links_follows_the_formula() -> None:
    for gen in (5, 4, 3):
        limit = link.limit_bytes_per_s(gen, 16)
        wrap_s = link.wrap_s(32, limit)
        every_ms = 100 / link.polls_per_row(0.1, wrap_s)
        cells = (
            f"| Gen{gen} x16 | {limit / 1e9:.1f} | {wrap_s * 1e3:.0f} ms | {link.POLL_SHARE * wrap_s * 1e3:.0f} ms "
            f"| every {every_ms:.0f} ms |"
        )
        assert cells in TEXT
    assert f"ceil(period / ({link.POLL_SHARE} * 2^b / L))" in TEXT


def test_bounds_and_targets_are_those_of_the_code() -> None:
    assert f"({SHORTEST_PERIOD_S} to {LONGEST_PERIOD_S:g} s)" in FLAT
    assert f"payload within {measure.PAYLOAD_ERROR * 100:g} % in every phase" in FLAT
    assert f"at most {measure.CPU_SHARE['counters'] * 100:g} % of a core" in FLAT
    assert f"{measure.CPU_SHARE['all'] * 100:g} % with everything" in FLAT
