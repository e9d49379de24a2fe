"""The terminal report's sections on what could be: what a fix is worth, and what each resource allows at most."""

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputrace.analysis.diagnosis import Diagnosis, Effect, WhatIf
from gputrace.analysis.headline import main_cause
from gputrace.analysis.outlook import remedy_of
from gputrace.render import units
from gputrace.render.prospect import change, notes_of, prospect, replay_errors, tightest
from gputrace.render.text_parts import ROOMY, bar, hanging, percent, title

_STYLES = {"gain": "good", "no sure gain": "caution", "loss": "bad", "unknown": "dim"}
_MARKS = {"gain": "+", "no sure gain": "=", "loss": "-", "unknown": "?"}
_INDENT = (0, 0, 0, 2)
_MOST_BRIEFLY = 4


def what_if(diagnosis: Diagnosis, full: bool = True) -> Iterator[RenderableType]:
    """What fixes are worth; one line each and only the first few unless `full`."""
    scenarios = diagnosis.what_if
    if diagnosis.what_if_missing:
        yield title("What a fix is worth")
        yield Padding(f"Nothing is predicted: {diagnosis.what_if_missing}", _INDENT)
        yield ""
    if not scenarios:
        return
    yield title("What a fix is worth, calls a second")
    for now, replay, error in replay_errors(scenarios):
        said = f"now {units.per_second(now)}; the model replays this run at {units.per_second(replay)} ({error:+.1%})"
        yield Padding(said, _INDENT)
    spoken_of = remedy_of(main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses), scenarios)
    shown = scenarios if full else _few(scenarios, spoken_of)
    notes = notes_of(scenarios) if full else []
    for scenario in shown:
        yield Padding(_scenario(scenario), _INDENT)
        if not full:
            continue
        marks = ", ".join(str(number) for number, note in enumerate(notes, 1) if note in scenario.notes)
        effects = "; ".join([*_effects(scenario), *([f"note {marks}"] if marks else [])])
        if effects:
            yield Padding(hanging("", effects), _INDENT)
    yield Padding(Text(_legend(scenarios, len(scenarios) - len(shown)), style="dim"), _INDENT)
    for number, note in enumerate(notes, 1):
        yield Padding(hanging(str(number), note), _INDENT)
    yield ""


def _few(scenarios: tuple[WhatIf, ...], spoken_of: WhatIf | None) -> tuple[WhatIf, ...]:
    """The first ones, that which the headline speaks of, and the last, the most that any fix could be worth."""
    if len(scenarios) <= _MOST_BRIEFLY:
        return scenarios
    chosen = [*scenarios[: _MOST_BRIEFLY - 1], scenarios[-1]]
    if spoken_of is not None and spoken_of not in chosen:
        chosen[-2] = spoken_of
    return tuple(chosen)


def _legend(scenarios: tuple[WhatIf, ...], more: int) -> str:
    said = {
        "gain": "+ gain",
        "no sure gain": "= no sure gain (these calls may be done no sooner)",
        "loss": "- loss",
        "unknown": "? unknown",
    }
    words = {prospect(scenario) for scenario in scenarios}
    legend = "; ".join(text for word, text in said.items() if word in words)
    return f"{legend}; {more} more" if more else legend


def _scenario(scenario: WhatIf) -> Text:
    rate, word = scenario.calls_per_s, prospect(scenario)
    said = "unknown" if rate.predicted is None else units.per_second(rate.predicted)
    moved = change(rate)
    share = "" if moved is None else f", {moved:+.0%}"
    return Text.assemble(
        (f"{_MARKS[word]} ", _STYLES[word]),
        (scenario.scenario, "bold"),
        f": {said}{_range(rate.low, rate.high, units.per_second, scenario.level)}{share}",
        "" if word in ("gain", said) else f", {word}",
    )


def _range(low: float | None, high: float | None, write: Callable[[float], str], level: float) -> str:
    if low is None or high is None:
        return ""
    return f" ({level:.0%}: {write(low)} to {write(high)})"


def _effects(scenario: WhatIf) -> list[str]:
    parts = []
    if scenario.saved_s is not None:
        spread = _range(scenario.saved_s_low, scenario.saved_s_high, units.signed_seconds, scenario.level)
        parts.append(f"saves {units.signed_seconds(scenario.saved_s)}{spread}")
    for name, effect, write in (
        ("mutex held", scenario.mutex_held_ms_median, lambda value: f"{units.milliseconds(value)} ms"),
        ("compute", scenario.compute_share, percent),
    ):
        if effect.predicted is not None:
            parts.append(f"{name} {_moved(effect, write)}")
    if scenario.limited_by:
        parts.append(f"then limited by {scenario.limited_by}")
    return parts


def _moved(effect: Effect, write: Callable[[float | None], str]) -> str:
    before = "" if effect.now is None else f"{write(effect.now)} to "
    return f"{before}{write(effect.predicted)}"


def bounds(diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    """The most that each resource allows."""
    if not diagnosis.bounds:
        return
    yield title("Bounds: the most calls a second that each resource allows")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name, justify in (("resource", "left"), ("most", "right"), ("busy", "right"), ("", "left"), ("what", "left")):
        table.add_column(name, justify=justify, no_wrap=name != "what")  # type: ignore[arg-type]
    first = tightest(diagnosis.bounds)
    for bound in diagnosis.bounds:
        table.add_row(
            f"{bound.resource}{' <' if bound is first else ''}",
            units.per_second(bound.max_calls_per_s),
            percent(bound.busy_share),
            bar(min(bound.busy_share or 0.0, 1.0), 12 if width >= ROOMY else 6),
            bound.what,
            style="bold" if bound is first else "",
        )
    yield Padding(table, _INDENT)
    rate = diagnosis.calls.per_s
    if rate is not None:
        yield Padding(f"this run did {units.per_second(rate)}; < allows the fewest", _INDENT)
    yield ""
