"""Runs read and diagnosed once: the trace and the diagnosis of the same inputs under the same options are kept."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.cache.content import Content, Contents, digest_of
from gputrace.cache.log_entries import LogEntries
from gputrace.cache.logs import CachedReader
from gputrace.cache.store import Store
from gputrace.cache.values import keep_value, kept_value
from gputrace.cache.version import code_version
from gputrace.ingest.inputs import Progress, expand, ingest
from gputrace.ingest.logs import OLDEST_FILE_NS
from gputrace.ingest.reader import Reader
from gputrace.ingest.traces import TraceOptions
from gputrace.trace import Trace

if TYPE_CHECKING:
    from gputrace.analysis.pipeline.scenarios import Scenario


@dataclass(frozen=True)
class Request:
    """What is to be read, and everything said about how."""

    paths: Sequence[str]
    timezone: str | None = None
    trace_options: TraceOptions | None = None
    gpu_map: dict[int, int] | None = None


@dataclass
class Run:
    """A run as it was read. `key` tells it from all others; null where nothing is kept of it."""

    trace: Trace
    key: str | None = None
    store: Store | None = None

    def diagnose(self, gap_ms: float | None = None, scenarios: "Sequence[Scenario] | None" = None) -> Diagnosis:
        """See `analysis.diagnose.diagnose`; `gap_ms` null: its own."""
        if self.key is None or self.store is None:
            return _diagnose(self.trace, gap_ms, scenarios)
        name = f"diagnosis-{digest_of(self.key, gap_ms, _named(scenarios))}"
        if (kept := kept_value(self.store, name, Diagnosis)) is not None:
            return kept
        diagnosis = _diagnose(self.trace, gap_ms, scenarios)
        keep_value(self.store, name, diagnosis)
        return diagnosis

    def part(self, trace: Trace, selection: object) -> "Run":
        """A part of the run, chosen by `selection`."""
        if trace is self.trace or self.key is None:
            return Run(trace, self.key, self.store)
        return Run(trace, digest_of(self.key, selection), self.store)


def read(request: Request, progress: Progress, store: Store | None) -> Run:
    """The run that the inputs are; from the store, where it is there.

    Raises as `ingest` and `rebuild` do.
    """
    if store is None:
        return Run(rebuilt(request, progress, None))
    inputs = _Inputs(request, store)
    name = f"trace-{inputs.key}"
    if inputs.key is not None and (kept := kept_value(store, name, Trace)) is not None:
        return Run(kept, inputs.key, store)
    trace = rebuilt(request, progress, CachedReader(store, inputs.contents))
    if not inputs.still():
        return Run(trace)
    keep_value(store, name, trace)
    return Run(trace, inputs.key, store)


def judged(
    request: Request,
    gap_ms: float,
    scenarios: "Sequence[Scenario] | None",
    judge: Callable[[LogEntries | None], tuple[Trace, Diagnosis]],
    store: Store | None,
) -> tuple[Trace, Diagnosis]:
    """What `judge` makes of inputs that are not held at once; from the store, where it is there.

    `judge` is given what is known of a log that is the only input, from when it was shorter.
    """
    if store is None:
        return judge(None)
    inputs = _Inputs(request, store)
    names = [f"{kind}-long-{digest_of(inputs.key, gap_ms, _named(scenarios))}" for kind in ("trace", "diagnosis")]
    if inputs.key is not None:
        trace, diagnosis = kept_value(store, names[0], Trace), kept_value(store, names[1], Diagnosis)
        if trace is not None and diagnosis is not None:
            return trace, diagnosis
    entries = inputs.log_entries("standing", gap_ms)
    trace, diagnosis = judge(entries)
    unchanged = inputs.still()
    if unchanged:
        keep_value(store, names[0], trace)
        keep_value(store, names[1], diagnosis)
    if entries is not None:
        entries.keep_held(unchanged)
    return trace, diagnosis


class _Inputs:
    """The contents of a request's files; `key` tells them from all others, null where nothing can be kept of them."""

    def __init__(self, request: Request, store: Store) -> None:
        self._request, self._store, self.contents = request, store, Contents(store)
        self._files = _files(request.paths)
        told = [self.contents.of(file) for file in self._files] if self._files is not None else []
        self._known = [content for content in told if content is not None]
        whole = bool(told) and len(self._known) == len(told) and all(map(_dated, self._known))
        self.key = _key(request, self._known) if whole else None

    def log_entries(self, kind: str, *options: object) -> LogEntries | None:
        """What is kept of the only file and of what it was when it was shorter; None where there are several."""
        if self.key is None or len(self._known) != 1:
            return None
        return LogEntries(self._store, self._known[0], kind, *_asked_of(self._request), *options)

    def still(self) -> bool:
        """Whether there is a key, and the files are what they were when it was made."""
        unchanged = _files(self._request.paths) == self._files and all(content.still() for content in self._known)
        return self.key is not None and unchanged


def _named(scenarios: "Sequence[Scenario] | None") -> list[tuple[str, list[tuple[str, float]]]] | None:
    """What tells scenarios from others."""
    if scenarios is None:
        return None
    return [(one.name, [(change.name, number) for change, number in one.parts]) for one in scenarios]


def rebuilt(request: Request, progress: Progress, reader: Reader | None) -> Trace:
    """The run, read and put together; by `reader`, or anew where that is null."""
    # Not loaded where a kept trace is there: it needs the numerical libraries.
    from gputrace.rebuild.rebuild import rebuild

    options = {"timezone": request.timezone, "trace_options": request.trace_options, "reader": reader}
    return rebuild(ingest(request.paths, progress, **options), request.gpu_map)  # type: ignore[arg-type]


def _diagnose(trace: Trace, gap_ms: float | None, scenarios: "Sequence[Scenario] | None") -> Diagnosis:
    from gputrace.analysis.diagnose import DEFAULT_GAP_MS, diagnose

    return diagnose(trace, DEFAULT_GAP_MS if gap_ms is None else gap_ms, scenarios=scenarios)


def _files(paths: Sequence[str]) -> list[str] | None:
    """Every file that is read for `paths`; None where one is no file (stdin, or a name that is not there)."""
    files: list[str] = []
    for path, _ in expand(paths):
        if path == "-":
            return None
        if Path(path).is_dir():
            files.extend(sorted(str(Path(at, name)) for at, _, names in os.walk(path) for name in names))
        else:
            files.append(path)
    return files


def _dated(content: Content) -> bool:
    """Whether what is made of the file depends on its own date only, and not on the present time."""
    return OLDEST_FILE_NS < content.state.changed_ns <= time.time_ns()


def _key(request: Request, contents: Sequence[Content]) -> str:
    files = [(content.path, content.state.changed_ns, content.digest) for content in contents]
    return digest_of(code_version(), files, *_asked_of(request))


def _asked_of(request: Request) -> tuple[object, ...]:
    """The names of the inputs and the options that change the reading."""
    options = (request.timezone, request.trace_options or TraceOptions(), sorted((request.gpu_map or {}).items()))
    return expand(request.paths), options
