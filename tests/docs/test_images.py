"""The pictures are those of the product as it is: `make screenshots` draws them anew."""

import json
import re

from tests.captures import ROOT

IMAGES = ROOT / "docs" / "images"
MANIFEST = json.loads((IMAGES / "manifest.json").read_text())
PLOTS = {"growth.svg"}  # of the benchmarks
LARGEST, ALL_TOGETHER = 300_000, 1_200_000


def test_they_are_there_and_small() -> None:
    files = {path.name: path.stat().st_size for path in IMAGES.iterdir() if path.name != "manifest.json"}
    assert sorted(set(files) - PLOTS) == MANIFEST["images"]
    assert max(files.values()) < LARGEST and sum(files.values()) < ALL_TOGETHER


def test_they_show_what_is_concluded_now() -> None:
    golden = (ROOT / "tests" / "golden" / "h200-pageable.80.txt").read_text()
    assert MANIFEST["headline"] == " ".join(golden.split("\n\n")[0].split())
    drawn = (IMAGES / "terminal-report.svg").read_text().replace("&#160;", " ")
    assert golden.splitlines()[0] in drawn


def test_each_is_shown_somewhere() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    shown = {name for page in pages for name in re.findall(r"images/([\w.-]+)", page.read_text())}
    assert shown == {*MANIFEST["images"], *PLOTS}


def test_they_load_nothing_from_elsewhere() -> None:
    for path in IMAGES.glob("*.svg"):
        assert not re.search(r"(?:url\(|href=)[\"']?https?:", path.read_text()), path.name
