"""What the manual shows of commands is what they print; with `GPUTRACE_UPDATE_GOLDEN=1` the pages are written anew."""

import json
import os
from dataclasses import fields
from typing import Any

import pytest

from docs.generate.verdicts import explained
from gputrace.trace import Notice
from tests.captures import ROOT
from tests.docs.json_keys import fits, leaves, listed, patterns
from tests.docs.transcripts import BLOCK, Session

pytestmark = pytest.mark.xdist_group("manual")

DOCS = ROOT / "docs"
# Run in one folder, in this order.
PAGES = ("ten-minutes.md", "tutorial-sample-logs.md", "ci-gates.md")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(tmp_path_factory.mktemp("manual"))


@pytest.fixture(scope="module")
def replayed(session: Session) -> dict[str, str]:
    return {name: session.replayed((DOCS / name).read_text()) for name in PAGES}


def test_every_page_with_console_blocks_is_run() -> None:
    with_blocks = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if BLOCK.search(path.read_text())}
    assert with_blocks == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_commands_print_what_the_page_shows(name: str, replayed: dict[str, str]) -> None:
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        (DOCS / name).write_text(replayed[name])
    assert (DOCS / name).read_text() == replayed[name]
    assert "command not found" not in replayed[name] and "Traceback" not in replayed[name]


def reports(session: Session) -> dict[str, dict[str, Any]]:
    """The JSON reports that the pages made, by the sample's folder."""
    names = {"h200-pageable": "pageable", "h200-pinned": "pinned", "h200-light-then-heavy": "light"}
    return {folder: json.loads((session.folder / f"{name}.json").read_text()) for folder, name in names.items()}


def test_keys_of_the_json_report_are_those_of_real_reports(session: Session, replayed: dict[str, str]) -> None:
    types, matching = listed(), patterns()
    seen, unknown = set(), set()
    for report in reports(session).values():
        for path, value in leaves(report):
            named = next((name for name, pattern in matching.items() if pattern.fullmatch(path)), None)
            # An object that is null as a whole.
            if named is None and value is None and any(name.startswith(f"{path}.") for name in types):
                continue
            if named is None:
                unknown.add(path)
                continue
            seen.add(named)
            assert fits(value, types[named]), (path, value, types[named])
    assert unknown == set()
    # These samples have nothing to notice.
    assert set(types) - seen == {f"quality.notices[].{field.name}" for field in fields(Notice)}


def test_verdicts_are_seen_where_the_page_says(session: Session, replayed: dict[str, str]) -> None:
    for folder, report in reports(session).items():
        supported = {finding["id"] for finding in report["hypotheses"] if finding["verdict"] == "supported"}
        said = {cause for cause, told in explained()["hypothesis"].items() if folder in told["seen"]}
        assert said == supported, folder
