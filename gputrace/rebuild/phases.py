"""Lays the phases of each call on the wall clock.

A phase is printed at its end, in whole milliseconds, floored. Inside a block phases follow one another, so edges are
sums of printed durations from the lock; each floored value is taken with half a millisecond more.

All calls are laid out at once: an array has an entry a call, NaN where a call lacks something.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace import schema
from gputrace.rebuild.blocks import NTT_H_PARTS
from gputrace.rebuild.calls import Calls
from gputrace.rebuild.columns import Floats, whole


def phases_frame(calls: Calls, frame: pl.DataFrame) -> pl.DataFrame:
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

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.ms = calls.printed
        self._kinds: list[tuple[str, bool]] = []
        self._parts: list[tuple[Floats, ...]] = []

    def of_lines(self, event: str) -> _At:
        """Where an event of the block is told."""
        lines = self.calls.blocks.event_lines(event)
        return _At(self.calls.of_blocks(lines.source), self.calls.of_blocks(lines.line))

    def of_own(self, kind: str) -> _At:
        """Where calls' own floating lines of one kind are."""
        return _At(self.calls.line_figure(kind, "source"), self.calls.line_figure(kind, "line"))

    def add(
        self, name: str, duration_ms: Floats, start_ns: Floats, end_ns: Floats, at: _At, under_mutex: bool = False
    ) -> None:
        """A row for every call that has a duration."""
        if not np.isnan(duration_ms).all():
            self._kinds.append((name, under_mutex))
            self._parts.append((duration_ms, start_ns, end_ns, at.source, at.line))

    def frame(self, calls: pl.DataFrame) -> pl.DataFrame:
        """The rows in the order of calls, and in a call in the order in which they were added."""
        if not self._parts:
            return schema.PHASES.empty()
        durations, *others = zip(*self._parts, strict=True)
        duration_ms = np.column_stack(durations)
        call, kind = np.nonzero(~np.isnan(duration_ms))
        kinds = pl.DataFrame(self._kinds, schema=["name", "under_mutex"], orient="row")[kind]
        start_ns, end_ns, source, line = (np.column_stack(columns)[call, kind] for columns in others)
        return schema.PHASES.fit(
            pl.DataFrame(
                {
                    "call": calls["call"][call],
                    "gpu": calls["gpu"][call],
                    "worker": calls["worker"][call],
                    "name": kinds["name"],
                    "duration_ms": whole(duration_ms[call, kind]),
                    "start_ns": whole(start_ns),
                    "end_ns": whole(end_ns),
                    "uncertainty_ms": pl.Series(self.calls.uncertainty_ms[call], nan_to_null=True),
                    "under_mutex": kinds["under_mutex"],
                    "source": whole(source),
                    "line": whole(line),
                }
            )
        )


def _before_lock(layout: _Layout) -> None:
    entry = layout.calls.entry_ns
    split = layout.calls.line_figure("split", "ms")
    layout.add("split_vectors", split, entry, _after(entry, _steady(split)), layout.of_own("split"))
    pre_lock, line = layout.ms("pre_lock_cpu_ms"), layout.of_lines("mutex_acquired")
    asked = _after(entry, _steady(pre_lock))
    layout.add("pre_lock", pre_lock, entry, asked, line)
    layout.add("mutex_wait", layout.ms("mutex_wait_ms"), asked, layout.calls.lock_ns, line)


def _under_mutex(layout: _Layout) -> None:
    calls, lock = layout.calls, layout.calls.lock_ns
    held, line = layout.ms("mutex_held_ms"), layout.of_lines("mutex_released")
    layout.add("mutex_held", held, lock, calls.unlock_ns, line, True)
    gpu_total, tail_line = layout.ms("gpu_total_ms"), layout.of_lines("tail_msm")
    gpu_end = _after(lock, _steady(gpu_total))
    layout.add("gpu_total", gpu_total, lock, gpu_end, tail_line, True)
    parts_ms = calls.of_blocks(np.sum([calls.blocks.circuit_ms(part) for part in NTT_H_PARTS], axis=0))
    printed = layout.ms("ntt_msm_h_ms")
    ntt_ms = np.where(np.isnan(printed), parts_ms, _steady(printed))
    at = _after(lock, ntt_ms)
    layout.add("ntt_msm_h", printed, lock, at, layout.of_lines("ntt_msm_h"), True)
    # The parts end with ntt_msm_h; what is before them is the allocation of d_a in a first call.
    edge = _after(lock, np.maximum(0.0, ntt_ms - parts_ms))
    line = layout.of_lines("ntt_h")
    for nth in range(calls.blocks.circuit_count.max(initial=0)):
        for part in NTT_H_PARTS:
            edge = _add_part(layout, nth, part, edge, line)
    for name in ("barrier_wait", "batch_add"):
        took = layout.ms(f"{name}_ms")
        end = _after(at, _steady(took))
        layout.add(name, took, at, end, layout.of_lines(name), True)
        at = np.where(np.isnan(took), at, end)
    tail = layout.ms("tail_msm_ms")
    # Its end is known from gpu_total; what lies before its start is printing.
    end = np.where(np.isnan(gpu_end) | (gpu_end == 0), _after(at, _steady(tail)), gpu_end)
    layout.add("tail_msm", tail, _after(end, -_steady(tail)), end, tail_line, True)


def _add_part(layout: _Layout, nth: int, part: str, edge: Floats, line: _At) -> Floats:
    """One part of the calls' circuits of this number, from `edge` on; where it ends."""
    took = layout.calls.of_blocks(layout.calls.blocks.circuit_part(nth, part))
    end = _after(edge, np.maximum(0, took))
    layout.add(part, took, edge, end, line, True)
    return np.where(np.isnan(took), edge, end)


def _on_cpu(layout: _Layout) -> None:
    calls = layout.calls
    begun = _after(calls.entry_ns, _steady(np.nan_to_num(calls.line_figure("split", "ms"))))
    prep = calls.line_figure("prep", "ms")
    prep_end = _after(begun, _steady(prep))
    layout.add("prep_msm", prep, begun, prep_end, layout.of_own("prep"))
    b_g2 = calls.line_figure("b_g2", "ms")
    # Without prep_msm nothing says when it began.
    layout.add("b_g2_msm", b_g2, prep_end, _after(prep_end, _steady(b_g2)), layout.of_own("b_g2"))
    told = _At(calls.of_attempts("source"), calls.of_attempts("line"))
    layout.add("release_abc", calls.release_abc_ms, calls.unlock_ns, calls.end_ns, told)
    dealloc, end = calls.line_figure("dealloc", "ms"), calls.line_figure("dealloc", "arrival_ns")
    layout.add("async_dealloc", dealloc, _after(end, -dealloc), end, layout.of_own("dealloc"))
