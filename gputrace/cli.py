"""The command line: parses arguments, calls one library function, writes, reports one line.

Imports that cost time are made where they are used: `--help` must come at once.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gputrace.errors import GputraceError, UsageError
from gputrace.live.exporter_command import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from gputrace.analysis.selection import Selection
    from gputrace.ingest.traces import TraceOptions
    from gputrace.trace import Trace

app = typer.Typer(
    name="gputrace",
    help="Says why a GPU prover's GPU is idle, how sure that is, and what it costs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
formats_app = typer.Typer(
    help="Formats that are read, and what each line of a file was taken for.", no_args_is_help=True
)
app.add_typer(formats_app, name="formats")

Inputs = Annotated[list[str], typer.Argument(metavar="INPUT...", help="logs, GPU traces, capture folders; - is stdin")]
Timezone = Annotated[
    str | None, typer.Option(metavar="NAME", help="zone of times written without one, as Europe/Berlin")
]
GpuMap = Annotated[
    str | None, typer.Option(metavar="LOG:TRACE,...", help="which GPU of the trace each GPU of the log is")
]
Force = Annotated[bool, typer.Option("--force", help="overwrite files")]

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


def _version(wanted: bool) -> None:
    if wanted:
        from gputrace import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Says why a GPU prover's GPU is idle, how sure that is, and what it costs."""


def _read(
    inputs: list[str], part: "Selection", gpu_map: str | None, trace_options: "TraceOptions | None" = None
) -> "Trace":
    """The part of a run that is asked for, with progress on the terminal."""
    from gputrace.analysis.selection import select
    from gputrace.loading import load
    from gputrace.progress import reading
    from gputrace.rebuild.gpus import parse_gpu_map

    with reading() as progress:
        trace = load(
            inputs, progress, timezone=part.timezone, trace_options=trace_options, gpu_map=parse_gpu_map(gpu_map)
        )
    return select(trace, part)


@app.command()
def report(
    inputs: Inputs,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="write the HTML report")] = None,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="write the JSON report; - is stdout")] = None,
    calls: Annotated[bool, typer.Option("--calls", help="list every call in the JSON report")] = False,
    gap_ms: Annotated[float, typer.Option(min=1.0, help="shortest gap to list, in ms")] = 500.0,
    timezone: Timezone = None,
    force: Force = False,
    gpu_map: GpuMap = None,
    trace_start: Annotated[
        str | None, typer.Option(metavar="TIME", help="when a GPU trace without times began, as 2026-11-29T11:47:29Z")
    ] = None,
    trace_period: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="its time from row to row")
    ] = None,
    trace_columns: Annotated[
        str | None, typer.Option(metavar="LIST", help="dmon -s letters or --query-gpu list of a trace without header")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="MAP", help="columns of a CSV or Parquet, as time=t:ns,rx_window_bytes_per_s=rx:MB/s"),
    ] = None,
    column_map: Annotated[
        str | None, typer.Option(metavar="FILE", help="the same as a TOML file like those in parsers/")
    ] = None,
    start: FromTime = None,
    end: ToTime = None,
    last: LastSeconds = None,
    gpu: OnGpu = None,
    worker: OfWorker = None,
    job: OfJob = None,
    regime: InRegime = None,
) -> None:
    """Diagnose a run from its log and GPU trace.

    Each input is recognised by its content. The report goes to the terminal unless --html or --json writes it
    elsewhere; with --json - only JSON goes to stdout.
    """
    from gputrace.analysis.diagnose import diagnose
    from gputrace.analysis.selection import Selection
    from gputrace.ingest.traces import TraceOptions
    from gputrace.render.output import check_targets, terminal_renderer, write

    check_targets([html, json], force)
    options = TraceOptions.of(trace_start, trace_period, trace_columns, columns, column_map, timezone)
    trace = _read(inputs, Selection(start, end, last, gpu, worker, job, regime, timezone), gpu_map, options)
    diagnosis = diagnose(trace, gap_ms)
    if json is not None:
        from gputrace.render.json_report import JsonRenderer

        write(json, JsonRenderer(calls).render(trace, diagnosis))
    if html is not None:
        from gputrace.render.html import HtmlRenderer

        write(html, HtmlRenderer().render(trace, diagnosis))
    if "-" not in (html, json):
        sys.stdout.write(terminal_renderer().render(trace, diagnosis))


@app.command("what-if")
def what_if(
    inputs: Inputs,
    scenario: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="a change, or several joined by +, as pinned-h2d+workers=3; may be repeated"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PHASE=VALUE", help="a service time, as prep_msm=0.5x or release_abc=0ms"),
    ] = None,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="write JSON; - is stdout")] = None,
    timezone: Timezone = None,
    force: Force = False,
    gpu_map: GpuMap = None,
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
    from gputrace.analysis.diagnose import diagnose
    from gputrace.analysis.pipeline.scenarios import asked_for
    from gputrace.analysis.selection import Selection
    from gputrace.render.json_report import WhatIfJsonRenderer
    from gputrace.render.output import check_targets, terminal_what_if_renderer, write

    check_targets([json], force)
    scenarios = asked_for(scenario or [], settings or [])
    trace = _read(inputs, Selection(start, end, last, gpu, worker, job, regime, timezone), gpu_map)
    diagnosis = diagnose(trace, scenarios=scenarios)
    if json is not None:
        write(json, WhatIfJsonRenderer().render(trace, diagnosis))
    if json != "-":
        sys.stdout.write(terminal_what_if_renderer().render(trace, diagnosis))


