"""A fleet as one page of HTML that needs nothing else; tables sort by a click, and are whole without scripts."""

import json
from dataclasses import dataclass
from typing import Any

import polars as pl

from gputrace.fleet.result import Fleet
from gputrace.fleet.statistics import FALSE_ALARMS
from gputrace.render import fleet_words as words
from gputrace.render.page.document import environment, hash_of, script_of, style_of
from gputrace.resources import reports_dir

_STRIP_WIDTH, _STRIP_HEIGHT = 640.0, 90.0
_MOST_CAUSES = 8


@dataclass(frozen=True)
class FleetHtmlRenderer:
    """Templates and styles are in `reports/`; the same fleet always gives the same bytes."""

    extension: str = "html"

    def render(self, fleet: Fleet) -> str:
        """The page."""
        folder = reports_dir()
        theme: dict[str, Any] = json.loads((folder / "theme.json").read_text(encoding="utf-8"))
        assets = folder / "assets"
        script = script_of(assets, ("fleet.js",))
        made = environment(folder / "templates", theme["colours"])
        made.filters.update(
            points=words.points,
            relative=words.relative,
            measure=words.measure_name,
            level=words.level,
            score=words.score,
        )
        causes = fleet.causes["cause"].to_list()[:_MOST_CAUSES]
        return made.get_template("fleet.html.j2").render(
            fleet=fleet,
            causes=causes,
            hosts=_with_causes(fleet, fleet.hosts, ["host"], causes),
            gpus=_with_causes(fleet, fleet.gpus, ["host", "gpu"], causes),
            most_lost=max(fleet.causes["share_of_lost"].to_list(), default=1.0),
            outliers=words.by_gpu(fleet.outliers),
            trends=words.told_trends(fleet.trends),
            slope=words.slope,
            difference=words.difference,
            deploy=words.deploy_in_words(fleet),
            names=words.short_names(fleet),
            daily=_strip(fleet.daily),
            false_alarms=FALSE_ALARMS,
            style=style_of(assets, ("report.css", "fleet.css")),
            script=script,
            script_hash=hash_of(script),
        )


def _with_causes(fleet: Fleet, table: pl.DataFrame, keys: list[str], causes: list[str]) -> list[dict[str, Any]]:
    """The rows of a ranking, each with its seconds by the causes that have columns, and those of all others."""
    seconds: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in fleet.gpu_causes.iter_rows(named=True):
        own = seconds.setdefault(tuple(row[key] for key in keys), {})
        own[row["cause"]] = own.get(row["cause"], 0.0) + row["lost_s"]
    rows = []
    for row in table.iter_rows(named=True):
        own = seconds.get(tuple(row[key] for key in keys), {})
        parts = {cause: own.get(cause, 0.0) for cause in causes}
        rows.append({**row, "by_cause": parts, "others_s": max(0.0, sum(own.values()) - sum(parts.values()))})
    return rows


def _strip(daily: pl.DataFrame) -> dict[str, Any] | None:
    """Lost share by day, a bar a day, evenly over the days from first to last."""
    if daily.height < 2:
        return None
    day = daily["day"].str.to_date().dt.epoch("d")
    first, last = int(day.min()), int(day.max())  # type: ignore[arg-type]
    step = _STRIP_WIDTH / (last - first + 1)
    bars = [
        {
            "x": round((number - first) * step + step * 0.1, 2),
            "width": round(max(step * 0.8, 0.5), 2),
            "height": round((row["lost_share"] or 0.0) * _STRIP_HEIGHT, 2),
            **row,
        }
        for number, row in zip(day.to_list(), daily.iter_rows(named=True), strict=True)
    ]
    return {
        "bars": bars,
        "width": _STRIP_WIDTH,
        "height": _STRIP_HEIGHT,
        "first": daily["day"][0],
        "last": daily["day"][-1],
    }
