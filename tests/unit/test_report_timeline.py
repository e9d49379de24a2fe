"""What goes into the report's timeline: bounded, extremes kept, the same every time."""

from pathlib import Path

import polars as pl
import pytest

from gputrace import schema
from gputrace.analysis.diagnose import diagnose
from gputrace.ingest.inputs import ingest
from gputrace.rebuild.rebuild import rebuild
from gputrace.render import units
from gputrace.render.html import HtmlRenderer
from gputrace.render.timeline import build_timeline
from gputrace.render.timeline.build import Budget
from gputrace.render.timeline.columns import unpack
from gputrace.trace import Trace

TOLD_STORY = Path(__file__).parents[2] / "sample_logs" / "told-story"
COLOURS = {
    "states": {"compute": "#000"},
    "series": {"rx": "#000", "tx": "#000"},
    "causes": {},
    "phases": {},
    "other": "#000",
    "regimes": ["#000"],
}


def test_too_many_bars_leave_whole_calls_and_are_counted() -> None:
    second = 1_000_000_000
    names = {"mutex_wait": 900, "ntt_kernels": 100, "mutex_held": 950}
    rows = [
        {"call": call, "gpu": 0, "worker": 0, "name": name, "duration_ms": ms}
        | {"start_ns": call * second, "end_ns": call * second + ms * 1_000_000}
        for call in range(6000)
        for name, ms in names.items()
    ]
    calls = schema.CALLS.fit(pl.DataFrame({"call": range(6000), "gpu": 0, "worker": 0, "job": "a", "partition": 1}))
    trace = Trace(phases=schema.PHASES.fit(pl.DataFrame(rows)), calls=calls)
    timeline = build_timeline(trace, diagnose(Trace()), COLOURS, Budget(bars=2000))
    assert timeline is not None
    (figure,) = timeline.figures
    assert timeline.bars + timeline.bars_omitted == 12_000
    assert 960 <= timeline.bars <= 2000
    columns = unpack(figure.store)
    held = [columns[f"lane{i}.call"].tolist() for i in range(2)]
    assert [lane["name"] for lane in figure.told["lanes"]] == ["w0 GPU", "w0 wait"]
    assert held[0] == held[1]
    for first, last in figure.told["held"]:
        inside = [call for call in range(6000) if first <= call <= last]
        assert inside and set(inside) <= set(held[0])


def test_nothing_with_a_time_is_no_timeline() -> None:
    assert build_timeline(Trace(), diagnose(Trace()), COLOURS) is None


def test_an_empty_trace_still_makes_a_page() -> None:
    assert "<h1" in HtmlRenderer().render(Trace(), diagnose(Trace()))


def test_the_same_run_gives_the_same_bytes() -> None:
    pages = []
    for _ in range(2):
        trace = rebuild(ingest([str(TOLD_STORY)]))
        pages.append(HtmlRenderer().render(trace, diagnose(trace)))
    assert pages[0] == pages[1]
    assert len(pages[0]) < 3_000_000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (units.seconds(None), "unknown"),
        (units.seconds(0.0), "0 s"),
        (units.seconds(0.001), "<0.01 s"),
        (units.seconds(0.25), "0.25 s"),
        (units.seconds(1234.56), "1,234.6 s"),
        (units.share(None), "unknown"),
        (units.share(0.0), "0%"),
        (units.share(0.001), "<1%"),
        (units.share(0.234), "23%"),
        (units.rate(3.7314e9), "3.73 GB/s"),
        (units.rate(56.62e9), "56.6 GB/s"),
        (units.size(345.1e9), "345 GB"),
        (units.size(1e-40), "0 B"),
        (units.rate(None), "unknown"),
        (units.utc(1_795_952_859_209_089_280), "2026-11-29 11:47:39.209"),
    ],
)
def test_numbers_are_written_with_their_units(written: str, expected: str) -> None:
    assert written == expected
