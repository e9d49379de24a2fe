"""docs/verdicts.md: what the hypotheses say of themselves, beside what verdicts.toml explains."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from docs.generate.constants import constants
from gputrace.analysis.hypotheses import ALL, Hypothesis
from gputrace.analysis.thresholds import MIN_WINDOW_SHARE, THROTTLE_REASONS, Thresholds
from gputrace.errors import GputraceError
from gputrace.simulate.scenarios import find_scenario

SOURCE = Path(__file__).with_name("verdicts.toml")


@cache
def explained() -> dict[str, Any]:
    """verdicts.toml: `hypothesis`, `threshold` and `not_thresholds`, by name."""
    return tomllib.loads(SOURCE.read_text(encoding="utf-8"))


def page() -> str:
    """The document."""
    listed = "".join(f"| [`{known.id}`](#{known.id}) | {known.title} |\n" for known in ALL)
    parts = [_head(), f"\n## The hypotheses\n\n| id | says |\n|---|---|\n{listed}", *map(_hypothesis, ALL)]
    return "".join(parts) + _tail()


def _head() -> str:
    supported = constants()["thresholds.Thresholds.supported_share"]
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in Thresholds().variations()))
    return f"""# How each verdict is reached

Made by `make docs-generated`: titles, knobs and every number are read from the code, the explanations stand beside it.
Words are those of the [definitions](definitions.md); how often verdicts are right on runs with known causes is in
[verdict accuracy](verdict-accuracy.md).

## What a verdict is

Every lost second of the window is charged to one cause ([causes](definitions.md#causes)). Then each hypothesis is
judged:

- **supported**: the cause took at least {supported * 100:g} % of the lost seconds and {MIN_WINDOW_SHARE * 100:g} %
  of the window, and its own evidence holds.
- **refuted**: it took less, or its evidence speaks against it.
- **undetermined**: what would decide it is missing; the next step says what to record.

Supported ones are in order of the seconds at stake: lost to it, or stretched by it. `changes_mind` says what would
overturn a verdict. `lost_s` is what is charged to a supported cause. It is not what a fix would bring back: removing
one cause may move the bottleneck to the next ([what-if](what-if.md)).

**Confidence** says how firmly a verdict stands. It is not a probability. It is the product of

- what the measurement is worth: 1 with SM activity and bytes measured, 0.8 with bytes alone, 0.6 from the log alone;
- how far the deciding number is from its threshold: 1/2 at the threshold, half as far from 1 with every doubling or
  halving away from it;
- (n + 1) / (n + 2), with n calls (or samples) behind it;
- (1 + items that agree with the verdict) / (1 + items of evidence).

It never exceeds 0.99, and an undetermined verdict has none.

**Does the headline hang on a threshold?** Each of {names}
is halved and doubled, and the run judged again. A headline that changes is said to be unstable (`headline_stable` is
false).
"""


def _hypothesis(known: Hypothesis) -> str:
    told = explained()["hypothesis"][known.id]
    parts = [f"\n## {known.id}\n\nIt says: **{known.title}.**\n\n{told['how'].strip()}\n"]
    parts.append(_list("For", told["for"]) + _list("Against", told["against"]))
    parts.append(f"\nUndetermined where {told['undetermined']}.\n")
    if told["thresholds"]:
        parts.append("\n| threshold | what | from |\n|---|---|---|\n" + "".join(map(_threshold, told["thresholds"])))
    parts.append(
        f"\n- **Refuted by**: {known.overturned_by}.\n- **Supported after all by**: {known.revived_by}.\n"
        f"- **Knob**: {known.knob.rstrip('.')}.\n- **Next measurement**: {known.next_step}.\n"
        f"- **Seen in**: {_seen(known.id)}.\n"
    )
    return "".join(parts)


def _list(title: str, items: list[str]) -> str:
    return f"\n{title}:\n\n" + "".join(f"- {item}\n" for item in items)


def _seen(cause: str) -> str:
    places = [f"`sample_logs/{folder}` (real)" for folder in explained()["hypothesis"][cause]["seen"]]
    if simulated(cause):
        places.append(f"`gputrace simulate {cause} -o FOLDER` (planted)")
    return ", ".join(places) or "most healthy runs, a little"


def simulated(cause: str) -> bool:
    """Whether a scenario of that name plants the cause."""
    try:
        find_scenario(cause)
    except GputraceError:
        return False
    return True


def _threshold(name: str) -> str:
    told = explained()["threshold"][name]
    return f"| {_value(constants()[name], told['unit'])} | {told['what']} | {told['source']} |\n"


def _value(value: float, unit: str) -> str:
    return f"{value * 100:.3g} %" if unit == "share" else f"{value:g} {unit}".replace("correlation", "").strip()


def _tail() -> str:
    general = [name for name, told in explained()["threshold"].items() if told.get("general")]
    reasons = ", ".join(f"0x{bit:x} ({word})" for bit, word in THROTTLE_REASONS.items())
    return (
        "\n## Thresholds that all share\n\n| threshold | what | from |\n|---|---|---|\n"
        + "".join(map(_threshold, general))
        + f"\nEvent reasons that count as throttling: {reasons}.\n"
    )
