"""Arguments that several commands take, and the run that they name."""

from typing import TYPE_CHECKING, Annotated

import typer

from gputrace.commands.completion import color_choices

if TYPE_CHECKING:
    from gputrace.analysis.diagnosis import Diagnosis
    from gputrace.analysis.selection import Selection
    from gputrace.cache.log_entries import LogEntries
    from gputrace.cache.runs import Run
    from gputrace.chapters.asked import Asked
    from gputrace.chapters.inputs import LongInputs
    from gputrace.ingest.traces import TraceOptions
    from gputrace.trace import Trace

Inputs = Annotated[list[str], typer.Argument(metavar="INPUT", help="logs, GPU traces, capture folders; - is stdin")]
Timezone = Annotated[
    str | None, typer.Option(metavar="NAME", help="zone of times written without one, as Europe/Berlin")
]
GpuMap = Annotated[
    str | None, typer.Option(metavar="LOG:TRACE,...", help="which GPU of the trace each GPU of the log is")
]
Full = Annotated[bool, typer.Option("--full", help="all of it: gaps, phases, bounds, every verdict's evidence")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="read and reckon anew; keep nothing for the next time")]
Force = Annotated[bool, typer.Option("--force", help="overwrite files")]


def _checked_color(color: str) -> str:
    """Refused before any work is done."""
    from gputrace.render.screen import colors_of

    colors_of(False, color, {})
    return color


Color = Annotated[
    str,
    typer.Option(
        "--color",
        metavar="WHEN",
        help="colours: auto, always or never",
        callback=_checked_color,
        autocompletion=color_choices,
    ),
]

# Which part of a run: the same on every command that reads one; `Selection` says what each means.
FromTime = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="begin there: seconds into the window, or a time")
]
ToTime = Annotated[str | None, typer.Option("--to", metavar="TIME", help="end there")]
LastSeconds = Annotated[float | None, typer.Option("--last", metavar="SECONDS", help="only the last seconds")]
OnGpu = Annotated[int | None, typer.Option("--gpu", metavar="N", help="only this GPU, as the prover numbers it")]
OfWorker = Annotated[int | None, typer.Option("--worker", metavar="N", help="tables of this worker's calls only")]
OfJob = Annotated[str | None, typer.Option("--job", metavar="ID", help="tables of this job's calls only")]
InRegime = Annotated[
    str | None, typer.Option("--regime", metavar="N|LABEL", help="only this regime: its number, or part of its label")
]


def read_run(
    inputs: list[str],
    part: "Selection",
    gpu_map: str | None,
    trace_options: "TraceOptions | None" = None,
    cache: bool = True,
) -> "Run":
    """The part of a run that is asked for, with progress on the terminal."""
    from gputrace.analysis.selection import select
    from gputrace.loading import load_whole
    from gputrace.progress import reading
    from gputrace.rebuild.gpus import parse_gpu_map

    with reading() as progress:
        run = load_whole(inputs, progress, part.timezone, trace_options, parse_gpu_map(gpu_map), cache=cache)
    return run.part(select(run.trace, part), part)


def read_long(
    found: "LongInputs",
    inputs: list[str],
    asked: "Asked",
    timezone: str | None,
    gpu_map: str | None,
    trace_options: "TraceOptions | None" = None,
    cache: bool = True,
) -> "tuple[Trace, Diagnosis]":
    """What is known of a run that may be too long to be held, and its diagnosis, with progress on the terminal."""
    from gputrace.cache.runs import Request, judged
    from gputrace.cache.store import user_store
    from gputrace.progress import reading
    from gputrace.rebuild.gpus import parse_gpu_map

    request = Request(inputs, timezone, trace_options, parse_gpu_map(gpu_map))

    def judge(entries: "LogEntries | None") -> "tuple[Trace, Diagnosis]":
        # Not loaded where a kept diagnosis is there: it needs the numerical libraries.
        from gputrace.chapters.long_run import LongRun

        with reading() as progress:
            return LongRun(request, found).judged(asked, progress, entries)

    return judged(request, asked.gap_ms, asked.scenarios, judge, user_store() if cache else None)
