"""Nsight Systems exports: a SQLite file, or its text as `.dump` writes it.

Nothing in the file is trusted: it is opened read-only, only tables that are there are read, and only numbers are taken.
Times are nanoseconds since the session's start, which TARGET_INFO_SESSION_START_TIME puts on the clock.
"""

import re
import sqlite3
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace import schema
from gputrace.errors import InputError
from gputrace.ingest.layouts.grid import TIME_NS, Grid

SQLITE_MAGIC = b"SQLite format 3\x00"
# Columns made here, beside those named after the metrics of GPU_METRICS.
KERNELS, COPIED_IN, COPIED_OUT = "kernels running", "copied in", "copied out"
STEP_NS = 20_000_000
_MOST_STEPS = 500_000
_LONGEST_NS = 30 * 86_400 * 1_000_000_000
_CREATED = re.compile(r'^CREATE TABLE (?:IF NOT EXISTS )?["\']?(\w+)', re.MULTILINE)
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2
_COPY_KINDS = {1: "h2d", 2: "d2h", 8: "d2d", 10: "p2p"}
_MEMORY = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device-static"}
_DUMP_MAY = {
    sqlite3.SQLITE_CREATE_TABLE,
    sqlite3.SQLITE_CREATE_INDEX,
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_REINDEX,
}

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def names_in(head: str) -> list[str]:
    """Tables of a dump."""
    return _CREATED.findall(head)


def _open(path: str, data: bytes) -> sqlite3.Connection:
    if not data:
        return sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
    connection = sqlite3.connect(":memory:")
    if data.startswith(SQLITE_MAGIC):
        connection.deserialize(data)
        return connection
    text = re.sub(r"^PRAGMA [^;]*;$", "", data.decode("utf-8", errors="replace"), flags=re.MULTILINE)
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _DUMP_MAY else sqlite3.SQLITE_DENY)
    connection.executescript(text)
    connection.set_authorizer(None)
    return connection


def read_nsight(path: str, data: bytes, columns: list[str]) -> Grid:
    """Steps of 20 ms with the sampled metrics that match `columns`, kernels running and bytes copied; the copies.

    `data` is empty for a plain file, which is then read in place. Raises `InputError` for a file that SQLite cannot
    read and for one without anything to use.
    """
    try:
        connection = _open(path, data)
        try:
            return _Export(path, connection).grid(columns)
        finally:
            connection.close()
    except (sqlite3.Error, OverflowError, ValueError) as error:
        what = " ".join(str(error).split())
        raise InputError(f"{path}: SQLite that cannot be read as a Nsight Systems export: {what}") from error


