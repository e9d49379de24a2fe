"""What a predicted effect amounts to, in one word, so that every report says the same."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gputrace.analysis.diagnosis import Bound, Effect, WhatIf

Prospect = Literal["gain", "no sure gain", "loss", "unknown"]


def prospect(effect: WhatIf) -> Prospect:
    """A gain if these same calls are sure to be done sooner, a loss if later, else no sure gain."""
    if effect.saved_s_low is None or effect.saved_s_high is None:
        return "unknown"
    if effect.gains is None:
        return "no sure gain"
    return "gain" if effect.gains else "loss"


def change(effect: Effect) -> float | None:
    """Predicted over now, less one; None where either is unknown or now is 0."""
    return None if effect.predicted is None or not effect.now else effect.predicted / effect.now - 1.0


def replay_errors(scenarios: Iterable[WhatIf]) -> list[tuple[float, float, float]]:
    """How the model replays the run unchanged: (now, replay, replay / now - 1) in calls a second, each pair once."""
    pairs = {(rate.now, rate.replay): None for rate in (scenario.calls_per_s for scenario in scenarios)}
    return [(now, replay, replay / now - 1.0) for now, replay in pairs if now and replay is not None]


def notes_of(scenarios: Iterable[WhatIf]) -> list[str]:
    """Every note of the scenarios once, in order: several scenarios share most of them."""
    return list(dict.fromkeys(note for scenario in scenarios for note in scenario.notes))


def tightest(bounds: tuple[Bound, ...]) -> Bound | None:
    """The resource that allows the fewest calls a second."""
    return min(bounds, key=lambda bound: bound.max_calls_per_s, default=None)


@dataclass(frozen=True)
class Whisker:
    """One scenario's rate as places (0..1) on the axis that all scenarios share: 0 calls a second is at the left."""

    scenario: WhatIf
    prospect: Prospect
    change: float | None
    now: float | None
    predicted: float | None
    low: float | None
    high: float | None


def whiskers(scenarios: Iterable[WhatIf]) -> list[Whisker]:
    """The scenarios in their order; the highest number of any lies just inside the axis."""
    rates = [(scenario, scenario.calls_per_s) for scenario in scenarios]
    known = [value for _, rate in rates for value in (rate.now, rate.predicted, rate.high) if value is not None]
    end = 1.04 * max(known, default=0.0)

    def place(value: float | None) -> float | None:
        return None if value is None or end <= 0 else round(min(max(value / end, 0.0), 1.0), 5)

    return [
        Whisker(
            scenario=scenario,
            prospect=prospect(scenario),
            change=change(rate),
            now=place(rate.now),
            predicted=place(rate.predicted),
            low=place(rate.low),
            high=place(rate.high),
        )
        for scenario, rate in rates
    ]
