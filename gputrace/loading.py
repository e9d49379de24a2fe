"""Inputs to a `Trace`, in one call."""

from collections.abc import Iterable, Iterator
from os import PathLike, fspath
from typing import Any

from gputrace.cache.runs import Request, Run, read
from gputrace.cache.store import user_store
from gputrace.errors import UsageError
from gputrace.ingest.inputs import Progress
from gputrace.ingest.saved_reports import read_report
from gputrace.ingest.traces import TraceOptions
from gputrace.trace import Trace

OnePath = str | PathLike[str]


def load(
    *paths: OnePath | Iterable[OnePath],
    progress: Progress = lambda _path, _bytes: None,
    timezone: str | None = None,
    trace_options: TraceOptions | None = None,
    gpu_map: dict[int, int] | None = None,
    cache: bool = True,
) -> Trace:
    """Reads logs, GPU traces and capture folders, in any mix, and rebuilds calls and phases.

    Parameters:
        paths: files and folders, as text or `Path`, one by one or in lists. Each is recognised by its content.
        progress: called as `progress(path, bytes)` while logs are read.
        timezone: zone of times written without one, as `Europe/Berlin`; UTC where not given.
        trace_options: what a GPU trace does not say of itself, as `TraceOptions.of(start="2026-11-29T11:47:29Z")`.
        gpu_map: which GPU of the trace each GPU of the log is, as `{0: 1}`; found out where not given.
        cache: whether what is read is kept for the next time and taken from there (docs/cache.md).

    Returns the frames (documented in `gputrace.schema`) with what is known of inputs, GPUs, clock and quality.

    Raises `InputError` where an input cannot be used, `UsageError` where nothing is given or an option is wrong.
    """
    return load_whole(_flat(paths), progress, timezone, trace_options, gpu_map, cache=cache).trace


def load_whole(
    paths: Iterable[str],
    progress: Progress = lambda _path, _bytes: None,
    timezone: str | None = None,
    trace_options: TraceOptions | None = None,
    gpu_map: dict[int, int] | None = None,
    *,
    cache: bool = True,
) -> Run:
    """What `load` reads, as a run whose diagnosis is kept as well."""
    named = list(paths)
    if not named:
        raise UsageError("nothing to load: give at least one log, GPU trace or capture folder")
    return read(Request(named, timezone, trace_options, gpu_map), progress, user_store() if cache else None)


def _flat(paths: Iterable[OnePath | Iterable[OnePath]]) -> Iterator[str]:
    for path in paths:
        if isinstance(path, str | PathLike):
            yield fspath(path)
        else:
            yield from (fspath(one) for one in path)


def load_run(
    paths: list[str],
    progress: Progress = lambda _path, _bytes: None,
    *,
    timezone: str | None = None,
    cache: bool = True,
) -> Trace | dict[str, Any]:
    """One side of a comparison: a saved JSON report (its object), or what `load` makes of the inputs.

    Raises `UsageError` where a saved report is given together with other inputs.
    """
    reports = [(path, report) for path in paths if (report := read_report(path)) is not None]
    if not reports:
        return load(paths, progress=progress, timezone=timezone, cache=cache)
    path, report = reports[0]
    if len(paths) > 1:
        raise UsageError(f"{path} is a saved report: it is a whole side of a comparison, nothing can be added to it")
    return report