class _Export:
    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {str(name) for (name,) in found}
        self.notices: list[tuple[str, str]] = []

    def _has(self, table: str, *columns: str) -> bool:
        if table not in self.tables:
            return False
        there = {str(row[1]) for row in self.connection.execute(f"PRAGMA table_info('{table}')")}
        return set(columns) <= there

    def _numbers(self, query: str) -> Ints:
        """All rows of a query of integer columns."""
        cursor = self.connection.execute(query)
        parts = [np.empty((0, len(cursor.description)), dtype=np.int64)]
        while rows := cursor.fetchmany(100_000):
            parts.append(np.array(rows, dtype=np.int64))
        return np.concatenate(parts)

    def _start_ns(self) -> int | None:
        if self._has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
            row = self.connection.execute(
                "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME WHERE typeof(utcEpochNs) = 'integer'"
            ).fetchone()
            return int(row[0]) if row else None
        return None

    def _gpu_of_device(self) -> dict[int, int]:
        """CUDA's number of a GPU to the machine's: CUDA_VISIBLE_DEVICES makes them differ."""
        if not self._has("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId"):
            return {}
        pairs = self._numbers(
            "SELECT cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE "
            "WHERE typeof(cudaId) = 'integer' AND typeof(gpuId) = 'integer'"
        )
        found: dict[int, set[int]] = {}
        for device, gpu in pairs.tolist():
            found.setdefault(device, set()).add(gpu)
        # Where processes number the GPUs differently, CUDA's number alone does not tell.
        return {device: next(iter(gpus)) for device, gpus in found.items() if len(gpus) == 1}

    def _gpu_names(self) -> dict[int, str]:
        if not self._has("TARGET_INFO_GPU", "id", "name"):
            return {}
        rows = self.connection.execute("SELECT id, name FROM TARGET_INFO_GPU WHERE typeof(id) = 'integer'")
        return {int(number): str(name) for number, name in rows if name}

    def _intervals(self, table: str, *more: str) -> Ints:
        """gpu, start, end and `more` of an activity table, in order of start."""
        if not self._has(table, "start", "end", "deviceId"):
            return np.empty((0, 3 + len(more)), dtype=np.int64)
        extra = [name if self._has(table, name) else "-1" for name in more]
        chosen = ", ".join(["deviceId", "start", '"end"', *(f"ifnull({name}, -1)" for name in extra)])
        rows = self._numbers(
            f"SELECT {chosen} FROM {table} WHERE typeof(start) = 'integer' AND typeof(\"end\") = 'integer' "
            "AND typeof(deviceId) = 'integer' AND \"end\" >= start ORDER BY start"
        )
        devices = self._gpu_of_device()
        rows[:, 0] = [devices.get(device, device) for device in rows[:, 0].tolist()]
        return rows

    def _metrics(self, columns: list[str], step_ns: int) -> dict[int, dict[str, tuple[Ints, Floats]]]:
        """By GPU and metric: number of the step and mean in it."""
        if not self._has("GPU_METRICS", "timestamp", "typeId", "metricId", "value"):
            return {}
        if not self._has("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"):
            self.notices.append(("nsight-table-missing", f"{self.path}: GPU_METRICS without the names of its metrics"))
            return {}
        wanted = re.compile("|".join(f"(?:{column})" for column in columns))
        found: dict[int, dict[str, tuple[Ints, Floats]]] = {}
        named = self.connection.execute("SELECT DISTINCT typeId, metricId, metricName FROM TARGET_INFO_GPU_METRICS")
        for type_id, metric_id, name in named.fetchall():
            if not wanted.fullmatch(str(name)):
                continue
            rows = self.connection.execute(
                "SELECT timestamp / ?, avg(value) FROM GPU_METRICS WHERE typeId = ? AND metricId = ? "
                "AND typeof(timestamp) = 'integer' AND timestamp >= 0 AND typeof(value) IN ('integer', 'real') "
                "GROUP BY 1 ORDER BY 1",
                (step_ns, type_id, metric_id),
            ).fetchall()
            if rows:
                steps, means = zip(*rows, strict=True)
                # The low byte of typeId is the GPU's number.
                found.setdefault(int(type_id) & 0xFF, {})[str(name)] = np.array(steps, np.int64), np.array(means, float)
        return found

    def _span(self, *parts: Ints) -> tuple[int, int]:
        low = [int(part[:, 1].min()) for part in parts if len(part)]
        high = [int(part[:, 2].max()) for part in parts if len(part)]
        if self._has("GPU_METRICS", "timestamp"):
            first, last = self.connection.execute(
                "SELECT min(timestamp), max(timestamp) FROM GPU_METRICS "
                "WHERE typeof(timestamp) = 'integer' AND timestamp >= 0"
            ).fetchone()
            if first is not None:
                low.append(int(first))
                high.append(int(last))
        if not low:
            raise InputError(
                f"{self.path}: a Nsight Systems export without kernels, copies or GPU metrics; "
                "record with --trace=cuda or --gpu-metrics-devices=all"
            )
        if max(high) - min(low) > _LONGEST_NS:
            raise InputError(f"{self.path}: a Nsight Systems export whose times span more than 30 days: damaged")
        return min(low), max(high)

    def grid(self, columns: list[str]) -> Grid:
        kernels = self._intervals("CUPTI_ACTIVITY_KIND_KERNEL")
        copies = self._intervals("CUPTI_ACTIVITY_KIND_MEMCPY", "bytes", "copyKind", "srcKind", "dstKind")
        begin, end = self._span(kernels, copies)
        step_ns = max(STEP_NS, (end - begin) // _MOST_STEPS)
        first = begin // step_ns
        edges = np.arange(first, end // step_ns + 2, dtype=np.int64) * step_ns
        metrics = self._metrics(columns, step_ns)
        start_ns = self._start_ns()
        gpus = sorted({*metrics, *np.unique(kernels[:, 0]).tolist(), *np.unique(copies[:, 0]).tolist()})
        frames = [
            self._steps(gpu, edges, step_ns, metrics.get(gpu, {}), kernels, copies, start_ns or 0) for gpu in gpus
        ]
        grid = Grid(pl.concat(frames, how="diagonal"), names=self._gpu_names(), notices=self.notices)
        grid.copies = _copies(copies, start_ns or 0) if len(copies) else None
        if start_ns is None:
            grid.frame = grid.frame.drop(TIME_NS)
            grid.copies = None
        return grid

    def _steps(
        self,
        gpu: int,
        edges: Ints,
        step_ns: int,
        metrics: dict[str, tuple[Ints, Floats]],
        kernels: Ints,
        copies: Ints,
        start_ns: int,
    ) -> pl.DataFrame:
        """One GPU's readings; the first row begins the first step and has none."""
        columns: dict[str, object] = {"gpu": np.full(len(edges), float(gpu)), TIME_NS: edges + start_ns}
        for name, (steps, means) in metrics.items():
            values = np.full(len(edges), np.nan)
            values[steps - edges[0] // step_ns + 1] = means
            columns[name] = values
        mine = kernels[kernels[:, 0] == gpu]
        if len(kernels):
            columns[KERNELS] = _first_null(np.diff(_union(mine, edges)) / step_ns)
        mine = copies[copies[:, 0] == gpu]
        if len(copies):
            for name, kind in ((COPIED_IN, _HOST_TO_DEVICE), (COPIED_OUT, _DEVICE_TO_HOST)):
                rows = mine[mine[:, 4] == kind]
                columns[name] = _first_null(np.diff(_moved(rows, edges)) / (step_ns / 1e9))
        return pl.DataFrame(columns).with_columns(pl.selectors.float().fill_nan(None))


def _first_null(values: Floats) -> Floats:
    return np.concatenate([[np.nan], values])


def _union(rows: Ints, at: Ints) -> Floats:
    """For how long at least one of the intervals ran, up to each time; rows are in order of start."""
    if not len(rows):
        return np.zeros(len(at))
    starts, ends = rows[:, 1], np.maximum.accumulate(rows[:, 2])
    opens = np.concatenate([[True], starts[1:] > ends[:-1]])
    begin = starts[opens]
    finish = np.concatenate([ends[:-1][opens[1:]], ends[-1:]])
    knots = np.stack([begin, finish], axis=1).ravel().astype(np.float64)
    total = np.cumsum(np.stack([np.zeros(len(begin)), finish - begin], axis=1).ravel())
    return np.asarray(np.interp(at, knots, total, left=0.0), dtype=np.float64)


def _moved(rows: Ints, at: Ints) -> Floats:
    """Bytes copied up to each time, every copy at its own constant rate."""
    if not len(rows):
        return np.zeros(len(at))
    start = rows[:, 1].astype(np.float64)
    end = np.maximum(rows[:, 2], rows[:, 1] + 1).astype(np.float64)
    rate = np.maximum(rows[:, 3], 0) / (end - start)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    knots = times[order]
    slope = np.cumsum(np.concatenate([rate, -rate])[order])
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(knots))])
    return np.asarray(np.interp(at, knots, total, left=0.0), dtype=np.float64)


def _copies(rows: Ints, start_ns: int) -> pl.DataFrame:
    return schema.COPIES.fit(
        pl.DataFrame(
            {
                "gpu": rows[:, 0],
                "start_ns": rows[:, 1] + start_ns,
                "end_ns": rows[:, 2] + start_ns,
                "bytes": rows[:, 3],
                "kind": [_COPY_KINDS.get(kind, "other") for kind in rows[:, 4].tolist()],
                "source_memory": [_MEMORY.get(memory) for memory in rows[:, 5].tolist()],
                "target_memory": [_MEMORY.get(memory) for memory in rows[:, 6].tolist()],
            }
        )
    )
