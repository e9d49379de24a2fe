"""How large the page of a long run becomes; that of a day is measured where it is opened, in tests/browser."""

from gputrace.render.html import HtmlRenderer
from tests.big_runs import long_run


def test_an_hour_on_one_gpu_is_under_3_mb_with_every_sample() -> None:
    trace, diagnosis = long_run(1, 1)
    page = HtmlRenderer().render(trace, diagnosis)
    assert trace.samples.height == 36_000
    assert "Of the readings the page holds" not in page
    assert len(page.encode()) < 3_000_000
