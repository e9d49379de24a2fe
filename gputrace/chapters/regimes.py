"""Regimes over chapters: one that goes on across the edge of a chapter is one."""

from collections.abc import Sequence
from dataclasses import replace

from gputrace.analysis.diagnosis import Regime
from gputrace.analysis.thresholds import REGIME_CHANGE_SHARE

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
    return tuple(found)


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
