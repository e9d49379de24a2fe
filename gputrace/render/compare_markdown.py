"""A comparison for a pull request: the conclusion, what changed as a table, all the rest folded away."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gputrace.analysis.compare.changes import Change
from gputrace.analysis.compare.comparison import Comparison, RegimePair, SideInfo
from gputrace.analysis.compare.words import amount, in_brief

_UNITS = {"ms": ", ms", "s": ", s", "1/s": "", "share": "", "": ""}
_MARKS = {True: "better", False: "worse", None: ""}


@dataclass(frozen=True)
class CompareMarkdownRenderer:
    """GitHub's Markdown. Names from logs are escaped."""

    extension: str = "md"

    def render(self, comparison: Comparison) -> str:
        """The comparison as Markdown."""
        return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"**{_escaped(comparison.headline)}**"
    yield ""
    for outcome in comparison.gates:
        yield f"- {'**gate failed**' if outcome.failed else 'gate held'}: {_escaped(outcome.reason)}"
    if comparison.gates:
        yield ""
    yield f"Before: {_side(comparison.before)}. After: {_side(comparison.after)}. Intervals are 95 % each."
    yield ""
    for notice in comparison.notices:
        yield f"> {_escaped(notice)}"
    if comparison.notices:
        yield ""
    changed = [change for change in comparison.changes if change.verdict == "changed"]
    if changed:
        yield from _table(changed)
        yield ""
    for pair in comparison.regimes:
        yield from _pair(pair)
    yield f"<details><summary>All {len(comparison.changes)} figures</summary>"
    yield ""
    yield from _table(comparison.changes)
    yield ""
    yield "</details>"


def _pair(pair: RegimePair) -> Iterator[str]:
    names = [f"{span.number} ({_escaped(span.label)})" if span else "none" for span in (pair.before, pair.after)]
    yield f"Regime {names[0]} before, {names[1]} after"
    yield ""
    changed = [change for change in pair.changes if change.verdict == "changed"]
    if changed:
        yield from _table(changed)
    else:
        yield "No change shown." if pair.changes else "It has no partner."
    yield ""


def _table(changes: Iterable[Change]) -> Iterator[str]:
    yield "| figure | before | after | change | |"
    yield "|---|---:|---:|---|---|"
    for change in changes:
        mark = _MARKS[change.improved] if change.verdict == "changed" else ""
        values = amount(change.before, change.unit), amount(change.after, change.unit)
        yield (
            f"| {_escaped(change.title)}{_UNITS[change.unit]} | {values[0]} | {values[1]} "
            f"| {_escaped(in_brief(change))} | {mark} |"
        )


def _side(side: SideInfo) -> str:
    warmup = f" ({side.warmup} of warm-up left out)" if side.warmup else ""
    return f"`{side.name.replace('`', '')}`, {side.calls} calls{warmup}"


def _escaped(text: str) -> str:
    for sign in "\\|*_<>`[":
        text = text.replace(sign, f"&#{ord(sign)};" if sign in "<>|" else f"\\{sign}")
    return " ".join(text.split())
