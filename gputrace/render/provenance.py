"""How a report was made: what one needs to make it again."""

import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

import gputrace


@dataclass(frozen=True)
class Provenance:
    """The command as it was typed, and the versions of what read and reckoned: pairs of name and version."""

    command: str
    versions: tuple[tuple[str, str], ...]


def provenance(arguments: Sequence[str]) -> Provenance:
    """That of this process; `arguments` are those after the program's name."""
    return Provenance(
        command=shlex.join(["gputrace", *arguments]),
        versions=(
            ("gputrace", gputrace.__version__),
            ("Python", platform.python_version()),
            ("polars", pl.__version__),
        ),
    )
