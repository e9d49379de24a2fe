"""Every chart as PNG and SVG, for a document or a talk: on white, with a legend, a title and the run's inputs."""

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vl_convert

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.redaction import is_redacted
from gputrace.render import units
from gputrace.render.charts.details import Chart, Spec, detail_charts
from gputrace.render.timeline import Panel, build_timeline
from gputrace.render.timeline.still import Rows, still
from gputrace.resources import reports_dir
from gputrace.trace import Trace

_WIDTH = 1000
_SCALE = 2.0
# Longest line of a subtitle that fits the narrowest chart.
_LINE = 110
_PANELS = {
    "regimes": ("regimes", "Stretches of the run in which the phases behave alike."),
    "phases": ("phases", "What each worker did, a lane for each thing that it does one at a time."),
    "lost": ("states, and what lost time went to", "Shares of each stretch of time: above by state, below by cause."),
    "link": (
        "link traffic, payload GB/s",
        "Filled: rx, into the GPU; line: tx, out of it. Dashed: what the link can carry, and the run's own line rate.",
    ),
    "compute": ("share of SMs active", "Gaps are shaded in the colour of their cause."),
}


@dataclass(frozen=True)
class ImagesRenderer:
    """A folder with `NAME.png` and `NAME.svg` for every panel of the timeline and every detail chart."""

    def write(self, trace: Trace, diagnosis: Diagnosis, folder: Path) -> str:
        """Writes into a folder that is there; says what was written."""
        written = 0
        for chart in charts(trace, diagnosis):
            drawn = vl_convert.vegalite_to_svg(json.dumps(chart.spec))
            (folder / f"{chart.key}.svg").write_text(drawn, encoding="utf-8")
            (folder / f"{chart.key}.png").write_bytes(vl_convert.svg_to_png(drawn, scale=_SCALE))
            written += 1
        return f"{written} charts, each as PNG and SVG"


def charts(trace: Trace, diagnosis: Diagnosis) -> Iterator[Chart]:
    """All charts, ready to stand alone."""
    theme: dict[str, Any] = json.loads((reports_dir() / "theme.json").read_text(encoding="utf-8"))
    inputs = "; ".join(info.path for info in trace.inputs if info.used and info.kind != "metadata")
    source = f"{inputs}{' (redacted)' if is_redacted(trace) else ''}"
    timeline = build_timeline(trace, diagnosis, theme["colours"])
    if timeline is not None:
        axis = timeline.axis
        zero = f"0\u00a0s is {units.utc(axis.origin_ns)} UTC." if axis.utc else "This log has no wall clock."
        for figure in timeline.figures:
            for panel in figure.panels:
                yield _alone(_of_panel(figure.gpu, panel, still(timeline, figure, panel.kind), zero), theme, source)
    for chart in detail_charts(trace, diagnosis, theme):
        yield _alone(chart, theme, source)


def _of_panel(gpu: int, panel: Panel, data: dict[str, Rows], zero: str) -> Chart:
    """A panel with its data, a time axis and a legend of its own: in the page those of a GPU share them."""
    title, caption = _PANELS[panel.kind]
    spec = deepcopy(panel.spec)
    spec["datasets"] |= data
    _show_legends(spec)
    for layer in [spec, *spec.get("layer", [])]:
        time = layer.get("encoding", {}).get("x", {}).get("axis")
        if time is not None:
            time |= {"labels": True, "ticks": True, "title": "seconds"}
    return Chart(panel.key, f"GPU {gpu}: {title}", f"{caption} {zero}", spec)


def _alone(chart: Chart, theme: dict[str, Any], source: str) -> Chart:
    """The chart with what a page around it would give: width, colours of axes, a title."""
    spec = deepcopy(chart.spec)
    if spec.get("width") == "container":
        spec["width"] = _WIDTH
    spec["config"] = _config(theme)
    spec["background"] = "white"
    spec["padding"] = 12
    spec["title"] = {
        "text": chart.title,
        "subtitle": [*_wrapped(chart.caption), *_wrapped(source)],
        "anchor": "start",
        "fontSize": 15,
        "subtitleFontSize": 11,
        "subtitleColor": theme["chart"]["light"]["axis"]["labelColor"],
        "offset": 10,
    }
    return Chart(chart.key, chart.title, chart.caption, spec)


def _config(theme: dict[str, Any]) -> dict[str, Any]:
    light = theme["chart"]["light"]
    return {
        **light,
        "background": "white",
        "font": "DejaVu Sans, Helvetica, Arial, sans-serif",
        "axis": {**light["axis"], "labelFontSize": 11, "titleFontSize": 11},
        "legend": {
            "orient": "bottom",
            "title": None,
            "columns": 6,
            "labelFontSize": 11,
            "labelLimit": 0,
            "symbolType": "square",
        },
        "view": {"stroke": None},
    }


def _show_legends(spec: Spec) -> None:
    """Colours are explained by the page; alone a chart needs its legend. Only those with named colours have one."""
    for key, value in spec.items():
        if key == "color" and isinstance(value, dict) and value.get("legend", 0) is None:
            if value.get("scale", {}).get("domain"):
                del value["legend"]
        elif isinstance(value, dict) and key not in ("datasets", "data"):
            _show_legends(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    _show_legends(item)


def _wrapped(text: str) -> list[str]:
    """Lines of at most `_LINE` characters; a word longer than that keeps its end, which tells paths apart."""
    lines = [""]
    for word in text.split(" "):
        word = word if len(word) <= _LINE else f"…{word[1 - _LINE :]}"
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _LINE:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
