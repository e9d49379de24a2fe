"""What a notebook shows: plain HTML that escapes, is bounded, and leaves the notebook's own page alone."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import gputrace
from gputrace.analysis.compare.comparison import Comparison, SideInfo
from gputrace.analysis.diagnosis import Diagnosis, Evidence, HypothesisFinding, Regime
from gputrace.display import Displayed
from gputrace.render.notebook import MOST_ROWS, fragment
from gputrace.trace import InputInfo, Notice, Quality, Trace
from tests.captures import diagnosis, read

NAME = "pageable-heavy"
HOSTILE = "</div><script>alert(1)</script><img src=x onerror=alert(1)> {{ 7 * 7 }} \"'&"
VOID = {"br", "hr", "img", "input", "meta"}


class Tags(HTMLParser):
    """Every start tag with its attributes; checks that each is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(value: Any) -> str:
    html: str = value._repr_html_()
    return html


def values() -> dict[str, Displayed]:
    found = diagnosis(NAME)
    by_verdict: dict[str, Displayed] = {finding.verdict: finding for finding in reversed(found.hypotheses)}
    side = SideInfo("a", 0, 0, (), None)
    return {
        "trace": read(NAME),
        "part": gputrace.part(read(NAME), worker=0),
        "empty trace": Trace(),
        "diagnosis": found,
        "empty diagnosis": Diagnosis(),
        **by_verdict,
        "regime": found.regimes[0],
        "effect": found.what_if[0],
        "outlook": gputrace.Outlook(found.bounds, found.what_if, found.replay),
        "nothing foreseen": gputrace.Outlook(missing="no calls"),
        "comparison": Comparison("nothing", side, side, ()),
    }


@pytest.fixture(scope="module")
def fragments() -> dict[str, str]:
    return {name: shown(value) for name, value in values().items()}


def test_every_piece_is_plain_html(fragments: dict[str, str]) -> None:
    assert len(fragments) == 13
    for name, html in fragments.items():
        tags = Tags(html).seen
        assert len(tags) >= 2, name
        for tag, attributes in tags:
            assert tag in {"div", "span", "strong", "code", "table", "tr", "th", "td", "ul", "li"}, name
            assert set(attributes) <= {"style", "role", "aria-label", "colspan"}, name
        assert len(html) < 20_000, name


def test_text_has_no_colour_of_its_own(fragments: dict[str, str]) -> None:
    for html in fragments.values():
        assert re.findall(r"[;\"]\s*color:", html) == []


def test_a_diagnosis_shows_the_argument(fragments: dict[str, str]) -> None:
    found, html = diagnosis(NAME), fragments["diagnosis"]
    assert found.headline in html
    assert "compute 23%" in html and "copy-only 65%" in html
    for finding in found.hypotheses:
        assert finding.id in html
    for effect in found.what_if:
        assert f"<code>{effect.scenario}</code>" in html


def test_a_verdict_shows_evidence_for_and_against(fragments: dict[str, str]) -> None:
    finding = next(f for f in diagnosis(NAME).hypotheses if f.id == "host-memory-contention")
    html = shown(finding)
    assert html.index(">For<") < html.index(">Against<")
    assert html.count("<li>") == len(finding.evidence)
    assert "record clocks_event_reasons" in fragments["undetermined"]


def test_an_unstable_headline_is_called_undetermined() -> None:
    stable = diagnosis(NAME)
    assert "Undetermined:" not in shown(stable)
    assert "Undetermined:" in shown(replace(stable, headline_stable=False))


def test_words_of_a_log_stay_words_and_are_bounded() -> None:
    long = HOSTILE * 2000
    inputs = [InputInfo(long, "log", HOSTILE) for _ in range(100)]
    many = [Notice("made", long) for _ in range(100)]
    evidence = tuple(Evidence(long, None, None, bool(n % 2), tuple(range(100))) for n in range(100))
    bad = [
        Trace(inputs=inputs, quality=Quality(notices=many)),
        Diagnosis(headline=HOSTILE, what_if_missing=long),
        HypothesisFinding(HOSTILE, HOSTILE, "supported", 1.0, 1.0, evidence=evidence, knob=long, next_step=long),
        Regime(0, 1, 1, HOSTILE, long, {HOSTILE: 1.0}, HOSTILE, {}),
        gputrace.Outlook(missing=HOSTILE),
        Comparison(
            HOSTILE, SideInfo(HOSTILE, 1, 0, (), None), SideInfo(long, 1, 0, (), None), (), notices=(long,) * 100
        ),
    ]
    for value in bad:
        html = shown(value)
        tags = {tag for tag, _ in Tags(html).seen}
        assert tags.isdisjoint({"script", "img"}) and "&lt;script&gt;" in html
        assert "49" not in html.replace("149", "")
        assert len(html) < 60_000
    assert shown(bad[0]).count("<li>") == MOST_ROWS and "88 more: inputs" in shown(bad[0])


def test_only_our_values_have_a_form() -> None:
    with pytest.raises(TypeError, match="a int has no form"):
        fragment(3)


def test_at_a_prompt_a_value_takes_a_line() -> None:
    shown_as = {name: repr(value) for name, value in values().items()}
    assert all("\n" not in text and len(text) < 600 for text in shown_as.values())
    assert shown_as["trace"].startswith("Trace(inputs=<3>, calls=<43 rows>, phases=<781 rows>")
    assert shown_as["supported"].startswith("HypothesisFinding(id='pageable-h2d', verdict='supported', confidence=0.94")
    assert shown_as["nothing foreseen"] == "Outlook(what_if=<0>, bounds=<0>, missing='no calls')"


def test_a_value_shows_itself_though_nothing_was_drawn_before() -> None:
    """A fresh interpreter, as a notebook's: what draws is loaded when the first value is shown."""
    import subprocess
    import sys

    script = (
        "import sys; from gputrace.trace import Trace; assert 'jinja2' not in sys.modules; "
        "html = Trace()._repr_html_(); print(html.count('Trace of 0 calls'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=gputrace_root()
    )
    assert ran.stdout.strip() == "1"


def gputrace_root() -> str:
    from tests.captures import ROOT

    return str(ROOT)
