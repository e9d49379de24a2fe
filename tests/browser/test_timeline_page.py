"""The timeline in a real browser: it shows what the frames say at every zoom, and the page follows it."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser, Page, expect

from gputrace.render.html import HtmlRenderer
from gputrace.render.timeline import build_timeline
from gputrace.render.timeline.columns import unpack
from gputrace.resources import reports_dir
from gputrace.simulate.capture import play, write_capture
from gputrace.simulate.scenarios import PRESETS
from tests.big_runs import day_on_eight_gpus
from tests.browser.support import HOSTILE, LOG, Opened, Report, make_report, opened, wait_until
from tests.made import with_outlook

pytestmark = pytest.mark.browser

WIRE_PER_PAYLOAD = 276 / 256


@pytest.fixture(scope="module")
def outlook(tmp_path_factory: pytest.TempPathFactory, told_story: Report) -> Report:
    """The told story with made regimes."""
    found = with_outlook(told_story.diagnosis, hostile=HOSTILE)
    path = tmp_path_factory.mktemp("outlook") / "report.html"
    path.write_text(HtmlRenderer().render(told_story.trace, found), encoding="utf-8")
    return Report(path, told_story.trace, found)


def show(report: Opened, kind: str, first: float, last: float) -> list[float]:
    """Zooms with one panel of the first GPU in the window, waits until it is drawn so, and returns what it shows."""
    page, view = report.page, f"gputrace.timeline.view('gpu0-{kind}')"
    page.locator(f".panel.{kind}").first.scroll_into_view_if_needed()
    page.evaluate("([from, to]) => gputrace.timeline.zoom(from, to)", [first, last])
    wait_until(page, f"String({view}.signal('domain_s')) === String(gputrace.timeline.domain())")
    page.evaluate(f"{view}.runAsync().then(() => null)")
    domain: list[float] = page.evaluate("gputrace.timeline.domain()")
    return domain


def seconds(report: Report, time_ns: int) -> float:
    """Seconds on the timeline's axis."""
    assert report.diagnosis.window.start_ns is not None
    return (time_ns - report.diagnosis.window.start_ns) / 1e9


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


def test_buttons_wheel_and_drag_move_all_panels(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story) as report:
        page, whole = report.page, report.domain()
        page.locator(".panel.phases").scroll_into_view_if_needed()
        box = page.locator(".panel.phases canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.wheel(0, -400)
        page.wait_for_timeout(400)
        # A wheel that nobody asked to zoom scrolls the page.
        assert report.domain() == pytest.approx(whole)
        page.locator("#timeline-gpu0").evaluate("stack => stack.scrollIntoView()")
        box = page.locator(".panel.phases canvas").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
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
        page.get_by_role("button", name="Reset").click()
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
        box = report.page.locator("#timeline-gpu0").bounding_box()
        assert box is not None and 0 <= box["y"] < 120
        assert report.page.evaluate("document.activeElement.id") == "timeline-gpu0"


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
        wait_until(page, "document.querySelector('.coarse').textContent === ''")
        box = page.locator(".panel.phases canvas").bounding_box()
        lane = page.evaluate(
            "name => gputrace.timeline.store(0).then(store => { const v = gputrace.timeline.view('gpu0-phases'); "
            "const lane = store.lanes.findIndex(lane => lane.name === name); "
            "return v.padding().top + v.origin()[1] + v.scale('y')(lane + 0.5); })",
            f"w{call['worker']} GPU",
        )
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + lane)
        page.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + lane)
        tooltip = page.locator("#timeline-tip")
        tooltip.wait_for(timeout=5000)
        text = tooltip.inner_text()
        assert "ntt_kernels" in text
        assert f"{phase['duration_ms']:,}" in text
        assert call["job"] in text
        assert "2026-03-13 18:" in text
        assert " UTC" in page.locator("#readout").inner_text()


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
        tooltip = page.locator("#timeline-tip")
        tooltip.wait_for(timeout=5000)
        assert second.label in tooltip.inner_text()
        assert second.reason in tooltip.inner_text()
        assert page.locator("img").count() == 0


def test_the_page_reads_what_was_packed(browser: Browser, told_story: Report) -> None:
    colours = json.loads((reports_dir() / "theme.json").read_text(encoding="utf-8"))["colours"]
    timeline = build_timeline(told_story.trace, told_story.diagnosis, colours)
    assert timeline is not None
    packed = unpack(timeline.figures[0].store)
    with opened(browser, told_story) as report:
        read = report.page.evaluate(
            "gputrace.timeline.store(0).then(store => Object.fromEntries(Object.entries(store.columns)"
            ".map(([name, values]) => [name, [values.length, Array.from(values)]])))"
        )
    assert set(read) == set(packed)
    for name, (length, values) in read.items():
        assert length == len(packed[name])
        assert values == packed[name].tolist(), name


