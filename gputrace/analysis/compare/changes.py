"""One figure before and after: the difference, its interval, and whether it can be called a change.

Intervals are per figure, at 95 %. The difference's comes from both standard errors with Welch's degrees of freedom;
that of the ratio is Fieller's (1954), which excludes 1 exactly where the other excludes 0. What is *called* a change
has passed Holm's (1979) correction over all figures compared, so that the false alarms of a whole comparison stay at
5 %: half for the headline figures (calls a second, compute share, the hold of the mutex), half for all others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scipy.special import stdtr, stdtrit

from gputrace.analysis.compare.figures import MATTERS_RELATIVE, Figure
from gputrace.analysis.compare.resampling import Estimate, critical_t
from gputrace.analysis.thresholds import MIN_CALLS

ChangeVerdict = Literal["changed", "small", "not-shown", "undetermined"]

FALSE_ALARMS = 0.05
INTERVAL = 0.95
# A change of the smallest detectable size is found in four of five runs.
POWER = 0.8
HEADLINE_PART = 0.5
# Saved reports keep nine digits: what differs by less is the same number.
_SAME = 1e-8


@dataclass(frozen=True)
class Change:
    """A figure before and after. Differences are after - before in the figure's unit, relative ones by before.

    `verdict`: changed; small (shown, but less than what matters); not-shown; undetermined (`why` says why). `p_value`
    is this figure's alone, `adjusted_p` corrected over all figures: below 0.05 the difference is shown. `detectable`
    (in the unit) and `detectable_relative` are the smallest change that the two runs would have shown, four times out
    of five. `calls_*` and `block_*` are the calls and the length of the resampled blocks. Unknown is None.
    """

    name: str
    title: str
    unit: str
    better: str
    headline: bool
    before: float | None
    after: float | None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    relative: float | None = None
    relative_low: float | None = None
    relative_high: float | None = None
    calls_before: int | None = None
    calls_after: int | None = None
    block_before: int | None = None
    block_after: int | None = None
    p_value: float | None = None
    adjusted_p: float | None = None
    detectable: float | None = None
    detectable_relative: float | None = None
    matters: float = 0.0
    verdict: ChangeVerdict = "undetermined"
    why: str = ""

    @property
    def suggestive(self) -> bool:
        """Its own interval excludes no change, but the correction over all figures does not."""
        return self.verdict == "not-shown" and self.p_value is not None and self.p_value < 1.0 - INTERVAL

    @property
    def improved(self) -> bool | None:
        """Whether the difference is for the better; None where that depends or there is none."""
        if not self.better or not self.difference:
            return None
        return (self.difference < 0) == (self.better == "lower")


@dataclass(frozen=True)
class Spread:
    """Standard error and degrees of freedom of `after - factor * before`."""

    error: float
    freedom: float

    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return critical_t(1.0 - INTERVAL, self.freedom) * self.error if self.error else 0.0


def spread(before: Estimate | None, after: Estimate, factor: float = 1.0) -> Spread | None:
    """How sure `after - factor * before` is, by Welch; None where that is unknown. Without `before`: of after alone."""
    if not after.has_interval or (before is not None and not before.has_interval):
        return None
    parts = [(after.standard_error**2, after.freedom)]
    if before is not None:
        parts.append(((factor * before.standard_error) ** 2, before.freedom))
    total = sum(variance for variance, _ in parts)
    if total == 0.0:
        return Spread(0.0, min(freedom for _, freedom in parts))
    return Spread(math.sqrt(total), total**2 / sum(v**2 / freedom for v, freedom in parts))


def ratio_interval(before: Estimate, after: Estimate, t: float) -> tuple[float, float] | None:
    """Fieller's interval of after / before; None where before may be 0, so that the ratio is unbounded."""
    b, a = before.value, after.value
    vb, va = before.standard_error**2, after.standard_error**2
    lead = b * b - t * t * vb
    if lead <= 0.0:
        return None
    root = math.sqrt(max(0.0, (a * b) ** 2 - lead * (a * a - t * t * va)))
    return (a * b - root) / lead, (a * b + root) / lead


def difference(figure: Figure, before: Estimate | None, after: Estimate | None, why: str = "") -> Change:
    """The change of one figure, not yet judged. `why` makes it undetermined whatever the numbers are."""
    change = Change(
        figure.name,
        figure.title,
        figure.unit,
        figure.better,
        figure.headline,
        None if before is None else before.value,
        None if after is None else after.value,
    )
    if before is None or after is None:
        missing = "both sides" if before is after else "BEFORE" if before is None else "AFTER"
        return replace(change, why=f"unknown in {missing}")
    moved = after.value - before.value
    if abs(moved) <= _SAME * abs(before.value):
        moved = 0.0
    matters = max(figure.matters, MATTERS_RELATIVE * abs(before.value))
    change = replace(
        change,
        difference=moved,
        relative=moved / before.value if before.value else None,
        calls_before=before.calls or None,
        calls_after=after.calls or None,
        matters=matters,
        why=why,
    )
    fewest = min(before.calls, after.calls)
    uncertain = spread(before, after)
    if uncertain is None:
        return replace(change, why=why or "no interval without single calls")
    if fewest < MIN_CALLS:
        return replace(change, why=f"{fewest} calls; at least {MIN_CALLS} are needed on each side")
    half = uncertain.half_width()
    ratio = ratio_interval(before, after, critical_t(1.0 - INTERVAL, uncertain.freedom))
    if uncertain.error:
        p_value = 2.0 * float(stdtr(uncertain.freedom, -abs(moved) / uncertain.error))
    else:
        p_value = 0.0 if moved else 1.0
    return replace(
        change,
        difference_low=moved - half,
        difference_high=moved + half,
        relative_low=None if ratio is None else ratio[0] - 1.0,
        relative_high=None if ratio is None else ratio[1] - 1.0,
        block_before=before.block,
        block_after=after.block,
        p_value=None if why else p_value,
    )


def judge(changes: Sequence[Change], spreads: Sequence[Spread | None], share: float = 1.0) -> tuple[Change, ...]:
    """The verdicts, corrected over all of `changes`; `share` is the part of the false alarms that they may make."""
    judged = list(changes)
    for headline, part in ((True, HEADLINE_PART), (False, 1.0 - HEADLINE_PART)):
        family = [i for i, change in enumerate(changes) if change.headline == headline and change.p_value is not None]
        family.sort(key=lambda i: changes[i].p_value or 0.0)
        worst = 0.0
        for rank, i in enumerate(family):
            own = spreads[i]
            assert own is not None
            # Holm: the smallest p times their number, the next by one less, and never below the one before.
            worst = max(worst, min(1.0, (changes[i].p_value or 0.0) * (len(family) - rank) / (part * share)))
            level = FALSE_ALARMS * part * share / len(family)
            judged[i] = _judged(changes[i], worst, own, level)
    return tuple(judged)


def _judged(change: Change, adjusted_p: float, uncertain: Spread, level: float) -> Change:
    needed = max(critical_t(level, uncertain.freedom) * uncertain.error, change.matters)
    detectable = needed + float(stdtrit(uncertain.freedom, POWER)) * uncertain.error
    shown = adjusted_p < FALSE_ALARMS
    large = abs(change.difference or 0.0) >= change.matters
    return replace(
        change,
        adjusted_p=adjusted_p,
        detectable=detectable,
        detectable_relative=detectable / abs(change.before) if change.before else None,
        verdict="changed" if shown and large else "small" if shown else "not-shown",
    )
