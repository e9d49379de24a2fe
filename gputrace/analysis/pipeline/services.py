"""Service times and limits of a run: what the pipeline model takes in.

Service times are how long a step takes when nothing else is in its way; waits are left out, the model has to bring
them forth. What shares the C++ pool waits in it without saying so: a `prep_msm` of 2.7 s may have worked for 0.2 s and
waited behind another call's `b_g2_msm`.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gputrace.analysis.phases import concurrent
from gputrace.analysis.pipeline.limits import limits_of, starts_of
from gputrace.analysis.pipeline.observe import CallSeen, Observed, SynthesisSeen
from gputrace.simulate.schedule import CallWork, Limits

Floats = npt.NDArray[np.float64]

_TOGETHER_S = 0.02
# What each running synthesis adds to a duration where a run says little of it: six captures of an H200 host gave 0 to
# 0.14 (docs/what-if.md).
_PRIOR_SLOWDOWN, _PRIOR_ERROR = 0.03, 0.05


@dataclass(frozen=True)
class Slowdown:
    """What each running synthesis adds to a duration, as a share of what it is beside none, with its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Services:
    """A run as the model takes it.

    `works` are in the order of their syntheses, with prep_msm, b_g2_msm and a pageable copy as long as they lasted
    beside `beside_pool` and `beside_copy` running syntheses. `seen` says which of them an observed call stands behind,
    `stalled` the seconds by phase in which allocations of pinned buffers held it up.
    """

    works: tuple[CallWork, ...]
    seen: tuple[bool, ...]
    stalled: tuple[dict[str, float], ...]
    beside_pool: tuple[float, ...]
    beside_copy: tuple[float, ...]
    limits: Limits
    copy_slowdown: Slowdown
    pool_slowdown: Slowdown
    notes: tuple[str, ...] = ()

    def bare(self, copy: float | None = None, pool: float | None = None) -> tuple[list[CallWork], Limits]:
        """Works as they would be beside no synthesis, and limits that slow them down again, by these slowdowns."""
        copy = self.copy_slowdown.value if copy is None else copy
        pool = self.pool_slowdown.value if pool is None else pool
        works = [
            work.but(
                ntt_kernels=work.ntt_kernels / (1.0 if work.pinned else 1.0 + copy * at_copy),
                prep_msm=work.prep_msm / (1.0 + pool * at_pool),
                b_g2_msm=work.b_g2_msm / (1.0 + pool * at_pool),
            )
            for work, at_copy, at_pool in zip(self.works, self.beside_copy, self.beside_pool, strict=True)
        ]
        return works, replace(self.limits, copy_slowdown=copy, prep_slowdown=pool)


def services(seen: Observed, pool_order: str = "fifo") -> Services:
    """Service times and limits of what was seen, if the C++ pool serves its tasks in this order."""
    limits, notes = limits_of(seen, pool_order)
    running = _Running(seen.syntheses, seen.end)
    pool = pool_services(seen.calls, pool_order)
    pool_slowdown = _slowdown(
        [(c.prep_start, c.b_g2_end, sum(own), c.kind) for c, own in zip(seen.calls, pool, strict=True)], running
    )
    copy_slowdown = _slowdown(
        [
            (c.ntt_start, c.ntt_start + c.leaves["ntt_kernels"], c.leaves["ntt_kernels"], c.kind)
            for c in seen.calls
            if not c.pinned and c.ntt_start is not None
        ],
        running,
    )
    works, calls = _works(seen, pool, limits)
    beside_pool = running([c.prep_start or c.entry for c in seen.calls], [c.b_g2_end or c.unlock for c in seen.calls])
    copies = [(c.ntt_start or c.lock, (c.ntt_start or c.lock) + c.leaves["ntt_kernels"]) for c in seen.calls]
    beside_copy = running([start for start, _ in copies], [end for _, end in copies])
    return Services(
        tuple(works),
        tuple(is_own for _, is_own in calls),
        tuple(seen.calls[n].stalled for n, _ in calls),
        tuple(float(beside_pool[n]) for n, _ in calls),
        tuple(float(beside_copy[n]) for n, _ in calls),
        limits,
        copy_slowdown,
        pool_slowdown,
        (*seen.notes, *notes),
    )


