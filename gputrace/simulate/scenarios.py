"""Runs worth having: what they are made of, presets by name, scenarios from TOML and from a seed."""

import random
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gputrace.errors import InputError, UsageError
from gputrace.nearest import did_you_mean
from gputrace.simulate.disturbance import disturbance_from
from gputrace.simulate.planted import PLANTED
from gputrace.simulate.recipe import MEDIUM, SMALL, SNAP, Scenario, works_of
from gputrace.simulate.schedule import Limits
from gputrace.simulate.text import LogOptions
from gputrace.simulate.variants import VARIANTS

__all__ = ["PRESETS", "Scenario", "find_scenario", "random_scenario", "scenario_from", "works_of"]

_ODD_IDS = (
    "wdpost-1000-2-[12 34 56 78 90 12 34 56]",
    "ps-porep-1000-{n}-88101",
    "a client's, own id {n}",
    "7135110d-7ce1-43a9-89b3-85a7a590{n:04d}",
)
_HEAVY = Limits(parallel_syntheses=9, in_flight=15, copy_slowdown=0.08, prep_slowdown=0.05, warmup_alloc=0.02)
_WIDE = replace(_HEAVY, copy_slowdown=0.02, prep_slowdown=0.01, pool_threads=48.0)
_BATCH = replace(MEDIUM, partition=None, num_circuits=3, synth=20.0)
_WINDOW = replace(MEDIUM, kind="window-post", synth=6.0)

PRESETS = {
    scenario.name: scenario
    for scenario in (
        Scenario("pageable", "a/b/c are copied from pageable memory while nine syntheses load the host"),
        Scenario(
            "pinned",
            "a/b/c are copied from pinned memory; the C++ pool and the syntheses keep up",
            circuits=(replace(MEDIUM, synth=6.0, prep_msm=0.12, b_g2_msm=0.15),),
            pinned="yes",
        ),
        Scenario(
            "alloc-storm",
            "the pinned pool grows while the GPU works: cudaHostAlloc stalls the driver",
            pinned="pool",
            limits=replace(_HEAVY, allocate=0.6, allocation_rate=0.05),
        ),
        Scenario("starved", "three syntheses cannot feed the GPU", limits=replace(_HEAVY, parallel_syntheses=3)),
        Scenario(
            "one-worker", "one GPU worker: nothing waits for the mutex", limits=replace(_HEAVY, workers_per_gpu=1)
        ),
        Scenario(
            "two-gpus",
            "two GPUs with two workers each; all print gpu_tid=0",
            partitions=60,
            limits=replace(_WIDE, gpus=2, parallel_syntheses=20, in_flight=30),
        ),
        Scenario(
            "eight-gpus",
            "eight GPUs with two workers each; all print gpu_tid=0",
            partitions=200,
            limits=replace(_WIDE, gpus=8, parallel_syntheses=80, in_flight=112),
        ),
        Scenario(
            "barrier",
            "pinned copies, but prep_msm and b_g2_msm take the C++ pool's time: the GPU waits at the barrier",
            circuits=(replace(MEDIUM, prep_msm=0.5, b_g2_msm=0.5),),
            pinned="yes",
        ),
        Scenario(
            "mixed-kinds",
            "PoRep, SnapDeals, WindowPoSt and whole proofs of three circuits take turns",
            circuits=(MEDIUM, SNAP, _WINDOW, _BATCH),
            per_job=4,
            job_ids=("porep-1000-{n}", "snap-1000-{n}", _ODD_IDS[0], "porep-batch-1000-{n}"),
        ),
        Scenario("restarts", "the prover is killed twice; offsets begin anew", runs=3, partitions=30),
        Scenario(
            "errors",
            "calls fail in the NTT, in batch_add, when they are finalised; their jobs are tried again",
            per_job=5,
            failing={6: "ntt", 14: "batch_add", 23: "finalize", 31: "tail"},
            retry=True,
            job_ids=_ODD_IDS[1:],
        ),
        Scenario(
            "small",
            "tiny partitions at high rate on one descriptor: TIMELINE records are torn",
            circuits=(SMALL,),
            partitions=120,
            tear_share=0.05,
            limits=replace(_HEAVY, parallel_syntheses=8, in_flight=24, copy_slowdown=0.03),
        ),
        *PLANTED,
    )
}


