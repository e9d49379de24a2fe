"""A fleet as JSON, `gputrace.fleet/1`. Keys keep their meaning within a major version; new ones may be added."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from gputrace.fleet.outliers import LEAST_SPREAD, MIN_GPUS
from gputrace.fleet.result import Fleet
from gputrace.fleet.statistics import FALSE_ALARMS

SCHEMA = "gputrace.fleet/1"


def _plain(value: Any) -> Any:
    """Floats to nine digits, what is no number as null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


@dataclass(frozen=True)
class FleetJsonRenderer:
    """One JSON object; the same captures give the same bytes, wherever and in how many goes they were analysed."""

    extension: str = "json"

    def render(self, fleet: Fleet) -> str:
        """The fleet as indented JSON; its keys are those of docs/fleet.md."""
        deploy = fleet.deploy
        whole = {
            "schema": SCHEMA,
            "headline": fleet.headline,
            "analysis": fleet.analysis,
            "false_alarms": FALSE_ALARMS,
            "outlier_least_gpus": MIN_GPUS,
            "outlier_least_spread": LEAST_SPREAD,
            "hosts": fleet.hosts.to_dicts(),
            "gpus": fleet.gpus.to_dicts(),
            "causes": fleet.causes.to_dicts(),
            "gpu_causes": fleet.gpu_causes.to_dicts(),
            "daily": fleet.daily.to_dicts(),
            "outliers": [asdict(outlier) for outlier in fleet.outliers],
            "trends": [asdict(trend) for trend in fleet.trends],
            "deploy": None if deploy is None else asdict(deploy),
            "captures": [
                {**asdict(capture), "host": fleet.host_of[capture.capture], "host_told": capture.host}
                for capture in fleet.captures
            ],
            "failures": [asdict(failure) for failure in fleet.failures],
            "notices": [asdict(notice) for notice in fleet.notices],
        }
        return json.dumps(_plain(whole), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