SPANS = [(-10.0, 400.0), (0.0, 330.0), (3.3, 7.9), (57.31, 57.94), (100.0, 131.7), (210.05, 210.06)]


def test_the_extremes_of_any_span_are_shown(browser: Browser, told_story: Report) -> None:
    length = pl.col("end_ns") - pl.col("start_ns")
    frame = told_story.trace.samples.select(
        "start_ns", "end_ns", (pl.col("rx_wire_bytes") / length / WIRE_PER_PAYLOAD).alias("value")
    )
    start, end = (np.array([seconds(told_story, t) for t in frame[name]]) for name in ("start_ns", "end_ns"))
    values = frame["value"].to_numpy()
    level = values.max() / 65534
    with opened(browser, told_story) as report:
        for first, last in SPANS:
            low, high = show(report, "link", first, last)
            rows = report.page.evaluate("gputrace.timeline.view('gpu0-link').data('rx')")
            shown = [row for row in rows if row["known"]]
            inside = values[(end > low + 1e-4) & (start < high - 1e-4)]
            assert max(row["high"] for row in shown) == pytest.approx(inside.max(), abs=level)
            assert min(row["low"] for row in shown) == pytest.approx(inside.min(), abs=level)
            assert len(rows) <= 605


def test_shares_become_bars_closer_in(browser: Browser, outlook: Report) -> None:
    with opened(browser, outlook) as report:
        page = report.page
        show(report, "phases", 100, 130)
        rows = page.evaluate("gputrace.timeline.view('gpu0-phases').data('rows')")
        assert rows and all("call" in row and "share" not in row for row in rows)
        show(report, "lost", 100, 130)
        shares = page.evaluate("gputrace.timeline.view('gpu0-lost').data('rows')")
        assert {row["name"] for row in shares} >= {"compute", "copy-only", "pageable-h2d"}
        # In every bin the states fill their lane.
        by_bin: dict[float, float] = {}
        for row in shares:
            if row["top"] < 1:
                by_bin[row["start"]] = by_bin.get(row["start"], 0.0) + row["share"]
        assert list(by_bin.values()) == pytest.approx([1.0] * len(by_bin), abs=0.03)


def test_a_selection_says_what_it_holds_and_the_tables_follow(browser: Browser, told_story: Report) -> None:
    gaps = told_story.diagnosis.gaps.list[:100]
    first, last = 100.0, 160.0
    inside = [
        gap for gap in gaps if seconds(told_story, gap.end_ns) >= first and seconds(told_story, gap.start_ns) <= last
    ]
    states = told_story.diagnosis.states
    start = np.array([seconds(told_story, t) for t in states["start_ns"]])
    end = np.array([seconds(told_story, t) for t in states["end_ns"]])
    part = (np.clip(end, first, last) - np.clip(start, first, last)) / (end - start)
    with opened(browser, told_story) as report:
        page = report.page
        page.evaluate("([from, to]) => gputrace.timeline.select(from, to)", [first, last])
        panel = page.locator("#selection")
        assert panel.is_visible()
        assert "100.000 to 160.000 s" in panel.locator("h3").inner_text()
        for state in ("compute", "copy-only"):
            expected = float((states[f"{state.replace('-', '_')}_s"].to_numpy() * part).sum())
            told = panel.locator("tr", has_text=state).first.locator("td").first.inner_text()
            assert float(told.removesuffix(" s")) == pytest.approx(expected, abs=0.1)
        assert "within a bin of 0.05 s" in panel.inner_text()
        assert page.locator("#gaps tbody tr:visible").count() == len(inside) < len(gaps)
        assert f"{len(inside)} of {len(gaps)} rows lie in the selection" in page.locator("#gaps .filtered").inner_text()
        page.locator("#gaps .filtered button").click()
        # The tables follow when the page is drawn again.
        expect(page.locator("#gaps tbody tr:visible")).to_have_count(len(gaps))
        assert not panel.is_visible()
        assert page.evaluate("gputrace.timeline.selection()") is None


