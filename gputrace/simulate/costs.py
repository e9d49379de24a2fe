"""What each cause truly cost in a simulated run: GPU seconds, from the schedule itself, whatever was planted.

A phase that a strain slows down cost what it would not have taken without that strain, all else as it was. A pause
between two holds of the mutex is followed back from the call that ended it: to its worker's hot path, to the release
that kept its worker, to the synthesis that came late. Where two causes share seconds (a pageable copy that memory
contention slows down further; a barrier that waits for a slowed prep_msm), both are given them: removing either would
have saved them. Only inside windows (first lock to last unlock of each GPU), as the analysis defines them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from gputrace.simulate.activity import Rates, pieces
from gputrace.simulate.disturbance import Steps
from gputrace.simulate.pipeline import simulate
from gputrace.simulate.recipe import Scenario, works_of
from gputrace.simulate.schedule import CallRecord, Schedule, Span
from gputrace.simulate.speed import Demand, Strain, abc_bytes, demand, pool_slowness, speed
from gputrace.simulate.traced import TracedRun

_CONTENTION = "host-memory-contention"
_CALM: dict[str, dict[str, float]] = {
    "throttled": {"clock": 1.0},
    "other-process": {"other_sm": 0.0},
    "link-degraded": {"link": 1.0},
    _CONTENTION: {"syntheses": 0},
    "pinned-alloc-stall": {"allocating": False},
}
# Launching three copies and their NTTs, when nothing is in the way.
_LAUNCH_S = 0.0005


@dataclass(frozen=True)
class Costs:
    """GPU seconds: of all windows, lost in them (not used by the prover's kernels at full clock), and by cause.

    `contended_s`: which of a cause's seconds memory contention has too.
    """

    window_s: float
    lost_s: float
    by_cause: dict[str, float]
    contended_s: dict[str, float]

    def share(self, cause: str, beside: str = "") -> float:
        """A cause's share of the lost seconds; less what it has in common with the cause `beside`."""
        seconds = self.by_cause.get(cause, 0.0)
        if beside == _CONTENTION:
            seconds -= self.contended_s.get(cause, 0.0)
        return seconds / self.lost_s if self.lost_s > 0 else 0.0


def costs_of(scenario: Scenario, runs: Iterable[TracedRun], seed: int) -> Costs:
    """What each cause cost in these runs of a scenario."""
    window_s = lost_s = 0.0
    totals: defaultdict[str, float] = defaultdict(float)
    contended: defaultdict[str, float] = defaultdict(float)
    for number, run in enumerate(runs):
        costs = _Run(run.schedule, scenario.rates).costs()
        window_s, lost_s = window_s + costs.window_s, lost_s + costs.lost_s
        by_cause = dict(costs.by_cause)
        if run.schedule.disturbance.shortages:
            enough = replace(run.schedule.disturbance, shortages=())
            works = works_of(scenario, number, seed)
            calm = _Run(simulate(works, run.schedule.limits, seed + number, disturbance=enough), scenario.rates)
            starved = by_cause.get("no-work-queued", 0.0)
            by_cause["no-work-queued"] = min(starved, calm.costs().by_cause.get("no-work-queued", 0.0))
            by_cause["memory-budget"] = starved - by_cause["no-work-queued"]
        for cause, seconds in by_cause.items():
            totals[cause] += seconds
        for cause, seconds in costs.contended_s.items():
            contended[cause] += seconds
    return Costs(window_s, lost_s, dict(totals), dict(contended))


class _Run:
    """One schedule, with what strained it at each time."""

    def __init__(self, schedule: Schedule, rates: Rates) -> None:
        self.schedule, self.rates, self.limits = schedule, rates, schedule.limits
        running = ((s.start, s.queued) for s in schedule.syntheses if not s.skipped)
        self._syntheses = Steps((a, schedule.end if math.isnan(b) else b) for a, b in running)
        self._allocations = Steps(schedule.allocations)
        self._edges = schedule.disturbance.edges
        self._by_index = {s.index: s for s in schedule.syntheses}
        self._saved: defaultdict[str, float] = defaultdict(float)
        self._contended: defaultdict[str, float] = defaultdict(float)

    def costs(self) -> Costs:
        """The costs of all GPUs."""
        window_s = active_s = 0.0
        self._saved.clear()
        previous = _previous_on_worker(self.schedule.calls)
        for gpu in range(self.limits.gpus):
            calls = [c for c in self.schedule.by_lock if c.gpu == gpu and not math.isnan(c.unlock)]
            if not calls:
                continue
            window_s += max(c.unlock for c in calls) - calls[0].lock
            for call in calls:
                active_s += math.fsum((p.end - p.start) * p.sm for p in pieces(self.schedule, call, self.rates))
                self._hold(call)
            for before, call in pairwise(calls):
                self._pause(before.unlock, call, previous.get(call.index))
        lost_s = window_s - active_s + self._saved["throttled"]
        return Costs(window_s, lost_s, dict(self._saved), dict(self._contended))

    # Inside a hold of the mutex.

    def _hold(self, call: CallRecord) -> None:
        saved, work = self._saved, call.work
        for span in call.gpu_spans:
            if span.name == "barrier_wait":
                self._barrier(call, span)
                continue
            for part, asked in self._parts(call, span):
                for cause, calm in _CALM.items():
                    seconds = self._without(asked, part, calm)
                    saved[cause] += seconds
                    if cause == _CONTENTION and asked.staged:
                        self._contended["pageable-h2d"] += seconds
            free_s = self._free_s(span)
            if span.name == "ntt_kernels" and work.pinned:
                saved["launch-overhead"] += max(0.0, free_s - _LAUNCH_S)
            elif span.name == "ntt_kernels":
                line_rate = self.rates.line_rate * self.schedule.disturbance.link_share(span.start)
                saved["pageable-h2d"] += max(0.0, free_s - abc_bytes(work) / line_rate)
            elif span.name in ("d_b_alloc", "msm_init", "msm_dtor"):
                saved["device-allocation"] += free_s
        if call.new_domain:
            saved["device-allocation"] += self.limits.allocate_d_a
        saved["slow-log-sink"] += sum(end - start for start, end in call.blocked.values())
        if self.limits.whole_call_mutex:
            self._waited_for(call, ((call.lock, call.gpu_begin), (call.gpu_end, call.unlock)))

    def _barrier(self, call: CallRecord, span: Span) -> None:
        waited = span.end - span.start
        self._saved["prep-barrier"] += waited
        if self.limits.whole_call_mutex:
            self._waited_for(call, ((span.start, span.end),))
        took = call.prep_end - call.split_end
        if took > 0:
            cuts = self._cuts(call.split_end, call.prep_end)
            alone = sum((b - a) / pool_slowness(self._strain(a), self.limits) for a, b in cuts)
            self._saved[_CONTENTION] += min(waited, took - alone)
            self._contended["prep-barrier"] += min(waited, took - alone)

    def _waited_for(self, holder: CallRecord, spans: Iterable[tuple[float, float]]) -> None:
        """CPU work under the whole-call mutex, while another worker of this GPU waits for it."""
        others = [c for c in self.schedule.calls if c.gpu == holder.gpu and c is not holder]
        waiting = Steps((c.asked, c.lock) for c in others if not math.isnan(c.asked + c.lock))
        for start, end in spans:
            if not math.isnan(start + end):
                cuts = [start, *waiting.between(start, end), end]
                self._saved["mutex-contention"] += sum(b - a for a, b in pairwise(cuts) if waiting.at(a) > 0)

    def _parts(self, call: CallRecord, span: Span) -> list[tuple[Span, Demand]]:
        """A phase's parts with what they ask for: pinned a/b/c come over the wire before the last transform."""
        rate = self.limits.line_rate
        asked = demand(span.name, call.work, rate)
        if span.name != "coset_intt_sync":
            return [(span, asked)]
        copy = next((c for c in call.pinned_copies if c.circuit == span.circuit), None)
        if copy is None:
            return [(span, asked)]
        return [(copy, demand("pinned_copy", call.work, rate)), (span._replace(start=copy.end), asked)]

    def _without(self, asked: Demand, span: Span, calm: dict[str, float]) -> float:
        """Seconds of a stretch that would not have been, without one strain."""
        saved = 0.0
        for start, end in self._cuts(span.start, span.end):
            strain = self._strain(start)
            calmer = strain._replace(**calm)  # type: ignore[arg-type]
            if calmer != strain:
                saved += (end - start) * (1.0 - speed(asked, strain, self.limits) / speed(asked, calmer, self.limits))
        return saved

    def _free_s(self, span: Span) -> float:
        """Its seconds less those in which the driver stood still for an allocation."""
        rate = self.limits.allocation_rate
        return sum((b - a) * (rate if self._strain(a).allocating else 1.0) for a, b in self._cuts(span.start, span.end))

    def _strain(self, at: float) -> Strain:
        disturbance = self.schedule.disturbance
        return Strain(
            disturbance.clock(at), disturbance.other_sm(at), disturbance.link_share(at), self._syntheses.at(at),
            self._allocations.at(at) > 0,
        )  # fmt: skip

    def _cuts(self, start: float, end: float) -> list[tuple[float, float]]:
        """Stretches of (start, end) in which the strain does not change."""
        inside = [t for t in self._edges if start < t < end]
        inside += self._syntheses.between(start, end) + self._allocations.between(start, end)
        times = [start, *sorted(inside), end]
        return [(a, b) for a, b in pairwise(times) if b > a]

    # Between holds.

    def _pause(self, unlock: float, call: CallRecord, before: CallRecord | None) -> None:
        """From one unlock to the next lock of a GPU, followed back from the call that got it."""
        saved, queued = self._saved, self._by_index[call.index].queued
        if self.limits.whole_call_mutex:
            saved["mutex-contention"] += max(0.0, call.lock - max(unlock, call.asked) - self.limits.handover)
        saved["host-hot-path"] += max(0.0, call.asked - max(unlock, call.pickup))
        saved["no-work-queued"] += max(0.0, min(queued, call.lock) - unlock)
        if before is not None:
            start, end = max(unlock, queued, before.unlock), min(before.returned, call.pickup)
            saved["release-abc"] += max(0.0, end - start)


def _previous_on_worker(calls: Iterable[CallRecord]) -> dict[int, CallRecord]:
    """For each call, by its index, the call that its worker had before."""
    last: dict[int, CallRecord] = {}
    before: dict[int, CallRecord] = {}
    for call in sorted((c for c in calls if not math.isnan(c.pickup)), key=lambda c: c.pickup):
        if call.worker in last:
            before[call.index] = last[call.worker]
        last[call.worker] = call
    return before
