"""Inputs to a `Trace`, in one call."""

from collections.abc import Iterable
from typing import Any

from gputrace.errors import UsageError
from gputrace.ingest.inputs import Progress, ingest
from gputrace.ingest.saved_reports import read_report
from gputrace.ingest.traces import TraceOptions
from gputrace.rebuild.rebuild import rebuild
from gputrace.trace import Trace


def load(
    paths: Iterable[str],
    progress: Progress = lambda _path, _bytes: None,
    *,
    timezone: str | None = None,
    trace_options: TraceOptions | None = None,
    gpu_map: dict[int, int] | None = None,
) -> Trace:
    """Reads logs, GPU traces and capture folders, in any mix, and rebuilds calls and phases.

    `progress(path, bytes)` is called as log bytes are read. `timezone` is the zone of times written without one,
    `trace_options` what is said about GPU traces, `gpu_map` which GPU of the trace each GPU of the log is. Raises
    `InputError` where an input cannot be used.
    """
    return rebuild(ingest(paths, progress, timezone=timezone, trace_options=trace_options), gpu_map)


def load_run(
    paths: list[str],
    progress: Progress = lambda _path, _bytes: None,
    *,
    timezone: str | None = None,
) -> Trace | dict[str, Any]:
    """One side of a comparison: a saved JSON report (its object), or what `load` makes of the inputs.

    Raises `UsageError` where a saved report is given together with other inputs.
    """
    reports = [(path, report) for path in paths if (report := read_report(path)) is not None]
    if not reports:
        return load(paths, progress, timezone=timezone)
    path, report = reports[0]
    if len(paths) > 1:
        raise UsageError(f"{path} is a saved report: it is a whole side of a comparison, nothing can be added to it")
    return report
