"""A comparison in a terminal: the conclusion, what changed, what did not and what could have been seen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputrace.analysis.compare.changes import Change
from gputrace.analysis.compare.comparison import Comparison, RegimePair, SideInfo
from gputrace.analysis.compare.words import amount, direction, extent, in_words, smallest
from gputrace.printable import printable_values
from gputrace.render.screen import Colors, Screen
from gputrace.render.text_parts import as_text, hanging

# The words "higher", "slower" and the like say the same.
_STYLES = {True: "good", False: "bad", None: ""}
_PER_REGIME = ("calls_per_s", "compute_share", "mutex_held_ms.median", "ntt_plus_coset_ms.median")


@dataclass(frozen=True)
class CompareTextRenderer:
    """Width and colour are given, so that the same comparison always reads the same."""

    width: int = 80
    colors: Colors = "none"
    ascii: bool = False
    extension: str = "txt"

    def render(self, comparison: Comparison) -> str:
        """The comparison as text, ANSI codes only with `colors`."""
        return as_text(_parts(printable_values(comparison)), Screen(self.width, self.colors, self.ascii))


def _parts(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(comparison.headline, style="bold")
    yield ""
    for outcome in comparison.gates:
        word, style = ("gate failed", "bad-bold") if outcome.failed else ("gate held", "good")
        yield Text.assemble((f"{word}: ", style), outcome.reason)
    if comparison.gates:
        yield ""
    yield _side("before", comparison.before)
    yield _side("after", comparison.after)
    for notice in comparison.notices:
        yield hanging("!", notice)
    yield ""
    yield from _changes(comparison.changes)
    for pair in comparison.regimes:
        yield from _pair(pair)
    yield Text(
        "Intervals are 95 % for each figure. What is said to have changed holds for all figures together: "
        "5 % of comparisons of equal runs say so of any.",
        style="dim",
    )


def _side(which: str, side: SideInfo) -> Text:
    warmup = f" ({side.warmup} of warm-up left out)" if side.warmup else ""
    return Text(f"{which + ':':8}{side.name}, {side.calls} calls{warmup}")


def _changes(changes: Iterable[Change]) -> Iterator[RenderableType]:
    listed = list(changes)
    groups = (
        ("Changed", [c for c in listed if c.verdict == "changed"]),
        ("Perhaps changed: not sure among all figures", [c for c in listed if c.suggestive]),
        ("Changed by less than what matters", [c for c in listed if c.verdict == "small"]),
        (
            "No change shown; the last column is the smallest that would have been",
            [c for c in listed if c.verdict == "not-shown" and not c.suggestive],
        ),
        ("Undetermined", [c for c in listed if c.verdict == "undetermined"]),
    )
    for title, own in groups:
        if own:
            yield Text(title, style="bold underline")
            yield Padding(_table(own), (0, 0, 0, 2))
            if own[0].verdict == "undetermined":
                for why in dict.fromkeys(change.why for change in own if change.why):
                    yield hanging("!", why)
            yield ""


def _table(changes: list[Change]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("figure", no_wrap=True)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("change")
    for change in changes:
        style = _STYLES[change.improved] if change.verdict == "changed" else ""
        table.add_row(
            change.title + ("" if change.unit in ("share", "1/s", "") else f", {change.unit}"),
            amount(change.before, change.unit),
            amount(change.after, change.unit),
            Text(_cell(change), style=style),
        )
    return table


def _cell(change: Change) -> str:
    if change.verdict == "not-shown" and not change.suggestive:
        return smallest(change)
    return (
        f"{direction(change)} by {extent(change)}"
        if direction(change)
        else "unknown"
        if change.difference is None
        else "none"
    )


def _pair(pair: RegimePair) -> Iterator[RenderableType]:
    names = [f"{span.number} ({span.label})" if span else "none" for span in (pair.before, pair.after)]
    yield Text(f"Regime {names[0]} before, {names[1]} after", style="bold underline")
    for change in pair.changes:
        if change.name in _PER_REGIME:
            yield hanging("", f"{change.title}: {in_words(change)}")
    changed = sum(change.verdict == "changed" for change in pair.changes)
    if pair.changes:
        yield hanging("", f"{changed} of {len(pair.changes)} figures changed")
    else:
        yield hanging("", "no regime of the other side is like it")
    yield ""
