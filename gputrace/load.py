"""Inputs to a `Trace`, in one call."""

from collections.abc import Iterable

from gputrace.ingest.inputs import Progress, ingest
from gputrace.rebuild.rebuild import rebuild
from gputrace.trace import Trace


def load(paths: Iterable[str], progress: Progress = lambda _path, _bytes: None) -> Trace:
    """Reads logs, GPU traces and capture folders, in any mix, and rebuilds calls and phases.

    `progress(path, bytes)` is called as log bytes are read. Raises `InputError` where an input cannot be used.
    """
    return rebuild(ingest(paths, progress))
