"""What a fleet's captures come to: plain values and small frames, ready for every renderer.

Shares are 0..1 of the window unless the name says otherwise; unknown is None. Nothing in it depends on when, where or
in how many goes the captures were analysed.
"""

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from gputrace.analysis.compare.figures import MATTERS_ABSOLUTE, MATTERS_RELATIVE
from gputrace.fleet.statistics import Estimated
from gputrace.fleet.summary import CaptureSummary, Failure

# What is measured of a GPU, host or day besides its causes' shares of the window.
LOST, RATE = "lost", "calls_per_s"

# small: shown, but less than what matters (`matters`).
TrendVerdict = Literal["rising", "falling", "small", "not-shown", "undetermined"]
ChangeVerdict = Literal["more", "less", "small", "not-shown", "undetermined"]


def matters(measure: str, difference: float, before: float) -> bool:
    """Whether a difference is worth naming, as in `gputrace compare`: one point of a share, 3 % of a rate."""
    if measure == RATE:
        return abs(difference) >= MATTERS_RELATIVE * abs(before)
    return abs(difference) >= MATTERS_ABSOLUTE["share"]


@dataclass(frozen=True)
class Outlier:
    """A GPU far from comparable ones (same model) in one measure: `lost` or a cause, as a share of its window.

    `z` is the modified z score, `cut` what it had to exceed; `excess_s` are the seconds that it lost beyond what the
    median of `compared` GPUs would have cost it (negative: spared).
    """

    host: str
    gpu: int
    model: str | None
    measure: str
    value: float
    median: float
    z: float
    cut: float
    compared: int
    excess_s: float


@dataclass(frozen=True)
class Trend:
    """How a measure moves from day to day, of one host (None: within all hosts together).

    `slope` is per day, in the measure's unit (a share, or calls a second); `days` have a value, over `span_days`.
    `adjusted_p` is Holm's over what was asked together. `why` says what is missing where it is undetermined.
    """

    host: str | None
    measure: str
    days: int
    span_days: int
    median: float
    slope: Estimated | None
    adjusted_p: float | None
    verdict: TrendVerdict
    why: str = ""


@dataclass(frozen=True)
class HostChange:
    """One host before and after a deploy: seconds lost as a share of the window, calls per second of window."""

    host: str
    captures_before: int
    captures_after: int
    calls_before: int
    calls_after: int
    lost_share_before: float
    lost_share_after: float
    calls_per_s_before: float
    calls_per_s_after: float


@dataclass(frozen=True)
class DeployChange:
    """One measure before and after over paired hosts: medians of the hosts, and the middle of their differences.

    The difference is of shares, for `calls_per_s` relative to before.
    """

    measure: str
    before: float | None
    after: float | None
    difference: Estimated | None
    adjusted_p: float | None
    verdict: ChangeVerdict
    why: str = ""


@dataclass(frozen=True)
class Deploy:
    """A deploy: what and when, hosts that have both sides, and what is not compared."""

    what: str
    detected: bool
    hosts: tuple[HostChange, ...]
    changes: tuple[DeployChange, ...]
    straddling: int = 0
    one_sided_hosts: int = 0


@dataclass(frozen=True)
class Notice:
    """Something to know about the table: a stable code, words, how often."""

    code: str
    text: str
    count: int = 1


@dataclass(frozen=True)
class Fleet:
    """The whole table. Frames:

    `gpus`: host, gpu, model, captures, days, calls, window_s, compute_share, lost_s, lost_share, lost_per_call_s,
    calls_per_s, main_cause (null: undetermined), main_cause_s; most lost seconds first. `hosts`: the same by host, with
    gpus for gpu and model. `gpu_causes`: host, gpu, cause, lost_s, share_of_window, share_of_lost, per_call_s,
    supported_share (of its seconds, those in captures that support the verdict), rank (among GPUs, per cause).
    `causes`: cause, lost_s, share_of_lost, supported_share, gpus, hosts, hosts_main, worst_host, worst_gpu, worst_s,
    worst_share_of_window. `daily`: day, hosts, window_s, lost_s, lost_share, calls, calls_per_s.
    """

    headline: str
    analysis: str
    captures: tuple[CaptureSummary, ...]
    host_of: dict[str, str]
    failures: tuple[Failure, ...]
    gpus: pl.DataFrame
    hosts: pl.DataFrame
    gpu_causes: pl.DataFrame
    causes: pl.DataFrame
    daily: pl.DataFrame
    outliers: tuple[Outlier, ...] = ()
    trends: tuple[Trend, ...] = ()
    deploy: Deploy | None = None
    notices: tuple[Notice, ...] = field(default=())
