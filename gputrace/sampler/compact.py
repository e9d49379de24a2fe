"""Packs closed segments of a capture: CSV to Parquet, logs to zstd; a process of its own, away from the recorder.

`python -m gputrace.sampler.compact FILE...`: each result is written beside its file, synced, renamed into place, and
only then is the file removed; a crash at any moment leaves one of the two whole.
"""

import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from gputrace.sampler.host import HostRow
from gputrace.sampler.rows import SampleRow

if TYPE_CHECKING:
    import polars as pl

ROWS: dict[str, Any] = {"samples": SampleRow, "host": HostRow}


def packed_path(path: Path) -> Path:
    """Where a segment's packed form lies."""
    return path.with_suffix(".parquet") if path.suffix == ".csv" else path.with_name(path.name + ".zst")


def compact(path: Path) -> Path:
    """Packs one segment and removes it; returns the packed file. Raises OSError, or polars' and zstandard's errors."""
    target = packed_path(path)
    new = target.with_name(f".{target.name}.new")
    if path.suffix == ".csv":
        _to_parquet(path, new)
    else:
        _to_zstd(path, new)
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(target)
    path.unlink()
    return target


def _to_parquet(path: Path, target: Path) -> None:
    typed(path.name.partition("-")[0], path.read_bytes()).write_parquet(target, compression="zstd")


def typed(kind: str, text: bytes) -> "pl.DataFrame":
    """The rows of a CSV segment (of `samples` or `host`) with the types that they are packed with."""
    import polars as pl

    plain = {int: pl.Int64, float: pl.Float64, str: pl.String, bool: pl.Boolean}
    types_of = {name: plain[_plain(hint)] for name, hint in get_type_hints(ROWS[kind]).items()}
    rows = pl.read_csv(text, infer_schema=False, truncate_ragged_lines=True)
    # A number that cannot be read is null here as it is for the reader of the CSV.
    cells = [
        (pl.col(name) == "true" if dtype == pl.Boolean else pl.col(name).cast(dtype, strict=False)).alias(name)
        for name, dtype in types_of.items()
    ]
    return rows.select(cells)


def _plain(hint: Any) -> type:
    if isinstance(hint, types.UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not types.NoneType)
    assert isinstance(hint, type)
    return hint


def _to_zstd(path: Path, target: Path) -> None:
    import zstandard

    with path.open("rb") as source, target.open("wb") as packed:
        zstandard.ZstdCompressor(level=9).copy_stream(source, packed)


def main(names: list[str]) -> None:
    """Packs each file named."""
    os.nice(19)
    for name in names:
        compact(Path(name))


if __name__ == "__main__":
    main(sys.argv[1:])
