"""The report in a real browser: drawn, movable, without network, and deaf to what a log would like it to run."""

import gzip
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.ingest.inputs import ingest
from gputrace.rebuild.rebuild import rebuild
from gputrace.render.html import HtmlRenderer
from gputrace.trace import Trace
from tests.made import with_outlook

pytestmark = pytest.mark.browser

TOLD_STORY = Path(__file__).parents[2] / "sample_logs" / "told-story"
LOG, SAMPLES = TOLD_STORY / "prover.log.gz", TOLD_STORY / "nvml.csv.gz"
SECTIONS = (
    "states", "timeline", "causes", "verdicts", "what-if", "bounds", "regimes", "phases", "bandwidth", "drivers",
    "gaps", "interleaving", "jobs", "quality", "log-lines", "made",
)  # fmt: skip
HOSTILE = "</script><img/src=x/onerror=window.pwned=1>"


@dataclass
class Opened:
    """A page that is loaded and drawn, and what it did that it should not."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def domain(self) -> list[float]:
        """The time that the first panel shows, read from its scale."""
        domain: list[float] = self.page.evaluate("gputrace.timeline.views[0].scale('x').domain()")
        return domain


def wait_until(page: Page, expression: str, arg: Any = None) -> None:
    """Polls from outside: playwright's own wait evaluates text inside the page, which the page's policy forbids."""
    end = time.monotonic() + 10
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"not within 10 s: {expression}"
        page.wait_for_timeout(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("no chromium or google-chrome: run `make browser`")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@dataclass(frozen=True)
class Report:
    """A report on disk, with what it was made from."""

    path: Path
    trace: Trace
    diagnosis: Diagnosis


def make_report(folder: Path, *inputs: Path) -> Report:
    trace = rebuild(ingest([str(path) for path in inputs]))
    diagnosis = diagnose(trace)
    path = folder / "report.html"
    path.write_text(HtmlRenderer().render(trace, diagnosis), encoding="utf-8")
    return Report(path, trace, diagnosis)


@pytest.fixture(scope="module")
def told_story(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(tmp_path_factory.mktemp("told-story"), TOLD_STORY)


@contextmanager
def opened(browser: Browser, report: Report, **options: Any) -> Iterator[Opened]:
    """The report in a window of its own, from file://, with the network away. Errors fail the test at the end."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_offline(True)
    result = Opened(context.new_page())

    def only_files(route: Route) -> None:
        result.requests.append(route.request.url)
        if route.request.url.startswith("file://"):
            route.continue_()
        else:
            route.abort()

    context.route("**/*", only_files)
    # The browser's own record of what it asked for; routes do not see everything.
    network = context.new_cdp_session(result.page)
    network.on("Network.requestWillBeSent", lambda sent: result.requests.append(sent["request"]["url"]))
    network.send("Network.enable")
    result.page.on("console", lambda message: result.errors.append(message.text) if message.type == "error" else None)
    result.page.on("pageerror", lambda error: result.errors.append(str(error)))
    try:
        result.page.goto(report.path.as_uri())
        result.page.evaluate("gputrace.ready")
        yield result
        assert result.errors == []
        assert report.path.as_uri() in result.requests
        # A fragment is no request: going to a place in the page names the page again.
        asked = {url.partition("#")[0] for url in result.requests if not url.startswith(("data:", "blob:"))}
        assert asked == {report.path.as_uri()}
    finally:
        context.close()


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_panel_is_drawn(browser: Browser, told_story: Report, scheme: str) -> None:
    with opened(browser, told_story, color_scheme=scheme) as report:
        for kind in ("phases", "link", "compute"):
            box = report.page.locator(f".panel.{kind} canvas").bounding_box()
            assert box is not None
            assert box["width"] > 900
            assert box["height"] > 80
            colours = report.page.locator(f".panel.{kind} canvas").evaluate(
                "c => { const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer;"
                " return new Set(new Uint32Array(pixels)).size; }"
            )
            assert colours > 5


def test_a_narrow_window_scrolls_only_inside_its_tables(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story, viewport={"width": 400, "height": 800}) as report:
        assert report.page.evaluate("document.documentElement.scrollWidth") <= 400
        box = report.page.locator(".panel.phases canvas").bounding_box()
        assert box is not None
        assert box["width"] < 400


