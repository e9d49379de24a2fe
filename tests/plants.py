"""Runs drawn at random that lose nothing, and what plants a cause in them, with random magnitudes."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

from gputrace.simulate.disturbance import Disturbance, Link, OtherProcess, Shortage, SlowSink, Throttle
from gputrace.simulate.planted import HEALTHY
from gputrace.simulate.recipe import MEDIUM, Scenario
from gputrace.simulate.schedule import CallWork, Limits
from gputrace.simulate.text import LogOptions

Draw = random.Random
Change = Callable[[Scenario, Draw], Scenario]


def _circuit(draw: Draw) -> CallWork:
    """A circuit of 2^24 to 2^26 that copies from pinned memory and whose CPU part keeps up."""
    log2 = draw.choice((24, 25, 25, 25, 26))
    size = 2.0 ** (log2 - 25)
    tail = MEDIUM.tail_msm * (0.5 + 0.5 * size)
    return replace(
        MEDIUM,
        domain_log2=log2,
        constraints=int(MEDIUM.constraints * size),
        d_b_alloc=draw.uniform(0.0003, 0.002),
        ntt_kernels=MEDIUM.ntt_kernels * size,
        coset_intt_sync=MEDIUM.coset_intt_sync * size,
        msm_invoke=MEDIUM.msm_invoke * size * draw.uniform(0.95, 1.1),
        batch_add=MEDIUM.batch_add * size,
        tail_msm=tail,
        prep_msm=0.1 * size * draw.uniform(0.7, 1.2),
        b_g2_msm=0.13 * size * draw.uniform(0.7, 1.2),
        release_abc=MEDIUM.release_abc * size,
        synth=draw.uniform(3.0, 6.0) * max(0.6, size),
    )


def _kernels_s(circuit: CallWork) -> float:
    """About how long an undisturbed pinned call holds the mutex."""
    return circuit.coset_intt_sync + circuit.msm_invoke + circuit.batch_add + circuit.tail_msm + 0.07


def _hold_s(scenario: Scenario) -> float:
    """The same with what has been planted in every call so far."""
    circuit = scenario.circuits[0]
    copy = circuit.ntt_kernels if scenario.pinned == "no" else scenario.launch
    return _kernels_s(circuit) + copy + circuit.d_b_alloc


def _harmless(draw: Draw) -> Disturbance:
    """What looks like trouble and costs nothing: a link that rests when idle, a few replays, an eviction in passing."""
    evicted_s = draw.uniform(2.0, 9.0)
    passing = Shortage(evicted_s, evicted_s, entry="pce:snap-32g", freed_gib=draw.uniform(1.0, 4.0))
    return Disturbance(
        lists_processes=draw.random() < 0.3,
        link=Link(idle_gen=draw.choice((0, 0, 0, 0, 0, 1)), replays_per_s=draw.choice((0.0, 0.0, 0.0, 0.05))),
        shortages=(passing,) if draw.random() < 0.12 else (),
    )


def healthy(draw: Draw) -> Scenario:
    """A run that loses nothing to any cause: enough syntheses, pinned copies, a C++ pool with room."""
    circuit = _circuit(draw)
    gpus = draw.choice((1,) * 12 + (2,))
    syntheses = gpus * max(6, round(1.6 * circuit.synth / _kernels_s(circuit)))
    return replace(
        HEALTHY,
        circuits=(circuit,),
        partitions=draw.randrange(22, 31) * (1 + gpus) // 2,
        per_job=draw.choice((5, 10, 10)),
        spread=draw.uniform(0.02, 0.1),
        stutter=draw.choice((0.0, 0.0, 0.03)),
        limits=Limits(
            gpus=gpus,
            workers_per_gpu=draw.choice((2, 2, 2, 3)),
            parallel_syntheses=syntheses,
            in_flight=syntheses + 8 * gpus,
            pool_threads=12.0 * gpus,
            fifo_mutex=draw.random() < 0.8,
            warmup_alloc=0.02,
        ),
        options=LogOptions(ansi=draw.random() < 0.5, memory_lines=True, srs_load_s=draw.uniform(2.0, 9.0)),
        disturbance=_harmless(draw),
    )


def _circuits(scenario: Scenario, **changes: float) -> Scenario:
    return replace(scenario, circuits=tuple(replace(one, **changes) for one in scenario.circuits))  # type: ignore[arg-type]


def _limits(scenario: Scenario, **changes: object) -> Scenario:
    return replace(scenario, limits=replace(scenario.limits, **changes))  # type: ignore[arg-type]


def _disturb(scenario: Scenario, **changes: object) -> Scenario:
    return replace(scenario, disturbance=replace(scenario.disturbance, **changes))  # type: ignore[arg-type]


def _size(scenario: Scenario) -> float:
    return 2.0 ** (scenario.circuits[0].domain_log2 - 25)


def _stretches(draw: Draw, on: tuple[float, float], off: tuple[float, float]) -> list[tuple[float, float]]:
    """Stretches by turns over five minutes, longer than any run of the set."""
    at, found = draw.uniform(0.0, off[1]), []
    while at < 300.0:
        length = draw.uniform(*on)
        found.append((at, at + length))
        at += length + draw.uniform(*off)
    return found


def pageable(scenario: Scenario, draw: Draw) -> Scenario:
    """Copies from pageable memory, at a rate that the load does not change."""
    changed = _circuits(scenario, ntt_kernels=draw.uniform(0.35, 1.3) * _size(scenario))
    return replace(changed, pinned="no")


def alloc_stall(scenario: Scenario, draw: Draw) -> Scenario:
    """The pool grows while the GPU works; meanwhile next to nothing moves, as in the real capture pinned-heavy."""
    syntheses = draw.randrange(4, 8)
    changed = _limits(
        scenario,
        allocate=draw.uniform(0.3, 0.7),
        allocation_rate=draw.uniform(0.01, 0.08),
        parallel_syntheses=max(syntheses, scenario.limits.parallel_syntheses - 4),
    )
    return replace(changed, pinned="pool", new_buffer_partitions=draw.randrange(6, 12))


def contention(scenario: Scenario, draw: Draw) -> Scenario:
    """Every synthesis that runs slows copies and the pool; few and many run by turns."""
    size = _size(scenario)
    light, heavy = draw.uniform(0.8, 1.5) * size, draw.uniform(9.0, 14.0) * size
    circuit = replace(scenario.circuits[0], ntt_kernels=draw.uniform(0.3, 0.5) * size)
    changed = _limits(
        scenario,
        copy_slowdown=draw.uniform(0.12, 0.35),
        prep_slowdown=draw.uniform(0.1, 0.3),
        parallel_syntheses=draw.randrange(8, 13),
        in_flight=draw.randrange(14, 19),
    )
    circuits = (replace(circuit, synth=light), replace(circuit, synth=heavy))
    return replace(changed, pinned="no", circuits=circuits, per_job=draw.choice((4, 5, 6)))


def barrier(scenario: Scenario, draw: Draw) -> Scenario:
    """The C++ pool has more to do than it can."""
    hold = _hold_s(scenario)
    changed = _circuits(scenario, prep_msm=draw.uniform(0.7, 1.4) * hold, b_g2_msm=draw.uniform(0.5, 0.9) * hold)
    return _limits(changed, pool_threads=6.0)


def starved(scenario: Scenario, draw: Draw) -> Scenario:
    """Too few syntheses at once."""
    syntheses = draw.randrange(2, 5)
    hold = _hold_s(scenario)
    changed = _circuits(scenario, synth=syntheses * hold * draw.uniform(1.3, 2.5))
    changed = _limits(changed, parallel_syntheses=syntheses, in_flight=syntheses + 6)
    return replace(changed, queue_jobs=draw.random() < 0.3)


def release(scenario: Scenario, draw: Draw) -> Scenario:
    """One worker, which frees pageable a/b/c before it takes the next partition."""
    changed = _circuits(scenario, ntt_kernels=0.18 * _size(scenario), release_abc=draw.uniform(0.4, 1.9))
    return replace(_limits(changed, workers_per_gpu=1), pinned="no")


def one_mutex(scenario: Scenario, draw: Draw) -> Scenario:
    """An early build: one mutex for the process, over the CPU's work too; some with two GPUs."""
    size, gpus = _size(scenario), draw.choice((1, 1, 2))
    changed = _circuits(
        scenario,
        ntt_kernels=0.2 * size,
        prep_msm=draw.uniform(0.2, 0.4) * size,
        b_g2_msm=draw.uniform(0.9, 1.6) * size,
    )
    changed = _limits(changed, gpus=gpus, workers_per_gpu=2)
    return replace(changed, variant="V4", pinned="no")


