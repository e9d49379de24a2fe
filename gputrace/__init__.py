"""Says why a GPU prover's GPU is idle, from its log and a GPU trace.

>>> import gputrace
>>> trace = gputrace.load(["sample_logs/h200-pageable"])
>>> print(gputrace.diagnose(trace).headline)        # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputrace.analysis.compare import Comparison, compare
    from gputrace.analysis.diagnose import diagnose
    from gputrace.analysis.diagnosis import Diagnosis
    from gputrace.loading import load
    from gputrace.trace import Trace

from gputrace.errors import GateError, GputraceError, InputError, UsageError

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Diagnosis",
    "GateError",
    "GputraceError",
    "InputError",
    "Trace",
    "UsageError",
    "__version__",
    "compare",
    "diagnose",
    "load",
]

# Loaded when first used, so that the command line starts at once and a recorder never loads the analysis.
_LAZY = {
    "Comparison": "gputrace.analysis.compare",
    "Diagnosis": "gputrace.analysis.diagnosis",
    "Trace": "gputrace.trace",
    "compare": "gputrace.analysis.compare",
    "diagnose": "gputrace.analysis.diagnose",
    "load": "gputrace.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gputrace' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
