"""The report as an argument: its links lead where they say, its figures come lazily, it prints, and all can use it."""

import gzip
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from gputrace.analysis.moments import costliest
from gputrace.render.html import HtmlRenderer
from gputrace.render.page.lines import LogLines, wanted_lines
from gputrace.render.provenance import Provenance
from tests.browser.support import Report, make_report, opened, wait_until
from tests.captures import diagnosis, folder, read

pytestmark = pytest.mark.browser

# Rows of long tables are all alike.
# In the dark only colours differ.
RULES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
SAMPLE = {
    "exclude": [[f"{table} tbody tr:nth-child(n+4)"] for table in (".cited", "#gaps", "#drivers", ".phases", "#jobs")]
    + [[".drawing > *"]]
}
MADE = Provenance("gputrace report 'a b.log' --html report.html", (("gputrace", "0.1.0"), ("Python", "3.11.7")))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    """The report of a real capture."""
    path = tmp_path_factory.mktemp("argument") / "report.html"
    trace, found = read("light-then-heavy"), diagnosis("light-then-heavy")
    path.write_text(HtmlRenderer(MADE).render(trace, found), encoding="utf-8")
    yield Report(path, trace, found)


def test_a_verdict_leads_to_its_moments_in_the_timeline(browser: Browser, report: Report) -> None:
    moment = costliest(report.diagnosis.blame)["prep-barrier"][0]
    start_ns = report.diagnosis.window.start_ns
    assert start_ns is not None
    with opened(browser, report, reduced_motion="reduce") as view:
        view.page.locator("#verdict-prep-barrier .moments button").first.click()
        wait_until(view.page, "gputrace.timeline.views[0].scale('x').domain()[0] > 1")
        shown = view.domain()
        assert shown[0] < (moment.start_ns - start_ns) / 1e9 < (moment.end_ns - start_ns) / 1e9 < shown[1]


def test_every_citation_leads_to_a_line_that_is_listed(browser: Browser, report: Report) -> None:
    with opened(browser, report) as view:
        told = view.page.evaluate(
            "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.hash.slice(1))"
            ".filter(id => !document.getElementById(id))"
        )
        assert told == []
        cited = view.page.locator("main a[href^='#line-']")
        assert cited.count() > 100
        longest = report.trace.phases.filter(report.trace.phases["name"] == "ntt_kernels").sort("duration_ms")
        row = view.page.locator("#phases tbody tr", has_text="ntt_kernels").first
        row.locator("a.number").last.click()
        target = view.page.locator(".cited tr:target")
        assert target.locator("th").inner_text() == str(longest["line"][-1])
        assert f"ntt_kernels={longest['duration_ms'][-1]}ms" in target.inner_text()


def test_figures_are_drawn_when_they_come_into_view(browser: Browser, report: Report) -> None:
    with opened(browser, report) as view:
        page = view.page
        assert page.evaluate("gputrace.figures.drawn") == []
        page.locator("[data-chart='bandwidth']").scroll_into_view_if_needed()
        wait_until(page, "document.querySelector('[data-chart=bandwidth] svg') !== null")
        assert "driver-release_abc" not in page.evaluate("gputrace.figures.drawn")
        for place in page.locator("[data-chart]").all():
            assert "A point" in str(place.get_attribute("aria-label")) or "the median" in str(
                place.get_attribute("aria-label")
            )


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_no_serious_fault_of_accessibility(
    browser: Browser,
    report: Report,
    scheme: str,
    width: int,
) -> None:
    with opened(browser, report, color_scheme=scheme, viewport={"width": width, "height": 900}) as view:
        view.page.evaluate("gputrace.figures.drawAll()")
        view.page.evaluate("document.querySelectorAll('details').forEach(item => item.open = true)")
        found = (
            Axe()
            .run(view.page, context=SAMPLE, options={"resultTypes": ["violations"], **RULES[scheme]})
            .response["violations"]
        )
        serious = [
            (fault["id"], node["target"], node["failureSummary"][:200])
            for fault in found
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"][:3]
        ]
        assert serious == []
        assert view.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 390])
def test_what_is_below_a_figure_stays_where_it_is(browser: Browser, report: Report, width: int) -> None:
    """A figure is drawn as it comes near: a click on its way to what is below must not land beside it."""
    heights = "[...document.querySelectorAll('[data-chart]')].map(place => place.getBoundingClientRect().height)"
    with opened(browser, report, viewport={"width": width, "height": 900}) as view:
        before = view.page.evaluate(heights)
        view.page.evaluate("gputrace.figures.drawAll()")
        assert view.page.evaluate(heights) == before
        assert len(before) == view.page.locator("[data-chart] svg").count() > 2


