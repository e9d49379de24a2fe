"""The terminal report of samples, as a person reads it: short as by default, whole, narrow and wide.

`GPUTRACE_UPDATE_GOLDEN=1` writes the files anew.
"""

import os
from pathlib import Path

import pytest
from rich.cells import cell_len

from gputrace.analysis.diagnose import diagnose
from gputrace.loading import load
from gputrace.render.text import TextRenderer
from tests.captures import ROOT


def check(name: str, suffix: str, text: str, width: int) -> None:
    golden = Path(__file__).parent / f"{name}.{suffix}.txt"
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize("name", ["h200-pageable", "h200-pinned", "told-story"])
def test_text_report(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    trace = load([f"sample_logs/{name}"])
    diagnosis = diagnose(trace)
    check(name, "80", TextRenderer().render(trace, diagnosis), 80)
    check(name, "brief.80", TextRenderer(full=False).render(trace, diagnosis), 80)
    if name == "told-story":
        check(name, "60", TextRenderer(60).render(trace, diagnosis), 60)
        check(name, "brief.120", TextRenderer(120, full=False).render(trace, diagnosis), 120)
        check(name, "ascii.80", TextRenderer(ascii=True, full=False).render(trace, diagnosis), 80)


def test_the_first_screenful_is_the_answer() -> None:
    """What the GPU did, why, and what a fix is worth: within 24 lines of 80 columns."""
    for name in ("h200-pageable", "told-story"):
        lines = (Path(__file__).parent / f"{name}.brief.80.txt").read_text().splitlines()
        first = "\n".join(lines[:24])
        for said in ("The GPU was computing", "Lost seconds by cause", "upper-bound"):
            assert said in first
        assert len(lines) <= 80
