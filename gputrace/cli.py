"""The command line: its commands, and what becomes of errors."""

import contextlib
import gc
import io
import os
import sys
from typing import Annotated

import typer

from gputrace.commands import cache, compare, export, fleet, formats, live, record, report, simulate, what_if
from gputrace.commands.examples import GUIDE, epilog
from gputrace.commands.usage import Commands, TyperUsageError, help_asked_for, usage_message
from gputrace.errors import GputraceError
from gputrace.printable import printable

NAME = "gputrace"
# polars' allocator (jemalloc) has eight heaps for two cores: with one, a dense log of 1 GB needs a tenth less memory
# and makes half the page faults. What was freed is given back after three seconds: after one second there are a
# tenth more faults, after ten it is 8 MB more.
_ALLOCATOR, _ONE_HEAP = "_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:3000,muzzy_decay_ms:0"
app = typer.Typer(
    name=NAME,
    cls=Commands,
    help="Says why a GPU prover's GPU is idle, how sure that is, and what it costs.",
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("report", epilog=epilog("report"))(report.report)
app.command("what-if", epilog=epilog("what-if"))(what_if.what_if)
app.command("compare", epilog=epilog("compare"))(compare.compare_runs)
app.command("fleet", epilog=epilog("fleet"))(fleet.fleet_table)
app.command("export", epilog=epilog("export"))(export.export_metrics)
app.command("live", epilog=epilog("live"))(live.live_view)
app.command("record", epilog=epilog("record"), context_settings={"allow_interspersed_args": False})(record.record_run)
app.command("simulate", epilog=epilog("simulate"))(simulate.simulate_run)
app.command("cache", epilog=epilog("cache"))(cache.cache_of_user)
app.add_typer(formats.app, name="formats", epilog=epilog("formats"))


def _version(wanted: bool) -> None:
    if wanted:
        from gputrace import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Says why a GPU prover's GPU is idle, how sure that is, and what it costs."""
    if context.invoked_subcommand is None:
        print(GUIDE, end="")


def main() -> None:
    """Runs the command line; errors meant for the user become one line on stderr and their exit code."""
    # Read when polars is loaded, which no command has done yet.
    os.environ.setdefault(_ALLOCATOR, _ONE_HEAP)
    # Nearly all that is made is let go by its last reference: to look for cycles less often saves a twentieth.
    gc.set_threshold(50_000, 20, 20)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding does not have becomes a question mark, never a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.exit(app(prog_name=NAME, standalone_mode=False))
    except GputraceError as error:
        _fail(str(error), error.exit_code)
    except TyperUsageError as error:
        if (text := help_asked_for(error)) is not None:
            print(text)
            sys.exit(0)
        _fail(usage_message(error, sys.argv[1:]), 2)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has gone (head, less): nothing is wrong with us.
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.close()
        sys.exit(0)


def _fail(message: str, exit_code: int) -> None:
    """What is wrong, on stderr; names in it come from outside and must not act on the terminal."""
    first, *more = message.split("\n")
    print("\n".join([f"{NAME}: {printable(first)}", *map(printable, more)]), file=sys.stderr)
    sys.exit(exit_code)
