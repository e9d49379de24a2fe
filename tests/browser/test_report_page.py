"""The report in a real browser: drawn, without network, and deaf to what a log would like it to run."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from gputrace.analysis.diagnose import diagnose
from gputrace.render.html import HtmlRenderer
from gputrace.trace import Trace
from tests.browser.support import HOSTILE, LOG, SAMPLES, Report, make_report, opened
from tests.made import with_outlook

pytestmark = pytest.mark.browser

SECTIONS = (
    "states", "timeline", "causes", "verdicts", "what-if", "bounds", "regimes", "phases", "bandwidth", "drivers",
    "gaps", "interleaving", "jobs", "quality", "log-lines", "made",
)  # fmt: skip


def test_says_what_it_found(browser: Browser, told_story: Report) -> None:
    supported = [finding for finding in told_story.diagnosis.hypotheses if finding.verdict == "supported"]
    assert supported
    with opened(browser, told_story) as report:
        assert report.page.locator("h1").inner_text() == told_story.diagnosis.headline
        for finding in supported:
            card = report.page.locator(f"#verdict-{finding.id}")
            assert card.is_visible()
            assert finding.title in card.inner_text()
        order = report.page.locator("main > section").evaluate_all("sections => sections.map(s => s.id)")
        found = told_story.diagnosis
        optional = {
            "regimes": found.regimes,
            "what-if": found.what_if,
            "bounds": found.bounds,
            "interleaving": found.interleaving,
        }
        assert order == [name for name in SECTIONS if optional.get(name, True)]
        assert "interleaving" in order


def test_refuted_verdicts_are_folded_and_a_link_unfolds_them(browser: Browser, told_story: Report) -> None:
    refuted = {finding.id for finding in told_story.diagnosis.hypotheses if finding.verdict == "refuted"}
    charged = next(total.cause for total in told_story.diagnosis.gaps.by_cause if total.cause in refuted)
    with opened(browser, told_story) as report:
        card = report.page.locator(f"#verdict-{charged}")
        assert not card.is_visible()
        report.page.locator(f"#causes a[href='#verdict-{charged}']").click()
        card.wait_for(state="visible", timeout=5000)


def test_a_narrow_window_scrolls_only_inside_its_tables(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story, viewport={"width": 400, "height": 800}) as report:
        assert report.page.evaluate("document.documentElement.scrollWidth") <= 400
        box = report.page.locator(".panel.phases canvas").bounding_box()
        assert box is not None
        assert box["width"] < 400


def test_a_hostile_job_id_is_shown_and_not_run(browser: Browser, tmp_path: Path) -> None:
    log = tmp_path / "prover.log"
    text = gzip.decompress(LOG.read_bytes()).decode()
    log.write_text(text.replace("snap-1000-42", HOSTILE), encoding="utf-8")
    made = make_report(tmp_path, log)
    made.trace.quality.notice("hostile", "</script><img src=x onerror=window.pwned=1>")
    made.path.write_text(HtmlRenderer().render(made.trace, made.diagnosis), encoding="utf-8")
    assert HOSTILE in {job.job for job in made.diagnosis.jobs}
    with opened(browser, made) as report:
        assert HOSTILE in report.page.locator("#jobs").inner_text()
        assert "<img src=x onerror=window.pwned=1>" in report.page.locator("#quality").inner_text()
        assert report.page.locator("img").count() == 0
        assert report.page.evaluate("window.pwned") is None
        # Were one to slip in, the page's policy would still not run it. The refusal is an error on the console.
        report.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=1\">')")
        report.page.wait_for_timeout(200)
        assert report.page.evaluate("window.pwned") is None
        assert any("Content Security Policy" in error for error in report.errors)
        report.errors.clear()
        # The browser's record does see what is asked for, even what the policy then refuses.
        assert [url for url in report.requests if url.endswith("/x")]
        report.requests[:] = [url for url in report.requests if not url.endswith("/x")]


def _without(lines: list[str], *parts: str) -> str:
    return "\n".join(line for line in lines if not any(part in line for part in parts)) + "\n"


def test_only_samples(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, make_report(tmp_path, SAMPLES)) as report:
        assert report.page.locator(".panel").count() == 3
        assert "unknown" in report.page.locator("dl.figures").inner_text()
        assert "cannot be said" in report.page.locator("h1").inner_text()
        assert report.page.locator(".stability").inner_text().startswith("No conclusion to test.")


def test_a_log_without_the_mutex_has_no_phases_and_says_so(browser: Browser, tmp_path: Path) -> None:
    lines = gzip.decompress(LOG.read_bytes()).decode().splitlines()
    log = tmp_path / "prover.stdout"
    log.write_text(_without(lines, "CUZK_", "TIMELINE"), encoding="utf-8")
    with opened(browser, make_report(tmp_path, log)) as report:
        assert report.page.locator(".panel.phases").count() == 0
        assert "No phases" in report.page.locator("#phases").inner_text()
        assert "unknown" in report.page.locator("dl.figures").inner_text()


def test_a_trace_without_anything_is_a_page_without_a_timeline(browser: Browser, tmp_path: Path) -> None:
    empty = Report(tmp_path / "report.html", Trace(), diagnose(Trace()))
    empty.path.write_text(HtmlRenderer().render(empty.trace, empty.diagnosis), encoding="utf-8")
    with opened(browser, empty) as report:
        assert report.page.locator(".panel").count() == 0
        assert "neither phases of calls nor GPU samples" in report.page.locator("#timeline").inner_text()


def test_without_a_wall_clock_no_time_of_day_is_shown(browser: Browser, tmp_path: Path) -> None:
    lines = gzip.decompress(LOG.read_bytes()).decode().splitlines()
    log = tmp_path / "prover.stderr"
    log.write_text(_without(lines, "cuzk_core"), encoding="utf-8")
    made = make_report(tmp_path, log)
    assert made.trace.clock.method == "none"
    with opened(browser, made) as report:
        assert report.page.locator(".panel.phases canvas").is_visible()
        assert report.page.locator(".panel.link").count() == 0
        assert "UTC" not in report.page.locator("main").inner_text()
        assert "no time of day" in report.page.locator("#timeline").inner_text()
        assert "copy-only" not in report.page.locator("#states .keys").inner_text()


OUTLOOK = ("regimes", "what-if", "bounds", "interleaving")


@pytest.fixture(scope="module")
def outlook(tmp_path_factory: pytest.TempPathFactory, told_story: Report) -> Report:
    """The told story with made regimes, bounds and scenarios, whose words are hostile."""
    found = with_outlook(told_story.diagnosis, hostile=HOSTILE)
    path = tmp_path_factory.mktemp("outlook") / "report.html"
    path.write_text(HtmlRenderer().render(told_story.trace, found), encoding="utf-8")
    return Report(path, told_story.trace, found)


def test_what_is_not_there_has_no_section(browser: Browser, told_story: Report, tmp_path: Path) -> None:
    none = replace(told_story.diagnosis, regimes=(), what_if=(), bounds=(), interleaving=())
    path = tmp_path / "report.html"
    path.write_text(HtmlRenderer().render(told_story.trace, none), encoding="utf-8")
    with opened(browser, Report(path, told_story.trace, none)) as report:
        for section in OUTLOOK:
            assert report.page.locator(f"#{section}, nav a[href='#{section}'], .panel.{section}").count() == 0


def test_hostile_words_of_the_new_sections_are_shown_and_not_run(browser: Browser, outlook: Report) -> None:
    with opened(browser, outlook) as report:
        for section in OUTLOOK:
            assert HOSTILE in report.page.locator(f"#{section}").inner_text()
        assert report.page.locator("img").count() == 0
        assert report.page.evaluate("window.pwned") is None


def test_scenarios_are_drawn_from_their_numbers(browser: Browser, outlook: Report) -> None:
    rows = outlook.diagnosis.what_if
    with opened(browser, outlook) as report:
        drawn = report.page.locator("#what-if .whisker")
        assert drawn.count() == len(rows)
        scale = []
        for i, scenario in enumerate(rows):
            rate, whisker = scenario.calls_per_s, drawn.nth(i)
            assert whisker.locator(".range").count() == (0 if rate.low is None else 3)
            if rate.now is not None and rate.predicted is not None:
                left = whisker.bounding_box()["x"]  # type: ignore[index]
                bar = whisker.locator(".then").bounding_box()
                now = whisker.locator(".now").bounding_box()
                assert bar is not None and now is not None
                assert bar["width"] / (now["x"] + now["width"] / 2 - left) == pytest.approx(
                    rate.predicted / rate.now, rel=0.05
                )
                scale.append(bar["width"] / rate.predicted)
        assert len(scale) == 3
        assert scale == pytest.approx([scale[0]] * 3, rel=0.02)
        tags = report.page.locator("#what-if tbody td .tag").all_inner_texts()
        assert tags == ["gain", "no sure gain", "loss", "unknown"]
        assert "its own error is +2.2%" in report.page.locator("#what-if .lead").inner_text()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_new_sections_fit(browser: Browser, outlook: Report, width: int) -> None:
    with opened(browser, outlook, viewport={"width": width, "height": 800}) as report:
        assert report.page.evaluate("document.documentElement.scrollWidth") <= width
        for table in report.page.locator("#what-if table, #bounds table").all():
            box = table.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= width


def test_seconds_of_several_gpus_are_told_from_those_of_the_clock(
    browser: Browser, told_story: Report, tmp_path: Path
) -> None:
    found = told_story.diagnosis
    start_ns = found.window.start_ns
    assert start_ns is not None
    window = replace(found.window, end_ns=start_ns + 100_000_000_000, duration_s=198.0)
    two = replace(found, window=window, gpus=(found.gpus[0], replace(found.gpus[0], gpu=1)))
    path = tmp_path / "report.html"
    path.write_text(HtmlRenderer().render(told_story.trace, two), encoding="utf-8")
    with opened(browser, Report(path, told_story.trace, two)) as report:
        figures = report.page.locator("dl.figures .figure").all_inner_texts()
        said = [" ".join(figure.split()) for figure in figures]
        assert "GPU-seconds, all GPUs 198.0 s sum of 2 windows" in said
        assert "Run, wall clock 100.0 s" in said
        assert not any(figure.startswith("Window") for figure in said)


def test_who_waits_for_whom_is_a_table(browser: Browser, outlook: Report) -> None:
    (finding,) = outlook.diagnosis.interleaving
    with opened(browser, outlook) as report:
        section = report.page.locator("#interleaving")
        rows = section.locator("table").first.locator("tbody tr")
        assert rows.count() == len(finding.waits)
        for i, pair in enumerate(finding.waits):
            text = rows.nth(i).inner_text()
            assert f"worker {pair.waiter}" in text and f"worker {pair.holder}" in text
            assert f"{pair.total_s:.1f} s" in text
        for bound in finding.shortest:
            assert f"{bound.shortest_s:.1f} s" in section.inner_text()
        lanes = report.page.evaluate("gputrace.timeline.store(0).then(store => store.lanes.map(lane => lane.name))")
        assert lanes[:2] == ["w0 GPU", "w1 GPU"]
