"""The model: waits are its outputs, and its outline has the same ones."""

import itertools
import math
import random
from collections import defaultdict
from dataclasses import fields, replace

import pytest

from gputrace.simulate.capture import play
from gputrace.simulate.outline import outline
from gputrace.simulate.pipeline import simulate
from gputrace.simulate.scenarios import PRESETS
from gputrace.simulate.schedule import CallTimes, CallWork, Limits, Schedule
from tests.unit.test_simulate import played


def works(n: int, work: CallWork | None = None) -> list[CallWork]:
    base = work or CallWork("", 0, synth=1.0)
    return [replace(base, job=f"job-{i // 10}", partition=i % 10) for i in range(n)]


def overlaps(spans: list[tuple[float, float]]) -> bool:
    return any(b[0] < a[1] for a, b in itertools.pairwise(sorted(spans)))


@pytest.mark.parametrize("seed", range(24))
def test_an_outline_has_the_waits_and_holds_of_the_schedule(seed: int) -> None:
    rng = random.Random(seed)
    varied = [
        work.but(
            pinned=rng.random() < 0.3,
            arrives=max(0.0, n - 10.0) if seed % 5 == 0 else 0.0,
            **{name: getattr(work, name) * rng.uniform(0.6, 1.6) for name in ("synth", "ntt_kernels", "prep_msm")},
        )
        for n, work in enumerate(works(50, CallWork("", 0, synth=6.0, b_g2_msm=0.9)))
    ]
    limits = Limits(
        gpus=rng.choice((1, 2)),
        workers_per_gpu=rng.choice((1, 2, 3)),
        parallel_syntheses=rng.choice((4, 9)),
        in_flight=rng.choice((9, 14)),
        pool_order=rng.choice(("fifo", "shared")),
        queue_order=rng.choice(("fifo", "partition")),
        place_freed=("pickup", "returned", "finalised")[seed % 3],
        barrier=rng.random() < 0.8,
        fifo_mutex=rng.random() < 0.8,
        copy_slowdown=rng.choice((0.0, 0.05)),
        prep_slowdown=rng.choice((0.0, 0.05)),
        workers_ready=(2.0,),
    )
    whole, brief = simulate(varied, limits, seed), outline(varied, limits, seed)
    for name in ("index", "worker", *(field.name for field in fields(CallTimes) if field.type is float)):
        expected = [getattr(call, name) for call in whole.calls]
        assert [getattr(call, name) for call in brief.calls] == pytest.approx(expected, abs=1e-9), name
    assert [s.queued for s in brief.syntheses] == pytest.approx([s.queued for s in whole.syntheses], abs=1e-9)
    some = sorted(call.unlock for call in outline(varied, limits, seed, calls=20).calls if call.unlock == call.unlock)
    assert some[:20] == pytest.approx(sorted(call.unlock for call in whole.calls)[:20], abs=1e-9)


@pytest.mark.parametrize(
    ("work", "limits"),
    [
        (CallWork("", 0, fails="ntt"), Limits()),
        (CallWork("", 0, num_circuits=2), Limits()),
        (CallWork("", 0, new_buffers=1), Limits()),
        (CallWork("", 0), Limits(whole_call_mutex=True)),
        (CallWork("", 0), Limits(tracked_hot_path=True)),
    ],
)
def test_an_outline_refuses_what_it_does_not_model(work: CallWork, limits: Limits) -> None:
    with pytest.raises(ValueError, match="an outline has"):
        outline([work], limits)


@pytest.mark.parametrize("name", [*PRESETS, *map(str, range(12))])
def test_one_holds_the_mutex_of_a_gpu(name: str) -> None:
    for run in played(name).runs:
        by_gpu: dict[int, list[tuple[float, float]]] = defaultdict(list)
        by_worker: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for call in run.schedule.calls:
            if not math.isnan(call.unlock):
                by_gpu[call.gpu].append((call.lock, call.unlock))
                by_worker[call.worker].append((call.pickup, call.returned))
        assert by_gpu and not any(map(overlaps, by_gpu.values()))
        assert not any(map(overlaps, by_worker.values()))


