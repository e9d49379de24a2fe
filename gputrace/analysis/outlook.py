"""What a fix is worth: bounds and what-ifs of a diagnosed run, and what they say of its verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gputrace.analysis.diagnosis import Bound, Diagnosis, HypothesisFinding, Replay, WhatIf
from gputrace.analysis.pipeline.observe import NotReplayableError
from gputrace.analysis.pipeline.predict import what_if
from gputrace.analysis.pipeline.run import run_of
from gputrace.analysis.pipeline.scenarios import Scenario
from gputrace.analysis.tables import WHAT_IF, Table
from gputrace.display import Displayed
from gputrace.trace import Trace

# The change that takes a cause away.
REMEDIES = {
    "pageable-h2d": "pinned-h2d",
    "prep-barrier": "no-barrier",
    "pinned-alloc-stall": "no-allocation-stall",
    "release-abc": "no-release",
}
# A model that is off by more than this on the run itself predicts nothing.
_MOST_RATE_ERROR, _MOST_UNLOCK_ERROR = 0.1, 0.15


@dataclass(frozen=True, repr=False)
class Outlook(Displayed, shows=("what_if", "bounds", "missing")):
    """What changes would do, the most promising first, and what each resource could sustain.

    `missing` says why there is nothing to foresee, where there is nothing; `error` is the model's on the run.
    """

    bounds: tuple[Bound, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    error: Replay | None = None
    missing: str = ""

    table = Table("what_if", WHAT_IF)

    def __iter__(self) -> Iterator[WhatIf]:
        return iter(self.what_if)

    def __len__(self) -> int:
        return len(self.what_if)

    def __getitem__(self, scenario: str) -> WhatIf:
        """The prediction of that scenario; raises KeyError where it was not asked for."""
        return {effect.scenario: effect for effect in self.what_if}[scenario]


def outlook(trace: Trace, diagnosis: Diagnosis, scenarios: Sequence[Scenario] | None = None) -> Outlook:
    """Bounds and what-ifs of a run; of the scenarios worth asking for, if none are given."""
    try:
        run = run_of(trace, diagnosis)
    except NotReplayableError as reason:
        return Outlook(missing=str(reason))
    error = run.error
    if abs(error.rate) > _MOST_RATE_ERROR or error.unlock_worst > _MOST_UNLOCK_ERROR:
        missing = (
            f"the model replays this run's calls a second with an error of {error.rate:+.0%} and its unlocks with one "
            f"of {error.unlock_worst:.0%} of the elapsed time: it predicts nothing for it"
        )
        return Outlook(bounds=run.bounds(), error=error, missing=missing)
    return Outlook(run.bounds(), what_if(run, run.scenarios() if scenarios is None else scenarios), error)


def with_recoverable(findings: Sequence[HypothesisFinding], effects: Sequence[WhatIf]) -> tuple[HypothesisFinding, ...]:
    """The findings, with what removing a supported cause would save."""
    saved = {effect.scenario: effect.saved_s for effect in effects}
    return tuple(
        replace(finding, recoverable_s=saved.get(REMEDIES.get(finding.id, "")))
        if finding.verdict == "supported"
        else finding
        for finding in findings
    )


def remedy_of(cause: str | None, effects: Sequence[WhatIf]) -> WhatIf | None:
    """The what-if of the change that takes this cause away."""
    return next((effect for effect in effects if effect.scenario == REMEDIES.get(cause or "")), None)