# Causes that an older preset plants under another name.
_BY_CAUSE = {
    "pageable-h2d": "pageable",
    "pinned-alloc-stall": "alloc-storm",
    "prep-barrier": "barrier",
    "no-work-queued": "starved",
    "release-abc": "one-worker",
}


def random_scenario(seed: int, gpus: int = 1, variant: str = "M") -> Scenario:
    """A scenario drawn from a seed, for property tests: sizes, limits, load, memory, spread."""
    rng = random.Random(f"scenario {seed}")
    base = rng.choice((MEDIUM, MEDIUM, SNAP, SMALL))
    scale = {
        name: getattr(base, name) * rng.uniform(0.5, 1.8) for name in ("synth", "prep_msm", "b_g2_msm", "release_abc")
    }
    syntheses = gpus * rng.choice((3, 6, 9, 12))
    limits = Limits(
        gpus=gpus,
        workers_per_gpu=rng.choice((1, 2, 2, 2, 3)),
        parallel_syntheses=syntheses,
        in_flight=syntheses + gpus * rng.choice((3, 6)),
        pool_threads=6.0 * gpus,
        fifo_mutex=rng.random() < 0.7,
        copy_slowdown=rng.uniform(0.0, 0.12),
        prep_slowdown=rng.uniform(0.0, 0.08),
        allocate=rng.uniform(0.2, 0.7),
        allocation_rate=rng.uniform(0.2, 1.0),
        warmup_alloc=rng.choice((0.02, 0.7)),
    )
    return Scenario(
        f"random-{seed}",
        "drawn from a seed",
        variant=variant,
        circuits=(replace(base, **scale),),
        partitions=rng.randrange(20, 50),
        per_job=rng.choice((5, 10, 16)),
        spread=rng.uniform(0.0, 0.3),
        stutter=rng.choice((0.0, 0.05, 0.2)),
        pinned=rng.choice(("no", "no", "yes", "pool")),
        limits=limits,
        options=LogOptions(ansi=rng.random() < 0.5, drift_ppm=rng.choice((0.0, 0.0, 20.0))),
    )


def find_scenario(given: str) -> Scenario:
    """A preset by its name or its cause's, or a scenario from a TOML file."""
    given = _BY_CAUSE.get(given, given)
    if given in PRESETS:
        return PRESETS[given]
    path = Path(given)
    if not path.is_file():
        near = did_you_mean(given, [*PRESETS, *_BY_CAUSE])
        known = near or f"; scenarios are {', '.join(PRESETS)}"
        raise UsageError(f"{given}: neither a scenario nor a TOML file{known}")
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{given}: not TOML: {error}") from error
    return scenario_from(told, given)


def scenario_from(told: dict[str, Any], path: str) -> Scenario:
    """A scenario from TOML: `base` names a preset; other keys replace its fields.

    Tables: limits, options, rates, trace, circuit, failing, disturbance (see `disturbance_from`).
    """
    base_name = told.pop("base", "pageable")
    if base_name not in PRESETS:
        raise InputError(f"{path}: base = {base_name!r} is none of {', '.join(PRESETS)}")
    base = PRESETS[base_name]
    circuit = told.pop("circuit", {})
    changes: dict[str, Any] = {"name": Path(path).stem, "what": base.what}
    for key in ("limits", "options", "rates", "trace"):
        if key in told:
            changes[key] = _changed(getattr(base, key), told.pop(key), f"{path}: [{key}]")
    if "disturbance" in told:
        try:
            changes["disturbance"] = disturbance_from(told.pop("disturbance"))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: [disturbance]: {error}") from error
    if circuit:
        changes["circuits"] = tuple(_changed(one, circuit, f"{path}: [circuit]") for one in base.circuits)
    if "failing" in told:
        changes["failing"] = {int(number): where for number, where in told.pop("failing").items()}
    if "job_ids" in told:
        changes["job_ids"] = tuple(told.pop("job_ids"))
    scenario: Scenario = _changed(base, {**changes, **told}, path)
    if scenario.variant not in VARIANTS:
        raise InputError(f"{path}: variant = {scenario.variant!r} is none of {', '.join(VARIANTS)}")
    return scenario


def _changed(value: Any, changes: dict[str, Any], where: str) -> Any:
    known = {f.name for f in fields(value)}
    if unknown := sorted(set(changes) - known):
        near = did_you_mean(unknown[0], known)
        raise InputError(f"{where}: unknown key {unknown[0]!r}{near}; known are {', '.join(sorted(known))}")
    return replace(value, **changes)
