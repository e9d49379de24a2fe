"""Diagnoses a run."""

import sys
from typing import Annotated

import typer

from gputrace.commands.options import (
    Force,
    FromTime,
    GpuMap,
    Inputs,
    InRegime,
    LastSeconds,
    OfJob,
    OfWorker,
    OnGpu,
    Timezone,
    ToTime,
    read_run,
)


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
    trace = read_run(inputs, Selection(start, end, last, gpu, worker, job, regime, timezone), gpu_map, options)
    diagnosis = diagnose(trace, gap_ms)
    if json is not None:
        from gputrace.render.json_report import JsonRenderer

        write(json, JsonRenderer(calls).render(trace, diagnosis))
    if html is not None:
        from gputrace.render.html import HtmlRenderer
        from gputrace.render.provenance import provenance

        write(html, HtmlRenderer(provenance(sys.argv[1:])).render(trace, diagnosis))
    if "-" not in (html, json):
        sys.stdout.write(terminal_renderer().render(trace, diagnosis))
