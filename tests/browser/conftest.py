"""The browser and the reports that several tests here look at.

They share one process: its event loop must not be there while tests elsewhere run loops of their own.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.support import TOLD_STORY, Report, make_report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests of a page together on one worker, which then makes each report once."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("no chromium or google-chrome: run `make browser`")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def told_story(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(tmp_path_factory.mktemp("told-story"), TOLD_STORY)
