"""Compares two runs."""

import sys
from typing import Annotated

import typer

from gputrace.commands.options import (
    Color,
    Force,
    NoCache,
    Timezone,
)


def compare_runs(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="capture, log, or JSON report of the run before")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="capture, log, or JSON report of the run after")],
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
    color: Color = "auto",
    timezone: Timezone = None,
    no_cache: NoCache = False,
    force: Force = False,
) -> None:
    """Say what changed between two runs, and how sure that is.

    What did not change comes with the smallest change that would have been seen. A JSON report keeps single calls, and
    so intervals, if it was written with --calls. A gate that cannot be judged fails.
    """
    from gputrace.analysis.compare import compare, enforce
    from gputrace.analysis.compare.gate import parse_gates
    from gputrace.loading import load_run
    from gputrace.progress import reading, working
    from gputrace.render.output import check_targets, compare_terminal_renderer, write

    check_targets([json, markdown], force)
    parse_gates(fail_if or [])
    with reading() as progress:
        sides = [
            load_run([first, *(more or [])], progress, timezone=timezone, cache=not no_cache)
            for first, more in ((before, more_before), (after, more_after))
        ]
    with working("comparing"):
        comparison = compare(*sides, names=(before, after), regime=regime, fail_if=fail_if or [])
    if json is not None:
        from gputrace.render.compare_json import CompareJsonRenderer

        write(json, CompareJsonRenderer().render(comparison))
    if markdown is not None:
        from gputrace.render.compare_markdown import CompareMarkdownRenderer

        write(markdown, CompareMarkdownRenderer().render(comparison))
    if "-" not in (json, markdown):
        sys.stdout.write(compare_terminal_renderer(color).render(comparison))
    enforce(comparison.gates)
