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


@dataclass(frozen=True)
class Tried:
    """What one try gave, before it is held against the headline: lost seconds by cause, most first, and the main cause.

    See `Variation`.
    """

    threshold: str
    usual: float
    value: float
    lost_s: dict[str, float]
    main_cause: str | None

    def against(self, chosen: str | None) -> Variation:
        """The try beside the headline's cause."""
        total = sum(self.lost_s.values())
        share = None
        if self.main_cause in self.lost_s:
            share = self.lost_s[self.main_cause] / total if total else 0.0
        return Variation(self.threshold, self.usual, self.value, self.main_cause, share, self.main_cause == chosen)
