"""Predicts what changes would do."""

import sys
from typing import Annotated

import typer

from gputrace.commands.completion import scenario_names
from gputrace.commands.options import (
    Color,
    Force,
    FromTime,
    GpuMap,
    Inputs,
    InRegime,
    LastSeconds,
    NoCache,
    OfJob,
    OfWorker,
    OnGpu,
    Timezone,
    ToTime,
    read_long,
    read_run,
)


def what_if(
    inputs: Inputs,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="a change, or several joined by +, as pinned-h2d+workers=3; may be repeated",
            autocompletion=scenario_names,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PHASE=VALUE", help="a service time, as prep_msm=0.5x or release_abc=0ms"),
    ] = None,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="write JSON; - is stdout")] = None,
    color: Color = "auto",
    timezone: Timezone = None,
    force: Force = False,
    gpu_map: GpuMap = None,
    no_cache: NoCache = False,
    start: FromTime = None,
    end: ToTime = None,
    last: LastSeconds = None,
    gpu: OnGpu = None,
    worker: OfWorker = None,
    job: OfJob = None,
    regime: InRegime = None,
) -> None:
    """Predict what changes to the pipeline would do to this run.

    The run's own calls are replayed through a model of the pipeline, changed as asked; without --scenario and --set,
    by the changes worth asking for. Changes: pinned-h2d, no-barrier, no-allocation-stall, no-release, workers=N,
    syntheses=N, prep-speed=X, pool-speed=X, upper-bound. --set adds to every scenario given, or makes one of its own.
    """
    from gputrace.analysis.pipeline.scenarios import asked_for
    from gputrace.analysis.selection import Selection
    from gputrace.chapters.asked import Asked
    from gputrace.chapters.inputs import long_inputs
    from gputrace.progress import working
    from gputrace.render.json_report import WhatIfJsonRenderer
    from gputrace.render.output import check_targets, terminal_what_if_renderer, write

    check_targets([json], force)
    scenarios = asked_for(scenario or [], settings or [])
    part = Selection(start, end, last, gpu, worker, job, regime, timezone)
    found = None if str(part) else long_inputs(inputs)
    if found is not None:
        trace, diagnosis = read_long(found, inputs, Asked(scenarios=scenarios), timezone, gpu_map, cache=not no_cache)
    else:
        run = read_run(inputs, part, gpu_map, cache=not no_cache)
        with working("replaying the run"):
            trace, diagnosis = run.trace, run.diagnose(scenarios=scenarios)
    if json is not None:
        write(json, WhatIfJsonRenderer().render(trace, diagnosis))
    if json != "-":
        sys.stdout.write(terminal_what_if_renderer(color).render(trace, diagnosis))