def pool_services(calls: Sequence[CallSeen], pool_order: str) -> list[tuple[float, float]]:
    """Seconds that prep_msm and b_g2_msm of each call worked in the C++ pool; what the log lacks is the median.

    Every moment in which tasks are there is given to the one that came first (fifo) or to all of them (shared), so
    that no time is lost or counted twice.
    """
    tasks = []
    for n, call in enumerate(calls):
        if call.prep_start is not None and call.prep_end is not None:
            tasks.append((call.prep_start, call.prep_end, (n, 0)))
            if call.b_g2_end is not None:
                tasks.append((call.prep_end, call.b_g2_end, (n, 1)))
    tasks = _by_arrival(tasks)
    edges = np.unique([edge for start, end, _ in tasks for edge in (start, end)])
    length, low, high = np.diff(edges), edges[:-1], edges[1:]
    there = [(low >= start) & (high <= end) for start, end, _ in tasks]
    if pool_order == "fifo":
        taken = np.zeros(len(low), dtype=bool)
        found = {}
        for (_, _, key), inside in zip(tasks, there, strict=True):
            found[key] = float(length[inside & ~taken].sum())
            taken |= inside
    else:
        at_once = np.maximum(np.sum(there, axis=0), 1) if there else np.ones(0)
        found = {key: float((length / at_once)[inside].sum()) for (_, _, key), inside in zip(tasks, there, strict=True)}
    usual = [statistics.median([s for (_, which), s in found.items() if which == part] or [0.0]) for part in (0, 1)]
    return [(found.get((n, 0), usual[0]), found.get((n, 1), usual[1])) for n in range(len(calls))]


def _by_arrival(tasks: list[tuple[float, float, tuple[int, int]]]) -> list[tuple[float, float, tuple[int, int]]]:
    """In order of starts; those that start together (their starts are known to some ms) in order of ends."""
    ordered: list[list[tuple[float, float, tuple[int, int]]]] = []
    for task in sorted(tasks):
        if ordered and task[0] - ordered[-1][0][0] < _TOGETHER_S:
            ordered[-1].append(task)
        else:
            ordered.append([task])
    return [task for together in ordered for task in sorted(together, key=lambda task: task[1])]


class _Running:
    """How many syntheses run, on average over any stretch."""

    def __init__(self, syntheses: Sequence[SynthesisSeen], end: float) -> None:
        import polars as pl

        self._spans = pl.DataFrame(
            {
                "start_ns": [int(s.start * 1e9) for s in syntheses],
                "end_ns": [int((end if s.queued is None else s.queued) * 1e9) for s in syntheses],
            },
            schema={"start_ns": pl.Int64, "end_ns": pl.Int64},
        )

    def __call__(self, start: Sequence[float], end: Sequence[float]) -> Floats:
        if self._spans.is_empty() or not len(start):
            return np.zeros(len(start))
        low = (np.array(start) * 1e9).astype(np.int64)
        return concurrent(self._spans, low, np.maximum((np.array(end) * 1e9).astype(np.int64), low + 1))


def _slowdown(spans: Sequence[tuple[float | None, float | None, float, str]], running: _Running) -> Slowdown:
    """Least squares of duration on concurrency, both as shares of the kind's median, drawn towards the prior."""
    known = [(a, b, s, kind) for a, b, s, kind in spans if a is not None and b is not None and s > 0]
    if len(known) < 8:
        return Slowdown(0.0, _PRIOR_ERROR)
    beside = running([a for a, _, _, _ in known], [b for _, b, _, _ in known])
    if not beside.any():
        return Slowdown(0.0, _PRIOR_ERROR)
    kinds = [kind for *_, kind in known]
    typical = {kind: statistics.median(s for _, _, s, k in known if k == kind) for kind in set(kinds)}
    ratio = np.array([s / typical[kind] for _, _, s, kind in known])
    centre = beside - beside.mean()
    spread = float(centre @ centre)
    slope = float(centre @ ratio) / spread if spread > 1e-9 else 0.0
    base = float(ratio.mean()) - slope * float(beside.mean())
    left = ratio - ratio.mean() - slope * centre
    variance = float(left @ left) / max(1, len(known) - 2)
    # The slope per unit of the duration beside none; its error by the delta method.
    base = max(base, 0.2)
    value = slope / base
    error = (variance / spread) ** 0.5 / base * (1 + abs(value) * float(beside.mean())) if spread > 1e-9 else np.inf
    weight = 1.0 / error**2 if np.isfinite(error) and error > 0 else (0.0 if not np.isfinite(error) else 1e12)
    prior = 1.0 / _PRIOR_ERROR**2
    drawn = (weight * value + prior * _PRIOR_SLOWDOWN) / (weight + prior)
    return Slowdown(float(max(0.0, drawn)), float((weight + prior) ** -0.5))


