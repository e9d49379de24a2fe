"""Where documents go: files that are never overwritten unasked, stdout, the terminal."""

import sys
from collections.abc import Iterable
from pathlib import Path

from gputrace.errors import InputError, UsageError
from gputrace.nearest import near_path
from gputrace.printable import printable
from gputrace.render.compare_text import CompareTextRenderer
from gputrace.render.screen import screen_of
from gputrace.render.text import TextRenderer, WhatIfTextRenderer


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
            raise UsageError(f"{path.parent} is not a folder: {target} cannot be written{_hint(path.parent)}")


def _hint(folder: Path) -> str:
    return "" if folder.exists() else near_path(str(folder))


def write(target: str, document: str) -> None:
    """Writes a document and says so on stderr."""
    if target == "-":
        # Documents are UTF-8 wherever they go; only what is drawn for a terminal follows its encoding.
        sys.stdout.flush()
        sys.stdout.buffer.write(document.encode("utf-8", errors="replace"))
        sys.stdout.buffer.flush()
        return
    try:
        Path(target).write_text(document, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}; give another place") from error
    print(f"Wrote {printable(target)}", file=sys.stderr)


def terminal_renderer(color: str = "auto", full: bool = False) -> TextRenderer:
    """A renderer for stdout as it is: its width and colours if it is a terminal, 80 plain columns if not."""
    screen = screen_of(color=color)
    return TextRenderer(screen.width, screen.colors, screen.ascii, full)


def terminal_what_if_renderer(color: str = "auto") -> WhatIfTextRenderer:
    """The same for what-ifs alone."""
    screen = screen_of(color=color)
    return WhatIfTextRenderer(screen.width, screen.colors, screen.ascii)


def compare_terminal_renderer(color: str = "auto") -> CompareTextRenderer:
    """The same for a comparison."""
    screen = screen_of(color=color)
    return CompareTextRenderer(screen.width, screen.colors, screen.ascii)
