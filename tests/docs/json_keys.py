"""The keys that docs/json-report.md lists, and those that a report has."""

import re
from collections.abc import Iterator
from typing import Any

from tests.captures import ROOT

PAGE = ROOT / "docs" / "json-report.md"
_FITS = {
    "integer": (int,),
    "number": (int, float),
    "text": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}


def listed() -> dict[str, str]:
    """Path of every key on the page and its type, as `gpus[].name` and `text or null`."""
    found: dict[str, str] = {}
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = "" if line == "## The report" else line.removeprefix("## ") + "."
        row = re.match(r"\| `([^`]+)` \| ([a-z ]+) \|", line)
        if row:
            found[section + row[1]] = row[2]
    return found


def patterns() -> dict[str, re.Pattern[str]]:
    """A pattern for each path: {x} stands for one key."""
    return {
        path: re.compile("".join(r"[^.]+" if part.startswith("{") else re.escape(part) for part in _parts(path)))
        for path in listed()
    }


def _parts(path: str) -> list[str]:
    return re.split(r"(\{[^}]*\})", path)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in a report that holds nothing else."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path, value


def fits(value: Any, said: str) -> bool:
    """Whether a value is of a type of the page."""
    kinds = [kind for word in said.split(" or ") for kind in _FITS[word]]
    return type(value) in kinds
