"""How large the page becomes with long runs."""

import pytest

from gputrace.render.html import HtmlRenderer
from tests.big_runs import day_on_eight_gpus, long_run


def test_an_hour_on_one_gpu_is_under_3_mb_with_every_sample() -> None:
    trace, diagnosis = long_run(1, 1)
    page = HtmlRenderer().render(trace, diagnosis)
    assert trace.samples.height == 36_000
    assert "Of the readings the page holds" not in page
    assert len(page.encode()) < 3_000_000


def test_a_day_on_eight_gpus_is_under_12_mb_and_says_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    page = day_on_eight_gpus(monkeypatch)
    assert page.count('id="store-gpu') == 8
    assert "the lowest and the highest of every 2 s" in " ".join(page.split())
    assert "phases are held one by one" in page
    assert 6_000_000 < len(page.encode()) < 12_000_000
