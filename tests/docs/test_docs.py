"""The documents say what the code does."""

import dataclasses
import re

from gputrace.analysis import thresholds as limits
from gputrace.analysis.blame import UNEXPLAINED
from gputrace.analysis.hypotheses import ALL
from gputrace.analysis.regimes import cases as regime_cases
from gputrace.analysis.thresholds import Thresholds
from tests.captures import ROOT


def test_every_cause_is_defined() -> None:
    text = (ROOT / "docs" / "definitions.md").read_text()
    rules = (ROOT / "gputrace" / "analysis" / "blame.py").read_text()
    charged = set(re.findall(r'^        \(.*, "([a-z0-9-]+)"\),$', rules, flags=re.MULTILINE))
    assert len(charged) >= 10
    for cause in charged | {UNEXPLAINED}:
        assert f"| `{cause}` |" in text
    assert charged <= {hypothesis.id for hypothesis in ALL}


def test_thresholds_in_the_definitions_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "definitions.md").read_text()
    thresholds = Thresholds()
    for said in (
        f"exceeds {thresholds.copy_link_share * 100:.0f} % of the link",
        f"compute below {thresholds.gap_compute:g}, smoothed over {thresholds.gap_smoothing_s:g} s",
    ):
        assert said in re.sub(r"\s+", " ", text)
    assert len(dataclasses.fields(thresholds)) == 5


def test_labels_and_limits_of_regimes_are_those_of_the_code() -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "definitions.md").read_text())
    code = (ROOT / "gputrace" / "analysis" / "regimes" / "cases.py").read_text()
    labels = {*re.findall(r'return "([^"]+)"$', code, flags=re.MULTILINE), *regime_cases.BY_CAUSE.values()}
    assert len(labels) >= 12
    for label in labels:
        assert f"| {label} |" in text
    for said in (
        f"at least {limits.MIN_CALLS} calls and {limits.REGIME_LEAST_SHARE * 100:.0f} % of the run's time",
        f"must move by {limits.REGIME_CHANGE_SHARE * 100:.0f} % of the median time",
        f"p < {limits.REGIME_P_VALUE:g} after Bonferroni",
        f"a factor {limits.BISTABLE_RATIO:g} apart",
        f"one-sided, p < {limits.BISTABLE_P_VALUE:g}",
        f"less than {limits.CHAINING_LOST_SHARE * 100:.0f} % of its GPU time is lost",
        f"cores are {limits.HOST_BUSY_SHARE * 100:.0f} % busy",
        f"less than {limits.HOST_LIGHT_SHARE * 100:.0f} % busy",
    ):
        assert said in text


def test_readme_shows_a_real_report() -> None:
    readme = (ROOT / "README.md").read_text()
    golden = (ROOT / "tests" / "golden" / "h200-pageable.brief.80.txt").read_text()
    shown = readme.split("```text\n")[1].split("```")[0]
    for line in filter(None, (line.strip() for line in shown.splitlines())):
        assert line == "..." or line in golden


def test_changelog_has_the_version() -> None:
    from gputrace import __version__

    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{__version__}]" in changelog or "## [Unreleased]" in changelog


def test_the_live_screen_in_the_manual_is_the_one_of_the_code() -> None:
    screen = (ROOT / "tests" / "golden" / "live-h200-pinned.80x24.txt").read_text()
    assert f"```\n{screen}```\n" in (ROOT / "docs" / "live.md").read_text()


def test_the_report_in_the_manual_is_the_one_of_the_code() -> None:
    manual = (ROOT / "docs" / "terminal.md").read_text()
    brief, full = ((ROOT / "tests" / "golden" / f"h200-pageable.{which}80.txt").read_text() for which in ("brief.", ""))
    shown = re.findall(r"```text\n(.*?)```", manual, flags=re.DOTALL)
    assert shown[0] == brief
    assert shown[1] in full
