"""Draws the pictures of docs/images anew, from a report of sample_logs/h200-pageable: `make screenshots`.

Beside them it writes manifest.json: which pictures there are, of which version, under which headline.
"""

import asyncio
import io
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image
from playwright.sync_api import Browser, PdfMargins, sync_playwright
from rich.console import Console
from rich.text import Text

from gputrace import __version__
from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.live.app import LiveApp
from gputrace.live.feed import Replay
from gputrace.live.session import Session
from gputrace.loading import load
from gputrace.render.html import HtmlRenderer
from gputrace.render.text import TextRenderer
from gputrace.trace import Trace

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SAMPLE = "sample_logs/h200-pageable"
# The part of the terminal's report that fits a screen.
_LINES = 46
# While a timeline moves it is drawn coarsely; this long after that it is not.
_RESTED_MS = 1500
_LIVE_AT_S = 40.0
# What browsers leave around a printed page.
_MARGINS: PdfMargins = {"top": "10mm", "bottom": "10mm", "left": "10mm", "right": "10mm"}
# Fonts that rich would load from a server.
_REMOTE_FONT = re.compile(r"@font-face\s*\{[^}]*\}", re.DOTALL)
VIEWS: dict[str, dict[str, Any]] = {
    "report-1280.png": {"viewport": {"width": 1280, "height": 960}},
    "report-dark.png": {"viewport": {"width": 1280, "height": 960}, "color_scheme": "dark"},
    "report-phone.png": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}


def main() -> None:
    """Draws all of them."""
    os.chdir(ROOT)
    os.environ.pop("NO_COLOR", None)
    IMAGES.mkdir(exist_ok=True)
    trace = load([SAMPLE])
    diagnosis = diagnose(trace)
    drawn = {**_of_the_page(trace, diagnosis), **_of_the_terminal(trace, diagnosis)}
    for name, content in drawn.items():
        (IMAGES / name).write_bytes(content)
        print(f"Wrote docs/images/{name}, {len(content) / 1e3:.0f} kB")
    manifest = {
        "made_by": "make screenshots",
        "version": __version__,
        "sample": SAMPLE,
        "headline": diagnosis.headline,
        "images": sorted(drawn),
    }
    (IMAGES / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _of_the_page(trace: Trace, diagnosis: Diagnosis) -> dict[str, bytes]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("no chromium or google-chrome: run `make browser`")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        page.write_text(HtmlRenderer().render(trace, diagnosis), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        drawn = {name: _png(_shot(browser, page, options)) for name, options in VIEWS.items()}
        drawn["report-timeline.png"] = _png(_shot(browser, page, VIEWS["report-1280.png"], "#timeline"))
        drawn["report-print.png"] = _png(_printed(browser, page))
        browser.close()
    return drawn


def _shot(browser: Browser, report: Path, options: dict[str, Any], part: str | None = None) -> bytes:
    """The top of the page in such a window, or one part of it."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(report.as_uri())
    page.evaluate("gputrace.ready")
    page.wait_for_timeout(_RESTED_MS)
    taken = page.screenshot() if part is None else page.locator(part).screenshot()
    context.close()
    return taken


def _printed(browser: Browser, report: Path) -> bytes:
    """The first sheet of the page printed to PDF, at 96 dots an inch."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(report.as_uri())
    page.evaluate("gputrace.ready")
    document = pypdfium2.PdfDocument(page.pdf(format="A4", margin=_MARGINS))
    sheet = document[0].render(scale=96 / 72).to_pil()
    context.close()
    stored = io.BytesIO()
    sheet.save(stored, "PNG")
    return stored.getvalue()


def _png(picture: bytes) -> bytes:
    """The same picture, packed as small as it goes without a colour lost."""
    stored = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").save(stored, "PNG", optimize=True)
    return stored.getvalue()


def _of_the_terminal(trace: Trace, diagnosis: Diagnosis) -> dict[str, bytes]:
    lines = TextRenderer(80, "256", full=False).render(trace, diagnosis).splitlines()[:_LINES]
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(lines)))
    report = console.export_svg(title=f"gputrace report {SAMPLE}", unique_id="report")
    return {"terminal-report.svg": _svg(report), "terminal-live.svg": _svg(asyncio.run(_live()))}


async def _live() -> str:
    """The live view of a replay, paused."""
    session = Session(Replay([SAMPLE]), start_s=_LIVE_AT_S, paused=True, monotonic=lambda: 0.0)
    session.work()
    app = LiveApp(session, working=False)
    async with app.run_test(size=(110, 34)) as pilot:
        await pilot.pause()
        await pilot.pause(0.1)
        return app.export_screenshot(title=f"gputrace live {SAMPLE}")


def _svg(drawing: str) -> bytes:
    """Without remote fonts; the names of its styles do not change from run to run."""
    drawing = _REMOTE_FONT.sub("", drawing)
    return re.sub(r"terminal-\d+", "terminal", drawing).encode()


if __name__ == "__main__":
    main()
