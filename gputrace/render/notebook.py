"""Values as small pieces of HTML for a notebook: escaped, without script, style sheet or id, bounded in size.

A notebook has its own colours, light or dark: text takes them over; only bars and edges have colours of their own.
"""

import json
from functools import cache
from typing import Any

from jinja2 import Environment

from gputrace.analysis.compare import Comparison
from gputrace.analysis.compare.words import amount, in_brief
from gputrace.analysis.diagnosis import Diagnosis, HypothesisFinding, Regime, WhatIf
from gputrace.analysis.outlook import Outlook
from gputrace.render.page.document import environment
from gputrace.render.prospect import change, notes_of, prospect, replay_errors
from gputrace.resources import reports_dir
from gputrace.schema import FRAMES
from gputrace.trace import Trace

# What one piece lists at most, and the longest text taken from a log or a path.
MOST_ROWS = 12
_LONGEST = 400
_TEMPLATES: dict[type, str] = {
    Trace: "trace",
    Diagnosis: "diagnosis",
    HypothesisFinding: "finding",
    Regime: "regime",
    WhatIf: "what_if",
    Outlook: "outlook",
    Comparison: "comparison",
}


def fragment(value: object) -> str:
    """The HTML of one of our values. Raises `TypeError` for any other."""
    name = next((name for kind, name in _TEMPLATES.items() if isinstance(value, kind)), None)
    if name is None:
        raise TypeError(f"a {type(value).__name__} has no form for notebooks")
    return _environment().get_template(f"{name}.html.j2").render(it=value)


@cache
def _environment() -> Environment:
    folder = reports_dir()
    colours: dict[str, Any] = json.loads((folder / "theme.json").read_text(encoding="utf-8"))["colours"]
    made = environment(folder / "templates" / "notebook", colours)
    made.filters.update(amount=amount, in_brief=in_brief, prospect=prospect, change=change, clipped=_clipped)
    made.globals.update(
        most=MOST_ROWS,
        frames=[schema.name for schema in FRAMES],
        notes_of=notes_of,
        replay_errors=replay_errors,
    )
    return made


def _clipped(text: object, longest: int = _LONGEST) -> str:
    said = str(text)
    return said if len(said) <= longest else f"{said[: longest - 1]}…"
