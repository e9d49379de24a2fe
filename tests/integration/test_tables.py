"""The Parquet tables, read back."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.tables import DIAGNOSIS_TABLES
from gputrace.render.tables import TablesRenderer, tables
from gputrace.schema import DIAGNOSIS_FRAMES, FRAMES
from gputrace.trace import Trace
from tests.captures import ROOT, read

ALL = (*FRAMES, *DIAGNOSIS_FRAMES, *DIAGNOSIS_TABLES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("tables")
    trace = read("told-story")
    said = TablesRenderer().write(trace, diagnose(trace, scenarios=()), target)
    assert said == f"{len(ALL)} tables"
    return target


def test_tables_read_back_are_the_frames(folder: Path) -> None:
    trace = read("told-story")
    found = diagnose(trace, scenarios=())
    for frame in FRAMES:
        assert_frame_equal(pl.read_parquet(folder / f"{frame.name}.parquet"), getattr(trace, frame.name))
    for frame in (*DIAGNOSIS_FRAMES, *DIAGNOSIS_TABLES):
        assert_frame_equal(pl.read_parquet(folder / f"{frame.name}.parquet"), getattr(found, frame.name))
    verdicts = pl.read_parquet(folder / "verdict_table.parquet")
    assert dict(verdicts.select("id", "verdict").iter_rows()) == {one.id: one.verdict for one in found.hypotheses}
    evidence = verdicts.explode("evidence").unnest("evidence").drop_nulls("text")
    assert evidence["text"].to_list() == [item.text for one in found.hypotheses for item in one.evidence]


def test_every_table_has_a_row_for_every_column_in_the_readme(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    for path in sorted(folder.glob("*.parquet")):
        frame = pl.read_parquet(path)
        assert f"| `{path.name}` | {frame.height} |" in text
        part = text.split(f"\n## {path.stem}\n")[1].split("\n## ")[0]
        for name in frame.columns:
            assert f"| `{name}` |" in part


def test_lost_seconds_in_the_tables_add_up(folder: Path) -> None:
    both = (pl.read_parquet(folder / f"{name}.parquet") for name in ("blame", "states"))
    charged, lost = (float(frame.select(pl.sum_horizontal("copy_only_s", "idle_s")).sum().item()) for frame in both)
    assert charged == pytest.approx(lost)
    assert charged > 10


def test_an_empty_trace_has_all_tables_without_rows() -> None:
    trace = Trace()
    for known, frame in tables(trace, diagnose(trace, scenarios=())):
        if known.name != "verdict_table":
            assert frame.is_empty()
        assert frame.schema == known.polars()


def test_the_manual_lists_the_tables_and_its_example_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = (ROOT / "docs" / "exports.md").read_text()
    for frame in ALL:
        assert f"`{frame.name}`" in manual
    (folder / "t").symlink_to(folder)
    monkeypatch.chdir(folder)
    example = manual.split("```python\n")[1].split("```")[0]
    found: dict[str, pl.DataFrame] = {}
    exec(compile(example, "exports.md", "exec"), found)
    assert found["slowest"]["mutex_held_ms"].is_sorted(descending=True)
    assert found["lost"]["lost_s"].sum() > 10
