"""What a scenario does, with an interval: the run's own services, changed, through the model.

The interval has four parts, added as variances of the logarithm of the rate:

- the calls seen are a sample, and those of the changed run will be another: twice the variance over local block
  bootstrap resamples of the calls (Paparoditis and Politis 2002: blocks of calls are drawn from the neighbourhood of
  their place, so that a run that changes over time keeps its course); the slowdowns by syntheses are drawn with their
  standard errors in the same resamples;
- the error of the replay on the unchanged run;
- the pool's level: what its tasks take varies over a run by more than their own spread explains (other load on the
  host), and a rate that rests on the pool is no surer than that;
- a saturated host: where the CPU was busy all the time, what rests on it differs from run to run. Three captures under
  the same load (pageable, pinned, and the heavy part of light-then-heavy) did 0.624, 0.539 and 0.522 calls a second by
  the same pool: 0.094 as a standard deviation of the logarithm, 0.14 for an interval from three (Student's t);
- a resource made busier than this run ever saw it: `_EXTRAPOLATION` per unit of share, in proportion to how much the
  rate depends on it. That factor is a judgement, not a measurement.
"""

import bisect
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gputrace.analysis import student
from gputrace.analysis.diagnosis import Effect, WhatIf
from gputrace.analysis.pipeline.busy import IN_WORDS, POOL, SYNTHESIS, Window, busy_shares, limiting
from gputrace.analysis.pipeline.replay import first_calls
from gputrace.analysis.pipeline.run import Run
from gputrace.analysis.pipeline.scenarios import UPPER_BOUND, Scenario, Setting
from gputrace.analysis.pipeline.services import Services
from gputrace.simulate.outline import outline
from gputrace.simulate.schedule import CallTimes, CallWork, Limits, Outline

LEVEL = 0.8
_Z = statistics.NormalDist().inv_cdf(0.5 + LEVEL / 2)
_EXTRAPOLATION = 0.2
_SATURATED_CPU, _BETWEEN_RUNS = 0.95, 0.138
# A staged copy runs at 4 to 15 % of line rate (3.7 to 7.7 of 57 GB/s, measured on an H200).
_UNMEASURED_COPY = 0.1
_BLOCK, _REACH = 4, 12
_LEVEL_BLOCK = 8
_NOT_OURS = ("job", "partition", "attempt", "arrives", "parallel_syntheses", "in_flight")


@dataclass(frozen=True)
class _Outcome:
    """What came of a setting: of the first calls of a replay, in order of their unlocks."""

    replayed: Outline
    calls: list[CallTimes]

    @cached_property
    def rate(self) -> float:
        """Calls a second."""
        span = self.calls[-1].unlock - self.calls[0].unlock
        return (len(self.calls) - 1) / span if span > 0 else math.inf

    @cached_property
    def held_s(self) -> float:
        """The median hold."""
        return statistics.median(call.mutex_held for call in self.calls)

    @cached_property
    def shares(self) -> dict[str, float]:
        """Of each resource: how much of the time it worked."""
        return busy_shares(self.replayed, Window.of(self.calls))


def what_if(run: Run, scenarios: Sequence[Scenario], draws: int = 32, seed: int = 0) -> tuple[WhatIf, ...]:
    """Predictions, most seconds saved first; the upper bound, which nobody can build, last."""
    if not scenarios:
        return ()
    setting = _setting(run)
    unchanged = _outcome(run, setting)
    resampled = []
    for n in range(draws):
        drawn = _resampled(run, random.Random(f"{seed} {n}"))
        resampled.append((drawn, _outcome(run, drawn).rate))
    found = [_predict(run, scenario, setting, unchanged, resampled) for scenario in scenarios]
    return tuple(sorted(found, key=lambda one: (one.scenario == UPPER_BOUND, -(one.saved_s or 0.0))))