def slow_launches(scenario: Scenario, draw: Draw) -> Scenario:
    """Launches take long; nothing is copied meanwhile."""
    return replace(scenario, pinned="yes", launch=draw.uniform(0.2, 1.5))


def allocations(scenario: Scenario, draw: Draw) -> Scenario:
    """Device memory is allocated in every call, or anew for every other size."""
    if draw.random() < 0.6:
        return _circuits(scenario, d_b_alloc=draw.uniform(0.2, 0.8))
    own = scenario.circuits[0]
    small = replace(
        own, domain_log2=own.domain_log2 - 1, constraints=own.constraints // 2, msm_invoke=own.msm_invoke * 0.55
    )
    changed = _limits(scenario, allocate_d_a=draw.uniform(0.3, 0.8))
    return replace(changed, circuits=(own, small), per_job=1)


def hot_path(scenario: Scenario, draw: Draw) -> Scenario:
    """The engine is slow before a call: its status, its thread pool, or the job tracker that finalizers hold."""
    long = draw.uniform(0.3, 1.4)
    changed = _limits(scenario, workers_per_gpu=1)
    how = draw.choice(("status", "spawn", "tracker"))
    if how == "tracker":
        # The status takes just long enough for the finalizer to get the tracker first.
        return _limits(_circuits(changed, process=long, hot_path=0.003), tracked_hot_path=True)
    return _circuits(changed, **{"hot_path" if how == "status" else "spawn": long})


