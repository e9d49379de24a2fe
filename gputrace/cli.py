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
    force: Annotated[bool, typer.Option("--force", help="overwrite files")] = False,
) -> None:
    """Diagnose a run from its log and GPU trace.

    Each input is recognised by its content. The report goes to the terminal unless --html or --json writes it
    elsewhere; with --json - only JSON goes to stdout.
    """
    from gputrace.analysis.diagnose import diagnose
    from gputrace.load import load
    from gputrace.progress import reading
    from gputrace.render.output import check_targets, terminal_renderer, write

    check_targets([html, json], force)
    with reading() as progress:
        trace = load(inputs, progress)
    diagnosis = diagnose(trace, gap_ms)
    if json is not None:
        from gputrace.render.json_report import JsonRenderer

        write(json, JsonRenderer(calls).render(trace, diagnosis))
    if html is not None:
        from gputrace.render.html import HtmlRenderer

        write(html, HtmlRenderer().render(trace, diagnosis))
    if "-" not in (html, json):
        sys.stdout.write(terminal_renderer().render(trace, diagnosis))


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