def test_buttons_wheel_and_drag_move_all_panels(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story) as report:
        page, whole = report.page, report.domain()
        page.locator(".panel.phases").scroll_into_view_if_needed()
        box = page.locator(".panel.phases canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.wheel(0, -400)
        wait_until(page, "span => gputrace.timeline.domain()[1] - gputrace.timeline.domain()[0] < span", arg=300)
        page.evaluate("gputrace.timeline.zoom(100, 120)")
        assert report.domain() == pytest.approx([100, 120])
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2 - 200, box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()
        wait_until(page, "gputrace.timeline.views[0].scale('x').domain()[0] > 101")
        shown = page.evaluate("gputrace.timeline.views.map(view => view.scale('x').domain())")
        assert len(shown) == page.locator(".panel").count() >= 3
        assert all(domain == pytest.approx(shown[0]) for domain in shown)
        assert shown[0][1] - shown[0][0] == pytest.approx(20)
        page.get_by_role("button", name="Reset zoom").click()
        wait_until(page, "start => gputrace.timeline.views[0].scale('x').domain()[0] === start", arg=whole[0])
        assert report.domain() == pytest.approx(whole)


def test_keys_move_the_timeline(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story) as report:
        whole = report.domain()
        report.page.locator(".figure-stack").focus()
        report.page.keyboard.press("+")
        wait_until(
            report.page,
            "span => { const d = gputrace.timeline.views[0].scale('x').domain(); return d[1] - d[0] < span; }",
            arg=(whole[1] - whole[0]) * 0.6,
        )


def test_choosing_a_gap_shows_it(browser: Browser, told_story: Report) -> None:
    gap, start_ns = told_story.diagnosis.gaps.list[0], told_story.diagnosis.window.start_ns
    assert start_ns is not None
    start_s, end_s = (gap.start_ns - start_ns) / 1e9, (gap.end_ns - start_ns) / 1e9
    with opened(browser, told_story, reduced_motion="reduce") as report:
        report.page.locator("#gaps tbody button").first.click()
        wait_until(report.page, "gputrace.timeline.views[0].scale('x').domain()[0] > 1")
        shown = report.domain()
        assert shown[0] < start_s < end_s < shown[1]
        assert shown[1] - shown[0] == pytest.approx(2 * (end_s - start_s), abs=0.001)
        assert report.page.locator("#timeline").bounding_box()["y"] == pytest.approx(0, abs=40)  # type: ignore[index]


def test_a_bar_tells_what_it_is(browser: Browser, told_story: Report) -> None:
    call = told_story.trace.calls.filter("complete").row(5, named=True)
    phases = told_story.trace.phases
    phase = phases.filter((phases["call"] == call["call"]) & (phases["name"] == "ntt_kernels")).row(0, named=True)
    start_ns = told_story.diagnosis.window.start_ns
    assert start_ns is not None
    start_s, end_s = (phase["start_ns"] - start_ns) / 1e9, (phase["end_ns"] - start_ns) / 1e9
    with opened(browser, told_story) as report:
        page = report.page
        page.evaluate("([from, to]) => gputrace.timeline.zoom(from, to)", [start_s, end_s])
        page.locator(".panel.phases").scroll_into_view_if_needed()
        box = page.locator(".panel.phases canvas").bounding_box()
        lane = page.evaluate(
            "lane => { const v = gputrace.timeline.view('gpu0-phases'); "
            "return v.padding().top + v.origin()[1] + v.scale('y')(lane) + v.scale('y').bandwidth() / 2; }",
            f"w{call['worker']} GPU",
        )
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + lane)
        page.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + lane)
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for(timeout=5000)
        text = tooltip.inner_text()
        assert "ntt_kernels" in text
        assert f"{phase['duration_ms']:,}" in text
        assert call["job"] in text
        assert "2026-03-13 18:" in text
        assert " UTC" in page.locator("#readout").inner_text()


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
        assert report.page.locator(".panel").count() == 2
        assert "unknown" in report.page.locator("dl.figures").inner_text()
        assert "cannot be said" in report.page.locator("h1").inner_text()


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
        assert "its own error is +2.2 %" in report.page.locator("#what-if .lead").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_regimes_are_a_lane_over_the_panels(browser: Browser, outlook: Report, scheme: str) -> None:
    second = outlook.diagnosis.regimes[1]
    with opened(browser, outlook, color_scheme=scheme, reduced_motion="reduce") as report:
        page = report.page
        lane = page.locator(".panel.regimes canvas")
        tops = [page.locator(f".panel.{kind} canvas").bounding_box() for kind in ("regimes", "phases")]
        assert tops[0] is not None and tops[1] is not None
        assert tops[0]["y"] < tops[1]["y"] and tops[0]["height"] < 40
        page.locator("#regimes tbody button").nth(1).click()
        wait_until(page, "gputrace.timeline.view('gpu0-regimes').scale('x').domain()[0] > 1")
        page.mouse.move(tops[0]["x"] + tops[0]["width"] / 2, lane.bounding_box()["y"] + 12)  # type: ignore[index]
        page.mouse.move(tops[0]["x"] + tops[0]["width"] / 2 + 3, lane.bounding_box()["y"] + 12)  # type: ignore[index]
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for(timeout=5000)
        assert second.label in tooltip.inner_text()
        assert second.reason in tooltip.inner_text()
        assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_the_new_sections_fit(browser: Browser, outlook: Report, width: int) -> None:
    with opened(browser, outlook, viewport={"width": width, "height": 800}) as report:
        assert report.page.evaluate("document.documentElement.scrollWidth") <= width
        for table in report.page.locator("#what-if table, #bounds table").all():
            box = table.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= width


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
        lanes = report.page.evaluate("gputrace.timeline.view('gpu0-phases').scale('y').domain()")
        assert lanes[:2] == ["w0 GPU", "w1 GPU"]
