"""Where captures are analysed: in this process, on workers of this machine, or on a cluster that is there already."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from gputrace.errors import ClusterError
from gputrace.fleet.analyse import Task, analysis_version
from gputrace.fleet.captures import CaptureRef, needs_extra
from gputrace.fleet.summary import Failure, Outcome

if TYPE_CHECKING:
    from distributed import Client

Found = tuple[CaptureRef, Outcome]
Engine = Callable[[Sequence[CaptureRef], Task], Iterator[Found]]

# A capture that was with a worker when it died is tried once more, alone: more tries cost more workers.
_TRIES_AFTER_DEATH = 0
# Handed out for every thread of the cluster: one to work on, one that waits.
_AHEAD = 2
# A terminal's Ctrl-C goes to a whole process group; it is ours to end the workers, and they end with us.
_OWN_GROUP = """
import os

def dask_setup(worker):
    os.setpgrp()
"""
_CONNECT_S = 15
_WORKERS_S = 60


def serial(captures: Sequence[CaptureRef], task: Task) -> Iterator[Found]:
    """One after another, in this process."""
    for capture in captures:
        yield capture, task(capture)


def engine_of(workers: int | None, scheduler: str | None) -> Engine:
    """The engine that is asked for: a scheduler's address, or a number of local workers (0: none, None: one a core)."""
    if scheduler is not None:
        return lambda captures, task: _on(_existing(scheduler), captures, task)
    if workers == 0:
        return serial
    count = workers or len(os.sched_getaffinity(0))
    return lambda captures, task: _on(_local(min(count, len(captures))), captures, task)


def _on(cluster: Any, captures: Sequence[CaptureRef], task: Task) -> Iterator[Found]:
    with cluster as client:
        yield from gather(client, captures, task)


@contextmanager
def _local(workers: int) -> Iterator["Client"]:
    """Worker processes on the loopback, with ports that are free and nothing to look at."""
    dask, distributed = _libraries()
    # The fleet's parallelism is in its captures: one frame is not to take every core as well.
    threads = str(max(1, len(os.sched_getaffinity(0)) // workers))
    settings = {
        "distributed.scheduler.allowed-failures": _TRIES_AFTER_DEATH,
        "distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS": threads,
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            preload=_OWN_GROUP,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _existing(address: str) -> Iterator["Client"]:
    """A scheduler that somebody runs. Its workers must have this same gputrace."""
    _, distributed = _libraries()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(f"{address}: no Dask scheduler answers there") from error
    try:
        _check_workers(client, address)
        yield client
    finally:
        client.close(timeout=2)


def _libraries() -> tuple[Any, Any]:
    try:
        import dask
        import distributed
    except ImportError as error:
        raise needs_extra(error) from error
    return dask, distributed


def _check_workers(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
    except TimeoutError as error:
        raise ClusterError(f"{address}: the scheduler has no workers") from error
    try:
        there = set(client.run(analysis_version).values())
    except Exception as error:  # what a worker raises depends on what it lacks
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ClusterError(
            f"{address}: its workers cannot run gputrace; install gputrace[fleet] there: {said}"
        ) from error
    if there != {analysis_version()}:
        raise ClusterError(_other_version(sorted(there)))


def _other_version(there: Iterable[str]) -> str:
    return f"the workers have gputrace {', '.join(there)}, this is {analysis_version()}: install the same everywhere"


def run_task(task: Task, capture: CaptureRef) -> Outcome:
    """What a worker does; copies of remote captures lie in its own folder, which Dask removes even if it is killed."""
    from distributed import get_worker

    if analysis_version() != task.analysis:
        # A worker that came later, or a checkout that changed under us.
        raise ClusterError(_other_version([analysis_version()]))
    return replace(task, scratch=get_worker().local_directory)(capture)


def gather(client: "Client", captures: Sequence[CaptureRef], task: Task) -> Iterator[Found]:
    """Outcomes as they come. A killed worker's captures are analysed by another.

    No more is handed out than the cluster is about to do, so neither side holds more than a few outcomes. A capture
    that was with workers that died is analysed once more with nothing beside it: if that kills its worker too, it is
    the capture's own doing, and it fails alone.
    """
    suspects: list[CaptureRef] = []
    for capture, outcome in _in_parallel(client, captures, task, _AHEAD):
        if outcome is None:
            suspects.append(capture)
        else:
            yield capture, outcome
    for capture in sorted(suspects, key=lambda capture: capture.path):
        for _, outcome in _in_parallel(client, [capture], task, 0):
            reason = "the process that analysed it was killed, each time (out of memory?)"
            yield capture, outcome or Failure(capture.path, "killed", reason)


def _in_parallel(
    client: "Client", captures: Iterable[CaptureRef], task: Task, ahead: int
) -> Iterator[tuple[CaptureRef, Outcome | None]]:
    """Outcomes as they come; None where workers kept dying. `ahead` for each thread are handed out, at least one."""
    import distributed
    from distributed.client import FutureCancelledError

    left = iter(captures)
    pending: dict[Any, CaptureRef] = {}
    done: Any = distributed.as_completed([], loop=client.loop)  # type: ignore[no-untyped-call]

    def hand_out() -> None:
        threads = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        for capture in islice(left, max(0, max(1, ahead * threads) - len(pending))):
            future = client.submit(run_task, task, capture, pure=False)
            pending[future] = capture
            done.add(future)

    try:
        hand_out()
        for future in done:
            try:
                outcome = future.result()
            except distributed.KilledWorker:
                outcome = None
            yield pending.pop(future), outcome
            future.release()
            hand_out()
    except (FutureCancelledError, OSError, TimeoutError) as error:
        raise ClusterError("the scheduler went away; what is done is kept, run the same again to go on") from error
