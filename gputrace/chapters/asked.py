"""What is asked of a long run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputrace.analysis.pipeline.scenarios import Scenario


@dataclass(frozen=True)
class Asked:
    """The shortest gap to list, and the changes to predict; those worth it where none are named."""

    gap_ms: float = 500.0
    scenarios: "Sequence[Scenario] | None" = None
