"""What the analysis concludes of labelled runs, compared with the truth.

`python -m tests.verdicts NUMBER...` explains single runs of the set.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gputrace.analysis.diagnose import account
from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.loading import load
from tests.labelled import CAUSES, NONE, LabelledRun, labelled_runs

# What is left when nothing can be done from outside: not scored as causes.
RESIDUES = ("kernel-phase-idle", "line-rate-copy")


@dataclass(frozen=True)
class Outcome:
    """One run's truth and what was concluded of it; shares are of the lost seconds."""

    name: str
    with_trace: bool
    true_top: list[str]
    true_shares: dict[str, float]
    concluded_top: str
    verdicts: dict[str, str]
    lost_s: dict[str, float]
    why: dict[str, str]
    absent: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The cause that truly cost most, or none."""
        return max(self.true_top, key=lambda cause: self.true_shares.get(cause, 0.0))

    @property
    def right(self) -> bool:
        """Whether the top cause is the true one.

        From the log alone, saying that the true one cannot be decided is right, as long as no other is named.
        """
        if self.concluded_top in self.true_top:
            return True
        undecided = any(self.verdicts.get(cause) == "undetermined" for cause in self.true_top)
        return not self.with_trace and self.concluded_top == NONE and undecided

    @property
    def claimed(self) -> list[str]:
        """Causes that are supported though they are absent."""
        return [cause for cause in self.absent if self.verdicts.get(cause) == "supported"]

    def present_and(self, verdict: str) -> list[str]:
        """Causes that are present and judged so."""
        return [cause for cause in self.present if self.verdicts.get(cause) == verdict]

    def __str__(self) -> str:
        true = ", ".join(f"{cause} {share:.0%}" for cause, share in sorted(self.true_shares.items(), key=_by_share))
        said = ", ".join(f"{cause} {self.lost_s.get(cause, 0.0):.1f} s" for cause in self._supported())
        return f"{self.name}: truth {true or NONE}; supported {said or NONE}"

    def explained(self) -> str:
        """The same with what the verdicts on the true and the concluded causes rest on."""
        asked = dict.fromkeys([*self.true_top, self.concluded_top, *self.claimed])
        reasons = [
            f"    {cause} {self.verdicts[cause]}: {self.why[cause]}" for cause in asked if cause in self.verdicts
        ]
        return "\n".join([f"{self}; top {self.concluded_top}", *reasons])

    def _supported(self) -> list[str]:
        return [cause for cause, verdict in self.verdicts.items() if verdict == "supported"]


def _by_share(item: tuple[str, float]) -> float:
    return -item[1]


def top_cause(hypotheses: Iterable[HypothesisFinding]) -> str:
    """The supported cause with most seconds at stake, residues aside; none where there is none."""
    supported = [f for f in hypotheses if f.verdict == "supported" and f.id not in RESIDUES]
    return max(supported, key=lambda f: f.at_stake_s).id if supported else NONE


def conclude(run: LabelledRun, into: Path) -> Outcome:
    """Analyses one run."""
    truth = run.truth()
    findings = account(load(run.write(into))).hypotheses
    return Outcome(
        run.name,
        run.with_trace,
        sorted(truth.top),
        {cause: round(truth.costs.share(cause), 3) for cause in CAUSES if truth.costs.share(cause) >= 0.01},
        top_cause(findings),
        {finding.id: finding.verdict for finding in findings},
        {finding.id: round(finding.lost_s, 2) for finding in findings if finding.lost_s is not None},
        {finding.id: "; ".join(item.text for item in finding.evidence) or finding.next_step for finding in findings},
        sorted(truth.absent),
        sorted(truth.present),
    )


def write_outcomes(outcomes: Sequence[Outcome], path: Path) -> None:
    """Outcomes as JSON; complete when it appears under its name."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps([asdict(outcome) for outcome in outcomes]), encoding="utf-8")
    part.rename(path)


def read_outcomes(path: Path) -> list[Outcome]:
    """What `write_outcomes` wrote."""
    return [Outcome(**values) for values in json.loads(path.read_text(encoding="utf-8"))]


@dataclass(frozen=True)
class Score:
    """How many runs of a set are right; how many absent causes are claimed, how many present ones found or refuted."""

    runs: int
    right: int
    absent: int
    claimed: int
    present: int
    found: int
    refuted: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Score":
        """The score of these runs."""
        return cls(
            len(outcomes),
            sum(outcome.right for outcome in outcomes),
            sum(len(outcome.absent) for outcome in outcomes),
            sum(len(outcome.claimed) for outcome in outcomes),
            sum(len(outcome.present) for outcome in outcomes),
            sum(len(outcome.present_and("supported")) for outcome in outcomes),
            sum(len(outcome.present_and("refuted")) for outcome in outcomes),
        )


def confusion(outcomes: Sequence[Outcome]) -> dict[str, Counter[str]]:
    """For each true top cause, how often each cause was concluded.

    A run of which two causes may be called the top counts under the one that was concluded, if that is one of them.
    """
    table: dict[str, Counter[str]] = {label: Counter() for label in (*CAUSES, NONE)}
    for outcome in outcomes:
        label = outcome.concluded_top if outcome.concluded_top in outcome.true_top else outcome.label
        said = outcome.concluded_top
        if said == NONE and label != NONE and outcome.right:
            said = "undetermined"
        table[label][said] += 1
    return table


def main(numbers: Sequence[str]) -> None:
    """Prints the outcomes of these runs with their evidence."""
    for run in labelled_runs():
        if str(run.number) in numbers:
            with tempfile.TemporaryDirectory() as into:
                print(conclude(run, Path(into)).explained())


if __name__ == "__main__":
    main(sys.argv[1:])
