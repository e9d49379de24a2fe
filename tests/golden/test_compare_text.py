"""The comparison of two samples, as a person reads it. `GPUTRACE_UPDATE_GOLDEN=1` writes the file anew."""

import os
from pathlib import Path

import pytest

from gputrace.analysis.compare import compare
from gputrace.loading import load
from gputrace.render.compare_text import CompareTextRenderer
from tests.captures import ROOT


def test_compare_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = ("sample_logs/h200-pageable", "tests/data/pageable-membw")
    before, after = (load([name]) for name in names)
    text = CompareTextRenderer(80).render(
        compare(before, after, names=names, fail_if=["mutex_held_ms.median > 1.05x", "compute_share < 0.33"])
    )
    golden = Path(__file__).parent / "compare-pageable-heavy-membw.80.txt"
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert max(map(len, text.splitlines())) <= 80
