"""The package as a notebook uses it, on real captures."""

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import gputrace
from gputrace import api
from gputrace.analysis.diagnosis import Diagnosis, HypothesisFinding
from gputrace.analysis.selection import Selection, select
from gputrace.analysis.tables import TABLES, Table, table
from gputrace.schema import DIAGNOSIS_FRAMES
from gputrace.trace import Trace
from tests.captures import diagnosis, folder, log_and_trace, read

NAME = "pageable-heavy"


def test_load_takes_paths_as_they_come() -> None:
    log, samples = log_and_trace("one-worker")
    seen: list[str] = []
    once = gputrace.load([log, samples])
    for trace in (
        gputrace.load(Path(log), samples, progress=lambda path, _size: seen.append(path)),
        gputrace.load(Path(path) for path in (log, samples)),
    ):
        assert_frame_equal(trace.calls, once.calls)
        assert_frame_equal(trace.samples, once.samples)
    assert set(seen) == {log}


@pytest.mark.parametrize("paths", [(), ([],)])
def test_nothing_to_load_is_said(paths: tuple[list[str], ...]) -> None:
    with pytest.raises(gputrace.UsageError, match="nothing to load"):
        gputrace.load(*paths)


def test_a_missing_input_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(gputrace.InputError, match="cannot be opened"):
        gputrace.load(tmp_path / "none.log")


def test_a_part_is_what_the_command_line_selects() -> None:
    trace = read(NAME)
    start_ns = diagnosis(NAME).window.start_ns
    assert start_ns is not None
    wanted = select(trace, Selection(start="10", end="30.5", worker=1))
    clock = datetime.fromtimestamp(start_ns / 1e9 + 10, UTC)
    for part in (
        gputrace.part(trace, start=10, end=30.5, worker=1),
        gputrace.part(trace, start="10", end=30.5, worker=1),
    ):
        assert_frame_equal(part.calls, wanted.calls)
        assert_frame_equal(part.calls_in_focus, wanted.calls_in_focus)
        assert part.quality.notices == wanted.quality.notices
    assert_frame_equal(gputrace.part(trace, start=clock, end=30.5).calls, wanted.calls)
    assert 0 < wanted.calls_in_focus.height < wanted.calls.height < trace.calls.height
    assert gputrace.part(trace) is trace
    with pytest.raises(gputrace.InputError, match="--gpu 7"):
        gputrace.part(trace, gpu=7)


def test_a_part_takes_every_option_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "select", lambda _trace, wanted: wanted)
    given = {"last_s": 2.5, "gpu": 1, "worker": 0, "job": "a", "timezone": "Europe/Berlin"}
    wanted = Selection(start="0", end="1e3", regime="2", **given)  # type: ignore[arg-type]
    assert gputrace.part(Trace(), start=0.0, end="1e3", regime=2, **given) == wanted  # type: ignore[arg-type, comparison-overlap]
    assert {field.name for field in fields(Selection)} == {*given, "start", "end", "regime"}


def test_analyze_refuses_gaps_of_nothing() -> None:
    with pytest.raises(gputrace.UsageError, match="gap_ms 0"):
        gputrace.analyze(Trace(), gap_ms=0)


def test_what_if_predicts_as_the_diagnosis_does() -> None:
    expected = {effect.scenario: effect for effect in diagnosis(NAME).what_if}
    outlook = gputrace.what_if(read(NAME), "pinned-h2d", "no-barrier")
    assert [effect.scenario for effect in outlook] == [
        name for name in expected if name in ("pinned-h2d", "no-barrier")
    ]
    assert outlook["pinned-h2d"] == expected["pinned-h2d"] and outlook["no-barrier"] == expected["no-barrier"]
    assert outlook.table["saved_s"].to_list() == [effect.saved_s for effect in outlook]
    assert len(outlook) == 2
    with pytest.raises(KeyError):
        outlook["workers=3"]


def test_what_if_says_what_is_not_known_and_what_is_missing() -> None:
    with pytest.raises(gputrace.UsageError, match="did you mean pinned-h2d"):
        gputrace.what_if(read(NAME), "pined-h2d")
    nothing = gputrace.what_if(Trace(), settings=["prep_msm=0.5x"])
    assert len(nothing) == 0 and nothing.missing


