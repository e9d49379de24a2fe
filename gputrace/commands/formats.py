"""Says what is read, and what each line of a file was taken for."""

from typing import Annotated

import typer

from gputrace.commands.examples import epilog
from gputrace.commands.usage import Commands

app = typer.Typer(
    help="List formats that are read, or what each line of a log is.",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list", epilog=epilog("formats list"))
def formats_list() -> None:
    """List the formats that are read."""
    from gputrace.ingest.formats import bundled_formats

    formats = bundled_formats()
    for kind, known in (("records", formats.records), ("wrapper", formats.wrappers), ("table", formats.tables)):
        for known_format in known:
            print(f"{kind:8} {known_format.name:20} {known_format.title}")


@app.command("check", epilog=epilog("formats check"))
def formats_check(file: Annotated[str, typer.Argument(metavar="FILE", help="a log")]) -> None:
    """Show what each line of a log was taken for."""
    from gputrace.ingest.explain import explain_lines
    from gputrace.printable import printable

    for line in explain_lines(file):
        print(printable(line))
