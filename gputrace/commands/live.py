"""Shows a run while it goes on."""

from typing import Annotated

import typer

from gputrace.commands.options import Timezone
from gputrace.errors import UsageError


def live_view(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="CAPTURE|FILES...", help="what to show; with --output: the COMMAND to record, after --"),
    ] = None,
    speed: Annotated[
        float | None, typer.Option(metavar="N", help="replay from the beginning, N times as fast as it was")
    ] = None,
    window: Annotated[float, typer.Option(min=10.0, metavar="SECONDS", help="how far back the verdict looks")] = 300.0,
    at: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="begin a replay there")] = 0.0,
    once: Annotated[bool, typer.Option("--once", help="write one frame as text and end")] = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="CAPTURE", help="record into this folder and show it")
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="FILE", help="recording: follow this log")] = None,
    journal: Annotated[str | None, typer.Option(metavar="UNIT", help="recording: follow a unit's journal")] = None,
    docker: Annotated[str | None, typer.Option(metavar="NAME", help="recording: follow a container's log")] = None,
    pid: Annotated[int | None, typer.Option(metavar="PID", help="recording: follow the log of this process")] = None,
    timezone: Timezone = None,
) -> None:
    """Watch a run: what GPUs and workers do now, and why time is lost.

    A capture or files being written are followed; old ones are replayed by their own clock. With --output a recording
    is started, as `gputrace record` would, and shown. Keys are on the screen; ? explains them.
    """
    from gputrace.live.run import live, record_and_show

    sources = {"--log": log, "--journal": journal, "--docker": docker, "--pid": pid}
    options = [part for name, value in sources.items() if value is not None for part in (name, str(value))]
    if output is not None:
        record_and_show([*options, *(["--", *inputs] if inputs else [])], output, window)
        return
    if options:
        raise UsageError(f"{options[0]} starts a recording: say where it goes with --output CAPTURE")
    if not inputs:
        raise UsageError("nothing to show: give a capture or files, as `gputrace live capture/`, or --output to record")
    live(inputs, speed, window, at, once, timezone)
