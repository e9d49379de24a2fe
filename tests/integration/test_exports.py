"""Where the outputs of a report go: what is refused before work is done, and what is said."""

import re
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from markdown_it import MarkdownIt

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis, Evidence, HypothesisFinding, WhatIf
from gputrace.analysis.tables import DIAGNOSIS_TABLES
from gputrace.errors import InputError, UsageError
from gputrace.render.images import charts
from gputrace.render.markdown import MarkdownRenderer, code, escaped
from gputrace.render.output import Outputs
from gputrace.render.provenance import provenance
from gputrace.schema import DIAGNOSIS_FRAMES, FRAMES
from gputrace.trace import Clock, InputInfo, Notice, Quality, Trace
from tests.captures import read
from tests.made import SCENARIOS
from tests.perfetto_reader import read_file

HOSTILE = "x|y `z` ``q`` <img src=x onerror=alert(1)> [l](http://e.example) @octocat #1 www.e.example *b* ![i](j) \n# h"


def test_several_outputs_are_written_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = read("one-worker")
    json, markdown, perfetto = targets = [str(tmp_path / f"a.{kind}") for kind in ("json", "md", "trace")]
    outputs = Outputs(None, json, markdown, perfetto, tables=str(tmp_path / "t"))
    outputs.check(force=False)
    outputs.write(trace, diagnose(trace, scenarios=()), provenance(["report"]))
    said = capsys.readouterr()
    for target in targets:
        assert f"Wrote {target}\n" in said.err
    assert f"Wrote {tmp_path / 't'} ({len(FRAMES + DIAGNOSIS_FRAMES + DIAGNOSIS_TABLES)} tables)\n" in said.err
    assert said.out == ""
    assert read_file(tmp_path / "a.trace").slices
    assert pl.read_parquet(tmp_path / "t" / "calls.parquet").height == trace.calls.height
    with pytest.raises(UsageError, match="--force"):
        outputs.check(force=False)
    outputs.check(force=True)


def test_what_cannot_be_written_is_refused_before_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    for outputs, words in (
        (Outputs(tables=str(tmp_path / "file")), "is not a folder"),
        (Outputs(tables=str(tmp_path / "full")), "is not empty; --force"),
        (Outputs(charts="-"), "cannot go to stdout"),
        (Outputs(tables=str(tmp_path / "no" / "t")), "is not a folder"),
        (Outputs(perfetto=str(tmp_path / "file")), "exists; --force"),
        (Outputs(perfetto=str(tmp_path / "empty")), "is a folder"),
        (Outputs(markdown="-", perfetto="-"), "only one document"),
        (Outputs(markdown=str(tmp_path / "a"), html=str(tmp_path / "b" / ".." / "a")), "more than one output"),
        (Outputs(tables=str(tmp_path / "t"), charts=str(tmp_path / "t")), "more than one output"),
    ):
        with pytest.raises(UsageError, match=words):
            outputs.check(force=False)
    Outputs(tables=str(tmp_path / "empty"), charts=str(tmp_path / "new"), markdown="-").check(force=False)
    Outputs(tables=str(tmp_path / "full")).check(force=True)
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"


def test_a_full_disk_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    outputs = Outputs(perfetto="/dev/full")
    with pytest.raises(InputError, match="/dev/full: cannot be written"):
        outputs.write(read("one-worker"), Diagnosis(), provenance(["report"]))


def test_charts_stand_alone() -> None:
    trace = read("one-worker")
    drawn = list(charts(trace, diagnose(trace, scenarios=())))
    assert {"gpu0-phases", "gpu0-link", "gpu0-compute", "states", "causes", "phase-durations"} <= {c.key for c in drawn}
    for chart in drawn:
        assert chart.spec["background"] == "white"
        assert chart.spec["title"]["text"] == chart.title
        assert "prover.docker.json.gz" in "".join(chart.spec["title"]["subtitle"])
        assert chart.spec.get("width") != "container"
        assert re.fullmatch(r"[a-z0-9_-]+", chart.key)


def hostile_report() -> str:
    finding = HypothesisFinding(
        "pageable-h2d", HOSTILE, "supported", 0.9, 3.0, evidence=(Evidence(HOSTILE, 1.0, "s", True, (7,), (0,)),),
        knob=HOSTILE, changes_mind=HOSTILE,
    )  # fmt: skip
    trace = Trace(
        inputs=[InputInfo(HOSTILE, "log", HOSTILE, 5), InputInfo(HOSTILE + "2", "log", "plain", 5)],
        clock=Clock("wrapper"),
        quality=Quality(notices=[Notice("input-skipped", HOSTILE, 2)]),
    )
    found = Diagnosis(headline=HOSTILE, hypotheses=(finding,), what_if=SCENARIOS, what_if_missing=HOSTILE)
    return MarkdownRenderer().render(trace, found)


def test_names_of_a_log_cannot_get_out_of_the_markdown() -> None:
    text = hostile_report()
    reader = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    page = reader.render(text)
    assert "<img" not in page and "<a " not in page
    assert page.count("<h4>") == text.count("\n#### ") and "<h1>" not in page
    # What a mention or a reference needs is broken, outside of code.
    outside = re.sub(r"<code>.*?</code>", "", page)
    assert "@octocat" not in outside and "#1 " not in outside and "http://" not in outside and "www." not in outside
    # Every row of every table has the cells of its head.
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        cells = {row.count("<td") + row.count("<th") for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)}
        assert len(cells) == 1
    # The words themselves are still there to be read.
    assert "onerror=alert(1)" in page.replace("&lt;", "<")


def test_code_spans_hold_what_they_are_given() -> None:
    reader = MarkdownIt("gfm-like", {"linkify": False})
    for name in ("plain", "a`b", "``", "`", "a|b", "<b>", "", "  "):
        page = reader.render(f"| head |\n|---|\n| {code(name)} |\n")
        assert page.count("<td") == 1
        assert ("<code>" in page) is bool(name.strip())
    assert escaped("prep_msm and _x_") == "prep_msm and \\_x\\_"


def test_the_markdown_says_what_is_open_and_unknown() -> None:
    scenario = next(one for one in SCENARIOS if one.calls_per_s.predicted is None)
    assert isinstance(scenario, WhatIf)
    text = MarkdownRenderer().render(
        Trace(), Diagnosis(headline="h", headline_stable=False, what_if=(scenario,), what_if_missing="")
    )
    assert "Undetermined: the main cause changes" in text
    assert "unknown to unknown" in text
    assert "clock: none; times are relative" in text
    assert StringIO(text).readline() == "**h**\n"
