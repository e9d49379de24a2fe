"""What held the pipeline back in a run: places, order of the queue, the worker's loop, the mutex; as seen."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gputrace.analysis.pipeline.observe import CallSeen, Observed, SynthesisSeen
from gputrace.simulate.schedule import Limits

Floats = npt.NDArray[np.float64]

# A synthesis that begins this soon after a place became free had been waiting for it.
_TRIGGER_S = 0.02


def limits_of(seen: Observed, pool_order: str) -> tuple[Limits, list[str]]:
    calls, notes = seen.calls, []
    per_gpu: dict[int, set[int]] = {}
    for call in calls:
        per_gpu.setdefault(call.gpu, set()).add(call.worker)
    limits = Limits(
        gpus=len(per_gpu),
        workers_per_gpu=max(len(workers) for workers in per_gpu.values()),
        fifo_mutex=_in_order(calls),
        pool_threads=1.0, threads_per_task=1.0, pool_order=pool_order,
        warmup_alloc=0.0, allocate_d_a=0.0, start_up=0.0, handover=_handover(calls), launch=0.0, ntt_tail=0.0,
        wake_up=0.0, turn_around=_turn_around(seen), push=0.0, workers_ready=_ready(calls),
    )  # fmt: skip
    if not seen.syntheses:
        notes.append("the log shows no syntheses: work is taken to be always queued")
        return replace(limits, parallel_syntheses=10**6, in_flight=10**6, place_freed="pickup"), notes
    order = "partition" if _by_partition(seen.syntheses) else "fifo"
    return replace(limits, place_freed=_place_freed(seen), queue_order=order), notes


@dataclass(frozen=True)
class Start:
    """How one synthesis came to begin: it waited for a place to run, for one in flight, or it was not there before."""

    waited: bool
    parallel: int
    in_flight: int


def starts_of(seen: Observed, freed: str) -> list[Start]:
    """Back-pressure as seen: how many ran and were in flight when each synthesis began, and what it had waited for.

    A limit shows where a synthesis begins at the moment in which a place becomes free. Elsewhere the nearest such
    moments before and after say what it was, or that it was not less than what was used.
    """
    starts = np.array([s.start for s in seen.syntheses])
    ends = [s.queued for s in seen.syntheses if s.queued is not None]
    given_up = [_given_up(seen, n, freed) for n in range(len(starts))]
    after_end = _since(np.sort(ends), starts)
    after_place = _since(np.sort([t for t in given_up if t is not None]), starts)
    running = _there(starts, [s.queued for s in seen.syntheses])
    flying = _there(starts, given_up)
    # Where a partition is taken as soon as it is there, one moment frees both places: the one that was full decides.
    for_run = (after_end <= _TRIGGER_S) & ((after_place > _TRIGGER_S) | (running == running.max()))
    for_place = (after_place <= _TRIGGER_S) & ~for_run
    waited = for_run | for_place | (starts <= starts.min() + _TRIGGER_S)
    parallel, in_flight = _held_at(running, for_run), _held_at(flying, for_place)
    return [Start(bool(w), int(p), int(f)) for w, p, f in zip(waited, parallel, in_flight, strict=True)]


def _ready(calls: Sequence[CallSeen]) -> tuple[float, ...]:
    """When each worker first took a partition, in the model's order of workers (by GPU)."""
    first: dict[tuple[int, int], float] = {}
    for call in calls:
        taken = call.entry if call.pickup is None else call.pickup
        first[call.gpu, call.worker] = min(first.get((call.gpu, call.worker), taken), taken)
    return tuple(first[key] for key in sorted(first))


def _in_order(calls: Sequence[CallSeen]) -> bool:
    """Whether who asked first for the mutex got it first."""
    overtaken = sum(
        1
        for n, call in enumerate(calls)
        for later in calls[n + 1 : n + 8]
        if later.gpu == call.gpu and later.lock - later.mutex_wait < call.lock - call.mutex_wait - 0.005
    )
    return overtaken <= 0.02 * len(calls)


