"""Which GPU is which: workers to GPUs where the log does not say, and the log's GPUs to the trace's."""

import re
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import polars as pl

from gputrace.errors import UsageError
from gputrace.ingest.samples import samples_of
from gputrace.rebuild.align import agreement
from gputrace.rebuild.calls import Call
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


def infer_gpus(calls: list[Call]) -> int:
    """Gives calls a GPU from who holds a mutex while whom; returns how many GPUs were found.

    Two workers that ever hold a mutex at the same time are on different GPUs; a worker that waited and got the mutex
    the moment another let go shares one with it. Only where the log names no GPU at all.
    """
    held = [c for c in calls if c.block and c.attempt and c.attempt.worker is not None]
    held = sorted(held, key=lambda c: c.block.order_locked if c.block else 0)
    if not held or any(call.attempt.gpu is not None for call in held if call.attempt):
        return 0
    workers = sorted({call.attempt.worker for call in held if call.attempt and call.attempt.worker is not None})
    apart: set[tuple[int, int]] = set()
    handed: Counter[tuple[int, int]] = Counter()
    open_holds: list[Call] = []
    released: list[Call] = []
    for call in held:
        assert call.block is not None
        locked = call.block.order_locked
        released = [c for c in open_holds if c.block and c.block.order_unlocked < locked] or released
        open_holds = [c for c in open_holds if c.block and c.block.order_unlocked >= locked]
        apart.update(_pair(call, other) for other in open_holds)
        if call.block.ms.get("mutex_wait_ms", 0) > 1 and released:
            latest = max(released, key=lambda c: c.block.order_unlocked if c.block else 0)
            handed[_pair(call, latest)] += 1
        open_holds.append(call)
    group = {worker: {worker} for worker in workers}
    # Hand-overs first; then whoever never held a mutex at the same time is taken to share one.
    for a, b in [*(pair for pair, _ in handed.most_common()), *combinations(workers, 2)]:
        joined = group[a] | group[b]
        if a != b and not any((min(x, y), max(x, y)) in apart for x, y in combinations(joined, 2)):
            for worker in joined:
                group[worker] = joined
    numbers = {frozenset(members): None for members in map(frozenset, group.values())}
    gpu_of = {worker: gpu for gpu, members in enumerate(sorted(numbers, key=min)) for worker in members}
    for call in held:
        if call.attempt is not None and call.attempt.worker is not None:
            call.inferred_gpu = gpu_of[call.attempt.worker]
    return len(numbers)


def _pair(a: Call, b: Call) -> tuple[int, int]:
    first = a.attempt.worker if a.attempt and a.attempt.worker is not None else -1
    second = b.attempt.worker if b.attempt and b.attempt.worker is not None else -1
    return min(first, second), max(first, second)


def map_gpus(trace: Trace, given: dict[int, int] | None = None) -> None:
    """Numbers the trace's GPUs as the log does: by how well each log GPU's phases agree with each trace GPU's samples.

    `given` maps log GPU to trace GPU and overrides what is found. The prover numbers GPUs as CUDA does, NVML by bus, so
    their orders may differ. Where no mapping is sure, the numbers are taken as they are, and a notice says so.
    """
    of_log = sorted(trace.calls["gpu"].drop_nulls().unique().to_list())
    of_trace = sorted(trace.samples["gpu"].drop_nulls().unique().to_list())
    if given is None:
        if len(of_trace) < 2 or not of_log or trace.clock.method == "none":
            return
        given = _best_mapping(trace, of_log, of_trace)
    elif of_trace and (wrong := set(given.values()) - set(of_trace)):
        raise UsageError(f"--gpu-map names GPU {min(wrong)} of the trace, which has {', '.join(map(str, of_trace))}")
    if all(of_log_gpu == of_trace_gpu for of_log_gpu, of_trace_gpu in given.items()):
        return
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
