"""A change in plain words: "slower by 12 % (8..16 %)"."""

from gputrace.analysis.compare.changes import Change

_MOST_SAID = 10.0
_DIRECTIONS = {
    "ms": ("slower", "faster"),
    "s": ("more", "less"),
    "1/s": ("higher", "lower"),
    "share": ("higher", "lower"),
    "": ("more", "fewer"),
}


def amount(value: float | None, unit: str) -> str:
    """A value with as many digits as it is worth; `share` in percent, without its unit otherwise."""
    if value is None:
        return "?"
    if unit == "share":
        return f"{value * 100:.1f} %"
    if unit == "1/s":
        return f"{value:.3g}"
    if unit == "s":
        return f"{value:.3f}"
    if unit == "ms" and abs(value) < 9.95 and value != round(value):
        return f"{value:.1f}"
    return f"{value:.0f}"


def with_unit(value: float | None, unit: str) -> str:
    """A value with its unit."""
    said = amount(value, unit)
    return said if unit in ("share", "") or value is None else f"{said} a second" if unit == "1/s" else f"{said} {unit}"


def _number(value: float) -> str:
    """Whole, or with one digit below ten."""
    text = f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    text = text.removesuffix(".0")
    return "0" if text == "-0" else text


def _percent(relative: float) -> str:
    """In percent; beyond ten times the size says nothing more."""
    return f"over {_MOST_SAID * 100:.0f}" if relative > _MOST_SAID else _number(relative * 100)


def extent(change: Change) -> str:
    """The size of the difference with its interval, without direction: "12 % (8..16 %)", "5 points (3..7)"."""
    moved = change.difference or 0.0
    sign = -1.0 if moved < 0 else 1.0
    low, high = change.difference_low, change.difference_high
    if change.unit == "share":
        text, unit, scale = f"{_number(abs(moved) * 100)} points", "", 100.0
    elif change.relative is not None and (low is None or change.relative_low is not None):
        text, unit, scale = f"{_percent(abs(change.relative))} %", " %", 100.0
        low, high = change.relative_low, change.relative_high
    else:
        text, unit, scale = with_unit(abs(moved), change.unit), "", 1.0
        if low is not None and high is not None:
            ends = sorted((sign * low, sign * high))
            return f"{text} ({amount(ends[0], change.unit)}..{amount(ends[1], change.unit)})"
    if low is None or high is None:
        return text
    ends = sorted((sign * low * scale, sign * high * scale))
    return f"{text} ({_number(ends[0])}..{_number(ends[1])}{unit})"


def smallest(change: Change) -> str:
    """The smallest detectable change."""
    if change.detectable is None:
        return "unknown"
    if change.unit == "share":
        return f"{_number(change.detectable * 100)} points"
    if change.detectable_relative is not None:
        return f"{_percent(change.detectable_relative)} %"
    return with_unit(change.detectable, change.unit)


def direction(change: Change) -> str:
    """slower, faster, more, less, higher, lower; empty where nothing differs."""
    if not change.difference:
        return ""
    return _DIRECTIONS[change.unit][0 if change.difference > 0 else 1]


def in_words(change: Change) -> str:
    """The whole judgement, in one sentence without a capital."""
    if change.verdict == "undetermined":
        seen = f"{direction(change)} by {extent(change)}, but " if direction(change) else ""
        return f"{seen}undetermined: {change.why}"
    if change.verdict == "changed":
        return f"{direction(change)} by {extent(change)}"
    if change.verdict == "small":
        return f"{direction(change)} by {extent(change)}: less than what matters"
    if change.suggestive:
        return (
            f"perhaps {direction(change)} by {extent(change)}, not sure among all figures; "
            f"{smallest(change)} would have been"
        )
    return f"no change that these runs could show; the smallest they could have shown is {smallest(change)}"


def in_brief(change: Change) -> str:
    """The same for a table's cell."""
    if change.verdict == "undetermined":
        return "undetermined"
    if change.verdict in ("changed", "small"):
        return f"{direction(change)} by {extent(change)}"
    if change.suggestive:
        return f"perhaps {direction(change)} by {extent(change)}"
    return f"none shown; {smallest(change)} would be"
