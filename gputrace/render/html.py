"""The report as one page of HTML that needs nothing else: no network, no other file.

Names in a log are anybody's words. They reach the page through Jinja's escaping or as JSON, and the page's content
security policy lets only the scripts run that are put in here, known by their hashes.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gputrace.analysis.diagnosis import Diagnosis, Evidence, HypothesisFinding, PhaseFinding
from gputrace.render import units
from gputrace.render.prospect import notes_of, replay_errors, tightest, whiskers
from gputrace.render.timeline import Timeline, build_timeline, page_data, regime_colours
from gputrace.resources import reports_dir
from gputrace.trace import Trace

_MOST_GAPS = 100
_MOST_JOBS = 50
_MOST_TICKS = 80
_STRIP_WIDTH = 120.0
# What the page's script finds on its window; the bundle holds Vega, Vega-Lite and Vega-Embed.
_BUNDLE = "window.vegaEmbed = vegaEmbed;"
_STYLES = ("report.css", "timeline.css")
# Each entry is one script, whose files share their names.
_TIMELINE_SCRIPTS = (("store.js", "drawing.js", "telling.js", "selection.js", "timeline.js"),)
_PAGE_SCRIPTS = (("page.js",),)


@dataclass(frozen=True)
class HtmlRenderer:
    """Templates and styles are in `reports/`; the same trace and diagnosis always give the same bytes."""

    extension: str = "html"

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The page."""
        folder = reports_dir()
        theme: dict[str, Any] = json.loads((folder / "theme.json").read_text(encoding="utf-8"))
        timeline = build_timeline(trace, diagnosis, theme["colours"])
        scripts = _scripts(folder / "assets", with_timeline=timeline is not None)
        page = _environment(folder, theme["colours"]).get_template("report.html.j2")
        return page.render(
            trace=trace,
            diagnosis=diagnosis,
            timeline=timeline,
            moment=_Moments(timeline),
            strips=_strips(trace, diagnosis.phases),
            calls=_call_names(trace),
            colours=theme["colours"],
            whiskers=whiskers(diagnosis.what_if),
            replays=replay_errors(diagnosis.what_if),
            scenario_notes=notes_of(diagnosis.what_if),
            tightest=tightest(diagnosis.bounds),
            regime_colours=regime_colours(diagnosis, theme["colours"]),
            verdicts=_by_verdict(diagnosis.hypotheses),
            shaded_causes={gap.cause for gap in diagnosis.gaps.list},
            most_gaps=_MOST_GAPS,
            most_jobs=_MOST_JOBS,
            data=page_data(timeline, theme),
            style=_inert(_joined(folder / "assets", _STYLES), "</style"),
            scripts=scripts,
            script_hashes=[_hash(script) for script in scripts],
        )


def _environment(folder: Path, colours: dict[str, Any]) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folder / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
    filters: dict[str, Callable[..., Any]] = {
        "seconds": units.seconds,
        "milliseconds": units.milliseconds,
        "share": units.share,
        "rate": units.rate,
        "size": units.size,
        "count": units.count,
        "per_second": units.per_second,
        "signed_share": units.signed_share,
        "signed_seconds": units.signed_seconds,
        "known": units.known,
        "speaks": _speaks,
        "colour": lambda name, kind: colours[kind].get(name, colours["other"]),
    }
    environment.filters.update(filters)
    return environment


def _inert(text: str, closing: str) -> Markup:
    """Our own text, to be put into the page as it is; it must not end the element around it."""
    if closing in text.lower() or "<!--" in text:
        raise ValueError(f"text with {closing} or <!-- cannot be put into the page")
    return Markup(text.replace("\r\n", "\n"))


def _joined(folder: Path, names: tuple[str, ...]) -> str:
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def _scripts(folder: Path, with_timeline: bool) -> list[Markup]:
    """The page's scripts in the order in which they run, each to be admitted by its own hash."""
    files = (_TIMELINE_SCRIPTS if with_timeline else ()) + _PAGE_SCRIPTS
    own = [f'(() => {{\n"use strict";\n{_joined(folder, names)}}})();\n' for names in files]
    bundle = [vl_convert.javascript_bundle(_BUNDLE)] if with_timeline else []
    return [_inert(text, "</script") for text in bundle + own]


def _hash(script: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"


@dataclass(frozen=True)
class _Moments:
    """Times as the page writes them."""

    timeline: Timeline | None

    def seconds(self, time_ns: int) -> float | None:
        """Seconds since the axis' zero; None where there is no axis."""
        return self.timeline.axis.seconds(time_ns) if self.timeline else None

    def utc(self, time_ns: int | None) -> str | None:
        """The time of day in UTC; None where the log is not on the wall clock."""
        if time_ns is None or self.timeline is None or not self.timeline.axis.utc:
            return None
        return units.utc(time_ns)


def _by_verdict(findings: tuple[HypothesisFinding, ...]) -> dict[str, list[HypothesisFinding]]:
    return {
        verdict: [finding for finding in findings if finding.verdict == verdict]
        for verdict in ("supported", "undetermined", "refuted")
    }


def _speaks(evidence: tuple[Evidence, ...], supports: bool) -> list[Evidence]:
    return [item for item in evidence if item.supports is supports]


def _call_names(trace: Trace) -> dict[int, str]:
    """What a call is, in words, by its number."""
    named = {}
    for call, worker, partition in trace.calls.select("call", "worker", "partition").iter_rows():
        parts = [
            f"{word} {value}" for word, value in (("worker", worker), ("partition", partition)) if value is not None
        ]
        named[int(call)] = f"call {call}" + (f" ({', '.join(parts)})" if parts else "")
    return named


def _strips(trace: Trace, phases: tuple[PhaseFinding, ...]) -> dict[str, dict[str, Any]]:
    """For each kind of phase its strip: a tick a call (at most 80, evenly over the ranks), from 0 to the longest."""
    calls = trace.calls.filter("complete").select("call")
    durations = trace.phases.join(calls, on="call", how="semi").drop_nulls("duration_ms")
    strips = {}
    for phase in phases:
        if phase.max_ms <= 0:
            continue
        values = durations.filter(pl.col("name") == phase.name)["duration_ms"].sort()
        step = max(1.0, values.len() / _MOST_TICKS)
        chosen = [values[int(i * step)] for i in range(int(values.len() / step))]

        def place(value: float, longest: float = phase.max_ms) -> float:
            return round(1 + (_STRIP_WIDTH - 2) * min(value / longest, 1.0), 1)

        strips[phase.name] = {
            "ticks": sorted({place(value) for value in chosen}),
            "low": place(phase.p5_ms),
            "median": place(phase.median_ms),
            "high": place(phase.p95_ms),
            "width": _STRIP_WIDTH,
        }
    return strips
