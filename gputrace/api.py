"""What a notebook does with a `Trace`: take a part of it, analyze it, ask what a change would do, write a report."""

from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

from gputrace.analysis.diagnose import DEFAULT_GAP_MS, account, diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.outlook import Outlook, outlook
from gputrace.analysis.pipeline.scenarios import asked_for
from gputrace.analysis.selection import Selection, select
from gputrace.analysis.thresholds import Thresholds
from gputrace.errors import UsageError
from gputrace.trace import Trace

Moment = str | float | datetime
# The renderers of a diagnosis: each has one method, render(trace, diagnosis).
_FORMATS = {
    "html": ("gputrace.render.html", "HtmlRenderer"),
    "json": ("gputrace.render.json_report", "JsonRenderer"),
    "markdown": ("gputrace.render.markdown", "MarkdownRenderer"),
    "text": ("gputrace.render.text", "TextRenderer"),
}


def part(
    trace: Trace,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    last_s: float | None = None,
    gpu: int | None = None,
    worker: int | None = None,
    job: str | None = None,
    regime: int | str | None = None,
    timezone: str | None = None,
) -> Trace:
    """A part of a run, for whatever takes a trace; the command line's `--from`, `--to`, `--last`, `--gpu`, ...

    Parameters:
        trace: a run.
        start, end: seconds into the window (first lock to last unlock), or a time, as text or `datetime`. Calls that
            lie wholly inside are kept, with what belongs to them.
        last_s: seconds before `end`, or before the end of the window, instead of `start`.
        gpu: only this GPU, as the prover numbers it.
        worker, job: calls, phases and jobs of this worker or job; the GPU's time stays that of everyone who used it.
        regime: the number of a regime from 1, or part of its label; the run is analyzed to find it.
        timezone: zone of times written without one; UTC where not given.

    What was left out is counted in the notices of the trace (`trace.quality.notices`).

    Raises `InputError` where nothing matches, `UsageError` where the request contradicts itself. Their messages name
    the options of the command line.
    """
    wanted = Selection(
        start=_moment(start),
        end=_moment(end),
        last_s=last_s,
        gpu=gpu,
        worker=worker,
        job=job,
        regime=None if regime is None else str(regime),
        timezone=timezone,
    )
    return select(trace, wanted)


def _moment(at: Moment | None) -> str | None:
    if at is None or isinstance(at, str):
        return at
    return at.isoformat() if isinstance(at, datetime) else f"{at:.9f}".rstrip("0").rstrip(".")


def analyze(trace: Trace, *, gap_ms: float = DEFAULT_GAP_MS, thresholds: Thresholds | None = None) -> Diagnosis:
    """Says why the GPU was idle, how sure that is, and what a fix is worth.

    Parameters:
        trace: a run, or a part of one.
        gap_ms: shortest gap to list, in milliseconds; sums by cause cover every lost second all the same.
        thresholds: other limits than those of docs/definitions.md, to see what depends on them.

    Returns a `Diagnosis`: `headline`, `gpus`, `phases`, `gaps`, `hypotheses` (the verdicts), `regimes`, `what_if`, ...
    as values, the same as frames (`phase_table`, `verdict_table`, ...; all of them by `frames()`), and the frames
    behind the numbers (`states`, `blame`, `call_bytes`). Durations are in ms or s, rates payload bytes per second,
    shares 0..1, unknown is None.

    Raises `UsageError` where `gap_ms` is not at least 1.
    """
    if not gap_ms >= 1.0:
        raise UsageError(f"gap_ms {gap_ms:g}: must be at least 1")
    return diagnose(trace, gap_ms, thresholds)


def what_if(trace: Trace, *scenarios: str, settings: Sequence[str] = ()) -> Outlook:
    """Predicts what changes to the pipeline would do to this run, by replaying its calls through a model of it.

    Parameters:
        trace: a run, or a part of one.
        scenarios: changes, several at once joined by `+`, as `"pinned-h2d+workers=3"`; those worth asking about where
            none is given. docs/what-if.md lists them.
        settings: service times that go with every scenario, or are one of their own, as `["prep_msm=0.5x"]`.

    Returns an `Outlook`: the predictions, the most promising first (iterate over it, or `outlook["pinned-h2d"]`), each
    a `WhatIf` with intervals; `bounds`; `error`, how far the model is off on the run itself; and in `missing` why
    nothing is predicted, where nothing is. `table` has the predictions as a frame.

    Raises `UsageError` for a change that is not known.
    """
    asked = asked_for(scenarios, settings)
    return outlook(trace, account(trace), asked)


def charts(trace: Trace, diagnosis: Diagnosis) -> dict[str, Any]:
    """The report's figures as Altair charts, to be shown, changed or saved: `charts["bandwidth"].save("copies.svg")`.

    Parameters:
        trace: a run.
        diagnosis: what `analyze` made of it.

    Returns the charts by their keys (states, causes, bandwidth, ...), those that this run has numbers for; the subtitle
    says how to read one. Raises `GputraceError` only where the installation is broken.
    """
    from gputrace.render.charts.as_altair import altair_charts

    return altair_charts(trace, diagnosis)


def report(trace: Trace, diagnosis: Diagnosis, form: str = "html") -> str:
    """A report as text, to be written where it is wanted: `Path("report.html").write_text(gputrace.report(...))`.

    Parameters:
        trace: a run.
        diagnosis: what `analyze` made of it.
        form: html (one page that needs nothing else), json (the contract of the command line), markdown (for an issue
            or a chat) or text.

    Raises `UsageError` for another form.
    """
    if form not in _FORMATS:
        raise UsageError(f"form {form!r} is not known; known are {', '.join(_FORMATS)}")
    module, name = _FORMATS[form]
    return str(getattr(import_module(module), name)().render(trace, diagnosis))
