"""Numbers with units, as people read them. Unknown (None) is written as such, never as 0."""

from datetime import UTC, datetime

UNKNOWN = "unknown"


def known(value: object) -> str:
    """The value as text, or that it is unknown."""
    return UNKNOWN if value is None or value == "" else str(value)


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Seconds: two decimals below one second, else one; a little that is not nothing stays visible."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0 s"
    if 0 < value < 0.005:
        return "<0.01 s"
    return f"{value:.2f} s" if abs(value) < 1 else f"{value:,.1f} s"


def milliseconds(value: float | None) -> str:
    """Whole milliseconds, without the unit (it is in the table's heading)."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share (0..1) in percent; a small one that is not nothing stays visible."""
    if value is None:
        return UNKNOWN
    return "<1%" if 1e-6 < value < 0.005 else f"{value:.0%}"


def rate(bytes_per_s: float | None) -> str:
    """Bytes per second."""
    return UNKNOWN if bytes_per_s is None else f"{_scaled(bytes_per_s)}/s"


def per_second(value: float | None) -> str:
    """Calls per second, without the unit: two decimals, more where there would be nothing left."""
    if value is None:
        return UNKNOWN
    return f"{value:,.2f}" if abs(value) >= 0.095 or value == 0 else f"{value:.2g}"


def signed_share(value: float | None) -> str:
    """A change in percent, with its sign."""
    return UNKNOWN if value is None else f"{value:+.0%}"


def signed_seconds(value: float | None) -> str:
    """Seconds that may be negative, with a true minus sign out of which no range is misread."""
    if value is None:
        return UNKNOWN
    return f"\N{MINUS SIGN}{seconds(-value)}" if value < 0 else seconds(value)


def size(value: float | None) -> str:
    """Bytes; GB = 1e9."""
    return UNKNOWN if value is None else _scaled(value)


def utc(time_ns: int) -> str:
    """The time of day with milliseconds, in UTC."""
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ns // 1_000_000 % 1000:03d}"


def _scaled(value: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= factor:
            scaled = value / factor
            return (
                f"{scaled:,.0f} {unit}"
                if abs(scaled) >= 99.95
                else f"{scaled:.2f} {unit}"
                if abs(scaled) < 9.995
                else f"{scaled:.1f} {unit}"
            )
    return f"{value:.0f} B"
