"""Small pieces of the terminal report that several sections use."""

from rich.table import Table
from rich.text import Text

_BAR = "█"


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
