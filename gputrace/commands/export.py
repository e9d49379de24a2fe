"""Serves metrics."""

from typing import Annotated

import typer

from gputrace.commands.options import GpuMap
from gputrace.live.exporter_command import DEFAULT_ADDRESS


def export_metrics(
    capture: Annotated[str, typer.Argument(metavar="CAPTURE", help="folder that a recorder is writing")],
    prometheus: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where to serve; without a host, to this host only")
    ] = DEFAULT_ADDRESS,
    every: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="how often to look at the capture")] = 15.0,
    from_start: Annotated[bool, typer.Option("--from-start", help="count what is in the capture already, too")] = False,
    gpu_map: GpuMap = None,
) -> None:
    """Serve metrics of a run to Prometheus while it is recorded.

    The metrics are in docs/metrics.md; a dashboard, alert rules and systemd units are in docs/deploy.
    """
    from functools import partial

    from gputrace.live.exporter_command import use_one_core

    use_one_core()
    from gputrace.live.exporter import serve
    from gputrace.live.until_signal import until_signal
    from gputrace.loading import load
    from gputrace.rebuild.gpus import parse_gpu_map

    with until_signal() as stop:
        serve(
            capture,
            prometheus,
            partial(load, gpu_map=parse_gpu_map(gpu_map)),
            from_start=from_start,
            period_s=every,
            stop=stop,
        )
