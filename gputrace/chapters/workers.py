"""How the workers of a GPU took turns, over chapters."""

from collections.abc import Sequence
from dataclasses import replace

from gputrace.analysis.diagnosis import Handovers, Interleaving, OffGpuWork, ShortestTime, WaitsFor
from gputrace.analysis.workers.interleaving import DELAYING
from gputrace.chapters.spread import added_up

_NOTE = (
    "over chapters: medians and 95th percentiles of hand-overs are means by their number; a wait for a hold of the "
    "chapter before counts as one that no call of the log held"
)


def joined_interleavings(chapters: Sequence[Sequence[Interleaving]]) -> tuple[Interleaving, ...]:
    """One finding a GPU: seconds are added up, shares are weighted by what they are shares of."""
    of_gpu: dict[int, list[Interleaving]] = {}
    for chapter in chapters:
        for own in chapter:
            of_gpu.setdefault(own.gpu, []).append(own)
    return tuple(_joined(of_gpu[gpu]) for gpu in sorted(of_gpu))


def _joined(own: Sequence[Interleaving]) -> Interleaving:
    held_s, window_s = sum(one.held_s for one in own), sum(one.window_s for one in own)
    work = _off_gpu([item for one in own for item in one.off_gpu])
    delaying = [item for item in work if item.kind in DELAYING]
    hidden, exposed = sum(item.under_other_s for item in delaying), sum(item.exposed_s for item in delaying)
    alternating = [(one.alternation_share, one.calls) for one in own if one.alternation_share is not None]
    unsure = [(one.handover_uncertainty_ms, one.calls) for one in own if one.handover_uncertainty_ms is not None]
    return replace(
        own[0],
        workers=tuple(sorted({worker for one in own for worker in one.workers})),
        calls=sum(one.calls for one in own),
        window_s=window_s,
        held_s=held_s,
        mutex_utilisation=held_s / window_s if window_s else 0.0,
        overlap_efficiency=hidden / (hidden + exposed) if hidden + exposed > 0 else None,
        off_gpu=work,
        waited_s=sum(one.waited_s for one in own),
        waited_unheld_s=sum(one.waited_unheld_s for one in own),
        waits=_waits([item for one in own for item in one.waits]),
        handovers_waited=_handovers([one.handovers_waited for one in own]),
        handovers_unwaited=_handovers([one.handovers_unwaited for one in own]),
        handover_uncertainty_ms=_mean(unsure),
        alternation_share=_mean(alternating),
        longest_run=max(one.longest_run for one in own),
        shortest=_shortest([item for one in own for item in one.shortest]),
        notes=(*dict.fromkeys(note for one in own for note in one.notes), _NOTE)[-8:],
    )


def _mean(told: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in told if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _off_gpu(items: Sequence[OffGpuWork]) -> tuple[OffGpuWork, ...]:
    kinds = dict.fromkeys(item.kind for item in items)
    return tuple(
        OffGpuWork(
            kind,
            *(
                sum(getattr(item, name) for item in items if item.kind == kind)
                for name in ("total_s", "under_other_s", "under_own_s", "exposed_s")
            ),
        )
        for kind in kinds
    )


def _waits(items: Sequence[WaitsFor]) -> tuple[WaitsFor, ...]:
    pairs: dict[tuple[int, int | None], list[WaitsFor]] = {}
    for item in items:
        pairs.setdefault((item.waiter, item.holder), []).append(item)
    found = []
    # A holder that the log does not name comes first.
    for waiter, holder in sorted(pairs, key=lambda pair: (pair[0], -1 if pair[1] is None else pair[1])):
        own = pairs[waiter, holder]
        by_phase_s = added_up(item.by_phase_s for item in own)
        found.append(WaitsFor(waiter, holder, sum(i.waits for i in own), sum(i.total_s for i in own), by_phase_s))
    return tuple(found)


def _handovers(items: Sequence[Handovers]) -> Handovers:
    return Handovers(
        count=sum(item.count for item in items),
        total_s=sum(item.total_s for item in items),
        median_ms=_mean([(item.median_ms, item.count) for item in items]),
        p95_ms=_mean([(item.p95_ms, item.count) for item in items]),
        max_ms=max((item.max_ms for item in items if item.max_ms is not None), default=None),
    )


def _shortest(items: Sequence[ShortestTime]) -> tuple[ShortestTime, ...]:
    """Bounds from sums: each thing's seconds are added up, and the longest sum is the bound."""
    found = []
    for bound in dict.fromkeys(item.id for item in items):
        own = [item for item in items if item.id == bound]
        sums = added_up(item.limits_s for item in own)
        limits = {name: sums[name] for name in own[0].limits_s}
        by = max(limits, key=lambda name: limits[name])
        found.append(replace(own[0], shortest_s=limits[by], limited_by=by, limits_s=limits))
    return tuple(found)
