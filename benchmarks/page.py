"""How large the HTML report is, how long it takes to make and to open, and how long a frame of zoom or pan takes.

    python -m benchmarks.page [HOURS GPUS]...

Without arguments: an hour on one GPU, and a day on eight. The runs are a real capture repeated, each repetition
stretched and jittered on its own (`tests/big_runs.py`), read every 0.1 s. Frames are timed in chromium at 1280 x 900
with the first GPU's panels in the window: each is one `zoom` until it has been drawn, at several zooms.
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from gputrace.render.html import HtmlRenderer
from tests.big_runs import long_run

_FRAMES = """
async (share) => {
  const [start, end] = gputrace.timeline.full();
  const span = (end - start) * share;
  const middle = start + (end - start) * 0.02;
  const times = [];
  for (let i = 0; i < 40; i++) {
    const from = share === 1 ? start : middle + span * i * 0.02;
    const width = share === 1 ? span * (1 - i * 0.004) : span;
    const before = performance.now();
    await gputrace.timeline.zoom(from, from + width);
    times.push(performance.now() - before);
  }
  return times.slice(5);
}
"""


def measure(browser: Browser, hours: float, gpus: int) -> None:
    """Makes one page, opens it, moves its timeline, and prints what that took."""
    trace, diagnosis = long_run(hours, gpus)
    wall, cpu = time.perf_counter(), time.process_time()
    text = HtmlRenderer().render(trace, diagnosis)
    made, made_cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{hours:g} h on {gpus} GPU(s): {len(text) / 1e6:.2f} MB, made in {made:.1f} s ({made_cpu:.1f} s CPU)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        started = time.perf_counter()
        page.goto(path.as_uri())
        page.evaluate("gputrace.ready")
        print(f"  opened in {time.perf_counter() - started:.2f} s")
        page.locator("#timeline-gpu0").scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        for share in (1.0, 0.3, 0.05, 0.01, 0.001):
            times = sorted(page.evaluate(_FRAMES, share))
            median, slow = statistics.median(times), times[int(len(times) * 0.95)]
            print(f"  {share:6.1%} of the run in view: frame {median:.0f} ms (median), {slow:.0f} ms (p95)")
        page.close()


def main() -> None:
    """Measures the sizes asked for."""
    asked = sys.argv[1:] or ["1", "1", "24", "8"]
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for hours, gpus in zip(asked[::2], asked[1::2], strict=True):
            measure(browser, float(hours), int(gpus))
        browser.close()


if __name__ == "__main__":
    main()