@app.command("compare")
def compare_runs(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="capture, log, or JSON report of the run before")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="the same of the run after")],
    more_before: Annotated[
        list[str] | None, typer.Option("--before", metavar="FILE", help="one more file of BEFORE; repeatable")
    ] = None,
    more_after: Annotated[
        list[str] | None, typer.Option("--after", metavar="FILE", help="one more file of AFTER; repeatable")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if", metavar="EXPR", help="exit with 4 if true, as 'mutex_held_ms.median > 1.05x'; repeatable"
        ),
    ] = None,
    regime: Annotated[
        str | None, typer.Option(metavar="LABEL|N", help="compare only this regime of both, by label or number")
    ] = None,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="write JSON; - is stdout")] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="write Markdown for a pull request; - is stdout")
    ] = None,
    timezone: Timezone = None,
    force: Force = False,
) -> None:
    """Say what changed between two runs, how sure that is, and what could have been seen.

    A JSON report keeps single calls, and so intervals, if it was written with --calls. A gate that cannot be judged
    fails.
    """
    from gputrace.analysis.compare import compare, enforce
    from gputrace.analysis.compare.gate import parse_gates
    from gputrace.loading import load_run
    from gputrace.progress import reading
    from gputrace.render.output import check_targets, compare_terminal_renderer, write

    check_targets([json, markdown], force)
    parse_gates(fail_if or [])
    with reading() as progress:
        sides = [
            load_run([first, *(more or [])], progress, timezone=timezone)
            for first, more in ((before, more_before), (after, more_after))
        ]
    comparison = compare(*sides, names=(before, after), regime=regime, fail_if=fail_if or [])
    if json is not None:
        from gputrace.render.compare_json import CompareJsonRenderer

        write(json, CompareJsonRenderer().render(comparison))
    if markdown is not None:
        from gputrace.render.compare_markdown import CompareMarkdownRenderer

        write(markdown, CompareMarkdownRenderer().render(comparison))
    if "-" not in (json, markdown):
        sys.stdout.write(compare_terminal_renderer().render(comparison))
    enforce(comparison.gates)


@app.command("export")
def export_metrics(
    capture: Annotated[str, typer.Argument(metavar="CAPTURE", help="folder that a recorder is writing")],
    prometheus: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where to serve; without a host, to this host only")
    ] = DEFAULT_ADDRESS,
    every: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="how often to look at the capture")] = 15.0,
    from_start: Annotated[bool, typer.Option("--from-start", help="count what is in the capture already, too")] = False,
    gpu_map: GpuMap = None,
) -> None:
    """Serve metrics of a run to Prometheus while it is recorded.

    The metrics are in docs/metrics.md; a dashboard, alert rules and systemd units are in docs/deploy.
    """
    from functools import partial

    from gputrace.live.exporter_command import use_one_core

    use_one_core()
    from gputrace.live.exporter import serve
    from gputrace.live.until_signal import until_signal
    from gputrace.loading import load
    from gputrace.rebuild.gpus import parse_gpu_map

    with until_signal() as stop:
        serve(
            capture,
            prometheus,
            partial(load, gpu_map=parse_gpu_map(gpu_map)),
            from_start=from_start,
            period_s=every,
            stop=stop,
        )


@app.command("live")
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
    pid: Annotated[int | None, typer.Option(help="recording: follow the log of this process")] = None,
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
        raise UsageError("nothing to show: give a capture or files, or --output CAPTURE to record")
    live(inputs, speed, window, at, once, timezone)


@app.command("record", context_settings={"allow_interspersed_args": False})
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
    """Record GPUs, host and log of a running prover, without getting in its way.

    Stop it with Ctrl-C, SIGTERM or SIGHUP; `gputrace report CAPTURE` reads the folder at any moment. A COMMAND writes
    its output to files in the folder itself, in a session of its own: it goes on whatever happens to the recorder.
    Its exit code is passed on.
    """
    from functools import partial

    from gputrace.live.exporter_command import exporter_command, parse_address
    from gputrace.sampler.recording import Request, record

    companion = None
    if prometheus is not None:
        parse_address(prometheus)
        companion = partial(exporter_command, address=prometheus)
    request = Request(output, log, journal, docker, pid, command or (), period, gpu or (), max_size, keep, status)
    ended = record(request, lambda line: print(f"gputrace: {line}", file=sys.stderr, flush=True), companion=companion)
    print(f"gputrace: recording ended ({ended.why}{f'; {ended.message}' if ended.message else ''})", file=sys.stderr)
    raise typer.Exit(ended.exit_code)


@app.command("simulate")
def simulate_run(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="a preset's name, or a TOML file")],
    output: Annotated[str, typer.Option("-o", "--output", metavar="CAPTURE", help="folder to write")],
    seed: Annotated[int, typer.Option(help="the same seed makes the same capture")] = 0,
    form: Annotated[
        str, typer.Option(help="the log as: merged, two-files, stdout, stderr, cpp (C++ lines only)")
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


@formats_app.command("list")
def formats_list() -> None:
    """List the formats that are read."""
    from gputrace.ingest.formats import bundled_formats

    formats = bundled_formats()
    for kind, known in (("records", formats.records), ("wrapper", formats.wrappers), ("table", formats.tables)):
        for known_format in known:
            print(f"{kind:8} {known_format.name:20} {known_format.title}")


@formats_app.command("check")
def formats_check(file: Annotated[str, typer.Argument(metavar="FILE", help="a log")]) -> None:
    """Show what each line of a log was taken for."""
    from gputrace.ingest.explain import explain_lines

    for line in explain_lines(file):
        print(line)


def main() -> None:
    """Runs the command line; errors meant for the user become one line on stderr and their exit code."""
    try:
        app()
    except GputraceError as error:
        print(f"gputrace: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe has gone (head, less): nothing is wrong with us.
        sys.stderr.close()
        sys.exit(0)
