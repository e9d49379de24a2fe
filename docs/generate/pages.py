"""Which pages are made from the code, and by what."""

from collections.abc import Callable
from pathlib import Path

from docs.generate import commands, data_dictionary, formats, metrics, verdicts

DOCS = Path(__file__).parents[1]
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "data-dictionary.md": data_dictionary.dictionary,
    "formats.md": formats.page,
    "metrics.md": metrics.table,
    "verdicts.md": verdicts.page,
}
