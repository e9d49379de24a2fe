"""Lays the phases of each call on the wall clock.

A phase is printed at its end, in whole milliseconds, floored. Inside a block phases follow one another, so edges are
sums of printed durations from the lock; each floored value is taken with half a millisecond more.

All calls are laid out at once: an array has an entry a call, NaN where a call lacks something.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace import schema
from gputrace.rebuild.attempts import Attempt
from gputrace.rebuild.blocks import NTT_H_PARTS, Block
from gputrace.rebuild.calls import Call
from gputrace.rebuild.floating import Floating

Floats = npt.NDArray[np.float64]


def phases_frame(calls: list[Call], frame: pl.DataFrame) -> pl.DataFrame:
    """The PHASES frame of calls numbered as in `frame` (CALLS); start and end are null where no time is known."""
    layout = _Layout(calls)
    _before_lock(layout)
    _under_mutex(layout)
    _on_cpu(layout)
    return layout.frame(frame)


def _steady(value_ms: Floats) -> Floats:
    """Expected true length of a floored duration."""
    return np.where(value_ms > 0, value_ms + 0.5, np.where(np.isnan(value_ms), np.nan, 0.0))


def _after(start_ns: Floats, duration_ms: Floats) -> Floats:
    return np.asarray(start_ns + duration_ms * 1e6)


@dataclass(frozen=True)
class _At:
    """Where each call's line is: the input and the number in it, nan where there is none."""

    source: Floats
    line: Floats


class _Layout:
    """The calls' figures, and the rows made of them so far."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.blocks = [call.block for call in calls]
        self.entry_ns = self.of_calls(lambda call: call.entry_ns)
        self.lock_ns = self.of_calls(lambda call: call.lock_ns)
        self.unlock_ns = self.of_calls(lambda call: call.unlock_ns)
        self._parts: list[pl.DataFrame] = []

    def of_calls(self, read: Callable[[Call], float | None]) -> Floats:
        """One figure of every call."""
        return np.array([read(call) for call in self.calls], dtype=np.float64)

    def of_blocks(self, read: Callable[[Block], float | None]) -> Floats:
        """One figure of every call's block."""
        return np.array([None if block is None else read(block) for block in self.blocks], dtype=np.float64)

    def ms(self, key: str) -> Floats:
        """A figure that blocks print."""
        return self.of_blocks(lambda block: block.ms.get(key))

    def lines(self, event: str) -> _At:
        """Where an event of the block is told."""
        sources = self.of_blocks(lambda block: block.sources.get(event, block.source) if event in block.lines else None)
        return _At(sources, self.of_blocks(lambda block: block.lines.get(event)))

    def at(self, read: Callable[[Call], Floating | Attempt | None]) -> _At:
        """Where a line of every call's own is."""
        told = [read(call) for call in self.calls]
        sources = np.array([None if line is None else line.source for line in told], dtype=np.float64)
        return _At(sources, np.array([None if line is None else line.line for line in told], dtype=np.float64))

    def add(
        self, name: str, duration_ms: Floats, start_ns: Floats, end_ns: Floats, at: _At, under_mutex: bool = False
    ) -> None:
        """A row for every call that has a duration."""
        has = np.flatnonzero(~np.isnan(duration_ms))
        if not len(has):
            return

        def whole(values: Floats) -> pl.Series:
            return pl.Series(np.trunc(values[has]), nan_to_null=True).cast(pl.Int64)

        self._parts.append(
            pl.DataFrame(
                {
                    "call": pl.Series(has, dtype=pl.UInt32),
                    "place": pl.Series(np.full(len(has), len(self._parts)), dtype=pl.UInt16),
                    "duration_ms": whole(duration_ms),
                    "start_ns": whole(start_ns),
                    "end_ns": whole(end_ns),
                    "source": whole(at.source).cast(pl.UInt16),
                    "line": whole(at.line).cast(pl.UInt32),
                }
            ).with_columns(pl.lit(name).alias("name"), pl.lit(under_mutex).alias("under_mutex"))
        )

    def frame(self, calls: pl.DataFrame) -> pl.DataFrame:
        """The rows in the order of calls, and in a call in the order in which they were added."""
        if not self._parts:
            return schema.PHASES.empty()
        rows = pl.concat(self._parts).sort("call", "place")
        number = rows["call"].to_numpy()
        uncertainty = pl.Series(self.of_calls(lambda call: call.uncertainty_ms), nan_to_null=True)
        return schema.PHASES.fit(
            rows.with_columns(
                calls["call"][number],
                calls["gpu"][number],
                calls["worker"][number],
                uncertainty[number].alias("uncertainty_ms"),
            )
        )


