"""The fleet in one sentence: how much is lost, to what, and on how many hosts that is so."""

import polars as pl

from gputrace.analysis.blame import UNEXPLAINED
from gputrace.analysis.hypotheses import ALL
from gputrace.fleet.ranking import SUPPORTED_SHARE

_BRIEFS = {hypothesis.id: hypothesis.brief for hypothesis in ALL}


def in_words(cause: str) -> str:
    """A cause as it completes "... went to"."""
    return _BRIEFS.get(cause, cause)


def headline(captures: int, gpus: pl.DataFrame, hosts: pl.DataFrame, causes: pl.DataFrame) -> str:
    """One sentence with its number; says what cannot be said."""
    if gpus.is_empty() or not gpus["window_s"].sum():
        return f"No GPU time could be accounted for in {_count(captures, 'capture')}."
    window_s, lost_s = float(gpus["window_s"].sum()), float(gpus["lost_s"].sum())
    spoken = (
        f"{_count(hosts.height, 'host')} with {_count(gpus.height, 'GPU')} lost {lost_s / window_s:.0%} of "
        f"{_duration(window_s)} of GPU time"
    )
    if causes.is_empty() or lost_s <= 0:
        return f"{spoken}."
    cause, cause_s, share, supported = causes.select("cause", "lost_s", "share_of_lost", "supported_share").row(0)
    if cause == UNEXPLAINED:
        return f"{spoken}; most of it ({share:.0%}) is unexplained."
    if supported is None or supported < SUPPORTED_SHARE:
        return (
            f"{spoken}; the largest part ({_duration(cause_s)}, {share:.0%}) looks like {cause}, but captures with "
            f"only {supported or 0.0:.0%} of that support the verdict."
        )
    main = int(causes["hosts_main"][0])
    where = f"the main cause on {main} of {_count(hosts.height, 'host')} ({main / hosts.height:.0%})"
    return f"{spoken}; {_duration(cause_s)} ({share:.0%}) went to {in_words(cause)}, {where}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 36_000 else f"{seconds / 3600:,.1f} h"
