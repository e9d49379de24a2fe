"""docs/comparing.md says what `gputrace compare` does."""

import re
from dataclasses import fields

from gputrace.analysis.compare.changes import Change
from gputrace.analysis.compare.expressions import parse
from gputrace.analysis.compare.figures import (
    DURATION_STATISTICS,
    MATTERS_ABSOLUTE,
    MATTERS_RELATIVE,
    names,
)
from gputrace.analysis.compare.gate import GateOutcome, Measured
from gputrace.analysis.compare.resampling import RESAMPLES
from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.schema import PHASE_NAMES
from tests.captures import ROOT

TEXT = (ROOT / "docs" / "comparing.md").read_text()
FLAT = re.sub(r"\s+", " ", TEXT)


def test_every_expression_that_it_shows_is_one() -> None:
    listing = TEXT.split("```\nmutex_held_ms.median > 1.05x")[1].split("```")[0]
    shown = [re.split(r"\s{3,}", line)[0] for line in f"mutex_held_ms.median > 1.05x{listing}".splitlines()]
    shown += re.findall(r"--fail-if '([^']+)'", TEXT)
    assert len(shown) >= 7
    for expression in shown:
        parse(expression)


def test_every_figure_and_statistic_is_there() -> None:
    phases = {f"{phase}_ms" for phase in PHASE_NAMES}
    for name in names():
        assert name in phases or f"`{name}`" in TEXT, name
    for statistic in DURATION_STATISTICS:
        assert f"`{statistic}`" in TEXT


def test_thresholds_are_those_of_the_code() -> None:
    assert f"at least {MATTERS_RELATIVE * 100:g} % of the value before" in FLAT
    assert f"at least {MATTERS_ABSOLUTE['ms']:g} ms (durations)" in FLAT
    assert f"{MATTERS_ABSOLUTE['s']:g} s a call" in FLAT
    assert MATTERS_ABSOLUTE["share"] == 0.01 and "1 point (shares)" in FLAT
    assert f"Fewer than {MIN_CALLS} calls on a side" in FLAT
    assert f"{RESAMPLES} times" in FLAT


def test_the_keys_of_the_json_are_there() -> None:
    keys = TEXT.split("## The JSON")[1]
    for value in (Change, GateOutcome, Measured):
        for field in fields(value):
            stem = re.sub(r"_(low|high)$", "", field.name)
            assert re.search(rf"\b{stem}\b", keys), field.name