def _handover(calls: Sequence[CallSeen]) -> float:
    """Median seconds from unlock to the next lock where somebody was waiting."""
    last: dict[int, float] = {}
    found = []
    for call in calls:
        if call.gpu in last and call.lock - call.mutex_wait < last[call.gpu] - 0.005:
            found.append(max(0.0, call.lock - last[call.gpu]))
        last[call.gpu] = call.unlock
    return statistics.median(found) if found else 0.0


def _turn_around(seen: Observed) -> float:
    """Median seconds from a call's return to the worker's next pickup, where a partition was waiting by then."""
    last: dict[tuple[int, int], float] = {}
    found = []
    for call in sorted(seen.calls, key=lambda call: call.entry):
        key = (call.gpu, call.worker)
        taken = call.pickup if call.pickup is not None else call.entry
        queued = seen.syntheses[call.synthesis].queued if call.synthesis is not None else None
        if key in last and (queued is None or queued < last[key]):
            found.append(max(0.0, taken - last[key]))
        last[key] = call.returned
    return statistics.median(found) if found else 0.0


def _given_up(seen: Observed, number: int, freed: str) -> float | None:
    """When a partition gave up its place among those in flight, if it does so there."""
    call = next((call for call in seen.calls if call.synthesis == number), None)
    if call is None:
        return seen.syntheses[number].picked_up if freed == "pickup" else None
    return {"pickup": call.pickup, "returned": call.returned, "finalised": call.finished}[freed]


def _place_freed(seen: Observed) -> str:
    """When a partition gives up its place: where most syntheses begin at such a moment and find the last place."""
    starts = np.array([s.start for s in seen.syntheses])
    explained = {}
    for freed in ("pickup", "returned", "finalised"):
        given_up = [_given_up(seen, n, freed) for n in range(len(starts))]
        taken = _there(starts, given_up)
        at_once = _since(np.sort([t for t in given_up if t is not None]), starts) <= _TRIGGER_S
        explained[freed] = int((at_once & (taken == taken.max())).sum())
    return max(explained, key=lambda freed: explained[freed])


def _by_partition(syntheses: Sequence[SynthesisSeen]) -> bool:
    """Whether workers take the first partition of those queued rather than the one queued first."""
    picked = [s for s in syntheses if s.queued is not None and s.picked_up is not None]
    votes: Counter[str] = Counter()
    for one in picked:
        waiting = [s for s in picked if s.queued < one.picked_up <= s.picked_up]  # type: ignore[operator]
        if len(waiting) < 2:
            continue
        votes["fifo"] += min(waiting, key=lambda s: s.queued) is one  # type: ignore[arg-type, return-value]
        votes["partition"] += min(waiting, key=lambda s: s.order) is one
    return votes["partition"] > votes["fifo"]


def _there(starts: Floats, ends: Sequence[float | None]) -> Floats:
    """How many had begun and not ended just after each start."""
    known = np.array([np.inf if end is None else end for end in ends])
    return np.array([((starts <= at + 1e-3) & (known > at + 1e-3)).sum() for at in starts])


def _held_at(counts: Floats, bound: npt.NDArray[np.bool_]) -> Floats:
    """The limit at each start: what was counted where it bound; the larger of the nearest two elsewhere."""
    at = np.flatnonzero(bound)
    if not len(at):
        return np.full(len(counts), counts.max())
    # A count may miss one by a millisecond: the larger of it and its neighbours holds.
    held = np.array([counts[at[max(0, n - 1) : n + 2]].max() for n in range(len(at))])
    after = np.searchsorted(at, np.arange(len(counts)))
    nearest = np.maximum(held[np.minimum(after, len(at) - 1)], held[np.maximum(after - 1, 0)])
    return np.asarray(np.maximum(nearest, counts))


def _since(events: npt.ArrayLike, at: Floats) -> Floats:
    """Seconds from the last event to each time; infinite before the first."""
    known = np.asarray(events, dtype=float)
    index = np.searchsorted(known, at + 1e-3, side="right") - 1
    if not len(known):
        return np.full(len(at), np.inf)
    return np.asarray(np.where(index >= 0, at - known[np.maximum(index, 0)], np.inf))
