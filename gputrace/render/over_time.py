"""What a GPU did over its window, in as many cells of time as a terminal has columns.

A cell keeps the mean of what lies in it and its extremes: a short stall or a short burst is not averaged away.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.diagnosis import Diagnosis

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """One quantity, a value a cell: highest and lowest of any sample that touches the cell, and the mean over it.

    None where nothing was measured.
    """

    high: tuple[float | None, ...]
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]


@dataclass(frozen=True)
class OverTime:
    """One GPU: `compute` as a share of the time, `rx` in payload bytes per second, None where no trace says it."""

    gpu: int
    compute: Cells
    rx: Cells | None


@dataclass(frozen=True)
class Axis:
    """The window cut into `cells` equal parts."""

    start_ns: int
    end_ns: int
    cells: int

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """Where cells begin and end, in ns: one more than there are cells."""
        span = self.end_ns - self.start_ns
        return np.array([self.start_ns + span * i // self.cells for i in range(self.cells + 1)], dtype=np.int64)

    @property
    def cell_s(self) -> float:
        """Seconds a cell."""
        return (self.end_ns - self.start_ns) / 1e9 / self.cells


def axis_of(diagnosis: Diagnosis, cells: int) -> Axis | None:
    """The axis of a diagnosis; None where nothing has a time."""
    window = diagnosis.window
    if diagnosis.states.is_empty() or window.start_ns is None or window.end_ns is None:
        return None
    # What is shorter than a microsecond a cell is no window.
    return Axis(window.start_ns, window.end_ns, cells) if window.end_ns - window.start_ns > cells * 1000 else None


def over_time(diagnosis: Diagnosis, axis: Axis) -> list[OverTime]:
    """Every GPU that has states."""
    found = []
    for gpu in diagnosis.gpus:
        states = diagnosis.states.filter(pl.col("gpu") == gpu.gpu).sort("start_ns")
        seconds = (states["end_ns"] - states["start_ns"]).to_numpy() / 1e9
        lasting = states.filter(pl.Series(seconds > 0))
        seconds = seconds[seconds > 0]
        compute = lasting["compute_s"].to_numpy() / seconds if gpu.compute_share is not None else seconds * np.nan
        rx = None
        if "rx_bytes_per_s" in lasting.columns and lasting["rx_bytes_per_s"].count():
            rx = _cells(lasting, lasting["rx_bytes_per_s"].cast(pl.Float64).to_numpy(), axis)
        found.append(OverTime(gpu.gpu, _cells(lasting, compute, axis), rx))
    return found


def lost_share(diagnosis: Diagnosis, cause: str, axis: Axis) -> tuple[float | None, ...]:
    """Seconds charged to a cause, as a share of the GPU seconds of each cell (all GPUs together)."""
    lost = np.zeros(axis.cells)
    for _, own in diagnosis.blame.filter(pl.col("cause") == cause).group_by("gpu", maintain_order=True):
        lost += _sums(own.sort("start_ns"), own.sort("start_ns").select(pl.col("copy_only_s") + pl.col("idle_s")), axis)
    covered = np.zeros(axis.cells)
    for _, own in diagnosis.states.group_by("gpu", maintain_order=True):
        covered += _sums(own.sort("start_ns"), own.sort("start_ns").select(_SECONDS), axis)
    return tuple(
        min(float(part / whole), 1.0) if whole > 1e-9 else None for part, whole in zip(lost, covered, strict=True)
    )


def regime_lane(diagnosis: Diagnosis, axis: Axis) -> str:
    """One character a cell: the mark of the regime that holds its middle, a blank between regimes."""
    edges = axis.edges
    middles = (edges[:-1] + edges[1:]) // 2
    return "".join(
        next(
            (
                regime_mark(number)
                for number, regime in enumerate(diagnosis.regimes)
                if regime.start_ns <= middle < regime.end_ns
            ),
            " ",
        )
        for middle in middles
    )


def regime_mark(index: int) -> str:
    """One character for the regime with this index from 0: its number to 9, then letters, at last a plus."""
    marks = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return marks[index] if index < len(marks) else "+"


_SECONDS = (pl.col("end_ns") - pl.col("start_ns")) / 1e9


def _cells(states: pl.DataFrame, values: Floats, axis: Axis) -> Cells:
    known = ~np.isnan(values)
    spans, values = states.filter(pl.Series(known)), values[known]
    seconds = spans.select(_SECONDS)
    covered = _sums(spans, seconds, axis)
    means = _sums(spans, seconds.to_series() * values, axis)
    edges = axis.edges
    first = np.searchsorted(spans["end_ns"].to_numpy(), edges[:-1], side="right")
    last = np.searchsorted(spans["start_ns"].to_numpy(), edges[1:], side="left")
    touching = [values[low:high] for low, high in zip(first, last, strict=True)]
    return Cells(
        high=tuple(float(part.max()) if len(part) else None for part in touching),
        mean=tuple(map(_mean, means, covered, touching)),
        low=tuple(float(part.min()) if len(part) else None for part in touching),
    )


def _mean(total: float, covered_s: float, touching: Floats) -> float | None:
    """The mean over a cell; of what covers it too shortly to be divided by, that of what touches it."""
    if covered_s > 1e-9:
        return float(total / covered_s)
    return float(touching.mean()) if len(touching) else None


def _sums(spans: pl.DataFrame, amounts: pl.DataFrame | pl.Series, axis: Axis) -> Floats:
    """What falls into each cell of amounts spread evenly over spans that are sorted and do not overlap."""
    if spans.is_empty():
        return np.zeros(axis.cells)
    series = amounts.to_series() if isinstance(amounts, pl.DataFrame) else amounts
    # Relative to the axis: Unix nanoseconds are too large for a float to tell apart.
    ends = np.stack([spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()], axis=1).ravel() - axis.start_ns
    times = np.maximum.accumulate(ends).astype(np.float64)
    total = np.cumsum(series.fill_null(0.0).to_numpy())
    reached = np.stack([np.concatenate([[0.0], total[:-1]]), total], axis=1).ravel()
    return np.asarray(np.diff(np.interp((axis.edges - axis.start_ns).astype(np.float64), times, reached)))
