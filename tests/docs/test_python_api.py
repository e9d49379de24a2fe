"""docs/python-api.md says what the package offers, and its example runs."""

import doctest
import re

import pytest

import gputrace
from gputrace import schema
from gputrace.analysis.diagnosis import Diagnosis
from tests.captures import ROOT

PAGE = ROOT / "docs" / "python-api.md"
TEXT = PAGE.read_text()


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert ran.attempted >= 10 and ran.failed == 0


def test_its_table_has_every_public_name() -> None:
    rows = TEXT.split("## Names")[1].split("## Frames")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", rows, flags=re.MULTILINE)) == sorted(gputrace.__all__)


def test_it_names_every_frame() -> None:
    frames = TEXT.split("## Frames")[1]
    names = {frame.name for frame in schema.FRAMES} | set(Diagnosis().frames())
    assert [name for name in sorted(names) if f"`{name}`" not in frames] == []
