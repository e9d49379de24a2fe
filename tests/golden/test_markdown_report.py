"""The Markdown report of a sample, as a person reads it. `GPUTRACE_UPDATE_GOLDEN=1` writes the file anew."""

import os
from pathlib import Path

import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.loading import load
from gputrace.render.markdown import MarkdownRenderer
from tests.captures import ROOT


def test_markdown_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    trace = load(["sample_logs/h200-pageable"])
    text = MarkdownRenderer().render(trace, diagnose(trace))
    golden = Path(__file__).parent / "h200-pageable.md"
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert len(text) < 8_000
