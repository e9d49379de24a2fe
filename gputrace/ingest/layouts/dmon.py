"""`nvidia-smi dmon` as table and as CSV, and `dcgmi dmon`: header lines that begin with #, repeated at will."""

import itertools
import re

from gputrace.errors import InputError
from gputrace.ingest.layouts.grid import Grid, text_grid
from gputrace.ingest.trace_times import strip_stamps

_CELL = re.compile(r"[,\s]+")
# Columns of dmon's -s letters; drivers differ, so the width of the rows tells which set it was.
_LETTERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "p": (("pwr", "gtemp", "mtemp"), ("pwr", "temp")),
    "u": (("sm", "mem", "enc", "dec", "jpg", "ofa"), ("sm", "mem", "enc", "dec")),
    "c": (("mclk", "pclk"),),
    "v": (("pviol", "tviol"),),
    "m": (("fb", "bar1", "ccpm"), ("fb", "bar1")),
    "e": (("sbecc", "dbecc", "pci"),),
    "t": (("rxpci", "txpci"),),
}
_ROW_WITHOUT_HEADER = re.compile(r" (?:\d{8}, )?(?:\d\d:\d\d:\d\d, )?\d+(?:, (?:\d+|-|N/A))+\s*")


def _cells(line: str) -> list[str]:
    return _CELL.split(line.strip().strip(","))


def _is_names(line: str) -> bool:
    return line.lstrip().startswith("#") and ("gpu" in (cells := _cells(line.lstrip(" #"))) or cells[0] == "Entity")


def names_in(head: str) -> list[str]:
    """Header names of the first header line."""
    lines, _ = strip_stamps(head)
    header = next((line for line in lines if _is_names(line)), None)
    return _cells(header.lstrip(" #")) if header else []


def is_without_header(head: str) -> bool:
    """Whether this is dmon's CSV without header lines."""
    lines = [line for line in head.replace("\r", "").split("\n")[:20] if line.strip()]
    return bool(lines) and all(_ROW_WITHOUT_HEADER.fullmatch(line) for line in lines[:-1] or lines)


def read_dmon(path: str, name: str, text: str, header: str | None = None) -> Grid:
    """Rows of dmon; `header` is its -s letters or its list of columns, for a table without header lines."""
    lines, stamps = strip_stamps(text)
    names = names_in(text)
    dcgm = names[:1] == ["Entity"]
    kept: list[list[str]] = []
    when: list[str | None] = []
    broken = others = 0
    for number, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = _cells(line)
        if dcgm:
            if cells[0].lower() == "id":
                continue
            if len(cells) > 1 and re.fullmatch(r"\d+(/\S+)?", cells[1]):
                others += cells[0] != "GPU"
                if cells[0] != "GPU":
                    continue
                cells = cells[1:]
        if not names:
            names = _names_for(path, header or "", cells)
        if len(cells) == len(names):
            kept.append(cells)
            when.append(stamps[number] if stamps else None)
        else:
            broken += 1
    if not kept:
        raise InputError(f"{path}: {name} table without a row that fits its header")
    grid = text_grid(names, kept, broken)
    grid.stamps = when if stamps else None
    if others:
        grid.notices.append(("not-a-gpu", f"{path}: {others} rows of MIG instances or other entities were left out"))
    return grid


def _names_for(path: str, header: str, row: list[str]) -> list[str]:
    """Column names of a table without header lines."""
    if not header:
        raise InputError(
            f"{path}: nvidia-smi dmon without its header lines; say what was asked for, "
            "--trace-columns put for dmon -s put"
        )
    front = [
        label
        for label, shape in (("Date", r"\d{8}"), ("Time", r"\d\d:\d\d:\d\d"))
        if any(re.fullmatch(shape, cell) for cell in row[:2])
    ]
    if not re.fullmatch(r"[pucvmet]+", header):
        return [*front, "gpu", *(name for name in _cells(header.lstrip(" #")) if name not in ("Date", "Time", "gpu"))]
    for choice in itertools.product(*(_LETTERS[letter] for letter in header)):
        names = [*front, "gpu", *itertools.chain(*choice)]
        if len(names) == len(row):
            return names
    raise InputError(
        f"{path}: rows of {len(row)} columns are not those of dmon -s {header}; "
        "give --trace-columns the names of its columns, with commas between them"
    )