def waits(schedule: Schedule) -> float:
    return sum(call.mutex_wait for call in schedule.by_lock)


def test_a_longer_hold_makes_the_others_wait() -> None:
    limits = Limits(parallel_syntheses=4, in_flight=8)
    short, long = (simulate(works(20, CallWork("", 0, synth=1.0, tail_msm=tail)), limits) for tail in (0.2, 0.7))
    assert waits(long) > waits(short) + 5.0
    assert long.calls_per_s < short.calls_per_s


def test_one_worker_waits_for_nobody() -> None:
    schedule = simulate(works(10), Limits(workers_per_gpu=1))
    assert waits(schedule) == 0.0


def test_same_inputs_same_schedule() -> None:
    limits = Limits(fifo_mutex=False, workers_per_gpu=4)
    first, second, other = (simulate(works(40), limits, seed) for seed in (3, 3, 4))
    assert first.calls == second.calls
    assert [call.index for call in first.by_lock] != [call.index for call in other.by_lock]


def in_flight(schedule: Schedule) -> int:
    done = {call.index: call.finalised for call in schedule.calls}
    steps = sorted([(s.start, 1) for s in schedule.syntheses] + [(done[s.index], -1) for s in schedule.syntheses])
    return max(itertools.accumulate(step for _, step in steps))


def test_syntheses_are_held_back() -> None:
    limits = Limits(parallel_syntheses=5, in_flight=7)
    schedule = simulate(works(60), limits)
    steps = sorted([(s.start, 1) for s in schedule.syntheses] + [(s.queued, -1) for s in schedule.syntheses])
    assert max(itertools.accumulate(step for _, step in steps)) == 5
    assert in_flight(schedule) == 7
    # The GPU is the limit: work is queued, and syntheses start when a proof is finished.
    finished = {call.finalised for call in schedule.calls}
    assert all(s.start in finished for s in schedule.syntheses[20:])


@pytest.mark.parametrize(("freed", "attribute"), [("pickup", "pickup"), ("returned", "returned")])
def test_places_are_given_up_where_the_engine_does(freed: str, attribute: str) -> None:
    schedule = simulate(works(60), Limits(parallel_syntheses=5, in_flight=7, place_freed=freed))
    given_up = {getattr(call, attribute) for call in schedule.calls}
    assert all(s.start in given_up for s in schedule.syntheses[20:])


def test_workers_take_the_first_partition_of_a_job_if_so_ordered() -> None:
    spread = [replace(work, synth=30.0 - index % 7) for index, work in enumerate(works(60))]
    by_partition = simulate(spread, Limits(queue_order="partition"))
    in_order = simulate(spread, Limits())
    waiting = [[s.index for s in by_partition.syntheses if s.queued <= c.pickup] for c in by_partition.calls]
    taken: set[int] = set()
    for call, queued in zip(by_partition.calls, waiting, strict=True):
        assert call.index == min(set(queued) - taken)
        taken.add(call.index)
    assert [c.index for c in in_order.calls] != [c.index for c in by_partition.calls]


def test_a_starved_gpu_waits_for_syntheses() -> None:
    schedule = played("starved").runs[0].schedule
    assert sum(call.mutex_held for call in schedule.calls) < 0.5 * schedule.end
    assert schedule.calls_per_s == pytest.approx(3 / 9.0, rel=0.1)


def test_the_pool_serves_tasks_in_order() -> None:
    work = CallWork("", 0, synth=1.0, prep_msm=0.5, b_g2_msm=0.25)
    pair = simulate(works(2, work), Limits(parallel_syntheses=2, in_flight=2))
    begin = pair.calls[0].split_end
    assert [call.prep_end - begin for call in pair.calls] == pytest.approx([0.5, 1.0])
    # The first G2 MSM came when the second preparation was already waiting.
    assert [call.b_g2_end - begin for call in pair.calls] == pytest.approx([1.25, 1.5])


