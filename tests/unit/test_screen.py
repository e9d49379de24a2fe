"""When to colour, how wide to write, and what an encoding can show."""

import io

import pytest
from rich.cells import cell_len
from rich.text import Text

from gputrace.errors import UsageError
from gputrace.printable import printable, printable_values
from gputrace.render.screen import Screen, colors_of, screen_of
from gputrace.render.text_parts import as_text
from gputrace.trace import InputInfo, Quality, Trace

XTERM = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("terminal", "color", "environment", "expected"),
    [
        (True, "auto", XTERM, "standard"),
        (True, "auto", {"TERM": "xterm-256color"}, "256"),
        (True, "auto", {"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "truecolor"),
        (False, "auto", XTERM, "none"),
        (True, "auto", {"TERM": "dumb"}, "none"),
        (True, "auto", {**XTERM, "NO_COLOR": "0"}, "none"),
        (True, "auto", {**XTERM, "NO_COLOR": ""}, "standard"),
        (True, "auto", {**XTERM, "CLICOLOR": "0"}, "none"),
        (False, "auto", {**XTERM, "FORCE_COLOR": "1"}, "standard"),
        (False, "auto", {**XTERM, "CLICOLOR_FORCE": "1"}, "standard"),
        (False, "auto", {**XTERM, "CLICOLOR_FORCE": "0", "FORCE_COLOR": "0"}, "none"),
        (True, "auto", {**XTERM, "NO_COLOR": "1", "FORCE_COLOR": "1"}, "none"),
        (False, "always", {"NO_COLOR": "1"}, "standard"),
        (True, "never", {**XTERM, "FORCE_COLOR": "1"}, "none"),
    ],
)
def test_colours(terminal: bool, color: str, environment: dict[str, str], expected: str) -> None:
    assert colors_of(terminal, color, environment) == expected


def test_a_wrong_choice_says_which_was_meant() -> None:
    with pytest.raises(UsageError, match="did you mean 'always'"):
        colors_of(True, "allways", {})


@pytest.mark.parametrize(
    ("encoding", "ascii_only"), [("utf-8", False), ("ascii", True), ("latin-1", True), ("utf-16", False)]
)
def test_encodings(encoding: str, ascii_only: bool) -> None:
    assert screen_of(io.TextIOWrapper(io.BytesIO(), encoding=encoding), "auto", {}) == Screen(80, "none", ascii_only)


@pytest.mark.parametrize(("columns", "width"), [("40", 60), ("60", 60), ("100", 100), ("300", 120)])
def test_width_of_a_terminal(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(stream, "isatty", lambda: True)
    assert screen_of(stream, "auto", XTERM).width == width


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("porep-1000 (ü, 証明)", "porep-1000 (ü, 証明)"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\n\tc\a", "a\\rb\\n\\tc\\x07"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b2J", "\\x9b2J"),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_acts_on_a_terminal_is_written_out(raw: str, shown: str) -> None:
    assert printable(raw) == shown


def test_every_text_of_a_value_is_made_printable_and_the_value_itself_left_alone() -> None:
    quality = Quality(marks_by_event={"a\x1b": 1})
    quality.notice("x", "n\x1b")
    trace = Trace(inputs=[InputInfo("p\x1b", "log", "f")], quality=quality)
    safe = printable_values(trace)
    assert safe.inputs[0].path == "p\\x1b" and safe.quality.notices[0].text == "n\\x1b"
    assert safe.quality.marks_by_event == {"a\\x1b": 1}
    assert safe.marks is trace.marks
    assert trace.inputs[0].path == "p\x1b" and trace.quality.notices[0].text == "n\x1b"


def test_ascii_takes_no_more_cells_than_what_it_stands_for() -> None:
    parts = [Text("e\u0301 証明 ❤\ufe0f 👩🏽 🇩🇪 − …")]
    (drawn,) = as_text(parts, Screen(80)).splitlines()
    (plain,) = as_text(parts, Screen(80, ascii=True)).splitlines()
    assert plain.isascii() and plain.startswith("e ??") and plain.endswith("- ~")
    assert len(plain) <= cell_len(drawn)
