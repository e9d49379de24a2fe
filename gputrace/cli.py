"""The command line: parses arguments, calls one library function, writes, reports one line.

Imports that cost time are made where they are used: `--help` must come at once.
"""

import sys
from typing import Annotated

import typer

from gputrace.errors import GputraceError

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


@app.command()
def report(
    inputs: Inputs,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="write the HTML report")] = None,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="write the JSON report; - is stdout")] = None,
    calls: Annotated[bool, typer.Option("--calls", help="list every call in the JSON report")] = False,
    gap_ms: Annotated[float, typer.Option(min=1.0, help="shortest gap to list, in ms")] = 500.0,
    timezone: Annotated[
        str | None, typer.Option(metavar="NAME", help="zone of times written without one, as Europe/Berlin")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite files")] = False,
    gpu_map: Annotated[
        str | None, typer.Option(metavar="LOG:TRACE,...", help="which GPU of the trace each GPU of the log is")
    ] = None,
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
) -> None:
    """Diagnose a run from its log and GPU trace.

    Each input is recognised by its content. The report goes to the terminal unless --html or --json writes it
    elsewhere; with --json - only JSON goes to stdout.
    """
    from gputrace.analysis.diagnose import diagnose
    from gputrace.ingest.traces import TraceOptions
    from gputrace.loading import load
    from gputrace.progress import reading
    from gputrace.rebuild.gpus import parse_gpu_map
    from gputrace.render.output import check_targets, terminal_renderer, write

    check_targets([html, json], force)
    options = TraceOptions.of(trace_start, trace_period, trace_columns, columns, column_map, timezone)
    with reading() as progress:
        trace = load(inputs, progress, timezone=timezone, trace_options=options, gpu_map=parse_gpu_map(gpu_map))
    diagnosis = diagnose(trace, gap_ms)
    if json is not None:
        from gputrace.render.json_report import JsonRenderer

        write(json, JsonRenderer(calls).render(trace, diagnosis))
    if html is not None:
        from gputrace.render.html import HtmlRenderer

        write(html, HtmlRenderer().render(trace, diagnosis))
    if "-" not in (html, json):
        sys.stdout.write(terminal_renderer().render(trace, diagnosis))


@app.command("simulate")
def simulate_run(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="a preset's name, or a TOML file")],
    output: Annotated[str, typer.Option("-o", "--output", metavar="CAPTURE", help="folder to write")],
    seed: Annotated[int, typer.Option(help="the same seed makes the same capture")] = 0,
    form: Annotated[
        str, typer.Option(help="the log as: merged, two-files, stdout, stderr, cpp (C++ lines only)")
    ] = "merged",
    force: Annotated[bool, typer.Option("--force", help="overwrite files")] = False,
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