def _predict(
    run: Run, scenario: Scenario, setting: Setting, unchanged: _Outcome, resampled: list[tuple[Setting, float]]
) -> WhatIf:
    """`resampled`: settings, each with the rate of its unchanged replay."""
    setting = scenario.apply(setting)
    changed = _outcome(run, setting)
    drawn = [_outcome(run, scenario.apply(one)) for one, _ in resampled]
    # What the model gets wrong on the run itself it is taken to get wrong here too.
    predicted = changed.rate * run.calls_per_s / unchanged.rate
    unseen, said = _extrapolated(run, setting, unchanged, changed)
    unseen += run.error.rate**2
    spread = statistics.pvariance([math.log(one.rate) for one in drawn])
    low, high = _around(predicted, 2 * spread + unseen)
    # For these same calls only what the change does to them varies.
    paired = [math.log(one.rate / rate) for one, (_, rate) in zip(drawn, resampled, strict=True)]
    same_low, same_high = _around(predicted, statistics.pvariance(paired) + unseen)
    limited_by = limiting(changed.shares, any(work.arrives > 0 for work in run.own.works))
    rate = Effect(run.calls_per_s, unchanged.rate, predicted, low, high)
    held = _held(run, unchanged, changed, drawn)
    return WhatIf(
        scenario=scenario.name,
        title=scenario.title,
        calls_per_s=rate,
        mutex_held_ms_median=held,
        compute_share=_share(run.compute_share, rate),
        saved_s=_saved(run, predicted),
        saved_s_low=_saved(run, same_low),
        saved_s_high=_saved(run, same_high),
        limited_by=limited_by,
        level=LEVEL,
        notes=(
            *said,
            *_unmeasured(run, scenario),
            *(change.neglects for change, _ in scenario.parts if change.neglects),
            *run.own.notes,
        ),
    )


def _around(rate: float, variance: float) -> tuple[float, float]:
    return tuple(rate * math.exp(sign * _Z * math.sqrt(variance)) for sign in (-1, 1))  # type: ignore[return-value]


def _held(run: Run, unchanged: _Outcome, changed: _Outcome, drawn: list[_Outcome]) -> Effect:
    """The median hold, ms; its interval is that of the resamples, for a sample of calls and another one."""
    scale = 1e3 * run.held_median_s / unchanged.held_s
    cuts = statistics.quantiles([one.held_s * scale for one in drawn], n=20)
    middle = changed.held_s * scale
    low, high = (middle + math.sqrt(2) * (cut - middle) for cut in (cuts[1], cuts[-2]))
    return Effect(
        run.held_median_s * 1e3, unchanged.held_s * 1e3, middle, max(0.0, min(low, middle)), max(high, middle)
    )


def _setting(run: Run) -> Setting:
    works, limits = run.own.bare()
    return _continued(run, works, limits, list(run.own.stalled))


def _continued(run: Run, works: list[CallWork], limits: Limits, stalled: Sequence[Mapping[str, float]]) -> Setting:
    """The setting; where the prover went on after the log's end, with more partitions.

    Without them the last calls would find an idle host.
    """
    if not run.drained:
        more = max(work.in_flight for work in works) or len(works)
        tail = [work.but(arrives=0.0, partition=len(works) + n) for n, work in enumerate(works[-more:])]
        works, stalled = [*works, *tail], [*stalled, *stalled[-more:]]
    return Setting(tuple(works), limits, tuple(stalled), _copy_s(run))


def _outcome(run: Run, setting: Setting) -> _Outcome:
    count = len(run.seen.calls)
    replayed = outline(setting.works, setting.limits, calls=count)
    return _Outcome(replayed, first_calls(replayed, count))


def _resampled(run: Run, rng: random.Random) -> Setting:
    """Works with services drawn from their neighbours of the same kind, and slowdowns drawn within their errors."""
    copy, pool = (
        max(0.0, rng.gauss(slowdown.value, slowdown.error))
        for slowdown in (run.own.copy_slowdown, run.own.pool_slowdown)
    )
    works, limits = run.own.bare(copy, pool)
    donors: dict[tuple[str, bool], list[int]] = {}
    for n, work in enumerate(works):
        if run.own.seen[n]:
            donors.setdefault((work.kind, work.pinned), []).append(n)
    drawn, stalled, offset, left = [], [], 0, 0
    for n, work in enumerate(works):
        own = donors.get((work.kind, work.pinned), [n])
        if left == 0:
            offset, left = rng.randint(-_REACH, _REACH), _BLOCK
        left -= 1
        place = bisect.bisect_left(own, n) + offset
        # Beyond either end of the run, back from it.
        place = abs(place) if place < len(own) else 2 * (len(own) - 1) - place
        donor = own[min(max(place, 0), len(own) - 1)]
        drawn.append(works[donor].but(**{name: getattr(work, name) for name in _NOT_OURS}))
        stalled.append(run.own.stalled[donor])
    return _continued(run, drawn, limits, stalled)


