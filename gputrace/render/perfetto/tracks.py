"""The run as a Perfetto trace: a group for the run, one for each GPU, one for the syntheses, one for the host.

Times are those of the frames, to the nanosecond. Where a log has no wall clock they count from the engine's start,
and readings of the GPU, whose times are Unix times, are left out: they cannot be put beside the log.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

import polars as pl

from gputrace import __version__
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.render.perfetto import slices
from gputrace.render.perfetto.counters import Counter, gpu_counters, host_counters, steps
from gputrace.render.perfetto.events import EventWriter
from gputrace.render.perfetto.lanes import Begin, Slice, nest
from gputrace.trace import Trace

ABOUT = "about this trace"


@dataclass(frozen=True)
class PerfettoRenderer:
    """Writes the trace packet by packet."""

    extension: str = "pftrace"

    def write(self, trace: Trace, diagnosis: Diagnosis, file: BinaryIO) -> None:
        """The whole trace; nothing but its clock and its notes where nothing has a time."""
        on_wall_clock = trace.clock.method != "none" or trace.marks.is_empty()
        first_ns, last_ns = _extent(trace, diagnosis, on_wall_clock)
        # Perfetto's times are unsigned. Without a wall clock a call may reach back before the engine's start.
        shift_ns = max(0, -first_ns)
        events = EventWriter(file)
        if on_wall_clock:
            events.wall_clock(first_ns + shift_ns)
        painter = _Painter(events, first_ns, last_ns, shift_ns)
        run = painter.group("run")
        notes = _notes(trace, diagnosis, on_wall_clock, shift_ns)
        painter.slices(run, ABOUT, [Slice("gputrace", first_ns, last_ns, notes)])
        painter.slices(run, "regimes", slices.regimes(diagnosis))
        for gpu in _gpus(trace):
            self._gpu(painter, trace, diagnosis, gpu, on_wall_clock)
        if trace.syntheses.height:
            painter.slices(painter.group("syntheses"), "synthesis", slices.syntheses(trace))
        if on_wall_clock and trace.host.height:
            host = painter.group("host")
            for counter in host_counters(trace):
                painter.counter(host, counter)

    @staticmethod
    def _gpu(painter: "_Painter", trace: Trace, diagnosis: Diagnosis, gpu: int | None, with_samples: bool) -> None:
        name = next((info.name for info in trace.gpus if info.gpu == gpu and info.name), None)
        group = painter.group(("GPU not named" if gpu is None else f"GPU {gpu}") + (f": {name}" if name else ""))
        painter.slices(group, "gaps", slices.gaps(diagnosis, gpu))
        workers = pl.concat([trace.calls.select("gpu", "worker"), trace.phases.select("gpu", "worker")])
        mine = workers.filter(pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int32)))["worker"].unique().sort(nulls_last=True)
        for worker in mine:
            whose = "worker not named" if worker is None else f"worker {worker}"
            for track, own in slices.worker_slices(trace, gpu, worker).items():
                painter.slices(group, f"{whose}: {track}", own)
        if with_samples:
            painter.slices(group, "copies", slices.copies(trace, gpu))
        for counter in gpu_counters(trace, diagnosis, gpu, with_samples):
            painter.counter(group, counter)


class _Painter:
    """Puts slices and counters on tracks, in the order in which they come."""

    def __init__(self, events: EventWriter, first_ns: int, last_ns: int, shift_ns: int) -> None:
        self._events, self._first_ns, self._last_ns, self._shift_ns = events, first_ns, last_ns, shift_ns
        self._groups = self._rank = 0

    def group(self, name: str) -> int:
        self._groups += 1
        return self._events.process(name, self._groups)

    def slices(self, group: int, name: str, items: Iterable[Slice]) -> None:
        """Slices on a track of this name, and on further ones of its name and a number where they do not nest."""
        tracks: list[int] = []
        for step in nest(items):
            if step.lane == len(tracks):
                tracks.append(self._track(group, name if not tracks else f"{name} ({len(tracks) + 1})"))
            track = tracks[step.lane]
            if isinstance(step, Begin):
                item = step.slice
                begin_ns = item.start_ns + self._shift_ns
                self._events.begin(track, begin_ns, item.name, item.args, item.flow, item.flow_ends)
            else:
                self._events.end(track, step.time_ns + self._shift_ns)

    def counter(self, group: int, counter: Counter) -> None:
        """A counter, and beside it where it was not read."""
        self._rank += 1
        track = self._events.counter_track(counter.name, group, self._rank, counter.unit, counter.description)
        holes: list[Slice] = []
        unread_ns: int | None = self._first_ns
        for time_ns, value in steps(counter.readings):
            if value is None:
                unread_ns = time_ns
                if time_ns >= self._last_ns:
                    break
            elif unread_ns is not None:
                holes.append(Slice("not read", unread_ns, time_ns))
                unread_ns = None
            self._events.counter(track, time_ns + self._shift_ns, 0.0 if value is None else value)
        if unread_ns is not None:
            holes.append(Slice("not read", unread_ns, self._last_ns))
        self.slices(group, f"not read: {counter.name}", [hole for hole in holes if hole.end_ns > hole.start_ns])

    def _track(self, group: int, name: str) -> int:
        self._rank += 1
        return self._events.track(name, group, self._rank)


def _gpus(trace: Trace) -> list[int | None]:
    numbers = pl.concat([frame["gpu"] for frame in (trace.calls, trace.phases, trace.samples, trace.copies)])
    return numbers.unique().sort(nulls_last=True).to_list()


def _extent(trace: Trace, diagnosis: Diagnosis, on_wall_clock: bool) -> tuple[int, int]:
    """First and last time of anything that is shown; (0, 0) where nothing has one."""
    frames = [trace.calls, trace.phases, trace.syntheses]
    if on_wall_clock:
        frames += [trace.samples, trace.host, trace.copies]
    drawn = [slices.placed(frame) for frame in frames]
    starts: list[Any] = [frame["start_ns"].min() for frame in drawn] + [regime.start_ns for regime in diagnosis.regimes]
    ends: list[Any] = [frame["end_ns"].max() for frame in drawn] + [regime.end_ns for regime in diagnosis.regimes]
    known = [time for time in starts if time is not None], [time for time in ends if time is not None]
    return min(known[0], default=0), max(known[1], default=0)


def _notes(trace: Trace, diagnosis: Diagnosis, on_wall_clock: bool, shift_ns: int) -> dict[str, Any]:
    """What a reader must know of the whole trace, as arguments of its first slice."""
    window, clock = diagnosis.window, trace.clock
    undrawn = trace.phases.height - slices.placed(trace.phases).height
    return {
        "made_by": f"gputrace {__version__}",
        "headline": diagnosis.headline,
        "times": "Unix time" if on_wall_clock else "relative: this log has no wall clock; times count from its start",
        "times_moved_by_ns": shift_ns or None,
        "clock_method": clock.method,
        "clock_uncertainty_ms": None if clock.uncertainty_s is None else clock.uncertainty_s * 1e3,
        "window_start_ns": window.start_ns,
        "window_end_ns": window.end_ns,
        "phases_without_time": undrawn or None,
        "readings_left_out": None if on_wall_clock else (trace.samples.height or None),
        "gaps_listed_from_ms": diagnosis.gaps.threshold_ms,
        **{f"input {number}": info.path for number, info in enumerate(trace.inputs) if info.used},
        **{f"notice {number}": notice.text for number, notice in enumerate(trace.quality.notices, 1)},
    }