def test_on_paper_everything_is_open_and_every_figure_drawn(browser: Browser, report: Report) -> None:
    with opened(browser, report, color_scheme="dark") as view:
        page = view.page
        figures = page.locator("[data-chart]").count()
        assert figures >= 3
        paper = page.pdf(format="A4", print_background=True)
        pages = len(re.findall(rb"/Type\s*/Page\b", paper))
        assert 8 <= pages <= 25
        assert page.locator("[data-chart] svg").count() == figures
        folded = page.locator("details:not([open])").count()
        assert folded == page.locator("details").count() >= 2
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        assert page.locator("#verdict-release-abc").is_visible()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details:not([open])").count() == folded
        page.emulate_media(media="print")
        assert not page.locator(".controls").first.is_visible()
        background = "getComputedStyle(document.querySelector('section')).backgroundColor"
        assert page.evaluate(background) == "rgb(255, 255, 255)"


def test_the_page_says_how_it_was_made_and_what_stayed_open(browser: Browser, report: Report) -> None:
    with opened(browser, report) as view:
        made = view.page.locator("#made").inner_text()
        assert MADE.command in made and "3.11.7" in made
        for item in report.trace.inputs:
            assert item.path in made
        trust = view.page.locator("#quality")
        tries = trust.locator("#stability ~ .scroll").first.locator("tbody tr")
        assert tries.count() == len(report.diagnosis.variations) == 10
        for finding in report.diagnosis.hypotheses:
            if finding.verdict == "undetermined":
                assert finding.next_step in trust.inner_text()


def test_a_cause_whose_removal_brings_little_back_says_why(browser: Browser, report: Report) -> None:
    little = [
        finding
        for finding in report.diagnosis.hypotheses
        if finding.verdict == "supported" and finding.recoverable_s is not None
        and finding.lost_s and finding.recoverable_s < 0.1 * finding.lost_s
    ]  # fmt: skip
    assert little
    with opened(browser, report) as view:
        for finding in little:
            card = view.page.locator(f"#verdict-{finding.id}")
            assert "sets the rate then" in card.inner_text()
            assert card.locator("a[href='#what-if']").count() == 1
        section = view.page.locator("main").inner_text()
        assert not re.search(r"(?<![\w.:])-\d[\d.]*(%|ms| s\b)|\d %|[-+\u2212]0%", section)


def test_every_section_begins_with_a_sentence(browser: Browser, report: Report) -> None:
    with opened(browser, report) as view:
        silent = view.page.evaluate(
            "[...document.querySelectorAll('main > section')].filter(section =>"
            " !(section.querySelector('h2 + .lead')?.textContent.trim().length > 30)).map(section => section.id)"
        )
        assert silent == []


def test_a_line_of_a_megabyte_and_markup_are_shown_as_short_text(
    browser: Browser,
    tmp_path: Path,
) -> None:
    text = gzip.decompress((folder("one-worker") / "prover.merged.gz").read_bytes()).decode()
    job = re.findall(r"TIMELINE,\d+,SYNTH_START,([^,]+),", text)[0]
    hostile = "</script><img/src=x/onerror=window.pwned=1>" + "x" * 1_000_000
    log = tmp_path / "<img src=x onerror=window.pwned=1>.log"
    log.write_text(text.replace(job, hostile, 2), encoding="utf-8")
    made = make_report(tmp_path, log, folder("one-worker") / "nvml.csv.gz")
    assert made.path.stat().st_size < 4_000_000
    with opened(browser, made) as view:
        view.page.evaluate("gputrace.figures.drawAll()")
        assert "<img src=x onerror=window.pwned=1>.log" in view.page.locator("#made").inner_text()
        assert view.page.locator("img").count() == 0
        assert view.page.evaluate("window.pwned") is None
        longest = view.page.evaluate("Math.max(...document.body.innerText.split('\\n').map(line => line.length))")
        assert longest < 5_000


def test_the_command_prints_the_lines_that_are_cited() -> None:
    trace, found = read("light-then-heavy"), diagnosis("light-then-heavy")
    log = LogLines(trace, None, wanted_lines(trace, found, costliest(found.blame), 100))
    (cited,) = log.inputs
    assert cited.command.startswith("zcat ")
    printed = subprocess.run(
        ["sh", "-c", cited.command], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(printed) == len(cited.lines) == log.count > 50
    for line, text in zip(cited.lines, printed, strict=True):
        for word in re.findall(r"=(\d+)(?:ms)?\b", line.content):
            assert word in text
