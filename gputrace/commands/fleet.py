"""Ranks a fleet's hosts and GPUs from many captures."""

import sys
from typing import Annotated

import typer

from gputrace.commands.options import Color, Force, Timezone


def fleet_table(
    captures: Annotated[
        list[str],
        typer.Argument(metavar="CAPTURE...", help="captures, folders of them, globs; local, s3:// or the like"),
    ],
    html: Annotated[str | None, typer.Option(metavar="FILE", help="write the page")] = None,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="write JSON; - is stdout")] = None,
    tables: Annotated[str | None, typer.Option(metavar="DIR", help="write Parquet tables")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="local worker processes; default one a core, 0: none")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="a Dask scheduler that is there, as tcp://host:8786")
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="DIR", help="where results are kept; default the user's cache")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="analyse captures anew that are unchanged")] = False,
    deploy: Annotated[
        str | None, typer.Option(metavar="TIME|VERSION", help="compare before and after it; default the newest version")
    ] = None,
    host_pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="host's name from a capture's path, as 'fleet/([^/]+)/'")
    ] = None,
    storage_options: Annotated[
        str | None, typer.Option(metavar="JSON|FILE", help="fsspec's options for the store, as JSON")
    ] = None,
    max_capture_gb: Annotated[
        float, typer.Option(min=0.001, metavar="GB", help="captures with more bytes than this fail")
    ] = 20.0,
    color: Color = "auto",
    timezone: Timezone = None,
    force: Force = False,
) -> None:
    """Rank hosts and GPUs by what they lose, from many captures.

    Each capture is analysed once: results are kept, a run that was stopped goes on where it was, and the next one
    skips what is unchanged. Captures that fail are listed and the rest is reported.
    """
    from pathlib import Path

    from gputrace.errors import UsageError
    from gputrace.fleet.captures import storage_options as parsed
    from gputrace.fleet.deploy import DeployAsked
    from gputrace.fleet.engine import engine_of
    from gputrace.fleet.frames import HostNames
    from gputrace.fleet.run import FleetOptions, survey
    from gputrace.progress import counting
    from gputrace.render.output import check_targets, fleet_terminal_renderer, write

    check_targets([html, json], force)
    if scheduler is not None and workers is not None:
        raise UsageError("--workers is for local workers, --scheduler for those of a cluster: give one of them")
    options = FleetOptions(
        state=Path(state) if state else None,
        again=again,
        timezone=timezone,
        storage=parsed(storage_options),
        most_bytes=max_capture_gb * 1e9,
        names=HostNames.of(host_pattern),
        deploy=DeployAsked.of(deploy),
    )
    with counting() as progress:
        fleet = survey(captures, options, engine_of(workers, scheduler), progress)
    if json is not None:
        from gputrace.render.fleet_json import FleetJsonRenderer

        write(json, FleetJsonRenderer().render(fleet))
    if html is not None:
        from gputrace.render.fleet_html import FleetHtmlRenderer

        write(html, FleetHtmlRenderer().render(fleet))
    if tables is not None:
        from gputrace.render.fleet_tables import FleetTables

        FleetTables(fleet).write(tables, force)
        print(f"Wrote {tables}", file=sys.stderr)
    if "-" not in (html, json):
        sys.stdout.write(fleet_terminal_renderer(color).render(fleet))
