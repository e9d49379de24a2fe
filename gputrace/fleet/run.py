"""Captures to a `Fleet`: what is unchanged comes from the store, the engine does the rest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from gputrace.errors import InputError
from gputrace.fleet.analyse import DEFAULT_MOST_BYTES, Task, analysis_version
from gputrace.fleet.captures import CaptureRef, find_captures
from gputrace.fleet.deploy import DeployAsked, compare_deploy
from gputrace.fleet.engine import Engine, serial
from gputrace.fleet.frames import HostNames, overlaps, to_frames
from gputrace.fleet.headline import headline
from gputrace.fleet.outliers import find_outliers
from gputrace.fleet.ranking import by_cause, by_day, ranked, widespread
from gputrace.fleet.result import Fleet, Notice
from gputrace.fleet.store import Store, default_folder
from gputrace.fleet.summary import CaptureSummary, Failure
from gputrace.fleet.trends import find_trends
from gputrace.ingest.stamps import check_timezone


@dataclass(frozen=True)
class Progress:
    """How far a run is: of `total` captures `unchanged` came from the store, `done` are analysed, `failed` of all."""

    total: int
    unchanged: int
    done: int
    failed: int


@dataclass(frozen=True)
class FleetOptions:
    """What a run may be told. `state` is the store's folder (None: the user's cache); `again` ignores what is in it."""

    state: Path | None = None
    again: bool = False
    timezone: str | None = None
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    most_bytes: float = DEFAULT_MOST_BYTES
    names: HostNames = field(default_factory=HostNames)
    deploy: DeployAsked | None = None


def survey(
    patterns: Sequence[str],
    options: FleetOptions | None = None,
    engine: Engine = serial,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Fleet:
    """The fleet that the patterns name.

    Outcomes are kept as they come: stopped in any way, the same call goes on from there, and ends in the same value.
    Raises `InputError` where no capture at all can be used, `ClusterError` where the workers cannot be had.
    """
    asked = options or FleetOptions()
    check_timezone(asked.timezone)
    captures, missed = find_captures(patterns, asked.storage)
    store = Store(asked.state or default_folder(), f"{analysis_version()} {asked.timezone or ''}".strip())
    store.open()
    found = {} if asked.again else {c.path: kept for c in captures if (kept := store.get(c)) is not None}
    unchanged = len(found)
    failed = len(missed) + sum(isinstance(outcome, Failure) for outcome in found.values())
    progress(Progress(len(captures), unchanged, 0, failed))
    left = [capture for capture in captures if capture.path not in found]
    if left:
        task = Task(analysis_version(), asked.timezone, asked.most_bytes, asked.storage)
        for capture, outcome in engine(left, task):
            store.put(capture, outcome)
            found[capture.path] = outcome
            failed += isinstance(outcome, Failure)
            progress(Progress(len(captures), unchanged, len(found) - unchanged, failed))
    outcomes = [found[path] for path in sorted(found)]
    failures = [*missed, *(outcome for outcome in outcomes if isinstance(outcome, Failure))]
    summaries = [outcome for outcome in outcomes if isinstance(outcome, CaptureSummary)]
    if not summaries:
        raise InputError(_nothing(captures, failures))
    return assemble(summaries, failures, asked.names, asked.deploy)


def _nothing(captures: Sequence[CaptureRef], failures: Sequence[Failure]) -> str:
    if not captures and len(failures) == 1:
        return failures[0].reason
    first = failures[0].reason if failures else "nothing was named"
    return f"none of {max(len(failures), len(captures))} captures can be used; the first: {first}"


def assemble(
    summaries: Sequence[CaptureSummary],
    failures: Iterable[Failure] = (),
    names: HostNames | None = None,
    deploy: DeployAsked | None = None,
) -> Fleet:
    """Summaries, in order of capture, to the table. Raises `UsageError` where no capture has the version asked for."""
    days, losses, guessed = to_frames(summaries, names or HostNames())
    gpu_causes = by_cause(days, losses, ["host", "gpu"])
    gpus = ranked(days, gpu_causes, ["host", "gpu"])
    hosts = ranked(days, by_cause(days, losses, ["host"]), ["host"])
    causes = widespread(gpu_causes, hosts)
    outliers, apart = find_outliers(gpus, gpu_causes)
    return Fleet(
        headline=headline(len(summaries), gpus, hosts, causes),
        analysis=analysis_version(),
        captures=tuple(summaries),
        host_of={summary.capture: (names or HostNames()).of_capture(summary)[0] for summary in summaries},
        failures=tuple(sorted(failures, key=lambda failure: failure.capture)),
        gpus=gpus,
        hosts=hosts,
        gpu_causes=gpu_causes,
        causes=causes,
        daily=by_day(days),
        outliers=outliers,
        trends=find_trends(days, losses, causes),
        deploy=compare_deploy(days, losses, causes, deploy),
        notices=(*_notices(summaries, days, guessed), *apart),
    )


def _notices(summaries: Sequence[CaptureSummary], days: pl.DataFrame, guessed: Sequence[str]) -> list[Notice]:
    notices = []
    untold = [summary.capture for summary in summaries if not summary.days]
    if untold:
        text = f"nothing says when the GPU computed, so no seconds are charged: {_some(untold)}"
        notices.append(Notice("no-account", text, len(untold)))
    if guessed:
        text = f"the host is not named, the folder's name stands for it: {_some(guessed)}"
        notices.append(Notice("host-guessed", text, len(guessed)))
    twice = overlaps(days)
    if twice.height:
        host, gpu, capture, other, seconds = twice.row(0)
        text = (
            f"captures of one GPU overlap and count twice, as {capture} and {other} ({host} GPU {gpu}, {seconds:.1f} s)"
        )
        notices.append(Notice("captures-overlap", text, twice.height))
    damaged = [summary.capture for summary in summaries if summary.problems]
    if damaged:
        notices.append(Notice("quality", f"captures with notices about their data: {_some(damaged)}", len(damaged)))
    return notices


def _some(captures: Sequence[str]) -> str:
    rest = f" and {len(captures) - 1} more" if len(captures) > 1 else ""
    return f"{captures[0]}{rest}"