def _works(
    seen: Observed, pool: list[tuple[float, float]], limits: Limits
) -> tuple[list[CallWork], list[tuple[int, bool]]]:
    """One work per synthesis, in order of starts (calls without one: of entries).

    Beside it, for each, the call whose services it has, and whether that is its own: what was not seen to run is made
    like a call near it.
    """
    calls = seen.calls
    own = [_work(call, *pool[n]) for n, call in enumerate(calls)]
    if not seen.syntheses:
        ordered = sorted(range(len(calls)), key=lambda n: calls[n].entry)
        return [replace(own[n], synth=0.0) for n in ordered], [(n, True) for n in ordered]
    of_synthesis = {call.synthesis: n for n, call in enumerate(calls) if call.synthesis is not None}
    begun = starts_of(seen, limits.place_freed)
    usual_s = statistics.median([s.queued - s.start for s in seen.syntheses if s.queued is not None] or [0.0])
    works, behind = [], []
    near = 0
    for k, synthesis in enumerate(seen.syntheses):
        near = of_synthesis.get(k, near)
        if synthesis.queued is None:
            lasted = max(usual_s, seen.end - synthesis.start)
        else:
            lasted = synthesis.queued - synthesis.start
        works.append(
            replace(
                own[near],
                job=synthesis.job,
                partition=k,
                synth=lasted,
                arrives=0.0 if begun[k].waited else synthesis.start,
                parallel_syntheses=begun[k].parallel,
                in_flight=begun[k].in_flight,
            )
        )
        behind.append((near, k in of_synthesis))
    for n, call in enumerate(calls):
        if call.synthesis is None:
            taken = call.entry if call.pickup is None else call.pickup
            works.append(replace(own[n], partition=len(works), synth=0.0, arrives=taken))
            behind.append((n, True))
    return works, behind


def _work(call: CallSeen, prep: float, b_g2: float) -> CallWork:
    leaves = call.leaves
    inside = sum(leaves.values()) + call.barrier_wait
    setup = 0.0 if call.prep_start is None else min(max(0.0, call.prep_start - call.entry), max(call.pre_lock, 0.0))
    after = [t for t in (call.b_g2_end, call.returned) if t is not None]
    return CallWork(
        job=call.job,
        partition=None,
        kind=call.kind,
        pinned=call.pinned,
        construct=0.0,
        hot_path=0.0 if call.pickup is None else max(0.0, call.entry - call.pickup),
        spawn=0.0,
        setup=setup,
        pre_lock=call.pre_lock,
        d_b_alloc=leaves.get("d_b_alloc", 0.0),
        ntt_kernels=leaves["ntt_kernels"],
        coset_intt_sync=leaves.get("coset_intt_sync", 0.0),
        msm_init=leaves.get("msm_init", 0.0),
        msm_invoke=leaves.get("msm_invoke", 0.0),
        msm_dtor=leaves.get("msm_dtor", 0.0),
        batch_add=leaves.get("batch_add", 0.0),
        tail_msm=leaves.get("tail_msm", 0.0),
        after_gpu=max(0.0, call.held - inside),
        prep_msm=prep,
        b_g2_msm=b_g2,
        release_abc=max(0.0, call.returned - call.unlock),
        finish=0.0 if call.finished is None else max(0.0, call.finished - max(after)),
        process=0.0,
        dealloc=0.0,
    )
