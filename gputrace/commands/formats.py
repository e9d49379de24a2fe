"""Says what is read, and what each line of a file was taken for."""

from typing import Annotated

import typer

app = typer.Typer(help="Formats that are read, and what each line of a file was taken for.", no_args_is_help=True)


@app.command("list")
def formats_list() -> None:
    """List the formats that are read."""
    from gputrace.ingest.formats import bundled_formats

    formats = bundled_formats()
    for kind, known in (("records", formats.records), ("wrapper", formats.wrappers), ("table", formats.tables)):
        for known_format in known:
            print(f"{kind:8} {known_format.name:20} {known_format.title}")


@app.command("check")
def formats_check(file: Annotated[str, typer.Argument(metavar="FILE", help="a log")]) -> None:
    """Show what each line of a log was taken for."""
    from gputrace.ingest.explain import explain_lines

    for line in explain_lines(file):
        print(line)