def test_dragging_selects_with_shift_or_in_select_mode(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story) as report:
        page, whole = report.page, report.domain()
        page.locator(".panel.link").scroll_into_view_if_needed()
        box = page.locator(".panel.link canvas").bounding_box()
        assert box is not None
        chosen = []
        for shift in (True, False):
            if not shift:
                page.get_by_role("button", name="Select", exact=True).click()
            page.mouse.move(box["x"] + 400, box["y"] + 50)
            if shift:
                page.keyboard.down("Shift")
            page.mouse.down()
            page.mouse.move(box["x"] + 600, box["y"] + 50, steps=4)
            page.mouse.up()
            page.keyboard.up("Shift")
            chosen.append(page.evaluate("gputrace.timeline.selection()"))
            page.evaluate("gputrace.timeline.clear()")
        assert report.domain() == pytest.approx(whole)
        for one in chosen:
            assert one["to"] - one["from"] == pytest.approx((whole[1] - whole[0]) * 200 / 1025, rel=0.1)
        assert chosen[0]["from"] == pytest.approx(chosen[1]["from"], abs=0.5)


def test_the_keyboard_selects_and_goes_from_gap_to_gap(browser: Browser, told_story: Report) -> None:
    gaps = sorted(seconds(told_story, gap.start_ns) for gap in told_story.diagnosis.gaps.list)
    with opened(browser, told_story, reduced_motion="reduce") as report:
        page = report.page
        page.locator("#timeline-gpu0").focus()
        seen = []
        for key in ("n", "n", "n", "p"):
            page.keyboard.press(key)
            page.wait_for_timeout(60)
            low, high = page.evaluate("gputrace.timeline.domain()")
            seen.append(low + (high - low) / 4)
        expected = [gaps[0], gaps[1], gaps[2], gaps[1]]
        assert seen[1:] == pytest.approx(expected[1:], abs=0.01)
        page.keyboard.press("Shift+ArrowRight")
        one = page.evaluate("gputrace.timeline.selection()")
        page.keyboard.press("Shift+ArrowRight")
        two = page.evaluate("gputrace.timeline.selection()")
        assert two["to"] > one["to"] and two["from"] == one["from"]
        page.keyboard.press("Escape")
        assert page.evaluate("gputrace.timeline.selection()") is None


def test_what_is_shown_is_said_in_words(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story) as report:
        status = report.page.get_by_role("status").filter(has_text="Shown:")
        assert "GPU 0" in status.inner_text()
        report.page.evaluate("gputrace.timeline.zoom(100, 120)")
        wait_until(report.page, "document.getElementById('shown').textContent.includes('100.00 to 120.00 s')")


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("two-gpus")
    write_capture(play(PRESETS["two-gpus"], seed=7), folder / "capture")
    return make_report(folder, folder / "capture")


def test_every_gpu_is_on_paper_in_its_colours(browser: Browser, two_gpus: Report) -> None:
    with opened(browser, two_gpus, color_scheme="dark", viewport={"width": 1000, "height": 400}) as report:
        page = report.page
        wait_until(
            page, "document.querySelectorAll('.panel canvas').length === document.querySelectorAll('.panel').length"
        )
        assert page.locator(".drawn-dark").count() == 2
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        wait_until(page, "!document.querySelector('.drawn-dark') && gputrace.timeline.views.length === 10")
        page.emulate_media(media="print")
        assert page.locator(".undrawn:visible").count() == 0
        page.evaluate("document.querySelectorAll('#timeline-gpu1 canvas').forEach(canvas => canvas.remove())")
        assert "not drawn yet" in page.locator(".undrawn:visible").inner_text()


def gap_gone_to(page: Page) -> float:
    """Where the gap of the second GPU begins that the page says it went to, in seconds."""
    words = page.locator("#readout").inner_text()
    assert words.startswith("GPU 1, gap at ")
    return float(words.removeprefix("GPU 1, gap at ").split(" s,")[0])


def test_gaps_are_gone_through_on_the_gpu_in_use(browser: Browser, two_gpus: Report) -> None:
    own = sorted(seconds(two_gpus, gap.start_ns) for gap in two_gpus.diagnosis.gaps.list if gap.gpu == 1)
    with opened(browser, two_gpus, reduced_motion="reduce") as report:
        page = report.page
        page.locator("#timeline-gpu1").focus()
        forward = page.get_by_role("button", name="Next gap")
        for start in own[:3]:
            forward.focus()
            page.keyboard.press("Enter")
            assert gap_gone_to(page) == pytest.approx(start, abs=0.001)
            assert forward.evaluate("button => button === document.activeElement")
        assert page.locator("#timeline-gpu1 .band").is_visible()
        assert not page.locator("#timeline-gpu0 .band").is_visible()
        # A gap that is out of view is not where one is.
        page.evaluate("from => gputrace.timeline.zoom(from, from + 1)", own[-1] - 0.5)
        forward.click()
        assert gap_gone_to(page) == pytest.approx(own[-1], abs=0.001)