def test_a_shared_pool_never_idles_on_work() -> None:
    work = CallWork("", 0, synth=1.0, prep_msm=0.5, b_g2_msm=0.25)
    narrow = Limits(parallel_syntheses=2, in_flight=2, pool_order="shared")
    pair = simulate(works(2, work), narrow)
    begin = pair.calls[0].split_end
    assert [call.prep_end - begin for call in pair.calls] == pytest.approx([1.0, 1.0])
    assert [call.b_g2_end - begin for call in pair.calls] == pytest.approx([1.5, 1.5])
    wide = simulate(works(2, work), replace(narrow, pool_threads=12.0))
    assert [call.prep_end - begin for call in wide.calls] == pytest.approx([0.5, 0.5])


def test_syntheses_slow_copies_and_the_pool_down() -> None:
    many = works(40, CallWork("", 0, synth=30.0))
    calm = simulate(many, Limits())
    loaded = simulate(many, Limits(copy_slowdown=0.1, prep_slowdown=0.1))

    def mean(schedule: Schedule, name: str) -> float:
        spans = [span for call in schedule.calls for span in call.spans if span.name == name]
        return sum(span.end - span.start for span in spans) / len(spans)

    for name in ("ntt_kernels", "prep_msm"):
        assert mean(loaded, name) > mean(calm, name) * 1.3
    assert mean(loaded, "msm_invoke") == pytest.approx(mean(calm, "msm_invoke"))
    assert all(span.end - span.start == pytest.approx(1.0) for c in calm.calls if (span := c.span("ntt_kernels")))


def mean_barrier(schedule: Schedule) -> float:
    return sum(call.barrier_wait for call in schedule.calls) / len(schedule.calls)


def test_with_pinned_copies_the_barrier_takes_over_when_the_pool_is_short() -> None:
    scenario = PRESETS["barrier"]
    pageable, pinned = (play(replace(scenario, pinned=how)).runs[0].schedule for how in ("no", "yes"))
    wide = play(replace(scenario, limits=replace(scenario.limits, pool_threads=24.0))).runs[0].schedule
    assert mean_barrier(pinned) > 0.4
    assert mean_barrier(pinned) > mean_barrier(pageable) + 0.2
    # So pinned memory alone brings little; more threads bring the rest.
    assert pinned.calls_per_s < pageable.calls_per_s * 1.25
    assert wide.calls_per_s > pinned.calls_per_s * 1.25


def test_allocations_stall_the_device_one_after_another() -> None:
    schedule = played("alloc-storm").runs[0].schedule
    ends = sorted(at for synthesis in schedule.syntheses for at in synthesis.allocated)
    assert len(ends) == 24
    assert all(b - a >= 0.6 - 1e-9 for a, b in itertools.pairwise(ends))
    held = [(call.lock < ends[-1], call.mutex_held) for call in schedule.by_lock]
    stalled, after = ([h for during, h in held if during is when] for when in (True, False))
    assert max(stalled) > 1.5 * max(after)


def test_a_failed_job_is_skipped_and_a_new_attempt_is_not() -> None:
    schedule = played("errors").runs[0].schedule
    outcomes: dict[tuple[str, int], list[str]] = defaultdict(list)
    for call in schedule.calls:
        outcomes[call.work.job, call.work.attempt].append(call.outcome)
    broken = {key for key, own in outcomes.items() if {"ntt", "batch_add", "tail", "finalize"} & set(own)}
    assert len(broken) == 4
    assert any("skipped" in own for own in outcomes.values())
    assert all(set(outcomes[job, 1]) == {"ok"} for job, _ in broken)


def test_a_thousand_calls_all_end() -> None:
    limits = Limits(copy_slowdown=0.05, prep_slowdown=0.05)
    schedule = simulate(works(1000, CallWork("", 0, synth=20.0)), limits)
    assert [call.outcome for call in schedule.calls] == ["ok"] * 1000
