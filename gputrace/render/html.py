"""The report as one page of HTML that needs nothing else: no network, no other file.

Names in a log are anybody's words. They reach the page through Jinja's escaping or as JSON, and the page's content
security policy lets only the scripts run that are put in here, known by their hashes.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import vl_convert
from markupsafe import Markup

from gputrace.analysis.diagnosis import Diagnosis, Evidence, HypothesisFinding
from gputrace.analysis.headline import main_cause
from gputrace.analysis.moments import Moment, costliest
from gputrace.analysis.pipeline.busy import IN_WORDS
from gputrace.render.charts.details import Chart, detail_charts
from gputrace.render.page import trust
from gputrace.render.page.axis import Times
from gputrace.render.page.document import as_script, environment, hash_of, script_of, style_of
from gputrace.render.page.excerpt import excerpt, excerpts
from gputrace.render.page.lines import LogLines, wanted_lines
from gputrace.render.page.sources import call_names, gap_lines, job_spans, phase_lines
from gputrace.render.page.strips import strips
from gputrace.render.prospect import notes_of, replay_errors, tightest, whiskers
from gputrace.render.provenance import Provenance
from gputrace.render.timeline import build_timeline, page_data, regime_colours, time_axis
from gputrace.resources import reports_dir
from gputrace.trace import Trace

_MOST_GAPS = 100
_MOST_JOBS = 50
_LEAST_MOMENT_S = 0.05
# What the page's script finds on its window; the bundle holds Vega, Vega-Lite and Vega-Embed.
_BUNDLE = "window.vegaEmbed = vegaEmbed;"
_STYLES = ("report.css", "timeline.css")
# Each entry is one script, whose files share their names.
_TIMELINE_SCRIPTS = (("store.js", "drawing.js", "telling.js", "selection.js", "going.js", "timeline.js"),)
_PAGE_SCRIPTS = (("page.js",),)


@dataclass(frozen=True)
class HtmlRenderer:
    """Templates and styles are in `reports/`; the same trace and diagnosis always give the same bytes.

    `provenance` says how the report was made; without it the page shows the inputs alone.
    """

    provenance: Provenance | None = None
    extension: str = "html"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The page."""
        folder = reports_dir()
        theme: dict[str, Any] = json.loads((folder / "theme.json").read_text(encoding="utf-8"))
        drawn = replace(trace, calls=excerpts(trace.calls))
        timeline = build_timeline(drawn, diagnosis, theme["colours"])
        charts = {chart.key: chart for chart in detail_charts(trace, diagnosis, theme) if _in_page(chart)}
        scripts = _scripts(folder / "assets", timeline is not None, bool(charts))
        axis = timeline.axis if timeline else time_axis(trace, diagnosis)
        moments = _weighty(costliest(diagnosis.blame))
        log = LogLines(trace, axis, wanted_lines(trace, diagnosis, moments, _MOST_GAPS))
        made = environment(folder / "templates", theme["colours"])
        made.filters.update(
            {
                "link": log.link,
                "links": log.links,
                "speaks": _speaks,
                "excerpt": excerpt,
                "resource": lambda name: IN_WORDS.get(name, name),
                "threshold": trust.threshold_value,
            }
        )
        # What macros need too: they do not see the page's own names.
        made.globals.update({"time": Times(axis), "timeline": timeline})
        return made.get_template("report.html.j2").render(
            trace=trace,
            diagnosis=diagnosis,
            provenance=self.provenance,
            moment=Times(axis),
            moments=moments,
            log=log,
            charts=charts,
            strips=strips(trace, diagnosis.phases),
            phase_lines=phase_lines(trace),
            gap_lines=gap_lines(diagnosis),
            job_spans=job_spans(trace),
            calls=call_names(trace),
            colours=theme["colours"],
            whiskers=whiskers(diagnosis.what_if),
            replays=replay_errors(diagnosis.what_if),
            scenario_notes=notes_of(diagnosis.what_if),
            tightest=tightest(diagnosis.bounds),
            regime_colours=regime_colours(diagnosis, theme["colours"]),
            verdicts=_by_verdict(diagnosis.hypotheses),
            cause=main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses),
            clock_methods=trust.CLOCK_METHODS,
            clock_meaning=trust.clock_meaning(trace.clock),
            open_questions=list(trust.open_questions(trace, diagnosis)),
            threshold_meanings=trust.THRESHOLDS,
            rests_on=trust.headline_rests_on(diagnosis),
            run_s=trust.run_s(diagnosis),
            charged_only=trust.charged_only(diagnosis),
            little_back=trust.little_back(diagnosis),
            shaded_causes={gap.cause for gap in diagnosis.gaps.list},
            most_gaps=_MOST_GAPS,
            most_jobs=_MOST_JOBS,
            data={**page_data(timeline, theme), "chart": theme["chart"], "charts": _fitted(charts)},
            style=style_of(folder / "assets", _STYLES),
            scripts=scripts,
            script_hashes=[hash_of(script) for script in scripts],
        )


def _weighty(moments: dict[str, tuple[Moment, ...]]) -> dict[str, tuple[Moment, ...]]:
    """Those that a reader could see in the timeline at all."""
    kept = {cause: tuple(item for item in own if item.lost_s >= _LEAST_MOMENT_S) for cause, own in moments.items()}
    return {cause: own for cause, own in kept.items() if own}


def _in_page(chart: Chart) -> bool:
    """Whether the page shows a figure; of the others its tables say the same with bars of their own."""
    return chart.key in ("phase-durations", "bandwidth") or chart.key.startswith("driver-")


def _scripts(folder: Path, with_timeline: bool, with_charts: bool) -> list[Markup]:
    """The page's scripts in the order in which they run, each to be admitted by its own hash."""
    files = (_TIMELINE_SCRIPTS if with_timeline else ()) + _PAGE_SCRIPTS
    bundle = [as_script(vl_convert.javascript_bundle(_BUNDLE))] if with_timeline or with_charts else []
    return bundle + [script_of(folder, names) for names in files]


def _fitted(charts: dict[str, Chart]) -> dict[str, dict[str, Any]]:
    """The figures' specifications, each as wide as its place in the page."""
    fit = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return {key: {**chart.spec, **fit} for key, chart in charts.items()}


def _by_verdict(findings: tuple[HypothesisFinding, ...]) -> dict[str, list[HypothesisFinding]]:
    return {
        verdict: [finding for finding in findings if finding.verdict == verdict]
        for verdict in ("supported", "undetermined", "refuted")
    }


def _speaks(evidence: tuple[Evidence, ...], supports: bool) -> list[Evidence]:
    return [item for item in evidence if item.supports is supports]
