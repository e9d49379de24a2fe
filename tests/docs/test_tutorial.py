"""The tutorial runs from top to bottom and shows what it says it shows."""

import os
import re
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.captures import ROOT

TUTORIAL = ROOT / "docs" / "tutorial.ipynb"
GOLDEN = ROOT / "tests" / "golden" / "h200-pageable.80.txt"

pytestmark = pytest.mark.xdist_group("tutorial")


def read() -> Any:
    return nbformat.read(TUTORIAL, as_version=4)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The cells after they ran, by id; a cell that fails stops it."""
    notebook = read()
    with pytest.MonkeyPatch.context() as patch:
        # The kernel takes this checkout's package, and leaves the user's profile alone.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    yield {cell.id: cell for cell in notebook.cells}


def printed(cell: Any) -> str:
    texts = [output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout"]
    return "".join(map(str, texts))


def shown(cell: Any, kind: str = "text/html") -> str:
    return next(str(output.data[kind]) for output in cell.outputs if output.output_type == "execute_result")


def test_it_is_kept_without_outputs() -> None:
    notebook = read()
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)
        assert re.fullmatch(r"[a-z-]+", cell.id)


def test_nothing_is_said_on_stderr(cells: dict[str, Any]) -> None:
    outputs = [output for cell in cells.values() for output in cell.get("outputs", ())]
    assert len(outputs) >= 20
    assert [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"] == []


def test_the_headline_is_that_of_the_report(cells: dict[str, Any]) -> None:
    said = printed(cells["headline"])
    assert " ".join(said.split()) in " ".join(GOLDEN.read_text().split())
    assert said.strip() in shown(cells["analyze"])
    assert shown(cells["stable-value"], "text/plain") == "True"


def test_the_charged_seconds_are_the_lost_ones(cells: dict[str, Any]) -> None:
    lost, charged = re.findall(r"[\d.]+", printed(cells["sums"]))
    assert lost == charged == "50.12"


def test_the_copy_is_the_known_one(cells: dict[str, Any]) -> None:
    copied_gb, low, median, high = (float(cell) for cell in re.findall(r"<td>([\d.]+)</td>", shown(cells["rates"])))
    # sample_logs/README.md: 3.12 GB a call.
    assert copied_gb == pytest.approx(3.12, rel=0.02)
    assert 2.0 < low < median < high < 8.0
    assert "<svg" in shown(cells["chart"], "image/svg+xml")
    assert "How fast each phase copies" in shown(cells["bandwidth-chart"], "image/svg+xml")


def test_the_verdict_shows_its_evidence_and_lines(cells: dict[str, Any]) -> None:
    card = shown(cells["finding"])
    assert "supported" in card and "pageable-h2d" in card
    lines = {int(line) for group in re.findall(r"log lines? ([\d, ]+)", card) for line in group.split(", ")}
    assert len(lines) >= 3
    assert {int(line) for line in re.findall(r"<td>(\d+)</td>", shown(cells["lines"]))} == lines


def test_the_prediction_holds_the_measured_rate(cells: dict[str, Any]) -> None:
    low, high, measured = map(float, re.findall(r"\d\.\d+", printed(cells["held"])))
    assert low < measured < high
    assert "no sure gain" in shown(cells["prediction"])


def test_slow_copies_go_with_syntheses(cells: dict[str, Any]) -> None:
    found = re.search(r"([+-][\d.]+)", printed(cells["correlation"]))
    assert found is not None and float(found[1]) > 0.3
    assert "concurrent syntheses" in shown(cells["correlation"])


def test_everything_is_exported(cells: dict[str, Any]) -> None:
    files = printed(cells["export"]).split()
    assert {"report.html", "states.parquet", "blame.parquet", "call_bytes.parquet", "phase_table.parquet"} <= set(files)
