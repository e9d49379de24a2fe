"""Opens reports in a real browser for the tests here."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.ingest.inputs import ingest
from gputrace.rebuild.rebuild import rebuild
from gputrace.render.html import HtmlRenderer
from gputrace.trace import Trace

TOLD_STORY = Path(__file__).parents[2] / "sample_logs" / "told-story"
LOG, SAMPLES = TOLD_STORY / "prover.log.gz", TOLD_STORY / "nvml.csv.gz"
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
