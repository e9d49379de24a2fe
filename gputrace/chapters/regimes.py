"""Regimes over chapters: one that goes on across the edge of a chapter is one."""

from collections.abc import Sequence
from dataclasses import replace

from gputrace.analysis.diagnosis import Regime
from gputrace.analysis.thresholds import REGIME_CHANGE_SHARE, REGIME_LEAST_SHARE

_NAMED = 3
_HELD = "mutex_held"


def joined_regimes(chapters: Sequence[Sequence[Regime]]) -> tuple[Regime, ...]:
    """All regimes, in order of time."""
    found: list[Regime] = []
    for chapter in chapters:
        for number, regime in enumerate(chapter):
            if number or not found or regime.reason.startswith("the prover was started again"):
                found.append(regime)
                continue
            changed = _changed(found[-1], regime)
            if changed or found[-1].label != regime.label:
                found.append(replace(regime, reason=changed or "what the GPU's time went to"))
            else:
                found[-1] = _one(found[-1], regime)
    return _worth_it(found)


def _worth_it(regimes: list[Regime]) -> tuple[Regime, ...]:
    """The regimes that take enough of the run's time; a shorter one goes to the neighbour that is more like it.

    A chapter holds what is long enough for a chapter.
    """
    kept = list(regimes)
    least_s = REGIME_LEAST_SHARE * sum(regime.duration_s or 0.0 for regime in kept)
    while len(kept) > 1:
        at = min(range(len(kept)), key=lambda n: kept[n].duration_s or 0.0)
        if (kept[at].duration_s or 0.0) >= least_s:
            break
        beside = [n for n in (at - 1, at) if 0 <= n < len(kept) - 1]
        first = min(beside, key=lambda n: _distance(kept[n], kept[n + 1]))
        kept[first : first + 2] = [_one(kept[first], kept[first + 1])]
    return tuple(kept)


def _distance(before: Regime, after: Regime) -> tuple[bool, float]:
    """How unlike two regimes are: what they are called, then by how much their phases differ, ms."""
    old, new = before.phase_medians_ms, after.phase_medians_ms
    return before.label != after.label, sum(abs(new[name] - old[name]) for name in old if name in new)


def _changed(before: Regime, after: Regime) -> str:
    """The phases whose medians differ by a tenth of a hold or more: what would cut a regime within a chapter."""
    old, new = before.phase_medians_ms, after.phase_medians_ms
    least_ms = REGIME_CHANGE_SHARE * max(old.get(_HELD, 0.0), new.get(_HELD, 0.0))
    sizes = {name: abs(new[name] - old[name]) for name in old if name in new and name != _HELD}
    told = sorted((name for name, size in sizes.items() if size > least_ms), key=lambda name: -sizes[name])
    return ", ".join(f"{name} {old[name]:.0f} -> {new[name]:.0f} ms" for name in told[:_NAMED])


def _one(before: Regime, after: Regime) -> Regime:
    """Both as one; medians and verdicts are those of the part with more calls."""
    larger = before if before.calls >= after.calls else after
    lost = [part.lost_s for part in (before, after) if part.lost_s is not None]
    return replace(
        larger,
        start_ns=before.start_ns,
        end_ns=after.end_ns,
        calls=before.calls + after.calls,
        reason=before.reason,
        lost_s=sum(lost) if lost else None,
        duration_s=(after.end_ns - before.start_ns) / 1e9,
    )
