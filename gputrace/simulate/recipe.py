"""What a run is made of: circuits, a scenario's fields, and the partitions that come of them."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from gputrace.simulate.activity import Rates
from gputrace.simulate.disturbance import Disturbance
from gputrace.simulate.schedule import CallWork, Limits
from gputrace.simulate.speed import abc_bytes
from gputrace.simulate.text import LogOptions
from gputrace.simulate.trace import TraceOptions

# Medians of a 2^25 circuit on an H200, pageable a/b/c, and of a small and a large circuit beside it.
MEDIUM = CallWork(
    "", 0, domain_log2=25, constraints=32_547_799, synth=9.0, split_vectors=0.0004, setup=0.0006, pre_lock=0.0009,
    d_b_alloc=0.003, ntt_kernels=0.45, coset_intt_sync=0.0335, msm_init=0.0004, msm_invoke=0.311, msm_dtor=0.0002,
    batch_add=0.04, tail_msm=0.18, after_gpu=0.001, prep_msm=0.25, b_g2_msm=0.3, release_abc=0.35, process=0.004,
)  # fmt: skip
SMALL = replace(
    MEDIUM, domain_log2=19, constraints=508_559, synth=0.4, ntt_kernels=0.012, coset_intt_sync=0.002,
    msm_invoke=0.025, batch_add=0.004, tail_msm=0.02, prep_msm=0.01, b_g2_msm=0.012, release_abc=0.004,
    process=0.001, dealloc=0.003,
)  # fmt: skip
SNAP = replace(
    MEDIUM, kind="snap-update", domain_log2=26, constraints=81_049_499 // 2, synth=12.0, ntt_kernels=0.56,
    msm_invoke=0.6, batch_add=0.07,
)  # fmt: skip
_FIXED = ("arrives", "enqueued", "setup", "pre_lock", "pinned_copy")
_TIMES = tuple(f.name for f in fields(CallWork) if f.type is float and f.name not in _FIXED)


@dataclass(frozen=True)
class Scenario:
    """One or more runs of a prover. Everything in it can be given in TOML, `limits` and `options` as tables.

    `circuits` take turns by job. `pinned`: no, yes, or pool (the first syntheses are not, the next allocate buffers).
    `launch`: what ntt_kernels takes when a/b/c are pinned. `queue_jobs`: all jobs are submitted when the run begins.
    `failing` maps partitions, counted over the run, to where they fail (see `CallWork`); their jobs are tried again at
    the end if `retry`. One call in `1 / stutter` finds the thread pool busy and is entered late. All runs but the last
    are killed `stop_s` after their start.
    """

    name: str
    what: str
    variant: str = "M"
    circuits: tuple[CallWork, ...] = (MEDIUM,)
    partitions: int = 40
    per_job: int = 10
    spread: float = 0.06
    stutter: float = 0.0
    pinned: str = "no"
    launch: float = 0.0003
    queue_jobs: bool = False
    new_buffer_partitions: int = 8
    job_ids: tuple[str, ...] = ("porep-1000-{n}",)
    failing: Mapping[int, str] = field(default_factory=dict)
    retry: bool = False
    runs: int = 1
    stop_s: float = 40.0
    restart_gap_s: float = 6.0
    tear_share: float = 0.0
    epoch_ns: int = 1_773_425_462_104_311_000
    limits: Limits = field(
        default_factory=lambda: Limits(
            parallel_syntheses=9, in_flight=15, copy_slowdown=0.08, prep_slowdown=0.05, warmup_alloc=0.02
        )
    )
    options: LogOptions = field(default_factory=LogOptions)
    rates: Rates = field(default_factory=Rates)
    trace: TraceOptions = field(default_factory=TraceOptions)
    disturbance: Disturbance = field(default_factory=Disturbance)


def works_of(scenario: Scenario, run: int, seed: int) -> list[CallWork]:
    """The partitions of one run, with service times spread around their circuit's."""
    rng = random.Random(f"works {scenario.name} {run} {seed}")
    works = [_work(scenario, run, number, rng) for number in range(scenario.partitions)]
    if scenario.retry:
        broken = {works[number].job for number in scenario.failing if number < len(works)}
        works += [replace(work, attempt=1, fails=None, new_buffers=0) for work in works if work.job in broken]
    return works


def _work(scenario: Scenario, run: int, number: int, rng: random.Random) -> CallWork:
    job = number // scenario.per_job
    base = scenario.circuits[job % len(scenario.circuits)]
    template = scenario.job_ids[job % len(scenario.job_ids)]
    spread = {name: getattr(base, name) * rng.uniform(1 - scenario.spread, 1 + scenario.spread) for name in _TIMES}
    spread["split_vectors"] = min(spread["split_vectors"], base.setup)
    if rng.random() < scenario.stutter:
        spread["hot_path"] += rng.random() * 0.003
        spread["spawn"] += rng.random() * 0.3
    first = scenario.limits.parallel_syntheses
    pinned = scenario.pinned == "yes" or (scenario.pinned == "pool" and number >= first)
    new = pinned and scenario.pinned == "pool" and number < first + scenario.new_buffer_partitions
    work = replace(
        base,
        **spread,
        job=template.format(n=42 + job + 1000 * run),
        partition=None if base.partition is None else number % scenario.per_job,
        pinned=pinned,
        new_buffers=3 if new else 0,
        fails=scenario.failing.get(number),
        enqueued=0.0005 if scenario.queue_jobs else math.nan,
    )
    if not pinned:
        return work
    # From pinned memory the copy is only launched in ntt_kernels; DMA and NTT end in coset_intt_sync.
    copied = abc_bytes(work) / scenario.rates.line_rate
    launch = scenario.launch
    return replace(
        work,
        ntt_kernels=launch if launch < 0.01 else launch * rng.uniform(1 - scenario.spread, 1 + scenario.spread),
        pinned_copy=copied,
        coset_intt_sync=work.coset_intt_sync + copied,
        release_abc=0.0006 + rng.random() * 0.001,
    )
