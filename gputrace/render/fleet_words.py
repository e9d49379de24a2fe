"""How every fleet document names things: measures, trends, changes, GPUs, captures."""

import posixpath
from collections.abc import Sequence

from gputrace.fleet.result import LOST, RATE, DeployChange, Fleet, Outlier, Trend
from gputrace.fleet.statistics import Estimated
from gputrace.render import units


def measure_name(measure: str) -> str:
    """A measure in words; a cause is its own name."""
    return {LOST: "all lost time", RATE: "calls a second"}.get(measure, measure)


def short_names(fleet: Fleet) -> dict[str, str]:
    """Captures and failed patterns without the folder that all of them share."""
    paths = [*(capture.capture for capture in fleet.captures), *(failure.capture for failure in fleet.failures)]
    shared = 0
    for parts in zip(*(posixpath.dirname(path.rstrip("/")).split("/") for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    # The root, or the scheme and bucket of one of several stores, is no folder that they share.
    if len(paths) < 2 or shared < 2:
        return {path: path for path in paths}
    return {path: "/".join(path.rstrip("/").split("/")[shared:]) for path in paths}


def by_gpu(outliers: Sequence[Outlier]) -> list[list[Outlier]]:
    """Outliers of each GPU together, its most seconds first; GPUs by that, those that lose more before those spared."""
    together: dict[tuple[str, int], list[Outlier]] = {}
    for outlier in outliers:
        together.setdefault((outlier.host, outlier.gpu), []).append(outlier)
    return sorted(together.values(), key=lambda own: (-own[0].excess_s, own[0].host, own[0].gpu))


def points(share: float | None, digits: int = 1) -> str:
    """A difference of shares in points, with its sign."""
    return units.UNKNOWN if share is None else _signed(f"{share * 100:+.{digits}f}")


def relative(change: float | None) -> str:
    """A relative difference in percent, with its sign."""
    return units.UNKNOWN if change is None else _signed(f"{change:+.1%}")


def score(z: float) -> str:
    """A z score."""
    return _signed(f"{z:.1f}")


def _signed(number: str) -> str:
    """With a true minus sign, and no sign where nothing but noughts is left."""
    return (
        number.replace("-", "\N{MINUS SIGN}") if any(digit in number for digit in "123456789") else number.lstrip("+-")
    )


def level(measure: str, value: float | None) -> str:
    """A measure's value: calls a second, or a share of the window."""
    return units.per_second(value) if measure == RATE else units.share(value)


def difference(change: DeployChange) -> str:
    """What changed, with its interval."""
    if change.difference is None:
        return change.why
    return _with_interval(change.difference, change.measure == RATE)


def slope(trend: Trend) -> str:
    """How it moves a day, with its interval."""
    if trend.slope is None:
        return trend.why
    if trend.measure == RATE:
        low, value, high = (_signed(f"{v:+.2g}") for v in (trend.slope.low, trend.slope.value, trend.slope.high))
        return f"{value} a day ({low} to {high})"
    low, value, high = (points(v, 2) for v in (trend.slope.low, trend.slope.value, trend.slope.high))
    return f"{value} points a day ({low} to {high})"


def _with_interval(found: Estimated, is_relative: bool) -> str:
    words = relative if is_relative else points
    unit = "" if is_relative else " points"
    return f"{words(found.value)}{unit} ({words(found.low)} to {words(found.high)})"


def deploy_in_words(fleet: Fleet) -> str:
    """What is compared with what, and what is left out."""
    deploy = fleet.deploy
    if deploy is None:
        return ""
    found = " (the newest that captures name)" if deploy.detected else ""
    left = [
        f"{count:,} {what if count == 1 else what + 's'} {why}"
        for count, what, why in (
            (deploy.straddling, "capture", "running across it"),
            (deploy.one_sided_hosts, "host", "without both sides"),
        )
        if count
    ]
    rest = f"; left out: {', '.join(left)}" if left else ""
    count = len(deploy.hosts)
    return f"{deploy.what}{found}: {count} host{'s' * (count != 1)} before and after it{rest}."


def told_trends(trends: Sequence[Trend]) -> list[Trend]:
    """The fleet's trends, and those of hosts that rise or fall, steepest first."""
    fleet = [trend for trend in trends if trend.host is None]
    moving = [trend for trend in trends if trend.host is not None and trend.verdict in ("rising", "falling")]
    steep = sorted(moving, key=lambda t: (t.measure != LOST, -abs(t.slope.value if t.slope else 0.0), t.host or ""))
    return [*fleet, *steep]
