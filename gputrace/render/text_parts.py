"""Small pieces of the terminal report that several sections use."""

import io
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from gputrace.render.screen import Colors, Screen

_BAR = "█"
SPARKS = "▁▂▃▄▅▆▇█"
# Columns of a table that explains itself in words may be left out below this.
ROOMY = 72

# Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), which the colour-blind tell apart, and what comes nearest
# among the sixteen of any terminal. Words, marks or letters say the same wherever one of them is used.
_STYLES = {
    "compute": ("#009e73", "cyan"),
    "copy-only": ("#e69f00", "yellow"),
    "idle": ("#98a1ab", "default"),
    "good": ("#56b4e9", "cyan"),
    "caution": ("#e69f00", "yellow"),
    "bad": ("#d55e00", "red"),
}
# Each drawing character by one of ASCII that takes as many cells.
_ASCII = str.maketrans(
    {**dict(zip(SPARKS, "_.:-=+*#", strict=True)), "▓": "%", "░": ".", "−": "-", "×": "x", "·": ".", "…": "~"}
)


def as_text(parts: Iterable[RenderableType], screen: Screen) -> str:
    """The parts one under another, as this screen can show them; no ANSI code without colours."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=screen.width,
        force_terminal=screen.colors != "none",
        color_system=None if screen.colors == "none" else screen.colors,
        no_color=screen.colors == "none",
        theme=_theme(screen.colors),
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    # Trailing blanks help nobody and trip diffs.
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    return _in_ascii(text) if screen.ascii else text


def _in_ascii(text: str) -> str:
    """The text in no more cells than before: marks that take none, as accents that combine, go."""
    drawn = text.translate(_ASCII)
    kept = (c for c in drawn if c.isascii() or cell_len(c))
    return "".join(kept).encode("ascii", errors="replace").decode()


def _theme(colors: Colors) -> Theme:
    few = colors in ("none", "standard")
    plain = {name: standard if few else rich for name, (rich, standard) in _STYLES.items()}
    return Theme({**plain, **{f"{name}-bold": f"bold {style}" for name, style in plain.items()}})


def title(text: str) -> Text:
    """A section's heading."""
    return Text(text, style="bold underline")


def bar(share: float, columns: int) -> str:
    """A bar of this share (0..1) of so many columns."""
    return _BAR * round(share * columns)


def sparkline(values: Iterable[float | None]) -> str:
    """One character a value (0..1): eight heights, the lowest for 0 too; a blank where it is unknown."""
    return "".join(" " if value is None else SPARKS[min(int(max(value, 0.0) * 8), 7)] for value in values)


def percent(share: float | None) -> str:
    """Whole percent; a question mark where it is not known."""
    return "?" if share is None else f"{share:.0%}"


def hanging(mark: str, text: str | Text) -> Table:
    """Text with a mark before it, its further lines indented."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=max(1, len(mark)))
    table.add_column(overflow="fold")
    table.add_row(mark, text)
    return table
