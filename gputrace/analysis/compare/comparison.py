"""Two runs to a `Comparison`: every figure before and after, by regime too, and what the gates say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gputrace.analysis.compare.changes import Change, Spread, difference, judge, spread
from gputrace.analysis.compare.figures import CALLS_PER_S, SHARES, Figure, compared
from gputrace.analysis.compare.gate import GateOutcome, parse_gates, try_gate
from gputrace.analysis.compare.regimes import match
from gputrace.analysis.compare.resampling import Estimate
from gputrace.analysis.compare.saved import side_of_report
from gputrace.analysis.compare.side import Side, Span, estimates, side_of_trace
from gputrace.analysis.compare.words import direction, extent, in_words
from gputrace.analysis.tables import CHANGES, Table
from gputrace.analysis.thresholds import COPY_IN_SYNC_SHARE, MIN_CALLS
from gputrace.display import Displayed
from gputrace.trace import Trace

# Durations of which 95 % are shorter than this on both sides, and lost seconds under this share of all, are noise.
_SHORT_MS = 5.0
_LITTLE_LOST = 0.01
_LEADING = ("calls_per_s", "compute_share", "mutex_held_ms.median")


@dataclass(frozen=True)
class SideInfo:
    """What a comparison says about one side. `calls` are the complete ones compared, `warmup` those left out."""

    name: str
    calls: int
    warmup: int
    gpu_names: tuple[str, ...]
    compute_source: str | None


@dataclass(frozen=True)
class RegimePair:
    """Two regimes that were matched, with their changes; one of them is None where there is no partner."""

    before: Span | None
    after: Span | None
    changes: tuple[Change, ...] = ()

    change_table = Table("changes", CHANGES)


@dataclass(frozen=True, repr=False)
class Comparison(
    Displayed, shows=("headline", "before.name", "after.name", "changes", "regimes", "gates", "notices", "regime")
):
    """What changed between two runs. `regime` is what both were restricted to, None for the whole runs."""

    headline: str
    before: SideInfo
    after: SideInfo
    changes: tuple[Change, ...]
    regimes: tuple[RegimePair, ...] = ()
    gates: tuple[GateOutcome, ...] = ()
    notices: tuple[str, ...] = ()
    regime: str | None = None

    change_table = Table("changes", CHANGES)

    def change(self, name: str) -> Change:
        """The change of the figure of that name; raises KeyError if it is not compared."""
        return {change.name: change for change in self.changes}[name]


def compare(
    before: Trace | Side | Mapping[str, Any],
    after: Trace | Side | Mapping[str, Any],
    *,
    names: tuple[str, str] = ("BEFORE", "AFTER"),
    regime: str | None = None,
    fail_if: Iterable[str] = (),
) -> Comparison:
    """What changed from one run to another.

    Parameters:
        before, after: each a trace (or a part of one), or the object of a saved JSON report.
        names: what the two are called in words and tables.
        regime: compare only the regime of that label or number, of both.
        fail_if: conditions in the language of docs/comparing.md, as `"mutex_held_ms.median > 1.05x"`; the outcomes are
            in `gates`, nothing is raised for them.

    Returns a `Comparison`: `headline`, and every figure with its difference, 95 % interval and verdict in `changes`
    (`change_table` as a frame), by regime too. Values are in the unit that each figure names.

    Raises `UsageError` for a bad condition or regime, `InputError` for a report that is not whole.
    """
    gates = parse_gates(fail_if)
    sides = _side(before, names[0]), _side(after, names[1])
    if regime is not None:
        chosen = sides[0].spans(regime, names[0]), sides[1].spans(regime, names[1])
        sides = sides[0].only(chosen[0]), sides[1].only(chosen[1])
    changes = _changes(*sides)
    return Comparison(
        headline=_headline(changes),
        before=_info(sides[0]),
        after=_info(sides[1]),
        changes=changes,
        regimes=_regimes(*sides),
        gates=tuple(try_gate(gate, *sides) for gate in gates),
        notices=tuple(dict.fromkeys(_notices(*sides))),
        regime=regime,
    )


def _side(given: Trace | Side | Mapping[str, Any], name: str) -> Side:
    if isinstance(given, Side):
        return given
    return side_of_trace(given, name) if isinstance(given, Trace) else side_of_report(given, name)


def _info(side: Side) -> SideInfo:
    count = side.complete_count or int(side.summary.get("calls", 0))
    return SideInfo(side.name, count, side.warmup_count, side.gpu_names, side.compute_source)


def _changes(before: Side, after: Side, share: float = 1.0) -> tuple[Change, ...]:
    changes: list[Change] = []
    spreads: list[Spread | None] = []
    other_source = before.compute_source != after.compute_source
    for figure in compared([*before.calls.columns, *after.calls.columns, *_summarised(before, after)]):
        b, a, why = estimates(figure, before, after)
        if _negligible(figure, before, after, b, a):
            continue
        if (
            other_source
            and (figure.column.startswith("lost_s.") or figure.unit == "share")
            and "held" not in figure.column
        ):
            why = why or "SM activity comes from different sources"
        changes.append(difference(figure, b, a, why))
        spreads.append(None if b is None or a is None else spread(b, a))
    return judge(changes, spreads, share)


def _summarised(before: Side, after: Side) -> set[str]:
    """The columns that a summary has figures of, so that it is compared too."""
    if before.calls.height and after.calls.height:
        return set()
    known = {*before.summary, *after.summary}
    columns = {CALLS_PER_S.name: CALLS_PER_S.column, **SHARES}
    found = {columns[name] for name in known if name in columns}
    found |= {name.partition(".")[0] for name in known if name.partition(".")[0].endswith("_ms")}
    return found | {f"lost_s.{name.partition('.')[2]}" for name in known if name.startswith("lost_s.")}


def _negligible(figure: Figure, before: Side, after: Side, b: Estimate | None, a: Estimate | None) -> bool:
    """Whether neither side has enough of it to be worth a line."""
    if b is None and a is None:
        return True
    if figure.unit == "ms":
        tops = [side.value(f"{figure.column}.p95") for side in (before, after)]
        return all(top is None or top < _SHORT_MS for top in tops)
    if figure.name.startswith("lost_s_per_call."):
        return not any(
            own is not None and own.value >= max(_LITTLE_LOST * side.lost_s_per_call, figure.matters)
            for side, own in ((before, b), (after, a))
        )
    return False


def _regimes(before: Side, after: Side) -> tuple[RegimePair, ...]:
    if not before.regimes or not after.regimes or len(before.regimes) + len(after.regimes) == 2:
        return ()
    pairs = match(before.regimes, after.regimes)
    matched = sum(one is not None and other is not None for one, other in pairs)
    return tuple(
        RegimePair(one, other, _changes(before.only((one,)), after.only((other,)), 1.0 / matched))
        if one is not None and other is not None
        else RegimePair(one, other)
        for one, other in pairs
    )


def _headline(changes: tuple[Change, ...]) -> str:
    """The main figures in one sentence, then how many others changed."""
    judged = [change for change in changes if change.verdict != "undetermined"]
    changed = [change for change in judged if change.verdict == "changed"]
    if not judged:
        seen = "; ".join(
            f"{c.title} {direction(c)} by {extent(c)}" for c in changes if c.name in _LEADING and direction(c)
        )
        return f"Undetermined: none of {len(changes)} figures can be judged." + (f" Seen: {seen}." if seen else "")
    lead = [change for change in changed if change.name in _LEADING]
    perhaps = [change for change in judged if change.name in _LEADING and change.suggestive]
    if not changed:
        main = next((c for c in judged if c.name == "mutex_held_ms.median"), judged[0])
        text = f"No change shown in {len(judged)} figures"
        text += "." if main in perhaps else f"; {main.title}: {in_words(main)}."
    else:
        said = "; ".join(f"{change.title} {in_words(change)}" for change in lead or changed[:2])
        text = f"Changed: {said} ({len(changed)} of {len(judged)} figures changed)."
    if perhaps:
        said = "; ".join(f"{change.title} {direction(change)} by {extent(change)}" for change in perhaps)
        text += f" Perhaps, not sure among all figures: {said}."
    left = len(changes) - len(judged)
    return text + (f" {left} figures are undetermined." if left else "")


def _notices(before: Side, after: Side) -> Iterable[str]:
    for side in (before, after):
        if side.why_summary:
            yield f"{side.name}: {side.why_summary}: its summary is compared, warm-up included, without intervals"
        elif side.complete_count < MIN_CALLS:
            yield f"{side.name}: {side.complete_count} calls; at least {MIN_CALLS} are needed: undetermined"
    if before.compute_source != after.compute_source:
        sources = before.compute_source or "unknown", after.compute_source or "unknown"
        yield f"SM activity is from: {sources[0]} (before), {sources[1]} (after): shares are not comparable"
    if before.gpu_names != after.gpu_names:
        ran = ", ".join(before.gpu_names) or "an unknown GPU", ", ".join(after.gpu_names) or "an unknown GPU"
        yield f"different GPUs: {ran[0]} before, {ran[1]} after"
    if before.kinds != after.kinds:
        yield f"different proofs: {', '.join(before.kinds) or '?'} before, {', '.join(after.kinds) or '?'} after"
    shares = before.ntt_share, after.ntt_share
    if shares[0] is not None and shares[1] is not None:
        in_sync = shares[0] < COPY_IN_SYNC_SHARE, shares[1] < COPY_IN_SYNC_SHARE
        if in_sync[0] != in_sync[1]:
            moved = ("ntt_kernels", "coset_intt_sync") if in_sync[1] else ("coset_intt_sync", "ntt_kernels")
            yield f"the copy of a/b/c moved from {moved[0]} to {moved[1]}: compare their sum (ntt + coset)"
