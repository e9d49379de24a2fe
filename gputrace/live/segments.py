"""Captures in numbered pieces (samples-000001.csv, ...): which ones the last minutes need, and how much of them."""

import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from gputrace.live.tail import is_text

_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d{6,})\.(?P<form>\w+)$")
# When a recorder's row ends, in Unix ns.
_ROW_END = "t_end_ns"


def newest(files: Iterable[Path], seconds: float) -> list[Path]:
    """Of numbered pieces and compressed files those written to in the last `seconds` of the capture; all other files.

    A piece that is there in two forms counts once.
    """
    stamped: list[tuple[Path, float]] = []
    for path in files:
        try:
            stamped.append((path, path.stat().st_mtime))
        except FileNotFoundError:
            # It was turned into another form just now.
            continue
    latest = max((at for _, at in stamped), default=0.0)
    names = {path.name for path, _ in stamped}
    kept = []
    for path, at in sorted(stamped):
        piece = _NUMBERED.match(path.name)
        if piece is None:
            if at >= latest - seconds or is_text(path):
                kept.append(path)
            continue
        doubled = piece["form"] == "csv" and f"{piece['stem']}-{piece['number']}.parquet" in names
        if at >= latest - seconds and not doubled:
            kept.append(path)
    return kept


def cut_parquet(path: Path, target: Path, seconds: float) -> bool:
    """Writes the last `seconds` of a recorder's Parquet piece; False where it is none."""
    if path.suffix != ".parquet":
        return False
    try:
        rows = pl.scan_parquet(path)
        if _ROW_END not in rows.collect_schema().names():
            return False
        end = rows.select(pl.col(_ROW_END).max()).collect().item()
        if end is None:
            return False
        rows.filter(pl.col(_ROW_END) > end - round(seconds * 1e9)).collect().write_parquet(target)
    except pl.exceptions.PolarsError:
        return False
    return True
