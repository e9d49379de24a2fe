"""What the report shows beside the analysis: citations, excerpts, provenance, words on trust."""

from dataclasses import replace

import polars as pl
import pytest

from gputrace import __version__, schema
from gputrace.analysis.diagnosis import Diagnosis, HypothesisFinding
from gputrace.analysis.evidence import LogLine, cited
from gputrace.render.page.excerpt import excerpt, excerpts
from gputrace.render.page.lines import LogLines, raw_lines_command
from gputrace.render.page.trust import clock_meaning, open_questions, threshold_value
from gputrace.render.provenance import provenance
from gputrace.trace import Clock, InputInfo, Trace


def two_logs() -> Trace:
    """Line 7 is a record in both of two logs."""
    marks = pl.DataFrame(
        {
            "source": [0, 1, 1],
            "line": [7, 7, 9],
            "family": ["timeline", "cuzk-timing", "cuzk-timing"],
            "event": ["GPU_START", "prep_msm", "b_g2_msm"],
            "job": ["x" * 1000, None, None],
            "values": [[], [{"key": "prep_msm_ms", "value": "12"}], []],
        }
    )
    inputs = [InputInfo("logs/prover.stdout", "log", "plain"), InputInfo("logs/a b.stderr", "log", "plain")]
    return Trace(inputs=inputs, marks=schema.MARKS.fit(marks))


def test_a_number_that_two_logs_have_is_two_lines() -> None:
    log = LogLines(two_logs(), None, [LogLine(1, 7), LogLine(0, 7), LogLine(1, 9), LogLine(1, 7)])
    assert log.count == 3
    assert [link.text for link in log.links([(0, 7), (1, 7)])] == ["prover.stdout:7", "a b.stderr:7"]
    assert [link.href for link in log.links([(0, 7), (1, 7)])] == ["#line-0-7", "#line-1-7"]
    first, second = log.inputs
    assert second.command == "sed -n '7p;9p;9q' 'logs/a b.stderr'"
    assert "prep_msm_ms=12" in second.lines[0].content
    assert first.lines[0].content.startswith("timeline GPU_START job=xxx")
    assert first.lines[0].content.endswith("… (1,023 characters)")
    assert len(first.lines[0].content) < 330


def test_the_least_important_citations_are_counted_not_listed() -> None:
    log = LogLines(two_logs(), None, [LogLine(1, 7), LogLine(0, 7), LogLine(1, 9)], most=2)
    assert (log.count, log.omitted) == (2, 1)
    assert log.link((1, 9)) is None
    assert log.link(None) is None
    assert log.link((1, 7)) is not None


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("x.log", "sed -n '3p;3q' x.log"),
        ("x's.log.gz", "zcat 'x'\"'\"'s.log.gz' | sed -n '3p;3q'"),
        ("x.zst", "zstdcat x.zst | sed -n '3p;3q'"),
    ],
)
def test_commands_are_quoted_and_unpack(path: str, command: str) -> None:
    assert raw_lines_command(path, [3]) == command


def test_a_citation_needs_both_input_and_line() -> None:
    rows = pl.DataFrame({"source": [0, None, 2], "line": [5, 6, None]})
    assert cited(rows) == ((5,), (0,))


def test_long_text_says_how_long_it_was() -> None:
    assert excerpt("short") == "short"
    assert excerpt("y" * 1_000_000, 10) == "yyyyyyyyyy… (1,000,000 characters)"
    frame = excerpts(pl.DataFrame({"job": ["a", "b" * 500, None], "n": [1, 2, 3]}), 4)
    assert frame["job"].to_list() == ["a", "bbbb… (500 characters)", None]
    assert frame["n"].to_list() == [1, 2, 3]


def test_the_command_is_as_it_was_typed() -> None:
    made = provenance(["report", "a b.log", "--html", "out.html"])
    assert made.command == "gputrace report 'a b.log' --html out.html"
    assert dict(made.versions)["gputrace"] == __version__
    assert set(dict(made.versions)) == {"gputrace", "Python", "polars"}


def test_what_is_missing_is_said_with_what_would_settle_it() -> None:
    undecided = HypothesisFinding(
        "throttled", "GPU clocks are held down", "undetermined", 0.0, next_step="record clocks"
    )
    asked = list(open_questions(Trace(), Diagnosis(hypotheses=(undecided,))))
    assert [item.question for item in asked] == [
        "Why the GPU was idle",
        "What was copied, and whether the GPU really computed",
        "Whether GPU clocks are held down",
    ]
    assert asked[-1].allowed_by == "record clocks"
    refuted = replace(undecided, verdict="refuted")
    assert len(list(open_questions(Trace(), Diagnosis(hypotheses=(refuted,))))) == 2


def test_clocks_and_thresholds_in_words() -> None:
    assert "12.5 ms" in clock_meaning(Clock("wrapper", True, 0.0, 0.0125))
    assert "Another placement" in clock_meaning(Clock("correlation", False, 0.0, 0.5))
    assert "unknown" in clock_meaning(Clock())
    assert [threshold_value("gap_compute", 0.15), threshold_value("gap_compute", 0.3)] == ["15%", "30%"]
    assert threshold_value("copy_link_share", 0.005) == "0.5%"
    assert threshold_value("gap_smoothing_s", 0.4) == "0.4 s"
