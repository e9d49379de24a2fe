"""Whether the headline's cause survives other thresholds, one try at a time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variation:
    """One try: `threshold` (as `Thresholds` names it) at `value` instead of `usual`, and what came out.

    `main_cause` is the supported cause that lost most then, None where there is none; `share` its part of the lost
    seconds, 0..1. `same` is whether that is the headline's cause.
    """

    threshold: str
    usual: float
    value: float
    main_cause: str | None
    share: float | None
    same: bool
