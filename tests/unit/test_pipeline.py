"""The pipeline seen in a run: service times, limits, slowdowns, and what changes do to them."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace.analysis.pipeline.busy import ARRIVALS, LOOP, MUTEX, POOL, SYNTHESIS, bounds, covered, limiting
from gputrace.analysis.pipeline.observe import CallSeen, Observed, SynthesisSeen
from gputrace.analysis.pipeline.predict import pool_level, what_if
from gputrace.analysis.pipeline.replay import best_replay, error_of, first_calls, replay
from gputrace.analysis.pipeline.run import Run
from gputrace.analysis.pipeline.scenarios import NAMED, Setting, parse_scenario
from gputrace.analysis.pipeline.services import pool_services, services
from gputrace.errors import UsageError
from gputrace.simulate.pipeline import simulate
from gputrace.simulate.schedule import CallWork, Limits, Schedule

WORK = CallWork(
    "", 0, synth=9.0, setup=0.0006, pre_lock=0.0009, d_b_alloc=0.003, ntt_kernels=0.45, coset_intt_sync=0.0335,
    msm_init=0.0004, msm_invoke=0.311, msm_dtor=0.0002, batch_add=0.04, tail_msm=0.18, after_gpu=0.001, prep_msm=0.25,
    b_g2_msm=0.3, release_abc=0.35,
)  # fmt: skip
LIMITS = Limits(parallel_syntheses=6, in_flight=9, warmup_alloc=0.0, copy_slowdown=0.06, prep_slowdown=0.04)


def works(count: int, work: CallWork = WORK, spread: float = 0.1, seed: int = 0) -> list[CallWork]:
    rng = random.Random(seed)
    names = ("synth", "ntt_kernels", "msm_invoke", "tail_msm", "prep_msm", "b_g2_msm", "release_abc")
    return [
        replace(
            work,
            partition=n,
            **{name: getattr(work, name) * rng.uniform(1 - spread, 1 + spread) for name in names},
        )
        for n in range(count)
    ]


def seen_of(schedule: Schedule) -> Observed:
    """What a perfect log would show of a schedule."""
    calls = []
    for call in sorted(schedule.calls, key=lambda call: call.lock):
        leaves = {span.name: span.end - span.start for span in call.gpu_spans if span.name != "barrier_wait"}
        ntt = call.span("ntt_kernels")
        calls.append(
            CallSeen(
                call=call.index, job="", partition=call.index, kind="", gpu=call.gpu, worker=call.worker,
                pinned=call.work.pinned, warmup=call.warmup, circuits=1, entry=call.entry, lock=call.lock,
                unlock=call.unlock, returned=call.returned, pre_lock=call.asked - call.entry,
                mutex_wait=call.mutex_wait, barrier_wait=call.barrier_wait, leaves=leaves, pickup=call.pickup,
                prep_start=call.split_end, prep_end=call.prep_end, b_g2_end=call.b_g2_end,
                ntt_start=ntt.start if ntt else None, finished=call.finished, synthesis=call.index,
            )
        )  # fmt: skip
    taken = {call.index: call.pickup for call in schedule.calls}
    syntheses = [
        SynthesisSeen(s.start, s.queued, taken.get(s.index), "", s.index, s.work.pinned, (0, s.index))
        for s in schedule.syntheses
    ]
    return Observed(calls, syntheses, 0, schedule.end, len(calls))


def run_of(schedule: Schedule, copy_s: float = 0.055) -> Run:
    seen = seen_of(schedule)
    own, error = best_replay(seen)
    unlocks = [call.unlock for call in seen.calls]
    rate = (len(unlocks) - 1) / (max(unlocks) - min(unlocks))
    held = statistics.median(call.held for call in seen.calls)
    return Run(seen, own, error, rate, held, 0.3, copy_s * 56e9, 10e9, 56e9, 0.5)


# Service times.


def call_with_pool(n: int, start: float, prep_end: float, b_g2_end: float) -> CallSeen:
    return CallSeen(
        n, "", n, "", 0, 0, False, False, 1, start, start, start + 1, start + 1, 0.0, 0.0, 0.0, {"ntt_kernels": 0.5},
        prep_start=start, prep_end=prep_end, b_g2_end=b_g2_end,
    )  # fmt: skip


def test_a_task_behind_another_worked_from_its_end() -> None:
    first, second = call_with_pool(0, 0.0, 0.2, 2.0), call_with_pool(1, 1.0, 2.1, 3.5)
    fifo = pool_services([first, second], "fifo")
    assert fifo[0] == pytest.approx((0.2, 1.8))
    # 1.1 s as printed, 0.1 s of work: it waited for the other call's G2 MSM.
    assert fifo[1] == pytest.approx((0.1, 1.4))


times = st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 3), st.floats(0.01, 3)), min_size=1, max_size=25)


@given(times, st.sampled_from(["fifo", "shared"]))
@settings(max_examples=60)
def test_the_pools_time_is_conserved(spans: Sequence[tuple[float, float, float]], order: str) -> None:
    calls = [call_with_pool(n, a, a + b, a + b + c) for n, (a, b, c) in enumerate(spans)]
    total = sum(sum(own) for own in pool_services(calls, order))
    busy = covered([(call.prep_start or 0.0, call.b_g2_end or 0.0) for call in calls], 0.0, 100.0)
    assert total == pytest.approx(busy, abs=1e-6)


def test_a_replay_of_what_the_model_made_is_the_same_schedule() -> None:
    schedule = simulate(works(40), LIMITS)
    own, error = best_replay(seen_of(schedule))
    assert own.limits.pool_order == "fifo"
    assert abs(error.rate) < 0.005
    assert abs(error.mutex_wait_median) < 0.02
    assert error.unlock_worst < 0.01


def test_a_shared_pool_is_recognised() -> None:
    heavy = replace(WORK, prep_msm=0.6, b_g2_msm=0.6)
    schedule = simulate(works(40, heavy), replace(LIMITS, pool_order="shared"))
    own, error = best_replay(seen_of(schedule))
    assert own.limits.pool_order == "shared"
    assert error.unlock_worst < 0.01


def test_limits_are_found_where_they_bind() -> None:
    # A G2 MSM that outlasts the call tells the proof's end from the call's.
    slow = replace(WORK, synth=4.0, b_g2_msm=1.3)
    late = services(seen_of(simulate(works(60, slow), replace(LIMITS, workers_per_gpu=1, place_freed="finalised"))))
    assert late.limits.place_freed == "finalised"
    own = services(seen_of(simulate(works(60, replace(WORK, synth=4.0)), replace(LIMITS, place_freed="pickup"))))
    # While work is queued a return is a pickup: the same limit, counted with those on the workers.
    flying = {"pickup": 9, "returned": 9 + LIMITS.workers_per_gpu}[own.limits.place_freed]
    assert {work.in_flight for work in own.works} == {flying}
    assert {work.in_flight for work in late.works} == {9}
    assert {work.parallel_syntheses for work in own.works + late.works} == {6}
    # A closed loop: nothing came later than there was room for it.
    assert all(work.arrives == 0.0 for work in own.works + late.works)


def test_work_that_came_late_is_an_arrival() -> None:
    spaced = [replace(work, arrives=4.0 * n) for n, work in enumerate(works(30))]
    own = services(seen_of(simulate(spaced, LIMITS)))
    # All but the first, and those that happen to come in the moment in which another ends.
    assert sum(work.arrives > 0 for work in own.works) > 25


def test_a_change_of_the_limit_is_followed() -> None:
    early = [replace(work, parallel_syntheses=3) for work in works(30)]
    late = [replace(work, parallel_syntheses=8, in_flight=12) for work in works(40, seed=1)]
    schedule = simulate([*early, *late], replace(LIMITS, in_flight=12))
    own = services(seen_of(schedule))
    assert own.works[4].parallel_syntheses == 3
    assert own.works[-1].parallel_syntheses == 8


def test_slowdowns_are_found_within_their_errors() -> None:
    hits = 0
    for seed in range(20):
        rng = random.Random(seed)
        # Jobs in bursts: the concurrency varies.
        mixed = [replace(work, arrives=30.0 * (n // 8)) for n, work in enumerate(works(48, seed=seed))]
        limits = replace(LIMITS, copy_slowdown=rng.uniform(0, 0.12), prep_slowdown=rng.uniform(0, 0.08))
        own = services(seen_of(simulate(mixed, limits)))
        hits += abs(own.copy_slowdown.value - limits.copy_slowdown) < 2 * own.copy_slowdown.error
        hits += abs(own.pool_slowdown.value - limits.prep_slowdown) < 2 * own.pool_slowdown.error
    assert hits >= 36


def test_the_level_of_a_steady_pool_is_sure() -> None:
    steady = services(seen_of(simulate(works(64, spread=0.15), LIMITS)))
    drifting = [replace(w, b_g2_msm=w.b_g2_msm * (1.0 + n / 40)) for n, w in enumerate(works(64))]
    assert pool_level(steady) < 0.05
    assert pool_level(services(seen_of(simulate(drifting, LIMITS)))) > 0.15


# Changes.


def setting(limits: Limits = LIMITS) -> Setting:
    own = works(10)
    return Setting(tuple(own), limits, tuple({} for _ in own), 0.055)


def test_pinning_takes_the_release_too() -> None:
    changed = parse_scenario("pinned-h2d").apply(setting())
    for before, after in zip(setting().works, changed.works, strict=True):
        assert after.pinned
        assert after.ntt_kernels < 0.001
        assert after.coset_intt_sync == pytest.approx(before.coset_intt_sync + 0.055)
        assert after.release_abc < 0.001


def test_scenarios_compose_in_order() -> None:
    changed = parse_scenario("pinned-h2d+workers=3+prep_msm=0.5x+tail_msm=120ms+syntheses=12").apply(setting())
    assert changed.limits.workers_per_gpu == 3
    assert changed.works[0].prep_msm == pytest.approx(setting().works[0].prep_msm / 2)
    assert {work.tail_msm for work in changed.works} == {0.12}
    assert {work.parallel_syntheses for work in changed.works} == {12}
    assert all(work.pinned for work in changed.works)


def test_stalls_are_taken_out_where_they_were_charged() -> None:
    own = works(3)
    stalled = Setting(tuple(own), LIMITS, ({"ntt_kernels": 0.2}, {}, {"ntt_kernels": 9.0, "d_b_alloc": 0.001}), 0.05)
    changed = parse_scenario("no-allocation-stall").apply(stalled).works
    assert changed[0].ntt_kernels == pytest.approx(own[0].ntt_kernels - 0.2)
    assert changed[1] == own[1]
    assert changed[2].ntt_kernels == 0.0
    assert changed[2].d_b_alloc == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pined-h2d", "did you mean pinned-h2d?"),
        ("workers", "workers takes a whole number, as workers=2"),
        ("workers=0", "from 1 to"),
        ("workers=2.5", "a whole number"),
        ("no-barrier=3", "takes no number"),
        ("prep_mms=0.5x", "did you mean prep_msm?"),
        ("prep_msm=5", "a factor as 0.5x or a duration"),
        ("prep_msm=-5ms", "a factor as 0.5x or a duration"),
        ("prep_msm=nanx", "a factor as 0.5x or a duration"),
        ("pinned-h2d+", "is not known"),
        ("", "is not known"),
    ],
)
def test_a_scenario_that_means_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("?", r"\?")):
        parse_scenario(text)


@pytest.mark.parametrize("name", NAMED)
def test_every_named_change_says_what_it_does(name: str) -> None:
    change = NAMED[name]
    assert parse_scenario(f"{name}=2" if change.takes else name).title


# Predictions.


def prediction(schedule: Schedule, scenario: str) -> tuple[float, float, float, str]:
    effect = what_if(run_of(schedule), [parse_scenario(scenario)], draws=16)[0]
    rate = effect.calls_per_s
    assert rate.low is not None and rate.predicted is not None and rate.high is not None
    return rate.low, rate.predicted, rate.high, effect.limited_by


def test_a_fix_shows_its_gain_though_work_was_always_there() -> None:
    """An open stream of arrivals, as seen, could show none: syntheses have to follow the faster GPU."""
    before = simulate(works(60, replace(WORK, synth=4.0)), LIMITS)
    low, predicted, high, _ = prediction(before, "pinned-h2d")
    pinned = [
        replace(w, pinned=True, ntt_kernels=0.0003, coset_intt_sync=w.coset_intt_sync + 0.055, release_abc=0.0006)
        for w in works(60, replace(WORK, synth=4.0), seed=5)
    ]
    after = simulate(pinned, LIMITS).calls_per_s
    assert after > 1.4 * before.calls_per_s
    assert low <= after <= high
    assert predicted == pytest.approx(after, rel=0.05)


def test_a_fix_that_moves_the_bottleneck_says_where_to() -> None:
    slow_pool = replace(WORK, prep_msm=0.3, b_g2_msm=0.9)
    _, predicted, _, limited_by = prediction(simulate(works(40, slow_pool), LIMITS), "pinned-h2d")
    assert limited_by == POOL
    assert predicted < 1.05 / 1.2
    few = simulate(works(40), replace(LIMITS, parallel_syntheses=4))
    assert prediction(few, "pinned-h2d")[3] == SYNTHESIS


def test_one_worker_is_the_limit_until_there_are_two() -> None:
    alone = simulate(works(40, replace(WORK, release_abc=0.9, synth=4.0)), replace(LIMITS, workers_per_gpu=1))
    assert limiting({MUTEX: 0.55, POOL: 0.4, SYNTHESIS: 0.5, LOOP: 0.99}, False) == LOOP
    low, _, _, limited_by = prediction(alone, "workers=2")
    assert low > alone.calls_per_s * 1.3
    assert limited_by == MUTEX


def test_arrivals_are_the_limit_where_all_have_time() -> None:
    spaced = [replace(work, arrives=5.0 * n) for n, work in enumerate(works(30, replace(WORK, synth=2.0)))]
    low, predicted, _, limited_by = prediction(simulate(spaced, LIMITS), "pinned-h2d")
    assert limited_by == ARRIVALS
    assert predicted == pytest.approx(0.2, rel=0.03)
    assert low <= 0.2


def test_predictions_repeat_themselves() -> None:
    schedule = simulate(works(30), LIMITS)
    assert prediction(schedule, "no-release") == prediction(schedule, "no-release")


def test_a_bound_is_never_beaten() -> None:
    for seed in range(6):
        schedule = simulate(works(50, seed=seed), LIMITS)
        seen = seen_of(schedule)
        for bound in bounds(seen, services(seen), None, None):
            if bound.resource != SYNTHESIS:
                # The last calls' ends lie in the window, their work partly before it: a call's worth of slack.
                assert schedule.calls_per_s <= bound.max_calls_per_s * 1.03, bound
        made = first_calls(replay(services(seen)), len(seen.calls))
        assert error_of(seen, replay(services(seen))).held_median == pytest.approx(0.0, abs=0.02)
        assert len(made) == len(seen.calls)


def test_calls_without_a_synthesis_have_no_bound_by_it() -> None:
    seen = seen_of(simulate(works(20), LIMITS))
    for call in seen.calls:
        call.synthesis = None
    found = bounds(seen, services(seen), None, None)
    assert {bound.resource for bound in found} == {MUTEX, LOOP, POOL}
