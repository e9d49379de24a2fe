"""How the recorder is doing, from the rows that it writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# The recorder keeps its steps within 5 ms where no call blocks; twice that is late.
LATE_MS = 10.0


@dataclass
class RowCounts:
    """Rows of one GPU: how many, late ones, holes, failed readings; the end of the newest, Unix ns."""

    rows: int = 0
    late: int = 0
    holes: int = 0
    failed_reads: int = 0
    last_ns: int = 0


def count_rows(rows: Iterable[Mapping[str, str | None]]) -> dict[int, RowCounts]:
    """Counts by GPU, of rows of text by column. A row without a time is damaged and counts as nothing.

    Columns: `t_end_ns` or `t_wall_ns`; `gpu` (absent for one GPU), `late_ms`, `hole`, `failed` where there are such.
    """
    counts: dict[int, RowCounts] = {}
    for row in rows:
        at, gpu = row.get("t_end_ns") or row.get("t_wall_ns") or "", row.get("gpu") or "0"
        if not (at.isascii() and at.isdigit() and gpu.isascii() and gpu.isdigit()):
            continue
        found = counts.setdefault(int(gpu), RowCounts())
        found.rows += 1
        found.last_ns = max(found.last_ns, int(at))
        found.late += _number(row.get("late_ms")) > LATE_MS
        found.holes += row.get("hole") == "true"
        found.failed_reads += len([name for name in (row.get("failed") or "").split(";") if name])
    return counts


def _number(text: str | None) -> float:
    try:
        return float(text or 0.0)
    except ValueError:
        return 0.0
