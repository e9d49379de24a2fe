"""What rises or falls from day to day: on each host, and within the hosts of the fleet together."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.fleet.result import LOST, RATE, Trend, TrendVerdict, matters
from gputrace.fleet.statistics import FALSE_ALARMS, Floats, holm, trend

# With fewer days no order of them is rare: the rarest of four has p = 0.08.
MIN_DAYS = 5
# Causes below this share of the fleet's lost seconds are not followed.
FOLLOWED_SHARE = 0.05

Series = tuple[Floats, Floats]


def find_trends(days: pl.DataFrame, losses: pl.DataFrame, causes: pl.DataFrame) -> tuple[Trend, ...]:
    """The fleet's trends, then each host's; p values are corrected over the fleet's measures and over all hosts' apart.

    A host's day counts with MIN_CALLS calls or more. The fleet's are within hosts: that other hosts are captured on
    other days makes no trend.
    """
    measures = [LOST, RATE, *causes.filter(pl.col("share_of_lost") >= FOLLOWED_SHARE)["cause"].to_list()]
    table = _host_days(days, losses, measures)
    hosts = table["host"].unique(maintain_order=True).to_list()
    by_host = {str(host): own for (host,), own in table.group_by("host", maintain_order=True)}
    fleet = [
        _trend(None, measure, [s for own in by_host.values() if len((s := _series(own, measure))[0]) > 1])
        for measure in measures
    ]
    single = [_trend(host, measure, [_series(by_host[host], measure)]) for host in hosts for measure in (LOST, RATE)]
    return (*_judged(fleet), *_judged(single))


def _host_days(days: pl.DataFrame, losses: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """host, day, x (the day's number), and a column a measure; sorted."""
    keys = ["host", "day"]
    table = days.group_by(keys).agg(pl.col("window_s", "lost_s", "calls").sum()).filter(pl.col("calls") >= MIN_CALLS)
    table = table.with_columns(
        pl.col("day").str.to_date().dt.epoch("d").cast(pl.Float64).alias("x"),
        (pl.col("lost_s") / pl.col("window_s")).alias(LOST),
        (pl.col("calls") / pl.col("window_s")).alias(RATE),
    )
    for cause in measures:
        if cause not in (LOST, RATE):
            charged = losses.filter(pl.col("cause") == cause).group_by(keys).agg(pl.col("lost_s").sum().alias("own_s"))
            table = (
                table.join(charged, on=keys, how="left")
                .with_columns((pl.col("own_s").fill_null(0.0) / pl.col("window_s")).alias(cause))
                .drop("own_s")
            )
    return table.sort(keys)


def _series(own: pl.DataFrame, measure: str) -> Series:
    return own["x"].to_numpy().astype(np.float64), own[measure].to_numpy().astype(np.float64)


def _trend(host: str | None, measure: str, series: list[Series]) -> Trend:
    seen = {float(x) for xs, _ in series for x in xs}
    days, span = len(seen), round(max(seen, default=0.0) - min(seen, default=0.0))
    middle = float(np.median(np.concatenate([ys for _, ys in series]))) if days else 0.0
    if days < MIN_DAYS:
        why = f"{days} day{'s' * (days != 1)} with {MIN_CALLS} calls or more; {MIN_DAYS} are needed"
        return Trend(host, measure, days, span, middle, None, None, "undetermined", why)
    return Trend(host, measure, days, span, middle, trend(series), None, "not-shown")


def _judged(trends: list[Trend]) -> list[Trend]:
    adjusted = holm([None if t.slope is None else t.slope.p_value for t in trends])
    return [
        t if p is None or t.slope is None else replace(t, adjusted_p=p, verdict=_verdict(t, t.slope.value, p))
        for t, p in zip(trends, adjusted, strict=True)
    ]


def _verdict(of: Trend, slope: float, adjusted_p: float) -> TrendVerdict:
    if adjusted_p >= FALSE_ALARMS:
        return "not-shown"
    if not matters(of.measure, slope * of.span_days, of.median):
        return "small"
    return "rising" if slope > 0 else "falling"
