"""The command line: its commands, and what becomes of errors."""

import sys
from typing import Annotated

import typer

from gputrace.commands import compare, export, fleet, formats, live, record, report, simulate, what_if
from gputrace.errors import GputraceError

app = typer.Typer(
    name="gputrace",
    help="Says why a GPU prover's GPU is idle, how sure that is, and what it costs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("report")(report.report)
app.command("what-if")(what_if.what_if)
app.command("compare")(compare.compare_runs)
app.command("fleet")(fleet.fleet_table)
app.command("export")(export.export_metrics)
app.command("live")(live.live_view)
app.command("record", context_settings={"allow_interspersed_args": False})(record.record_run)
app.command("simulate")(simulate.simulate_run)
app.add_typer(formats.app, name="formats")


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
