"""The terminal report of two samples, as a person reads it. `GPUTRACE_UPDATE_GOLDEN=1` writes the files anew."""

import os
from pathlib import Path

import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.loading import load
from gputrace.render.text import TextRenderer
from tests.captures import ROOT


@pytest.mark.parametrize("name", ["h200-pageable", "h200-pinned", "told-story"])
@pytest.mark.parametrize("width", [80])
def test_text_report(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    trace = load([f"sample_logs/{name}"])
    text = TextRenderer(width).render(trace, diagnose(trace))
    golden = Path(__file__).parent / f"{name}.{width}.txt"
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert max(map(len, text.splitlines())) <= width
