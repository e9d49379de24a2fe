"""Where documents go: files that are never overwritten unasked, stdout, the terminal."""

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from gputrace.errors import InputError, UsageError
from gputrace.render.compare_text import CompareTextRenderer
from gputrace.render.fleet_text import FleetTextRenderer
from gputrace.render.text import TextRenderer, WhatIfTextRenderer

_NARROW, _WIDE = 80, 120


def check_targets(targets: Iterable[str | None], force: bool) -> None:
    """Refuses, before any work is done, to overwrite a file or to write two documents to stdout."""
    named = [target for target in targets if target is not None]
    if named.count("-") > 1:
        raise UsageError("only one document can go to stdout; give the others a file name")
    for target in named:
        path = Path(target)
        if target != "-" and path.exists() and not force:
            raise UsageError(f"{target} exists; --force overwrites it")
        if target != "-" and not path.parent.is_dir():
            raise UsageError(f"{path.parent} is not a folder: {target} cannot be written")


def write(target: str, document: str) -> None:
    """Writes a document and says so on stderr."""
    if target == "-":
        sys.stdout.write(document)
        return
    try:
        Path(target).write_text(document, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error
    print(f"Wrote {target}", file=sys.stderr)


def terminal_renderer() -> TextRenderer:
    """A renderer for stdout as it is: its width and colours if it is a terminal, 80 plain columns if not."""
    return TextRenderer(*_terminal())


def terminal_what_if_renderer() -> WhatIfTextRenderer:
    """The same for what-ifs alone."""
    return WhatIfTextRenderer(*_terminal())


def compare_terminal_renderer() -> CompareTextRenderer:
    """The same for a comparison."""
    return CompareTextRenderer(*_terminal())


def fleet_terminal_renderer() -> FleetTextRenderer:
    """The same for a fleet."""
    return FleetTextRenderer(*_terminal())


def _terminal() -> tuple[int, bool]:
    """Width and whether to colour."""
    if not sys.stdout.isatty():
        return _NARROW, False
    width = shutil.get_terminal_size((_NARROW, 24)).columns
    return max(_NARROW, min(width, _WIDE)), not os.environ.get("NO_COLOR")