def _copy_s(run: Run) -> float:
    """Seconds that a call's a/b/c take at line rate."""
    if run.copy_bytes and run.line_rate_bytes_per_s:
        return run.copy_bytes / run.line_rate_bytes_per_s
    return _UNMEASURED_COPY * statistics.median(work.ntt_kernels for work in run.own.works)


def _extrapolated(run: Run, setting: Setting, unchanged: _Outcome, changed: _Outcome) -> tuple[float, list[str]]:
    """Variance of the log rate for what this run could not show, and what to say of it."""
    variance, said, saturated = 0.0, [], []
    for resource, names in ((POOL, ("prep_msm", "b_g2_msm")), (SYNTHESIS, ("synth",))):
        more = changed.shares[resource] - unchanged.shares[resource]
        leans = _elasticity(run, setting, changed, names)
        if leans < 0.05:
            continue
        if resource == POOL:
            variance += (leans * pool_level(run.own)) ** 2
        if run.host_cpu_share is None or run.host_cpu_share >= _SATURATED_CPU:
            variance += (leans * _BETWEEN_RUNS) ** 2
            saturated.append(IN_WORDS[resource])
        if more > 0.02:
            variance += (leans * _EXTRAPOLATION * more) ** 2
            said.append(
                f"makes {IN_WORDS[resource]} busier ({changed.shares[resource]:.0%} of the time) than this run saw "
                f"({unchanged.shares[resource]:.0%})"
            )
    if saturated:
        known = "was" if run.host_cpu_share is not None else "may have been (it was not recorded)"
        on = " and ".join(saturated)
        said.insert(0, f"leans on {on} while the host's CPU {known} busy all the time: runs differ then")
    return variance, said


def _elasticity(run: Run, setting: Setting, changed: _Outcome, names: tuple[str, ...]) -> float:
    """By what share the rate falls when these services take longer, per share of it; 0 to 1."""
    longer = 1.1
    works = tuple(w.but(**{name: getattr(w, name) * longer for name in names}) for w in setting.works)
    slower = _outcome(run, replace(setting, works=works))
    return min(1.0, max(0.0, -math.log(slower.rate / changed.rate) / math.log(longer)))


def pool_level(own: Services) -> float:
    """By how much the level of the pool's tasks varies over the run, as a share, beyond their own spread.

    Blocks of eight calls: the variance between their means less what the variance within them makes of it (one-way
    analysis of variance).
    """
    totals = [w.prep_msm + w.b_g2_msm for w, is_own in zip(own.works, own.seen, strict=True) if is_own]
    typical = statistics.fmean(totals) if totals else 0.0
    blocks = [totals[n : n + _LEVEL_BLOCK] for n in range(0, len(totals) - _LEVEL_BLOCK + 1, _LEVEL_BLOCK)]
    if len(blocks) < 2 or typical <= 0:
        return 0.0
    within = statistics.fmean(statistics.variance(block) for block in blocks)
    between = statistics.variance([statistics.fmean(block) for block in blocks])
    beyond = math.sqrt(max(0.0, between - within / _LEVEL_BLOCK)) / typical
    # So few blocks tell a variance badly: Student's t instead of the normal quantile.
    return beyond * student.quantile(len(blocks) - 1, 0.5 + LEVEL / 2) / _Z


def _share(now: float | None, rate: Effect) -> Effect:
    """The kernels of a call compute as long as before: the share goes with the rate."""
    if now is None or not rate.now:
        return Effect(None, None, None, None, None)
    of = [
        None if value is None else min(1.0, now * value / rate.now)
        for value in (rate.replay, rate.predicted, rate.low, rate.high)
    ]
    return Effect(now, *of)


def _saved(run: Run, rate: float) -> float:
    calls = run.seen.total_calls - 1
    return calls / run.calls_per_s - calls / rate


def _unmeasured(run: Run, scenario: Scenario) -> list[str]:
    if run.copy_bytes or not any(change.name == "pinned-h2d" for change, _ in scenario.parts):
        return []
    return [f"what a call copies was not measured (no GPU trace): {_UNMEASURED_COPY:.0%} of ntt_kernels is assumed"]
