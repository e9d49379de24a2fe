"""A comparison as JSON, `gputrace.compare/1`. Keys keep their meaning within a major version; new ones may be added."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from gputrace.analysis.compare.changes import FALSE_ALARMS, INTERVAL, POWER, Change
from gputrace.analysis.compare.comparison import Comparison, RegimePair
from gputrace.analysis.compare.gate import GateOutcome
from gputrace.analysis.compare.words import in_words

SCHEMA = "gputrace.compare/1"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def _change(change: Change) -> dict[str, Any]:
    return {**asdict(change), "improved": change.improved, "words": in_words(change)}


def _pair(pair: RegimePair) -> dict[str, Any]:
    return {
        "before": pair.before and asdict(pair.before),
        "after": pair.after and asdict(pair.after),
        "changes": [_change(change) for change in pair.changes],
    }


def _gate(outcome: GateOutcome) -> dict[str, Any]:
    return {**asdict(outcome), "reason": outcome.reason}


@dataclass(frozen=True)
class CompareJsonRenderer:
    """One JSON object."""

    extension: str = "json"

    def render(self, comparison: Comparison) -> str:
        """The comparison as indented JSON; its keys are those of docs/comparing.md."""
        whole = {
            "schema": SCHEMA,
            "headline": comparison.headline,
            "regime": comparison.regime,
            "before": asdict(comparison.before),
            "after": asdict(comparison.after),
            "interval": INTERVAL,
            "false_alarms": FALSE_ALARMS,
            "power": POWER,
            "changes": [_change(change) for change in comparison.changes],
            "regimes": [_pair(pair) for pair in comparison.regimes],
            "gates": [_gate(outcome) for outcome in comparison.gates],
            "notices": list(comparison.notices),
        }
        return json.dumps(_plain(whole), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
