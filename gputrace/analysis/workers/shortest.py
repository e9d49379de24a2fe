"""The shortest time in which a GPU's workers could have done the same calls, under two rules for the mutex.

Bounds from sums, not a schedule: whatever the order, one thing at a time takes the sum of its times, and `n` workers
that each do one call at a time take at least an `n`-th of all their work (the machine and the job bound of job shops).
A real schedule takes longer; none that keeps the assumptions is shorter. Waits for the mutex and at the barrier are
results of a schedule and not counted in any bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gputrace.analysis.diagnosis import ShortestTime
from gputrace.analysis.segments import COMPUTE_PHASES

_COPY_PHASE = "ntt_kernels"
_SAME = (
    "the same calls, each phase as long as it was; as many workers, each with one call at a time; "
    "work always queued; no wait for the mutex and none at the barrier"
)


@dataclass(frozen=True)
class Share:
    """One restart of one GPU, seconds summed over its calls.

    `in_hold_s`: by phase inside holds. `turning_s`: release, loop and setup between the holds of the same worker.
    `late_prep_s`: by how much split_vectors, prep_msm, batch_add and tail_msm, which follow one another, take longer
    than setup and hold, where they do; without each worker's first call, whose preparation precedes the window.
    """

    workers: int
    in_hold_s: dict[str, float]
    turning_s: float
    late_prep_s: float

    @property
    def held_s(self) -> float:
        """Seconds held, without the wait at the barrier."""
        return sum(seconds for name, seconds in self.in_hold_s.items() if name != "barrier_wait")

    @property
    def by_workers_s(self) -> float:
        """An n-th of what the workers did one thing after another, waits left out."""
        return (self.held_s + self.turning_s + self.late_prep_s) / self.workers

    @property
    def compute_s(self) -> float:
        """Seconds of phases that run kernels."""
        return sum(self.in_hold_s.get(name, 0.0) for name in COMPUTE_PHASES)

    @property
    def copy_s(self) -> float:
        """Seconds of the phase that copies a/b/c; from pinned memory it only launches the copy."""
        return self.in_hold_s.get(_COPY_PHASE, 0.0)


def shortest_times(shares: Sequence[Share]) -> tuple[ShortestTime, ...]:
    """Both bounds over all restarts of a GPU, the mutex as built first."""
    return (
        _shortest(
            "mutex-as-built",
            "the mutex as built, held without a break",
            [{"mutex": share.held_s, "workers": share.by_workers_s} for share in shares],
            (_SAME, "the mutex covers the whole GPU part of a call"),
        ),
        _shortest(
            "mutex-around-compute",
            "the mutex only around compute phases, copies beside the other's kernels",
            [{"compute": s.compute_s, "copy": s.copy_s, "workers": s.by_workers_s} for s in shares],
            (
                _SAME,
                f"one call at a time in {', '.join(COMPUTE_PHASES)}; one at a time in {_COPY_PHASE}; "
                "the rest of a hold beside anything",
                "a copy and kernels of two calls do not slow each other",
                "phases stay whole: from pinned memory the copy is a part of coset_intt_sync and counts as compute",
            ),
        ),
    )


def _shortest(id_: str, title: str, limits: Sequence[dict[str, float]], assumes: tuple[str, ...]) -> ShortestTime:
    totals = {name: sum(each[name] for each in limits) for name in limits[0]}
    longest = dict.fromkeys(totals, 0.0)
    for each in limits:
        name = max(each, key=each.__getitem__)
        longest[name] += each[name]
    return ShortestTime(
        id=id_,
        title=title,
        shortest_s=sum(longest.values()),
        limited_by=max(longest, key=longest.__getitem__),
        limits_s=totals,
        assumes=assumes,
    )
