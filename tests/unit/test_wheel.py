"""The wheel holds every format and template, and nothing beside the package at its top."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
CONTENT = ("parsers", "reports")


def tracked(folder: str) -> set[str]:
    """Files of a content folder, relative to the checkout; caches and hidden files are nobody's content."""
    return {
        path.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".") and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names in a wheel built from a copy of the checkout, without version control and caches."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    source.mkdir()
    for name in ("gputrace", *CONTENT):
        shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "_bundled"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source / name)
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work / "dist")],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (path,) = (work / "dist").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


@pytest.mark.parametrize("folder", CONTENT)
def test_every_content_file_is_in_the_wheel(wheel: list[str], folder: str) -> None:
    expected = {f"gputrace/_bundled/{name}" for name in tracked(folder)}
    assert len(expected) > 5
    assert expected - set(wheel) == set()


@pytest.mark.parametrize("folder", CONTENT)
def test_content_folders_hold_no_python(folder: str) -> None:
    assert [name for name in tracked(folder) if name.endswith(".py")] == []


def test_every_module_is_in_the_wheel(wheel: list[str]) -> None:
    modules = {path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "gputrace").rglob("*.py")}
    assert modules - set(wheel) == set()
    assert "gputrace/py.typed" in wheel


def test_the_package_is_the_only_thing_at_the_top(wheel: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert tops - {top for top in tops if top.endswith(".dist-info")} == {"gputrace"}
    assert len(tops) == 2
