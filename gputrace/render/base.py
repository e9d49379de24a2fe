"""What every renderer is."""

from typing import Protocol

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.trace import Trace


class Renderer(Protocol):
    """Turns a trace and its diagnosis into one document; `extension` is its files' usual ending."""

    extension: str

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The document."""
        ...
