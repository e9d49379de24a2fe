"""Records a run."""

import sys
from typing import Annotated

import typer


def record_run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="start this and record its output")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="CAPTURE", help="folder to write; named by host and time")
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="FILE", help="follow this log, through rotation")] = None,
    journal: Annotated[str | None, typer.Option(metavar="UNIT", help="follow a systemd unit's journal")] = None,
    docker: Annotated[str | None, typer.Option(metavar="NAME", help="follow a container's log")] = None,
    pid: Annotated[int | None, typer.Option(metavar="PID", help="follow the files that a process writes to")] = None,
    period: Annotated[float, typer.Option(metavar="SECONDS", help="time from row to row, 0.02 to 10")] = 0.1,
    gpu: Annotated[list[int] | None, typer.Option(metavar="N", help="only this GPU, as NVML numbers it")] = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="drop the oldest beyond this, as 5GB")] = None,
    keep: Annotated[int | None, typer.Option(metavar="N", help="keep so many closed segments of each kind")] = None,
    status: Annotated[str | None, typer.Option(metavar="URL", help="the prover's /status, as HOST:PORT")] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="serve metrics too, from a process beside the recorder")
    ] = None,
) -> None:
    """Record GPUs, host and log of a running prover.

    It never gets in the prover's way. Stop it with Ctrl-C, SIGTERM or SIGHUP; `gputrace report CAPTURE` reads the
    folder at any moment. A COMMAND writes its output to files in the folder itself, in a session of its own: it goes on
    whatever happens to the recorder. Its exit code is passed on.
    """
    from functools import partial

    from gputrace.live.exporter_command import exporter_command, parse_address
    from gputrace.printable import printable
    from gputrace.sampler.recording import Request, record

    companion = None
    if prometheus is not None:
        parse_address(prometheus)
        companion = partial(exporter_command, address=prometheus)
    request = Request(output, log, journal, docker, pid, command or (), period, gpu or (), max_size, keep, status)

    def say(line: str) -> None:
        print(f"gputrace: {printable(line)}", file=sys.stderr, flush=True)

    ended = record(request, say, companion=companion)
    say(f"recording ended ({ended.why}{f'; {ended.message}' if ended.message else ''})")
    raise typer.Exit(ended.exit_code)
