"""Writes a simulated capture."""

import sys
from typing import Annotated

import typer

from gputrace.commands.completion import log_forms, preset_names
from gputrace.commands.options import (
    Force,
)


def simulate_run(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="a preset's name, or a TOML file", autocompletion=preset_names)
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="CAPTURE", help="folder to write")],
    seed: Annotated[int, typer.Option(metavar="N", help="the same seed makes the same capture")] = 0,
    form: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="the log as: merged, two-files, stdout, stderr, cpp (C++ lines only)",
            autocompletion=log_forms,
        ),
    ] = "merged",
    force: Force = False,
) -> None:
    """Write a capture of a simulated run, with the truth beside it.

    The folder holds a log, a GPU trace and, in truth/, when everything really happened. The named scenarios are:
    pageable, pinned, alloc-storm, starved, one-worker, two-gpus, eight-gpus, barrier, mixed-kinds, restarts, errors,
    small.

    Each of these plants what its name says in an otherwise healthy run: healthy, throttled, link-degraded,
    link-replays, other-process, slow-log-sink, memory-budget, host-hot-path, host-memory-contention,
    mutex-contention, launch-overhead, device-allocation, domain-switch. The causes pageable-h2d, pinned-alloc-stall,
    prep-barrier, no-work-queued and release-abc stand for pageable, alloc-storm, barrier, starved and one-worker.

    A TOML file names a base and what differs from it; its table disturbance has arrays throttles, others and
    shortages and tables link and sink.
    """
    from gputrace.simulate.capture import play, write_capture
    from gputrace.simulate.scenarios import find_scenario

    write_capture(play(find_scenario(scenario), seed), output, form, force)
    print(f"Wrote {output}", file=sys.stderr)
