"""Says why a GPU prover's GPU is idle, from its log and a GPU trace.

    trace = gputrace.load("prover.log", "nvml.csv")
    gputrace.analyze(trace).headline

docs/python-api.md has every name, docs/tutorial.ipynb an investigation from end to end.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputrace import schema
    from gputrace.analysis.compare import Comparison, compare
    from gputrace.analysis.diagnosis import Diagnosis, HypothesisFinding, Regime, WhatIf
    from gputrace.analysis.outlook import Outlook
    from gputrace.analysis.thresholds import Thresholds
    from gputrace.api import analyze, charts, part, report, what_if
    from gputrace.ingest.traces import TraceOptions
    from gputrace.loading import load
    from gputrace.trace import Trace

from gputrace.display import draw_with
from gputrace.errors import GateError, GputraceError, InputError, UsageError

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Diagnosis",
    "GateError",
    "GputraceError",
    "HypothesisFinding",
    "InputError",
    "Outlook",
    "Regime",
    "Thresholds",
    "Trace",
    "TraceOptions",
    "UsageError",
    "WhatIf",
    "__version__",
    "analyze",
    "charts",
    "compare",
    "load",
    "part",
    "report",
    "schema",
    "what_if",
]

# Loaded when first used, so that the command line starts at once and a recorder never loads the analysis.
_LAZY = {
    "Comparison": "gputrace.analysis.compare",
    "Diagnosis": "gputrace.analysis.diagnosis",
    "HypothesisFinding": "gputrace.analysis.diagnosis",
    "Outlook": "gputrace.analysis.outlook",
    "Regime": "gputrace.analysis.diagnosis",
    "Thresholds": "gputrace.analysis.thresholds",
    "Trace": "gputrace.trace",
    "TraceOptions": "gputrace.ingest.traces",
    "WhatIf": "gputrace.analysis.diagnosis",
    "analyze": "gputrace.api",
    "charts": "gputrace.api",
    "compare": "gputrace.analysis.compare",
    "load": "gputrace.loading",
    "part": "gputrace.api",
    "report": "gputrace.api",
    "what_if": "gputrace.api",
}


def __getattr__(name: str) -> Any:
    if name == "schema":
        return import_module("gputrace.schema")
    if name not in _LAZY:
        raise AttributeError(f"module 'gputrace' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _html(value: object) -> str:
    from gputrace.render.notebook import fragment

    return fragment(value)


draw_with(_html)
