"""The report's figures as Altair charts, to be shown, changed and saved in a notebook."""

import json
from textwrap import wrap
from typing import Any

import altair as alt

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.render.charts.details import Chart, detail_charts
from gputrace.resources import reports_dir
from gputrace.trace import Trace

_SUBTITLE_WIDTH = 110


def altair_charts(trace: Trace, diagnosis: Diagnosis) -> dict[str, Any]:
    """Every figure that this run has numbers for, by its key; the caption is the subtitle."""
    theme = json.loads((reports_dir() / "theme.json").read_text(encoding="utf-8"))
    return {chart.key: alt.Chart.from_dict(_headed(chart)) for chart in detail_charts(trace, diagnosis, theme)}


def _headed(chart: Chart) -> dict[str, Any]:
    title = {"text": chart.title, "subtitle": wrap(chart.caption, _SUBTITLE_WIDTH), "anchor": "start"}
    # A page of its own colour: text is drawn dark, whatever the notebook's theme.
    return {**chart.spec, "title": title, "background": "white"}
