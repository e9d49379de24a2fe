"""The documentation of captures says what the code does."""

import re
from pathlib import Path

from gputrace.sampler import meanings
from gputrace.sampler.capture import RAW, VERSION

DOCS = Path(__file__).parents[2] / "docs"


def test_every_column_is_documented_as_the_capture_itself_says() -> None:
    text = (DOCS / "capture-format.md").read_text()
    for title, table in (("samples", meanings.SAMPLES), ("host", meanings.HOST)):
        part = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", part, re.M)) == table


def test_every_file_of_a_capture_is_documented() -> None:
    text = (DOCS / "capture-format.md").read_text()
    assert f"Version {VERSION}." in text
    for name in (
        "meta.json",
        "events.jsonl",
        "samples-000001.csv",
        "host-000001.csv",
        "prover-000001.log",
        *RAW.values(),
    ):
        assert f"`{name}`" in text


def test_every_event_is_documented() -> None:
    text = (DOCS / "capture-format.md").read_text()
    sampler = Path(meanings.__file__).parent
    told = {name for path in sampler.glob("*.py") for name in re.findall(r'\.event\(\s*"([a-z-]+)"', path.read_text())}
    assert told and {name for name in told if f"`{name}`" not in text} == set()


def test_every_option_of_the_recorder_is_documented() -> None:
    from tests.unit.test_exports import COMMANDS

    text = (DOCS / "recording.md").read_text()
    options = {
        option for parameter in COMMANDS["gputrace record"].params for option in parameter.opts if option[:1] == "-"
    }
    assert {option for option in options if option not in text} <= {"--output", "--help", "--gpu"}