def test_reports_are_those_of_the_command_line() -> None:
    trace, found = read(NAME), diagnosis(NAME)
    assert found.headline.split(";")[0] in " ".join(gputrace.report(trace, found, "text").split())
    assert gputrace.report(trace, found, "json").startswith("{")
    with pytest.raises(gputrace.UsageError, match="known are html"):
        gputrace.report(trace, found, "pdf")


def test_charts_can_be_shown_and_saved(tmp_path: Path) -> None:
    charts = gputrace.charts(read(NAME), diagnosis(NAME))
    assert {"states", "causes", "bandwidth", "phase-durations"} <= set(charts)
    charts["bandwidth"].save(tmp_path / "copies.svg")
    drawn = (tmp_path / "copies.svg").read_text(encoding="utf-8")
    assert "ntt_kernels" in drawn and "How fast each phase copies" in drawn
    assert gputrace.charts(Trace(), Diagnosis()) == {}


def test_frames_of_a_diagnosis_have_their_schemas() -> None:
    found = diagnosis(NAME).frames()
    empty = Diagnosis().frames()
    documented = {schema.name: schema for schema in (*DIAGNOSIS_FRAMES, *TABLES)}
    assert set(found) == set(empty) == set(documented) - {"change_table"}
    for name, frame in found.items():
        assert frame.schema == documented[name].polars(), name
        assert empty[name].schema == frame.schema and empty[name].is_empty()
        assert frame.height, name
    assert all(column.meaning for schema in documented.values() for column in schema.columns.values())


def test_every_column_of_a_table_is_a_value_of_its_findings() -> None:
    found = diagnosis(NAME)
    verdicts = found.verdict_table
    assert verdicts.select("id", "verdict", "confidence", "lost_s", "main_reason").rows() == [
        (f.id, f.verdict, f.confidence, f.lost_s, f.main_reason) for f in found.hypotheses
    ]
    evidence = verdicts.select("id", "evidence").explode("evidence").unnest("evidence")
    assert evidence.select("id", "text", "value", "supports").rows() == [
        (f.id, item.text, item.value, item.supports) for f in found.hypotheses for item in f.evidence
    ]
    rates = dict(found.phase_table.select("name", "rx_bytes_per_s_median").iter_rows())
    assert rates == {p.name: (p.rx_bytes_per_s or {}).get("median") for p in found.phases}
    assert rates["ntt_kernels"] is not None and rates["prep_msm"] is None
    effects = found.what_if_table.select("scenario", "calls_per_s_low", "mutex_held_ms_median_now").rows()
    assert effects == [(w.scenario, w.calls_per_s.low, w.mutex_held_ms_median.now) for w in found.what_if]
    longest = max(found.gaps.list, key=lambda gap: gap.duration_ms)
    (causes,) = found.gap_table.filter(pl.col("duration_ms") == longest.duration_ms)["causes"].to_list()
    assert {part["key"]: part["value"] for part in causes} == longest.causes


def test_tables_leave_out_no_field_of_a_verdict() -> None:
    verdict_table = Diagnosis.verdict_table
    assert isinstance(verdict_table, Table) and (verdict_table.__doc__ or "").startswith("Candidate explanations")
    assert {field.name for field in fields(HypothesisFinding)} <= set(verdict_table.schema.columns)
    assert table([], verdict_table.schema).schema == verdict_table.schema.polars()


def test_a_comparison_has_its_figures_as_a_table() -> None:
    comparison = gputrace.compare(read("one-worker"), read("merged-fast"), names=("one", "two"))
    assert comparison.change_table.select("name", "before", "verdict", "improved").rows() == [
        (change.name, change.before, change.verdict, change.improved) for change in comparison.changes
    ]
    html = comparison._repr_html_()
    assert (
        html is not None
        and "<strong>two</strong>" in html
        and comparison.changes[0].title in comparison.headline + html
    )


def test_a_folder_is_a_capture() -> None:
    assert gputrace.load(folder("one-worker")).calls.height == read("one-worker").calls.height
