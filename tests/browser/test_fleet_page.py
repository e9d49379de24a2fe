"""The fleet's page in a real browser: sorted by a click, whole without network, deaf to what a capture says."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from gputrace.fleet.run import assemble
from gputrace.render.fleet_html import FleetHtmlRenderer
from tests.fleets import summary

pytestmark = pytest.mark.browser
HOSTILE = "</script><img/src=x/onerror=window.pwned=1>"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    lost = {"b": 30.0, "a": 9.5, HOSTILE: 100.0, "c": 0.0}
    made = [summary(host, day, {"prep-barrier": s}, window_s=200.0) for host, s in lost.items() for day in range(3)]
    file = tmp_path / "fleet.html"
    file.write_text(FleetHtmlRenderer().render(assemble(made)), encoding="utf-8")
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("no chromium or google-chrome: run `make browser`")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        context = running.new_context(viewport={"width": 390, "height": 800})
        context.set_offline(True)
        opened = context.new_page()
        errors: list[str] = []
        opened.on("console", lambda message: errors.append(message.text))
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.goto(file.as_uri())
        yield opened
        assert errors == []
        running.close()


def column(page: Page, number: int) -> list[str]:
    cells: list[str] = page.eval_on_selector_all(
        "#hosts tbody tr", f"rows => rows.map(row => row.cells[{number}].textContent)"
    )
    return cells


def test_headings_sort_by_value_and_nothing_of_a_capture_runs(page: Page) -> None:
    assert column(page, 0) == [HOSTILE, "b", "a", "c"]
    lost = page.locator("#hosts th button", has_text="Lost").first
    lost.click()
    assert column(page, 2) == ["0 s", "28.5 s", "90.0 s", "300.0 s"]
    assert page.locator("#hosts th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.locator("#hosts th button", has_text="Host").click()
    assert column(page, 0) == [HOSTILE, "a", "b", "c"]
    assert page.evaluate("window.pwned") is None
    # On a telephone the tables scroll, the page does not.
    assert page.evaluate("document.documentElement.scrollWidth") == 390
