"""Where documents go: files that are never overwritten unasked, stdout, the terminal."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.errors import InputError, UsageError
from gputrace.nearest import near_path
from gputrace.printable import printable
from gputrace.render.base import FileRenderer, FolderRenderer, Renderer
from gputrace.render.provenance import Provenance
from gputrace.render.screen import screen_of
from gputrace.trace import Trace

if TYPE_CHECKING:
    from gputrace.render.compare_text import CompareTextRenderer
    from gputrace.render.fleet_text import FleetTextRenderer
    from gputrace.render.text import TextRenderer, WhatIfTextRenderer


def check_targets(targets: Iterable[str | None], force: bool, folders: Iterable[str | None] = ()) -> None:
    """Refuses, before any work is done, to overwrite a file or to write two documents to one place.

    `folders` are those that several files go to. They are made where they are missing; one that has something in it is
    taken only with `force`, and what is in it and not written anew stays.
    """
    files = [target for target in targets if target is not None]
    several = [folder for folder in folders if folder is not None]
    if files.count("-") > 1:
        raise UsageError("only one document can go to stdout; give the others a file name")
    if "-" in several:
        raise UsageError("several files cannot go to stdout; give a folder")
    places = [Path(target).resolve() for target in (*files, *several) if target != "-"]
    for target, place in zip([target for target in (*files, *several) if target != "-"], places, strict=True):
        if places.count(place) > 1:
            raise UsageError(f"{target} is named for more than one output")
        if not place.parent.is_dir():
            parent = Path(target).parent
            raise UsageError(f"{parent} is not a folder: {target} cannot be written{_hint(parent)}")
    for target in files:
        if target != "-" and Path(target).is_dir():
            raise UsageError(f"{target} is a folder; a file is wanted")
        if target != "-" and Path(target).exists() and not force:
            raise UsageError(f"{target} exists; --force overwrites it")
    for folder in map(Path, several):
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is not a folder")
        if folder.is_dir() and any(folder.iterdir()) and not force:
            raise UsageError(f"{folder} is not empty; --force writes into it")


def _hint(folder: Path) -> str:
    return "" if folder.exists() else near_path(str(folder))


@dataclass(frozen=True)
class Outputs:
    """What a report is wanted as: where each output goes, None where it is not wanted.

    `calls`: every call in the JSON.
    """

    html: str | None = None
    json: str | None = None
    markdown: str | None = None
    perfetto: str | None = None
    tables: str | None = None
    charts: str | None = None
    calls: bool = False

    def check(self, force: bool) -> None:
        """See `check_targets`."""
        check_targets((self.html, self.json, self.markdown, self.perfetto), force, (self.tables, self.charts))

    @property
    def show_calls(self) -> bool:
        """Whether any output shows single calls."""
        return self.calls or any((self.html, self.perfetto, self.tables, self.charts))

    @property
    def to_stdout(self) -> bool:
        """Whether stdout is taken."""
        return "-" in (self.html, self.json, self.markdown, self.perfetto)

    def write(self, trace: Trace, diagnosis: Diagnosis, made: Provenance) -> None:
        """Writes what is wanted, and says so on stderr. Renderers are loaded where they are used."""
        for target, renderer in (
            (self.html, partial(_html, made)),
            (self.json, partial(_json, self.calls)),
            (self.markdown, _markdown),
        ):
            if target is not None:
                write(target, renderer().render(trace, diagnosis))
        if self.perfetto is not None:
            _write_file(self.perfetto, _perfetto(), trace, diagnosis)
        for folder, of_folder in ((self.tables, _tables), (self.charts, _charts)):
            if folder is not None:
                _write_folder(folder, of_folder(), trace, diagnosis)


def _html(made: Provenance) -> Renderer:
    from gputrace.render.html import HtmlRenderer

    return HtmlRenderer(made)


def _json(calls: bool) -> Renderer:
    from gputrace.render.json_report import JsonRenderer

    return JsonRenderer(calls)


def _markdown() -> Renderer:
    from gputrace.render.markdown import MarkdownRenderer

    return MarkdownRenderer()


def _perfetto() -> FileRenderer:
    from gputrace.render.perfetto import PerfettoRenderer

    return PerfettoRenderer()


def _tables() -> FolderRenderer:
    from gputrace.render.tables import TablesRenderer

    return TablesRenderer()


def _charts() -> FolderRenderer:
    from gputrace.render.images import ImagesRenderer

    return ImagesRenderer()


def write(target: str, document: str) -> None:
    """Writes a document and says so on stderr."""
    if target == "-":
        # Documents are UTF-8 wherever they go; only what is drawn for a terminal follows its encoding.
        sys.stdout.flush()
        sys.stdout.buffer.write(document.encode("utf-8", errors="replace"))
        sys.stdout.buffer.flush()
        return
    with _told(target):
        Path(target).write_text(document, encoding="utf-8")


def _write_file(target: str, renderer: FileRenderer, trace: Trace, diagnosis: Diagnosis) -> None:
    if target == "-":
        renderer.write(trace, diagnosis, sys.stdout.buffer)
        return
    with _told(target), Path(target).open("wb") as file:
        renderer.write(trace, diagnosis, file)


def _write_folder(target: str, renderer: FolderRenderer, trace: Trace, diagnosis: Diagnosis) -> None:
    folder = Path(target)
    with _told(target, quiet=True):
        folder.mkdir(exist_ok=True)
        said = renderer.write(trace, diagnosis, folder)
    print(f"Wrote {printable(target)} ({said})", file=sys.stderr)


@contextmanager
def _told(target: str, quiet: bool = False) -> Iterator[None]:
    """What fails is the user's to know in a line, and so is what was written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}; give another place") from error
    if not quiet:
        print(f"Wrote {printable(target)}", file=sys.stderr)


def terminal_renderer(color: str = "auto", full: bool = False) -> "TextRenderer":
    """A renderer for stdout as it is: its width and colours if it is a terminal, 80 plain columns if not."""
    from gputrace.render.text import TextRenderer

    screen = screen_of(color=color)
    return TextRenderer(screen.width, screen.colors, screen.ascii, full)


def terminal_what_if_renderer(color: str = "auto") -> "WhatIfTextRenderer":
    """The same for what-ifs alone."""
    from gputrace.render.text import WhatIfTextRenderer

    screen = screen_of(color=color)
    return WhatIfTextRenderer(screen.width, screen.colors, screen.ascii)


def compare_terminal_renderer(color: str = "auto") -> "CompareTextRenderer":
    """The same for a comparison."""
    from gputrace.render.compare_text import CompareTextRenderer

    screen = screen_of(color=color)
    return CompareTextRenderer(screen.width, screen.colors, screen.ascii)


def fleet_terminal_renderer(color: str = "auto") -> "FleetTextRenderer":
    """The same for a fleet."""
    from gputrace.render.fleet_text import FleetTextRenderer

    screen = screen_of(color=color)
    return FleetTextRenderer(screen.width, screen.colors, screen.ascii)
