"""Small pieces of the terminal report that several sections use."""

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_BAR = "█"


def as_text(parts: Iterable[RenderableType], width: int, color: bool) -> str:
    """The parts one under another, as text of this width; ANSI colours only with `color`."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    # Trailing blanks help nobody and trip diffs.
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def title(text: str) -> Text:
    """A section's heading."""
    return Text(text, style="bold underline")


def bar(share: float, columns: int) -> str:
    """A bar of this share (0..1) of so many columns."""
    return _BAR * round(share * columns)


def percent(share: float | None) -> str:
    """Whole percent; a question mark where it is not known."""
    return "?" if share is None else f"{share:.0%}"


def hanging(mark: str, text: str) -> Table:
    """Text with a mark before it, its further lines indented."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column()
    table.add_row(mark, text)
    return table
