"""Inputs to a `Trace`, in one call."""

from collections.abc import Iterable

from gputrace.ingest.inputs import Progress, ingest
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
