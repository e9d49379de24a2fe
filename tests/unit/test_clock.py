"""The epoch of TIMELINE offsets comes out within its stated uncertainty; drift is found where there is any."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace.rebuild.clock import Epoch, clock_of, epoch_bounds, fit_epochs
from gputrace.rebuild.sequence import Sequence
from gputrace.trace import Clock
from tests.unit.prover import EPOCH_NS, MS, stamp
from tests.unit.support import sequence_of


def timed_pair(
    number: int, at_ms: float, fast_ppm: float, rng: random.Random, held_up_ms: float = 0.0
) -> list[tuple[float, str]]:
    """SYNTH_END, its tracing line and GPU_QUEUE with their true times; `fast_ppm`: TIMELINE counts too fast.

    The tracing line comes within half a millisecond, or `held_up_ms` later; it carries the true time.
    """
    spoken_ms = at_ms + rng.uniform(0.02, 0.4) + held_up_ms
    queued_ms = spoken_ms + rng.uniform(0.01, 0.1)

    def offset(true_ms: float) -> int:
        return int(true_ms * (1.0 + fast_ppm * 1e-6))

    said = "partition synthesis complete, pushing to GPU queue"
    return [
        (at_ms, f"TIMELINE,{offset(at_ms)},SYNTH_END,j,partition={number},synth_ms=1"),
        (spoken_ms, f"{stamp(spoken_ms)}  INFO cuzk_core::engine: {said} job_id=j partition={number} synth_ms=1"),
        (queued_ms, f"TIMELINE,{offset(queued_ms)},GPU_QUEUE,j,partition={number}"),
    ]


def pair(number: int, at_ms: float, rng: random.Random) -> list[str]:
    """The three lines alone."""
    return [text for _, text in timed_pair(number, at_ms, 0.0, rng)]


def run(
    count: int, hours: float, fast_ppm: float = 0.0, seed: int = 1, held_up: dict[int, float] | None = None
) -> Sequence:
    """A log with this many pairs over this long."""
    rng = random.Random(seed)
    times = sorted(rng.uniform(0, hours * 3.6e6) for _ in range(count))
    lines: list[tuple[float, str]] = []
    for number, at_ms in enumerate(times):
        lines += timed_pair(number, at_ms, fast_ppm, rng, (held_up or {}).get(number, 0.0))
    return sequence_of(*(text for _, text in sorted(lines)))


def error_ms(epoch: Epoch) -> float:
    return (epoch.epoch_ns - EPOCH_NS) / 1e6


@given(count=st.integers(1, 120), seed=st.integers(0, 10_000))
@settings(max_examples=25)
def test_the_epoch_is_exact_within_its_stated_uncertainty(count: int, seed: int) -> None:
    epoch = fit_epochs(run(count, 1.0, seed=seed))[0]
    # One pair bounds the epoch to a millisecond or so; many narrow it down.
    assert epoch.uncertainty_ms <= 1.5
    assert abs(error_ms(epoch)) <= max(epoch.uncertainty_ms, 0.55)
    if count >= 50:
        assert abs(error_ms(epoch)) <= 0.4


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fast_ppm", [20.0, -20.0, 200.0])
def test_a_drift_over_an_hour_is_found(fast_ppm: float, seed: int) -> None:
    epoch = fit_epochs(run(300, 1.0, fast_ppm, seed))[0]
    # 20 ppm are 72 ms over the hour; found to within a tenth of that.
    assert epoch.drift * 1e6 == pytest.approx(-fast_ppm, abs=2.0)
    for true_ms in (0.0, 1.8e6, 3.6e6):
        offset_ms = true_ms * (1.0 + fast_ppm * 1e-6)
        assert abs(epoch.to_ns(offset_ms) - EPOCH_NS - true_ms * MS) / MS < 1.5


def test_the_reported_drift_has_the_sign_it_says() -> None:
    clock = clock_of(fit_epochs(run(300, 1.0, fast_ppm=20.0)))
    assert clock.drift_ppm == pytest.approx(20.0, abs=2.0)


@pytest.mark.parametrize("seed", range(12))
def test_no_drift_is_reported_where_there_is_none(seed: int) -> None:
    epoch = fit_epochs(run(300, 1.0, 0.0, seed))[0]
    # By chance a 95 % interval may miss 0; what it then claims must be next to nothing.
    assert abs(epoch.drift) * 1e6 < 0.1


@pytest.mark.parametrize(("count", "hours"), [(10, 1.0), (300, 0.01)])
def test_drift_is_not_looked_for_in_too_little(count: int, hours: float) -> None:
    assert fit_epochs(run(count, hours, fast_ppm=200.0))[0].drift == 0.0


@pytest.mark.parametrize("late_ms", [5.0, 500.0, 60_000.0])
@pytest.mark.parametrize("where", [0, 7, 39])
def test_a_thread_held_up_between_its_prints_does_no_harm(late_ms: float, where: int) -> None:
    epoch = fit_epochs(run(40, 0.5, held_up={where: late_ms}))[0]
    assert abs(error_ms(epoch)) < 0.55
    assert epoch.uncertainty_ms < 1.0
    assert abs(epoch.drift) * 1e6 < 1.0


def test_a_fifth_of_the_pairs_held_up_does_no_harm() -> None:
    epoch = fit_epochs(run(100, 1.0, held_up={n: 50.0 + n for n in range(0, 100, 5)}))[0]
    assert abs(error_ms(epoch)) < 0.55


@pytest.mark.parametrize("off_ms", [40.0, -40.0, 3000.0])
def test_a_pair_that_is_narrow_and_wrong_does_no_harm(off_ms: float) -> None:
    # As a line of another capture that slipped in: its tracing time is off, its offsets are close together.
    rng = random.Random(5)
    lines: list[str] = []
    for number in range(60):
        own = pair(number, 1000.0 + number * 30_000.0, rng)
        if number == 30:
            own[1] = own[1].replace(own[1].split()[0], stamp(1000.0 + number * 30_000.0 + off_ms))
        lines += own
    epoch = fit_epochs(sequence_of(*lines))[0]
    assert abs(error_ms(epoch)) < 0.55
    assert abs(epoch.drift) * 1e6 < 1.0


def test_pickup_pairs_count_too() -> None:
    lines = [
        "TIMELINE,500,GPU_PICKUP,j,worker=1,partition=3",
        f"{stamp(500.9)}  INFO gpu_worker{{worker_id=1 gpu=0 job_id=j proof_kind=snap-update batch_size=1 "
        "partition=Some(3)}: cuzk_core::engine: GPU_TIMING hot_path pre-prove overhead worker_id=1 partition=Some(3) "
        "status_ms=0 fail_check_ms=0 mark_busy_ms=0 total_overhead_ms=0",
        "TIMELINE,501,GPU_START,j,worker=1,partition=3",
    ]
    sequence = sequence_of(*lines)
    assert epoch_bounds(sequence).height == 1
    assert abs(error_ms(fit_epochs(sequence)[0])) <= fit_epochs(sequence)[0].uncertainty_ms


def test_a_partition_proved_again_pairs_with_its_own_lines() -> None:
    rng = random.Random(1)
    lines = [line for at in (1000.0, 50_000.0, 99_000.0) for line in pair(7, at, rng)]
    bounds = epoch_bounds(sequence_of(*lines))
    assert bounds.height == 3
    assert ((bounds["low_ns"] <= EPOCH_NS) & (bounds["high_ns"] >= EPOCH_NS)).all()


def test_without_pairs_the_engines_start_is_the_epoch() -> None:
    sequence = sequence_of(
        f"{stamp(0.0)}  INFO cuzk_core::engine: starting cuzk engine pipeline_enabled=true",
        "TIMELINE,500,GPU_PICKUP,j,worker=1,partition=3",
        "TIMELINE,501,GPU_START,j,worker=1,partition=3",
    )
    epoch = fit_epochs(sequence)[0]
    assert epoch.epoch_ns == EPOCH_NS
    assert epoch.uncertainty_ms == 1.0
    assert epoch.to_ns(501) == pytest.approx(EPOCH_NS + 501 * MS, abs=300)


def test_pairs_are_better_than_the_engines_start() -> None:
    rng = random.Random(1)
    late = f"{stamp(30.0)}  INFO cuzk_core::engine: starting cuzk engine pipeline_enabled=true"
    lines = [late] + [line for n in range(30) for line in pair(n, 1000.0 + n * 100.0, rng)]
    assert abs(error_ms(fit_epochs(sequence_of(*lines))[0])) < 0.55


def test_each_run_has_an_epoch_of_its_own() -> None:
    rng = random.Random(1)
    first = [line for n in range(5) for line in pair(n, 10_000.0 + n * 100.0, rng)]
    again_ms = 600_000.0
    second = [f"{stamp(again_ms)}  INFO cuzk_core::engine: starting cuzk engine pipeline_enabled=true"]
    second += ["TIMELINE,70,SYNTH_START,j,partition=9"]
    epochs = fit_epochs(sequence_of(*first, *second))
    assert sorted(epochs) == [0, 1]
    assert abs(error_ms(epochs[0])) < 0.6
    assert error_ms(epochs[1]) == pytest.approx(again_ms)


def test_a_log_of_one_stream_has_no_epoch() -> None:
    assert fit_epochs(sequence_of("TIMELINE,500,GPU_PICKUP,j,worker=1,partition=3")) == {}
    assert clock_of({}) == Clock(method="none", unique=False)


def test_the_clock_states_the_first_run() -> None:
    clock = clock_of({1: Epoch(2e18, 1.0), 0: Epoch(1e18, 0.5, 3e-6)})
    assert (clock.method, clock.unique) == ("timeline+tracing", True)
    assert clock.offset_s == pytest.approx(1e9)
    assert clock.uncertainty_s == pytest.approx(0.0005)
    assert clock.drift_ppm is not None and np.isclose(abs(clock.drift_ppm), 3.0)
