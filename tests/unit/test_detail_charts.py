"""The figures apart from the timeline: their numbers are the diagnosis' own, and Vega-Lite draws them."""

import json
from typing import Any

import polars as pl
import pytest
import vl_convert

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.drivers import driver_points
from gputrace.render.charts.details import Chart, detail_charts
from gputrace.resources import reports_dir
from gputrace.trace import Trace
from tests.captures import diagnosis, read

THEME: dict[str, Any] = json.loads((reports_dir() / "theme.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def charts() -> dict[str, Chart]:
    return {chart.key: chart for chart in detail_charts(read("light-then-heavy"), diagnosis("light-then-heavy"), THEME)}


def test_every_figure_is_there_and_is_drawn(charts: dict[str, Chart]) -> None:
    assert list(charts)[:6] == ["states", "causes", "what-if", "bounds", "phase-durations", "bandwidth"]
    assert [key for key in charts if key.startswith("driver-")]
    for chart in charts.values():
        svg = vl_convert.vegalite_to_svg(chart.spec)
        assert svg.count("<path") > 3, chart.key
        assert chart.title and chart.caption.endswith(".")
        assert len(json.dumps(chart.spec)) < 60_000, chart.key


def test_figures_carry_the_numbers_of_the_tables(charts: dict[str, Chart]) -> None:
    found = diagnosis("light-then-heavy")
    causes = {row["cause"]: row["lost_s"] for row in charts["causes"].spec["datasets"]["causes"]}
    assert causes == pytest.approx({total.cause: total.total_s for total in found.gaps.by_cause}, abs=0.001)
    summary = {row["phase"]: row["median"] for row in charts["phase-durations"].spec["datasets"]["summary"]}
    assert summary["ntt_kernels"] == next(p.median_ms for p in found.phases if p.name == "ntt_kernels")
    ranges = {row["scenario"]: (row["low"], row["high"]) for row in charts["what-if"].spec["datasets"]["scenarios"]}
    for effect in found.what_if:
        assert ranges[effect.scenario] == pytest.approx((effect.calls_per_s.low, effect.calls_per_s.high), abs=1e-4)


def test_an_empty_run_has_no_figure() -> None:
    assert detail_charts(Trace(), Diagnosis(), THEME) == ()


def test_points_give_the_correlation_that_is_told() -> None:
    trace, found = read("light-then-heavy"), diagnosis("light-then-heavy")
    points = driver_points(trace, found.phases)
    told = [(phase.name, driver) for phase in found.phases for driver in phase.drivers]
    assert told
    for phase, driver in told:
        own = points.filter((pl.col("phase") == phase) & (pl.col("driver") == driver.name))
        assert own.height == driver.n
        rank = own.select(pl.corr("duration_ms", "value", method="spearman")).item()
        assert rank == pytest.approx(driver.spearman, abs=1e-9)