def test_back_returns_to_the_row(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story, reduced_motion="reduce") as report:
        page = report.page
        row = page.locator("#gaps tbody tr").nth(7)
        row.locator("td").nth(2).click()
        wait_until(page, "document.activeElement.id === 'timeline-gpu0'")
        page.go_back()
        wait_until(page, "Boolean(document.activeElement.dataset.zoomFrom)")
        assert row.locator("button").evaluate("button => button === document.activeElement")
        assert row.is_visible()
        # The text of a log line is for reading.
        before = page.evaluate("gputrace.timeline.domain()")
        page.locator("#log-lines .content").first.click()
        assert page.evaluate("gputrace.timeline.domain()") == before


def test_a_selection_is_announced_and_hides_no_line_from_its_link(browser: Browser, told_story: Report) -> None:
    with opened(browser, told_story) as report:
        page = report.page
        page.evaluate("gputrace.timeline.select(20, 20.01)")
        said = page.locator("#selected[aria-live='polite']")
        said.filter(has_text="20.0 to 20.0 s of GPU 0 selected").wait_for()
        anchor = page.locator("#log-lines tr[hidden]").last.get_attribute("id")
        page.evaluate("anchor => { location.hash = anchor; }", anchor)
        page.locator(f"#{anchor}").wait_for()
        said.get_by_role("link").click()
        page.get_by_role("button", name="Clear selection").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "timeline-gpu0"
        said.filter(has_not_text="selected").wait_for(state="attached")
        page.evaluate("gputrace.timeline.select(100, 160)")
        page.locator("#gaps .filtered button").focus()
        page.keyboard.press("Enter")
        assert page.locator("#gaps .scroll").evaluate("place => place === document.activeElement")


def test_a_finger_is_told_what_it_can_do_and_taps_for_words(browser: Browser, told_story: Report) -> None:
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    with opened(browser, told_story, **phone) as report:
        page = report.page
        assert "Drag moves; Select" in page.locator("#readout").inner_text()
        page.get_by_role("button", name="Select", exact=True).tap()
        assert page.locator("#readout").inner_text().startswith("Drag selects")
        page.locator(".panel.regimes canvas").tap(position={"x": 120, "y": 12})
        page.locator("#timeline-tip").wait_for()


def test_a_log_alone_divides_lost_time_into_nothing(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, make_report(tmp_path, LOG)) as report:
        page = report.page
        assert "not computing: copying or idle, unknown" in page.locator("#timeline-gpu0").inner_text()
        page.evaluate("gputrace.timeline.select(20, 40)")
        page.locator("#selection").wait_for()
        for place in ("#shown", "#selection"):
            text = page.locator(place).inner_text()
            assert "not computing" in text
            assert "copy-only" not in text and "idle" not in text.replace("kernel-phase-idle", "")


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("day") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        path.write_text(day_on_eight_gpus(patch), encoding="utf-8")
    return path


def test_a_day_on_eight_gpus_is_under_12_mb(day: Path) -> None:
    page = day.read_text(encoding="utf-8")
    assert page.count('id="store-gpu') == 8
    assert "the lowest and the highest of every 2 s." in page
    assert "phases are held one by one" in page
    assert 6_000_000 < day.stat().st_size < 12_000_000


def test_a_day_on_eight_gpus_opens_and_says_what_it_lacks(browser: Browser, day: Path, told_story: Report) -> None:
    began = time.monotonic()
    with opened(browser, Report(day, told_story.trace, told_story.diagnosis)) as report:
        took = time.monotonic() - began
        print(f"a day on eight GPUs opened in {took:.1f} s")
        assert took < 10
        page: Any = report.page
        # Only what is near is drawn.
        assert 4 <= page.evaluate("gputrace.timeline.views.length") < 12
        page.locator("#timeline-gpu7 .panel.link").scroll_into_view_if_needed()
        wait_until(page, "Boolean(gputrace.timeline.view('gpu7-link'))")
        page.evaluate("gputrace.timeline.zoom(50000.25, 50010.75)")
        told = "#timeline-gpu7 .coarse"
        page.locator("#timeline-gpu7 .panel.phases").scroll_into_view_if_needed()
        wait_until(page, f"document.querySelector('{told}').textContent.includes('--html part.html')")
        text = page.locator(told).inner_text()
        assert "gputrace report " in text and "--from 50000.2 --to 50010.8" in text.replace("50000.3", "50000.2")
        rows = page.evaluate("gputrace.timeline.view('gpu7-phases').data('rows')")
        assert rows and all("share" in row for row in rows)
        page.evaluate("gputrace.timeline.zoom(20, 40)")
        page.wait_for_timeout(300)
        rows = page.evaluate("gputrace.timeline.view('gpu7-phases').data('rows')")
        assert rows and all("call" in row for row in rows)