def short_memory(scenario: Scenario, draw: Draw) -> Scenario:
    """Two or three stretches without memory for a synthesis; an SRS has to go and is loaded again."""
    hold = _hold_s(scenario)
    syntheses = scenario.limits.parallel_syntheses
    changed = _limits(scenario, in_flight=syntheses + 3)
    drains_s = (syntheses + 3) * hold + changed.circuits[0].synth
    drains_s /= scenario.limits.gpus
    at, shortages = changed.circuits[0].synth + draw.uniform(1.0, 4.0), []
    for _ in range(draw.choice((2, 2, 3))):
        length = drains_s * draw.uniform(1.1, 1.6) + 3.0
        entry = draw.choice(("srs:porep-32g", "srs:porep-32g", "pce:snap-32g"))
        reload = draw.uniform(3.0, 9.0) if entry.startswith("srs") else 0.0
        shortages.append(Shortage(at, at + length, min(reload, length - 1.0), entry, draw.uniform(20.0, 45.0)))
        at += length + draw.uniform(4.0, 7.0)
    changed = replace(changed, partitions=changed.partitions + 8, queue_jobs=True)
    return _disturb(changed, shortages=tuple(shortages))


def throttled(scenario: Scenario, draw: Draw) -> Scenario:
    """Clocks held down for most or for part of the run."""
    reasons = draw.choice((0x4, 0x4, 0x20, 0x8, 0x40, 0x24))
    off = (0.0, 1.0) if draw.random() < 0.5 else (3.0, 12.0)
    found = [
        Throttle(start, end, draw.uniform(0.5, 0.75), reasons) for start, end in _stretches(draw, (8.0, 40.0), off)
    ]
    return _disturb(scenario, throttles=tuple(found))


def narrow_link(scenario: Scenario, draw: Draw) -> Scenario:
    """A narrower or older link, from the start or after a fault, or one that sends packets again."""
    since = draw.choice((-math.inf, -math.inf, scenario.circuits[0].synth + 4.0))
    if draw.random() < 0.3:
        replayed = draw.uniform(0.3, 0.55)
        link = replace(scenario.disturbance.link, passing=replayed, replays_per_s=draw.uniform(50, 2000), since=since)
    else:
        gen, width = draw.choice(((5, 8), (5, 4), (4, 16), (4, 8), (3, 16), (3, 8), (1, 16)))
        link = replace(scenario.disturbance.link, gen=gen, width=width, since=since)
    return _disturb(scenario, link=link)


def other_process(scenario: Scenario, draw: Draw) -> Scenario:
    """Another process's kernels in stretches; half the recorders list it."""
    off = (0.0, 2.0) if draw.random() < 0.4 else (3.0, 9.0)
    found = [OtherProcess(start, end, draw.uniform(0.3, 0.9)) for start, end in _stretches(draw, (5.0, 25.0), off)]
    return _disturb(scenario, others=tuple(found), lists_processes=draw.random() < 0.5)


def slow_sink(scenario: Scenario, draw: Draw) -> Scenario:
    """Lines under the mutex block their thread, always or in bursts."""
    windows = ((0.0, 1e9),) if draw.random() < 0.6 else tuple(_stretches(draw, (4.0, 15.0), (2.0, 6.0)))
    low = draw.uniform(0.02, 0.06)
    return _disturb(scenario, sink=SlowSink(low, low + draw.uniform(0.01, 0.06), draw.uniform(0.5, 1.0), windows))


PLANTS: dict[str, Change] = {
    "pageable-h2d": pageable,
    "pinned-alloc-stall": alloc_stall,
    "host-memory-contention": contention,
    "mutex-contention": one_mutex,
    "prep-barrier": barrier,
    "no-work-queued": starved,
    "host-hot-path": hot_path,
    "memory-budget": short_memory,
    "launch-overhead": slow_launches,
    "device-allocation": allocations,
    "link-degraded": narrow_link,
    "throttled": throttled,
    "other-process": other_process,
    "release-abc": release,
    "slow-log-sink": slow_sink,
}
