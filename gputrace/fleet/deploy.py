"""What changed with a deploy: each host's captures before and after it, compared host by host."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import polars as pl

from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.errors import UsageError
from gputrace.fleet.result import LOST, RATE, ChangeVerdict, Deploy, DeployChange, HostChange, matters
from gputrace.fleet.statistics import FALSE_ALARMS, Estimated, Floats, holm, paired_difference
from gputrace.fleet.trends import FOLLOWED_SHARE

# With fewer pairs the signed-rank test cannot reach 5 %: five that all agree have p = 0.0625.
MIN_PAIRS = 6


@dataclass(frozen=True)
class DeployAsked:
    """A deploy as it is asked for: the time at which it happened, or the version that it brought."""

    time_ns: int | None = None
    version: str | None = None

    @classmethod
    def of(cls, text: str | None) -> "DeployAsked | None":
        """A time (ISO 8601, UTC where it names no zone), else a version. Raises `UsageError` for nothing at all."""
        if text is None:
            return None
        if not text.strip():
            raise UsageError("--deploy: a time, as 2026-11-29T12:00:00Z, or a version is needed")
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            return cls(version=text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls(time_ns=round(moment.timestamp()) * 1_000_000_000)


def compare_deploy(
    days: pl.DataFrame, losses: pl.DataFrame, causes: pl.DataFrame, asked: DeployAsked | None
) -> Deploy | None:
    """The deploy that is asked for, or the newest that the captures' versions show; None where there is none.

    Raises `UsageError` where a version is asked for that no capture has.
    """
    captures = (
        days.group_by("host", "capture")
        .agg(pl.col("deploy", "start_ns", "end_ns").first(), pl.col("window_s", "lost_s", "calls").sum())
        .drop_nulls("start_ns")
        .sort("host", "start_ns", "capture")
    )
    if asked is not None and asked.time_ns is not None:
        sided, what = _by_time(captures, asked.time_ns)
        return _compared(sided, losses, causes, what, False, captures.height - sided.height)
    version = asked.version if asked is not None else _newest(captures)
    if version is None:
        return None
    if asked is not None and captures.filter(pl.col("deploy") == version).is_empty():
        known = ", ".join(captures["deploy"].drop_nulls().unique().sort()) or "none at all"
        raise UsageError(f"--deploy {version}: neither a time nor a version of any capture; these name {known}")
    return _compared(_by_version(captures, version), losses, causes, f"version {version}", asked is None, 0)


def _by_time(captures: pl.DataFrame, time_ns: int) -> tuple[pl.DataFrame, str]:
    after = pl.when(pl.col("start_ns") >= time_ns).then(True).when(pl.col("end_ns") <= time_ns).then(False)
    when = datetime.fromtimestamp(time_ns / 1e9, UTC)
    return captures.with_columns(after.alias("after")).drop_nulls("after"), f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _newest(captures: pl.DataFrame) -> str | None:
    """The version seen first last, of those that some host ran after something else."""
    versions = captures.drop_nulls("deploy").group_by("deploy").agg(pl.col("start_ns").min())
    for version in versions.sort("start_ns", "deploy", descending=True)["deploy"]:
        if not _by_version(captures, str(version)).filter(~pl.col("after")).is_empty():
            return str(version)
    return None


def _by_version(captures: pl.DataFrame, version: str) -> pl.DataFrame:
    """Captures of the version, and those of what each host ran just before it."""
    first = (
        captures.filter(pl.col("deploy") == version).group_by("host").agg(pl.col("start_ns").min().alias("first_ns"))
    )
    sided = captures.join(first, on="host", how="left", maintain_order="left").with_columns(
        (pl.col("deploy") == version).fill_null(False).alias("after")
    )
    older = ~pl.col("after") & (pl.col("start_ns") < pl.col("first_ns"))
    last = sided.filter(older).group_by("host").agg(pl.col("deploy").sort_by("start_ns").last().alias("previous"))
    sided = sided.join(last, on="host", how="left", maintain_order="left")
    same = pl.col("deploy").eq_missing(pl.col("previous"))
    return sided.filter(pl.col("after") | (older & same)).drop("first_ns", "previous")


def _compared(
    captures: pl.DataFrame, losses: pl.DataFrame, causes: pl.DataFrame, what: str, detected: bool, straddling: int
) -> Deploy:
    followed = causes.filter(pl.col("share_of_lost") >= FOLLOWED_SHARE)["cause"].to_list()
    charged = losses.group_by("capture", "cause").agg(pl.col("lost_s").sum())
    for cause in followed:
        own = charged.filter(pl.col("cause") == cause).select("capture", pl.col("lost_s").alias(f"={cause}"))
        captures = captures.join(own, on="capture", how="left", maintain_order="left")
    columns = [f"={cause}" for cause in followed]
    sides = (
        captures.group_by("host", "after")
        .agg(
            pl.len().cast(pl.Int64).alias("captures"),
            pl.col("window_s", "lost_s", "calls", *columns).sum(),
        )
        .filter(pl.col("calls") >= MIN_CALLS)
        .with_columns((pl.col(name) / pl.col("window_s")).alias(name) for name in columns)
        .with_columns(
            (pl.col("lost_s") / pl.col("window_s")).alias(LOST), (pl.col("calls") / pl.col("window_s")).alias(RATE)
        )
    )
    before, after = sides.filter(~pl.col("after")), sides.filter(pl.col("after"))
    pairs = before.join(after, on="host", how="inner", suffix="_after").sort("host")
    measures = {LOST: LOST, RATE: RATE, **{cause: f"={cause}" for cause in followed}}
    changes = [
        _change(measure, pairs[column].to_numpy(), pairs[f"{column}_after"].to_numpy())
        for measure, column in measures.items()
    ]
    return Deploy(
        what=what,
        detected=detected,
        hosts=tuple(_hosts(pairs)),
        changes=tuple(_judged(changes)),
        straddling=straddling,
        one_sided_hosts=captures["host"].n_unique() - pairs.height,
    )


def _hosts(pairs: pl.DataFrame) -> list[HostChange]:
    columns = [name for stem in ("captures", "calls", LOST, RATE) for name in (stem, f"{stem}_after")]
    found = [HostChange(*row) for row in pairs.select("host", *columns).iter_rows()]
    return sorted(found, key=lambda host: (host.lost_share_before - host.lost_share_after, host.host))


def _change(measure: str, before: Floats, after: Floats) -> DeployChange:
    middle_before, middle_after = (float(np.median(side)) if len(side) else None for side in (before, after))
    n = len(before)
    if n < MIN_PAIRS:
        why = f"{n} host{'s' * (n != 1)} with {MIN_CALLS} calls or more on both sides; {MIN_PAIRS} are needed"
        return DeployChange(measure, middle_before, middle_after, None, None, "undetermined", why)
    difference = after / before - 1.0 if measure == RATE else after - before
    return DeployChange(measure, middle_before, middle_after, paired_difference(difference), None, "not-shown")


def _judged(changes: Sequence[DeployChange]) -> list[DeployChange]:
    adjusted = holm([None if c.difference is None else c.difference.p_value for c in changes])
    return [
        c
        if p is None or c.difference is None
        else replace(c, adjusted_p=p, verdict=_verdict(c.measure, c.difference, p))
        for c, p in zip(changes, adjusted, strict=True)
    ]


def _verdict(measure: str, difference: Estimated, adjusted_p: float) -> ChangeVerdict:
    if adjusted_p >= FALSE_ALARMS:
        return "not-shown"
    # A rate's difference is relative already.
    if not matters(measure, difference.value, 1.0):
        return "small"
    return "more" if difference.value > 0 else "less"
