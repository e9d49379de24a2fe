"""What the timeline's pieces share: the axis, colours, and what the page's script is given."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.render.charts.timeline import TimeAxis
from gputrace.trace import Trace

if TYPE_CHECKING:
    from gputrace.render.timeline.build import Timeline

# A command with more inputs than this names their folder.
_MOST_INPUTS = 6


def time_axis(trace: Trace, diagnosis: Diagnosis) -> TimeAxis | None:
    """From the first thing the log shows to the last; zero is the window's start. Without a log, the samples' span."""
    window = diagnosis.window
    starts = [window.start_ns, trace.phases["start_ns"].min(), trace.calls["start_ns"].min()]
    ends = [window.end_ns, trace.phases["end_ns"].max(), trace.calls["end_ns"].max()]
    if window.start_ns is None and trace.phases["start_ns"].count() == 0:
        starts, ends = [trace.samples["start_ns"].min()], [trace.samples["end_ns"].max()]
    known = (
        [int(time) for time in starts if isinstance(time, int)],
        [int(time) for time in ends if isinstance(time, int)],
    )
    if not all(known):
        return None
    start_ns, end_ns = min(known[0]), max(known[1])
    origin_ns = start_ns if window.start_ns is None else window.start_ns
    return TimeAxis(
        origin_ns=origin_ns,
        start_s=round((start_ns - origin_ns) / 1e9, 4),
        end_s=round(max(end_ns - origin_ns, start_ns - origin_ns + 1_000_000) / 1e9, 4),
        utc=is_clocked(trace),
    )


def is_clocked(trace: Trace) -> bool:
    """Whether times are times of day: the log lies on the wall clock, or there are only samples."""
    return trace.clock.method != "none" or trace.marks.is_empty()


def regime_colours(diagnosis: Diagnosis, colours: dict[str, Any]) -> dict[str, str]:
    """A colour for each label of a regime, in the order in which they come; equal labels look the same."""
    labels = list(dict.fromkeys(regime.label for regime in diagnosis.regimes))
    return {label: colours["regimes"][i % len(colours["regimes"])] for i, label in enumerate(labels)}


def command_of(trace: Trace) -> str:
    """The command that reads the same inputs again, up to its options."""
    paths = [given.path for given in trace.inputs]
    if len(paths) > _MOST_INPUTS:
        paths = list(dict.fromkeys(str(Path(path).parent) for path in paths))
    return " ".join(["gputrace report", *(shlex.quote(path) for path in paths or ["INPUT"])])


def page_data(timeline: "Timeline | None", theme: dict[str, Any]) -> dict[str, Any]:
    """What the page's script needs beside the packed columns, which lie in elements of their own."""
    if timeline is None:
        return {"axis": None, "figures": []}
    axis = timeline.axis
    return {
        "axis": {"start_s": axis.start_s, "end_s": axis.end_s, "origin_ms": axis.origin_ns / 1e6, "utc": axis.utc},
        "chart": theme["chart"],
        "colours": {kind: theme["colours"][kind] for kind in ("states", "causes", "phases", "other")},
        "command": timeline.command,
        "tick_s": timeline.tick_s,
        "sums": {"bin_s": timeline.sums_bin_s, "bins": timeline.sums_bins},
        "phases": list(timeline.phases),
        "jobs": list(timeline.jobs),
        "figures": [
            {
                "gpu": figure.gpu,
                "panels": [{"key": p.key, "kind": p.kind, "spec": p.spec} for p in figure.panels],
                "directory": [list(entry) for entry in figure.store.directory],
                **figure.told,
            }
            for figure in timeline.figures
        ],
    }