def _before_lock(layout: _Layout) -> None:
    entry = layout.entry_ns
    split = layout.of_calls(lambda call: call.split.ms if call.split else None)
    layout.add(
        "split_vectors",
        split,
        entry,
        _after(entry, _steady(split)),
        layout.at(lambda call: call.split),
    )
    pre_lock, line = layout.ms("pre_lock_cpu_ms"), layout.lines("mutex_acquired")
    asked = _after(entry, _steady(pre_lock))
    layout.add("pre_lock", pre_lock, entry, asked, line)
    layout.add("mutex_wait", layout.ms("mutex_wait_ms"), asked, layout.lock_ns, line)


def _under_mutex(layout: _Layout) -> None:
    lock = layout.lock_ns
    layout.add("mutex_held", layout.ms("mutex_held_ms"), lock, layout.unlock_ns, layout.lines("mutex_released"), True)
    gpu_total, tail_line = layout.ms("gpu_total_ms"), layout.lines("tail_msm")
    gpu_end = _after(lock, _steady(gpu_total))
    layout.add("gpu_total", gpu_total, lock, gpu_end, tail_line, True)
    parts_ms = layout.of_blocks(
        lambda block: sum(circuit.get(part, 0) for circuit in block.circuits for part in NTT_H_PARTS)
    )
    printed = layout.ms("ntt_msm_h_ms")
    ntt_ms = np.where(np.isnan(printed), parts_ms, _steady(printed))
    at = _after(lock, ntt_ms)
    layout.add("ntt_msm_h", printed, lock, at, layout.lines("ntt_msm_h"), True)
    # The parts end with ntt_msm_h; what is before them is the allocation of d_a in a first call.
    edge = _after(lock, np.maximum(0.0, ntt_ms - parts_ms))
    line = layout.lines("ntt_h")
    for number in range(max((len(block.circuits) for block in layout.blocks if block is not None), default=0)):
        for part in NTT_H_PARTS:
            edge = _add_part(layout, number, part, edge, line)
    for name in ("barrier_wait", "batch_add"):
        took = layout.ms(f"{name}_ms")
        end = _after(at, _steady(took))
        layout.add(name, took, at, end, layout.lines(name), True)
        at = np.where(np.isnan(took), at, end)
    tail = layout.ms("tail_msm_ms")
    # Its end is known from gpu_total; what lies before its start is printing.
    end = np.where(np.isnan(gpu_end) | (gpu_end == 0), _after(at, _steady(tail)), gpu_end)
    layout.add("tail_msm", tail, _after(end, -_steady(tail)), end, tail_line, True)


def _add_part(layout: _Layout, number: int, part: str, edge: Floats, line: _At) -> Floats:
    """One part of the calls' circuits of this number, from `edge` on; where it ends."""
    took = layout.of_blocks(lambda block: block.circuits[number].get(part) if number < len(block.circuits) else None)
    end = _after(edge, np.maximum(0, took))
    layout.add(part, took, edge, end, line, True)
    return np.where(np.isnan(took), edge, end)


def _on_cpu(layout: _Layout) -> None:
    begun = _after(layout.entry_ns, _steady(layout.of_calls(lambda call: call.setup_ms or 0)))
    prep = layout.of_calls(lambda call: call.prep.ms if call.prep else None)
    prep_end = _after(begun, _steady(prep))
    layout.add("prep_msm", prep, begun, prep_end, layout.at(lambda call: call.prep))
    b_g2 = layout.of_calls(lambda call: call.b_g2.ms if call.b_g2 else None)
    line = layout.at(lambda call: call.b_g2)
    # Without prep_msm nothing says when it began.
    layout.add("b_g2_msm", b_g2, prep_end, _after(prep_end, _steady(b_g2)), line)
    release = layout.of_calls(lambda call: call.release_abc_ms if call.attempt else None)
    line = layout.at(lambda call: call.attempt)
    layout.add("release_abc", release, layout.unlock_ns, layout.of_calls(lambda call: call.end_ns), line)
    dealloc = layout.of_calls(lambda call: call.dealloc.ms if call.dealloc else None)
    end = layout.of_calls(lambda call: call.dealloc.arrival_ns if call.dealloc else None)
    line = layout.at(lambda call: call.dealloc)
    layout.add("async_dealloc", dealloc, _after(end, -dealloc), end, line)
