"""Scenarios in which one cause costs the GPU most, on an otherwise healthy run; each is named for its cause."""

from dataclasses import replace

from gputrace.simulate.disturbance import SW_POWER_CAP, Disturbance, Link, OtherProcess, Shortage, SlowSink, Throttle
from gputrace.simulate.recipe import MEDIUM, Scenario
from gputrace.simulate.schedule import Limits
from gputrace.simulate.text import LogOptions

# Pinned a/b/c, a C++ pool and syntheses that keep up, host memory to spare.
HEALTHY_CIRCUIT = replace(MEDIUM, synth=5.0, prep_msm=0.12, b_g2_msm=0.15)
HEALTHY_LIMITS = Limits(parallel_syntheses=10, in_flight=18, pool_threads=12.0, warmup_alloc=0.02)
HEALTHY = Scenario(
    "healthy",
    "pinned copies, a chain of calls without pauses: what is lost is lost inside kernels",
    circuits=(HEALTHY_CIRCUIT,),
    pinned="yes",
    limits=HEALTHY_LIMITS,
    options=LogOptions(memory_lines=True),
)
# Jobs whose syntheses take 1 to 12 s by turns, so that few or many of them run at once.
UNEVEN_CIRCUITS = tuple(replace(MEDIUM, synth=synth, prep_msm=0.12, b_g2_msm=0.15) for synth in (1.2, 12.0))


def _planted(name: str, what: str, **changes: object) -> Scenario:
    return replace(HEALTHY, name=name, what=what, **changes)  # type: ignore[arg-type]


PLANTED = (
    HEALTHY,
    _planted(
        "throttled",
        "the board's power cap holds the SM clock down for most of the run",
        disturbance=Disturbance(
            throttles=(Throttle(8.0, 18.0, 0.62, SW_POWER_CAP), Throttle(18.0, 40.0, 0.55, SW_POWER_CAP))
        ),
    ),
    _planted(
        "link-degraded",
        "the link came up as Gen4 x4",
        disturbance=Disturbance(link=Link(gen=4, width=4)),
    ),
    _planted(
        "link-replays",
        "the link looks right, but packets are sent again and again",
        disturbance=Disturbance(link=Link(passing=0.3, replays_per_s=900.0)),
    ),
    _planted(
        "other-process",
        "another process computes on the same GPU, for long stretches",
        disturbance=Disturbance(
            others=(OtherProcess(7.0, 19.0, 0.8), OtherProcess(23.0, 60.0, 0.6)), lists_processes=True
        ),
    ),
    _planted(
        "slow-log-sink",
        "who reads the log is slow: every line under the mutex blocks its thread",
        disturbance=Disturbance(sink=SlowSink(0.015, 0.06)),
    ),
    _planted(
        "memory-budget",
        "memory is short: the SRS is evicted, syntheses wait although jobs do",
        queue_jobs=True,
        disturbance=Disturbance(
            shortages=tuple(Shortage(start, start + 16.0, reload=6.5) for start in (9.0, 33.0, 57.0))
        ),
    ),
    _planted(
        "host-hot-path",
        "before each call the worker waits for the job tracker, which a finalizer holds while it trims the heap",
        circuits=(replace(HEALTHY_CIRCUIT, process=0.6, hot_path=0.003),),
        limits=replace(HEALTHY_LIMITS, workers_per_gpu=1, tracked_hot_path=True),
    ),
    _planted(
        "host-memory-contention",
        "pageable copies and the C++ pool slow down with every synthesis that runs; few and many run by turns",
        pinned="no",
        circuits=UNEVEN_CIRCUITS,
        limits=replace(HEALTHY_LIMITS, copy_slowdown=0.3, prep_slowdown=0.25, in_flight=16),
    ),
    _planted(
        "mutex-contention",
        "an early build: one mutex for the process, held over the CPU's work too, and two GPUs that wait for it",
        variant="V4",
        circuits=(replace(HEALTHY_CIRCUIT, prep_msm=0.4, b_g2_msm=0.5),),
        limits=replace(HEALTHY_LIMITS, gpus=2),
    ),
    _planted("launch-overhead", "the driver takes most of a second to launch what pinned copies need", launch=0.7),
    _planted(
        "device-allocation",
        "no memory pool: every call allocates and frees its buffers anew",
        circuits=(replace(HEALTHY_CIRCUIT, d_b_alloc=0.5),),
    ),
    _planted(
        "domain-switch",
        "circuits of two sizes take turns, and d_a is allocated anew for each",
        circuits=(HEALTHY_CIRCUIT, replace(HEALTHY_CIRCUIT, domain_log2=24, constraints=16_273_899, msm_invoke=0.16)),
        per_job=1,
        limits=replace(HEALTHY_LIMITS, allocate_d_a=0.5),
    ),
)
