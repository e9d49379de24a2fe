"""Gates: conditions on a comparison that must not be true.

A gate judges the values themselves and says beside that whether the 95 % interval leaves the limit out. What cannot be
judged, because a figure that decides it is unknown, fails: a gate never passes because it saw nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gputrace.analysis.compare.changes import spread
from gputrace.analysis.compare.expressions import Both, Condition, Limit, Not, limits_of, parse
from gputrace.analysis.compare.side import Side, estimates
from gputrace.analysis.compare.words import amount, with_unit
from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.errors import GateError


@dataclass(frozen=True)
class Measured:
    """One comparison of a gate: both values, the limit in the figure's unit, and whether it is true.

    `sure`: the interval of the difference from the limit excludes 0; None where there is no interval. `low` and `high`
    are that interval beside the value: the limit lies outside exactly where the comparison is sure. Unknown is None.
    """

    text: str
    figure: str
    unit: str
    before: float | None
    after: float | None
    limit: float | None
    relative: float | None
    true: bool | None
    low: float | None = None
    high: float | None = None
    sure: bool | None = None
    why: str = ""


@dataclass(frozen=True)
class GateOutcome:
    """A gate's expression, whether it failed, and its comparisons. `judged` is False where it failed unseen."""

    expression: str
    failed: bool
    judged: bool
    measured: tuple[Measured, ...]

    @property
    def reason(self) -> str:
        """Why it failed, or how it was kept, in one line."""
        if not self.judged:
            unknown = "; ".join(f"{m.figure}: {m.why}" for m in self.measured if m.true is None)
            return f"{self.expression}: cannot be judged: {unknown}"
        return f"{self.expression}: {'; '.join(_said(measured) for measured in self.measured)}"


def parse_gates(expressions: Iterable[str]) -> list[tuple[str, Condition]]:
    """The conditions, with their text. Raises `UsageError` for the first bad one."""
    return [(text, parse(text)) for text in expressions]


def try_gate(gate: tuple[str, Condition], before: Side, after: Side) -> GateOutcome:
    """What a gate says about two sides."""
    text, condition = gate
    measured = {limit: _measure(limit, before, after) for limit in limits_of(condition)}
    result = _result(condition, measured)
    return GateOutcome(text, result is not False, result is not None, tuple(measured.values()))


def enforce(outcomes: Iterable[GateOutcome]) -> None:
    """Raises `GateError`, in one line, if a gate failed."""
    failed = [outcome.reason for outcome in outcomes if outcome.failed]
    if failed:
        raise GateError(f"gate failed: {' | '.join(failed)}")


def _result(condition: Condition, measured: dict[Limit, Measured]) -> bool | None:
    """Kleene's logic: unknown only where it decides."""
    if isinstance(condition, Limit):
        return measured[condition].true
    if isinstance(condition, Not):
        inner = _result(condition.inner, measured)
        return None if inner is None else not inner
    assert isinstance(condition, Both)
    sides = _result(condition.left, measured), _result(condition.right, measured)
    deciding = condition.word == "or"
    if deciding in sides:
        return deciding
    return None if None in sides else not deciding


def _measure(limit: Limit, before: Side, after: Side) -> Measured:
    figure = limit.figure
    if limit.relative:
        b, a, _ = estimates(figure, before, after)
    else:
        # Nothing but AFTER is judged: take its calls if it lists them, whatever BEFORE has.
        a = after.estimate(figure) or after.from_summary(figure)
        b = before.estimate(figure) or before.from_summary(figure)
    values = None if b is None else b.value, None if a is None else a.value
    empty = Measured(limit.text, figure.name, figure.unit, *values, None, limit.value if limit.relative else None, None)
    missing = [
        side.name for side, own in ((before, b), (after, a)) if own is None and (limit.relative or side is after)
    ]
    if missing or a is None:
        return _because(empty, f"unknown in {' and '.join(missing)}")
    at = limit.value if not limit.relative or b is None else limit.value * b.value
    true = {">": a.value > at, ">=": a.value >= at, "<": a.value < at, "<=": a.value <= at}[limit.operator]
    uncertain = spread(b if limit.relative else None, a, limit.value)
    low = high = sure = None
    enough = a.calls >= MIN_CALLS and (not limit.relative or b is None or b.calls >= MIN_CALLS)
    if uncertain is not None and enough:
        half = uncertain.half_width()
        low, high = a.value - half, a.value + half
        sure = not low <= at <= high
    return Measured(
        limit.text, figure.name, figure.unit, *values, at, empty.relative, true, low, high, sure,
        "" if sure is not None else "no interval",
    )  # fmt: skip


def _because(measured: Measured, why: str) -> Measured:
    return Measured(
        measured.text, measured.figure, measured.unit, measured.before, measured.after, None, measured.relative, None,
        why=why,
    )  # fmt: skip


def _said(measured: Measured) -> str:
    if measured.true is None:
        return f"{measured.figure} is {measured.why}"
    unit = measured.unit
    factor = f" = {measured.relative:g} x before" if measured.relative is not None else ""
    if measured.sure is None:
        certainty = "no interval: not known how sure"
    else:
        interval = f"interval {amount(measured.low, unit)}..{amount(measured.high, unit)}"
        certainty = f"{interval} excludes it: sure" if measured.sure else f"{interval} includes it: not sure"
    return (
        f"{measured.figure} before {with_unit(measured.before, unit)}, after {with_unit(measured.after, unit)}, "
        f"limit {with_unit(measured.limit, unit)}{factor}, {certainty}"
    )
