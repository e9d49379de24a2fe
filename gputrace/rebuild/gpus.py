"""Which GPU is which: workers to GPUs where the log does not say, and the log's GPUs to the trace's."""

import re
from collections import Counter
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import polars as pl

from gputrace.errors import UsageError
from gputrace.ingest.samples import samples_of
from gputrace.rebuild.align import agreement
from gputrace.rebuild.calls import Calls
from gputrace.trace import Trace

# A mapping is sure when it agrees this much better than the next, summed over GPUs (correlations).
_SURE_MARGIN = 0.1
_MOST_TRIED = 8


def parse_gpu_map(text: str | None) -> dict[int, int] | None:
    """`0:1,1:0` as log GPU to trace GPU. Raises `UsageError` where it is not of that form."""
    if text is None:
        return None
    found = re.fullmatch(r"\d+:\d+(?:,\d+:\d+)*", text)
    if found is None:
        raise UsageError(f"--gpu-map {text}: write it as LOG:TRACE,..., for example 0:1,1:0")
    pairs = [(int(log), int(of)) for log, of in (pair.split(":") for pair in text.split(","))]
    if len({log for log, _ in pairs}) < len(pairs) or len({of for _, of in pairs}) < len(pairs):
        raise UsageError(f"--gpu-map {text}: a GPU is named twice")
    return dict(pairs)


class _Hold(NamedTuple):
    """A hold of a mutex: where its last line is, and whose it was."""

    unlocked: int
    worker: int


def infer_gpus(calls: Calls) -> int:
    """Gives calls a GPU from who holds a mutex while whom; returns how many GPUs were found.

    Two workers that ever hold a mutex at the same time are on different GPUs; a worker that waited and got the mutex
    the moment another let go shares one with it. Only where the log names no GPU at all.
    """
    blocks, worker_of = calls.blocks, calls.of_attempts("worker")
    held = np.flatnonzero((calls.block >= 0) & ~np.isnan(worker_of))
    held = held[np.argsort(blocks.order_locked[calls.block[held]], kind="stable")]
    if not len(held) or not np.isnan(calls.of_attempts("gpu")[held]).all():
        return 0
    workers = np.unique(worker_of[held]).astype(np.int64).tolist()
    apart: set[tuple[int, int]] = set()
    handed: Counter[tuple[int, int]] = Counter()
    open_holds: list[_Hold] = []
    released: list[_Hold] = []
    own = calls.block[held]
    for locked, unlocked, holder, waited in zip(
        blocks.order_locked[own].tolist(),
        blocks.order_unlocked[own].tolist(),
        worker_of[held].astype(np.int64).tolist(),
        blocks.waited[own].tolist(),
        strict=True,
    ):
        released = [other for other in open_holds if other.unlocked < locked] or released
        open_holds = [other for other in open_holds if other.unlocked >= locked]
        apart.update(_pair(holder, other.worker) for other in open_holds)
        if waited and released:
            latest = max(released, key=lambda other: other.unlocked)
            handed[_pair(holder, latest.worker)] += 1
        open_holds.append(_Hold(unlocked, holder))
    group = {worker: {worker} for worker in workers}
    # Hand-overs first; then whoever never held a mutex at the same time is taken to share one.
    for a, b in [*(pair for pair, _ in handed.most_common()), *combinations(workers, 2)]:
        joined = group[a] | group[b]
        if a != b and not any((min(x, y), max(x, y)) in apart for x, y in combinations(joined, 2)):
            for worker in joined:
                group[worker] = joined
    numbers = {frozenset(members): None for members in map(frozenset, group.values())}
    gpu_of = {worker: gpu for gpu, members in enumerate(sorted(numbers, key=min)) for worker in members}
    calls.inferred_gpu[held] = [gpu_of[int(holder)] for holder in worker_of[held]]
    return len(numbers)


def _pair(a: int, b: int) -> tuple[int, int]:
    return min(a, b), max(a, b)


def map_gpus(trace: Trace, given: dict[int, int] | None = None) -> dict[int, int]:
    """Numbers the trace's GPUs as the log does: by how well each log GPU's phases agree with each trace GPU's samples.

    `given` maps log GPU to trace GPU and overrides what is found. The prover numbers GPUs as CUDA does, NVML by bus, so
    their orders may differ. Where no mapping is sure, the numbers are taken as they are, and a notice says so. Returns
    the mapping, empty where there was nothing to find out.
    """
    of_log = sorted(trace.calls["gpu"].drop_nulls().unique().to_list())
    of_trace = sorted(trace.samples["gpu"].drop_nulls().unique().to_list())
    if given is None:
        if len(of_trace) < 2 or not of_log or trace.clock.method == "none":
            return {}
        given = _best_mapping(trace, of_log, of_trace)
    elif of_trace and (wrong := set(given.values()) - set(of_trace)):
        raise UsageError(f"--gpu-map names GPU {min(wrong)} of the trace, which has {', '.join(map(str, of_trace))}")
    if all(of_log_gpu == of_trace_gpu for of_log_gpu, of_trace_gpu in given.items()):
        return given
    # Trace GPUs that the log does not use keep out of the way of those that it does.
    rest = iter(number for number in range(len(of_trace) + len(given)) if number not in given)
    renamed = {trace_gpu: log_gpu for log_gpu, trace_gpu in given.items()}
    renamed |= {gpu: next(rest) for gpu in of_trace if gpu not in renamed}
    trace.samples = trace.samples.with_columns(pl.col("gpu").replace_strict(renamed, return_dtype=pl.Int32)).sort(
        "gpu", "start_ns"
    )
    trace.gpus = [info.renumbered(renamed[info.gpu]) for info in trace.gpus if info.gpu in renamed]
    trace.quality.notice(
        "gpu-map", "log GPU to trace GPU: " + ", ".join(f"{log} is {of}" for log, of in sorted(given.items()))
    )
    return given


def _best_mapping(trace: Trace, of_log: list[int], of_trace: list[int]) -> dict[int, int]:
    held = trace.phases.filter("under_mutex")
    shown = [samples_of(trace.samples, of) for of in of_trace]
    table = np.array([[agreement(held.filter(pl.col("gpu") == log), own) for own in shown] for log in of_log])
    as_given = {gpu: gpu for gpu in of_log if gpu in of_trace}
    if len(of_log) > len(of_trace) or len(of_trace) > _MOST_TRIED:
        return as_given
    ranked = sorted(
        (float(sum(table[i, j] for i, j in enumerate(order))), order)
        for order in permutations(range(len(of_trace)), len(of_log))
    )
    best, order = ranked[-1]
    margin = best - ranked[-2][0] if len(ranked) > 1 else best
    found = {of_log[i]: of_trace[j] for i, j in enumerate(order)}
    if margin >= _SURE_MARGIN:
        return found
    if found != as_given:
        trace.quality.notice(
            "gpu-map-unsure",
            f"which trace GPU is which log GPU is not sure (margin {margin:.2f}); numbers were taken as they are; "
            "--gpu-map LOG:TRACE,... says it",
        )
    return as_given
