"""What every layout makes of a trace, and the one error they share."""

from dataclasses import dataclass, field
from typing import Any

import polars as pl

# A column that a layout makes itself, beside those that are named in the trace.
TIME_NS = "\0time_ns"


@dataclass
class Grid:
    """A trace as named columns, one row a reading of one GPU, in the order of the input.

    Cells are text or numbers as they stand in the trace. `stamps` holds, for each row, the time that `ts` or the like
    put in front of it; the column `TIME_NS` is there where a layout knows Unix nanoseconds itself.
    """

    frame: pl.DataFrame
    broken: int = 0
    stamps: list[str | None] | None = None
    names: dict[int, str] = field(default_factory=dict)
    copies: pl.DataFrame | None = None
    notices: list[tuple[str, str]] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the trace has."""
        return [name for name in self.frame.columns if name != TIME_NS]


def text_grid(names: list[str], rows: list[list[Any]], broken: int = 0) -> Grid:
    """A grid of text cells; of columns named alike, the first is kept."""
    keep = {name: index for index, name in reversed(list(enumerate(names)))}
    columns = {name: [row[index] for row in rows] for name, index in keep.items()}
    return Grid(pl.DataFrame(columns, schema=dict.fromkeys(keep, pl.String)).select(list(dict.fromkeys(names))), broken)
