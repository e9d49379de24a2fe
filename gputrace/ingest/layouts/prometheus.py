"""What Prometheus exporters print, and what Prometheus answers to a query."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gputrace.ingest.layouts.grid import TIME_NS, Grid
from gputrace.ingest.trace_times import strip_stamps

_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? +(?P<value>[-+\w.]+)(?: +(?P<time>[\d.]+))?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_RESULT = re.compile(r'^\s*\{\s*"status"\s*:\s*"success"')
_RESULT_NAME = re.compile(r'"__name__"\s*:\s*"([\w:]+)"')
# The year 2262, where nanoseconds end.
_LATEST_NS = 1 << 63
_GPU_LABELS = ("gpu", "index", "minor_number")
_GPU_NUMBER = re.compile(r"[0-9]{1,4}")
_NAME_LABELS = ("modelName", "devicename", "name")
_MIG_LABELS = ("GPU_I_ID", "GPU_I_PROFILE")


def names_in(head: str) -> list[str]:
    """Names of the metrics."""
    if _RESULT.match(head):
        return list(dict.fromkeys(_RESULT_NAME.findall(head)))
    lines, _ = strip_stamps(head)
    named = [line for line in lines if line.strip() and not line.startswith("#")]
    found = [_LINE.match(line) for line in named]
    if sum(match is not None for match in found) < 0.8 * len(named):
        return []
    return list(dict.fromkeys(match["name"] for match in found if match))


@dataclass
class _Table:
    """Readings by GPU and time, in the order in which they come."""

    wanted: re.Pattern[str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    stamps: list[str | None] = field(default_factory=list)
    at: dict[tuple[int, Any], dict[str, Any]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    left_out: int = 0

    def add(
        self, metric: str, labels: dict[str, str], value: str, key: Any, time_ns: int | None, stamp: str | None
    ) -> None:
        if not self.wanted.fullmatch(metric):
            return
        if any(labels.get(label) for label in _MIG_LABELS):
            self.left_out += 1
            return
        number = next((labels[label] for label in _GPU_LABELS if _GPU_NUMBER.fullmatch(labels.get(label, ""))), "0")
        gpu = int(number)
        if model := next((labels[label] for label in _NAME_LABELS if labels.get(label)), None):
            self.names.setdefault(gpu, model)
        row = self.at.get((gpu, key))
        if row is None:
            row = self.at[gpu, key] = {"gpu": number, TIME_NS: time_ns}
            self.rows.append(row)
            self.stamps.append(stamp)
        # The same series of several pods or processes: one GPU has one reading.
        row.setdefault(metric, value)


def read_prometheus(path: str, text: str, columns: Iterable[str]) -> Grid:
    """A row for each GPU and time, with the metrics that match one of `columns` (regular expressions)."""
    table = _Table(re.compile("|".join(f"(?:{column})" for column in columns)))
    broken, stamped = _read_results(text, table) if _RESULT.match(text) else _read_lines(text, table)
    names = list(dict.fromkeys(["gpu", *(name for row in table.rows for name in row)]))
    schema = {name: pl.Int64 if name == TIME_NS else pl.String for name in names}
    frame = pl.DataFrame({name: [row.get(name) for row in table.rows] for name in names}, schema=schema)
    grid = Grid(frame, broken, table.stamps if stamped else None, table.names)
    if TIME_NS in names and frame[TIME_NS].null_count() == frame.height:
        grid.frame = frame.drop(TIME_NS)
    if table.left_out:
        grid.notices.append(("not-a-gpu", f"{path}: {table.left_out} readings of MIG instances were left out"))
    return grid


def _read_results(text: str, table: _Table) -> tuple[int, bool]:
    """Answers of the query API, one or several back to back."""
    decoder = json.JSONDecoder()
    at, broken = 0, 0
    while (begin := text.find("{", at)) >= 0:
        try:
            answer, at = decoder.raw_decode(text, begin)
        except (json.JSONDecodeError, RecursionError):
            return broken + 1, False
        for labels, time, value in _points(answer):
            try:
                time_ns = round(float(time) * 1e3) * 1_000_000
            except (TypeError, ValueError, OverflowError):
                time_ns = -1
            if not 0 <= time_ns < _LATEST_NS:
                broken += 1
                continue
            table.add(labels.get("__name__", ""), labels, str(value), time_ns, time_ns, None)
    return broken, False


def _points(answer: Any) -> Iterator[tuple[dict[str, str], Any, Any]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    for series in data.get("result") or [] if isinstance(data, dict) else []:
        if isinstance(series, dict) and isinstance(labels := series.get("metric"), dict):
            for point in series.get("values") or [series.get("value")]:
                if isinstance(point, list) and len(point) == 2:
                    yield {str(key): str(item) for key, item in labels.items()}, point[0], point[1]


def _read_lines(text: str, table: _Table) -> tuple[int, bool]:
    """The text form, one scrape or several one after the other."""
    lines, stamps = strip_stamps(text)
    seen: set[str] = set()
    scrape = broken = 0
    for number, line in enumerate(lines):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.match(line)
        if found is None:
            broken += 1
            continue
        series = f"{found['name']}{{{found['labels']}"
        if series in seen:
            scrape += 1
            seen.clear()
        seen.add(series)
        time_ns = None
        if found["time"]:
            # Prometheus text has milliseconds, OpenMetrics seconds.
            time = float(found["time"]) if found["time"].count(".") < 2 else float(_LATEST_NS)
            time_ns = round(min(time, _LATEST_NS) * (1e6 if time > 1e11 else 1e9))
            if time_ns >= _LATEST_NS:
                broken += 1
                continue
        table.add(
            found["name"],
            dict(_LABEL.findall(found["labels"] or "")),
            found["value"],
            time_ns if time_ns is not None else ("scrape", scrape),
            time_ns,
            stamps[number] if stamps else None,
        )
    return broken, stamps is not None
