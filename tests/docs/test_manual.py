"""The manual builds without a warning and without anything from elsewhere; pages made from the code are current."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate.commands import commands
from docs.generate.constants import constants
from docs.generate.pages import PAGES
from docs.generate.verdicts import explained, simulated
from gputrace.analysis.compare.expressions import parse
from gputrace.analysis.hypotheses import ALL
from tests.captures import ROOT

DOCS = ROOT / "docs"
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video|object|embed)\b[^>]*?(?:src|href|data)=[\"'](?:https?:)?//", re.I
)
IN_STYLES = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])(?:https?:)?//", re.I)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("manual") / "html"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(target)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (ran.returncode, ran.stderr) == (0, "")
    return target


def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if LOADED.search(page.read_text())] == []
    styles = [*built.rglob("*.css"), *pages]
    assert [style.name for style in styles if IN_STYLES.search(style.read_text())] == []


def test_what_is_loaded_from_elsewhere_is_found() -> None:
    assert LOADED.search('<script async="async" src="https://cdn.example/x.js"></script>')
    assert LOADED.search("<link rel='stylesheet' href='//fonts.example/css'>")
    assert not LOADED.search('<a href="https://example.com">elsewhere</a>')
    assert IN_STYLES.search("@font-face { src: url('https://fonts.example/a.woff2') }")


def test_every_page_is_in_the_table_of_contents(built: Path) -> None:
    index = (built / "index.html").read_text()
    for page in (*DOCS.glob("*.md"), *DOCS.glob("*.ipynb"), *DOCS.glob("deploy/*.md")):
        name = page.relative_to(DOCS).with_suffix(".html")
        assert page.stem == "index" or f'href="{name}"' in index, name


@pytest.mark.parametrize("name", PAGES)
def test_pages_made_from_the_code_are_current(name: str) -> None:
    made = PAGES[name]()
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        (DOCS / name).write_text(made)
    assert (DOCS / name).read_text() == made


def test_every_hypothesis_and_threshold_is_explained() -> None:
    told = explained()
    assert set(told["hypothesis"]) == {hypothesis.id for hypothesis in ALL}
    assert set(told["threshold"]) | set(told["not_thresholds"]) == set(constants())
    assert not set(told["threshold"]) & set(told["not_thresholds"])
    for name, threshold in told["threshold"].items():
        assert threshold["what"] and threshold["source"] and threshold["unit"], name
        used = [cause for cause, entry in told["hypothesis"].items() if name in entry["thresholds"]]
        assert used or threshold.get("general"), f"{name} is on no verdict's list"


def test_verdicts_list_what_their_modules_use() -> None:
    told = explained()
    passed_over = set(told["not_thresholds"]) | {
        name for name, entry in told["threshold"].items() if entry.get("general")
    }
    for hypothesis in ALL:
        module = f"hypotheses.{hypothesis.id.replace('-', '_')}"
        text = (ROOT / "gputrace" / "analysis" / f"{module.replace('.', '/')}.py").read_text()
        imported = {f"thresholds.{name}" for name in re.findall(r"\b[A-Z][A-Z_]{4,}\b", text)} & set(constants())
        own = {name for name in constants() if name.startswith(f"{module}.")}
        assert (imported | own) - passed_over <= set(told["hypothesis"][hypothesis.id]["thresholds"]), hypothesis.id


def test_planted_causes_are_said_to_be_there() -> None:
    text = (DOCS / "verdicts.md").read_text()
    planted = [hypothesis.id for hypothesis in ALL if simulated(hypothesis.id)]
    assert len(planted) >= 15
    assert all(f"gputrace simulate {cause} " in text for cause in planted)


def test_ten_minutes_say_what_to_do_for_every_cause() -> None:
    text = (DOCS / "ten-minutes.md").read_text()
    assert [hypothesis.id for hypothesis in ALL if f"(verdicts.md#{hypothesis.id})" not in text] == []


def typed() -> Iterator[tuple[str, list[str]]]:
    """(where, words after `gputrace`) of every command in a sh block of the manual."""
    for page in (*DOCS.rglob("*.md"), ROOT / "README.md"):
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                for words in simple_commands(line):
                    if words[:1] == ["gputrace"]:
                        yield f"{page.name}: {line.strip()}", words[1:]


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell, cut at pipes and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>()"):
            yield words
            words = []
        else:
            words.append(word)
    yield words


def test_commands_of_the_manual_are_understood() -> None:
    known = dict(commands())
    checked = 0
    for where, words in typed():
        if words[0].startswith("-"):
            assert words[0] in ("--version", "--help", "--install-completion", "--show-completion"), where
            continue
        name = " ".join(words[:2]) if words[0] == "formats" else words[0]
        assert name in known, where
        rest = words[len(name.split()) :]
        try:
            known[name].make_context(name, rest)
        except Exception as error:
            raise AssertionError(f"{where}: {error}") from error
        checked += 1
    assert checked >= 15


def test_gates_of_the_manual_are_understood() -> None:
    shown = [gate for page in DOCS.rglob("*.md") for gate in re.findall(r"--fail-if '([^']+)'", page.read_text())]
    asked = re.findall(r"^\| [^|]+\? \| `([^`]+)` \|", (DOCS / "ci-gates.md").read_text(), flags=re.MULTILINE)
    assert len(asked) >= 5 and len(shown) >= 7
    for expression in (*shown, *asked):
        parse(expression)


def test_every_section_of_the_page_is_explained() -> None:
    titles = {
        title
        for template in (ROOT / "reports" / "templates" / "sections").glob("*.j2")
        for title in re.findall(r"<h2[^>]*>([^<{]+)</h2>", template.read_text())
    }
    text = (DOCS / "reading-the-report.md").read_text()
    assert len(titles) >= 10
    assert sorted(title for title in titles if f"## {title.strip()}\n" not in text) == []


def test_links_of_the_pages_outside_the_manual_lead_somewhere() -> None:
    for page in (
        ROOT / name for name in ("README.md", "CONTRIBUTING.md", "parsers/README.md", "sample_logs/README.md")
    ):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), (page.name, target)
