"""Diagnoses a run."""

import sys
from typing import Annotated

import typer

from gputrace.commands.options import (
    Color,
    Force,
    FromTime,
    Full,
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


def report(
    inputs: Inputs,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="write the HTML report")] = None,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="write the JSON report; - is stdout")] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="write Markdown for an issue or a chat; - is stdout")
    ] = None,
    perfetto: Annotated[
        str | None, typer.Option(metavar="FILE", help="write a trace for ui.perfetto.dev; - is stdout")
    ] = None,
    tables: Annotated[
        str | None, typer.Option(metavar="DIR", help="write every table as Parquet, with a data dictionary")
    ] = None,
    charts: Annotated[str | None, typer.Option(metavar="DIR", help="write every chart, as PNG and as SVG")] = None,
    redacted: Annotated[
        bool, typer.Option("--redact", help="replace ids, hosts, paths and texts of the log, for sharing")
    ] = False,
    calls: Annotated[bool, typer.Option("--calls", help="list every call in the JSON report")] = False,
    full: Full = False,
    color: Color = "auto",
    gap_ms: Annotated[float, typer.Option(min=1.0, metavar="MS", help="shortest gap to list, in ms")] = 500.0,
    timezone: Timezone = None,
    force: Force = False,
    gpu_map: GpuMap = None,
    no_cache: NoCache = False,
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

    Each input is recognised by its content. The report goes to the terminal as well, unless one of the outputs is - :
    then only that goes to stdout.
    """
    from gputrace.analysis.selection import Selection
    from gputrace.cache.runs import Run
    from gputrace.chapters.asked import Asked
    from gputrace.chapters.inputs import long_inputs
    from gputrace.ingest.traces import TraceOptions
    from gputrace.progress import working
    from gputrace.render.output import Outputs, terminal_renderer
    from gputrace.render.provenance import provenance

    outputs = Outputs(html, json, markdown, perfetto, tables, charts, calls=calls)
    outputs.check(force)
    options = TraceOptions.of(trace_start, trace_period, trace_columns, columns, column_map, timezone)
    part = Selection(start, end, last, gpu, worker, job, regime, timezone)
    # What shows single calls, or some of them, needs them all.
    found = None if outputs.show_calls or redacted or str(part) else long_inputs(inputs)
    if found is not None:
        trace, diagnosis = read_long(found, inputs, Asked(gap_ms), timezone, gpu_map, options, cache=not no_cache)
    else:
        run = read_run(inputs, part, gpu_map, options, cache=not no_cache)
        if redacted:
            from gputrace.analysis.redaction import redact

            run = Run(redact(run.trace))
        with working("diagnosing"):
            diagnosis = run.diagnose(gap_ms)
        trace = run.trace
    arguments = sys.argv[1:]
    if redacted:
        from gputrace.analysis.redaction import redacted_arguments

        arguments = redacted_arguments(trace)
    outputs.write(trace, diagnosis, provenance(arguments))
    if not outputs.to_stdout:
        sys.stdout.write(terminal_renderer(color, full).render(trace, diagnosis))
