"""The figures that are compared: what each is computed from, its unit, and what difference of it matters.

A figure's name is what the report, the JSON and `--fail-if` call it: `mutex_held_ms.median`, `calls_per_s`,
`lost_s_per_call.pageable-h2d`.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gputrace.analysis.blame import UNEXPLAINED
from gputrace.analysis.compare.per_call import BOTH_COPIES, LOST, duration_column
from gputrace.analysis.hypotheses import ALL
from gputrace.errors import UsageError
from gputrace.schema import PHASE_NAMES

Kind = Literal["quantile", "mean", "extreme", "rate", "share", "total", "count"]

# A difference is called a change only if it is at least this large, both relatively and in the figure's unit: a choice,
# docs/comparing.md, "What matters". 5 ms is the least spread that makes a phase variable.
MATTERS_RELATIVE = 0.03
MATTERS_ABSOLUTE = {"ms": 5.0, "share": 0.01, "s": 0.01, "1/s": 0.0, "": 1.0}

_QUANTILES = {"p5": 0.05, "median": 0.5, "p95": 0.95}
DURATION_STATISTICS = ("median", "mean", "p5", "p95", "min", "max")
SHARES = {
    "compute_share": "compute_s",
    "copy_only_share": "copy_only_s",
    "idle_share": "idle_s",
    "mutex_held_share": "held_s",
}
_COUNTS = ("calls", "failed_calls")
CAUSES = tuple(dict.fromkeys([*(hypothesis.id for hypothesis in ALL), UNEXPLAINED]))


@dataclass(frozen=True)
class Figure:
    """One number of a run.

    `column` is the per-call column that it is made of ("" for all calls; `lost_s.` for all causes), `unit` ms, s, 1/s,
    share or "" (a count), `better` which way is good: lower, higher or "" where it depends.
    """

    name: str
    title: str
    unit: str
    kind: Kind
    column: str
    statistic: str = ""
    better: str = "lower"
    headline: bool = False

    @property
    def quantile(self) -> float:
        """Which quantile it is, 0..1."""
        return _QUANTILES[self.statistic]

    @property
    def matters(self) -> float:
        """The smallest difference in its unit that matters."""
        return MATTERS_ABSOLUTE[self.unit]


def duration(phase: str, statistic: str) -> Figure:
    """A statistic of a phase's duration per call."""
    kind: Kind = "mean" if statistic == "mean" else "quantile" if statistic in _QUANTILES else "extreme"
    title = "ntt + coset sum" if phase == BOTH_COPIES else phase
    column = duration_column(phase)
    return Figure(
        f"{column}.{statistic}", f"{title} {statistic}", "ms", kind, column, statistic, headline=phase == "mutex_held"
    )


def lost_per_call(cause: str) -> Figure:
    """Lost seconds per call that are charged to a cause; to any, if it is ""."""
    name = "lost_s_per_call" + (f".{cause}" if cause else "")
    return Figure(name, f"lost a call: {cause or 'all'}", "s", "mean", LOST + cause)


def share(name: str) -> Figure:
    """A share of the window, 0..1."""
    title = name.removesuffix("_share").replace("copy_only", "copy-only").replace("_", " ") + " share"
    better = {"compute_share": "higher", "mutex_held_share": ""}.get(name, "lower")
    return Figure(name, title, "share", "share", SHARES[name], better=better, headline=name == "compute_share")


CALLS_PER_S = Figure("calls_per_s", "calls per second", "1/s", "rate", "since_s", better="higher", headline=True)


def compared(columns: Iterable[str]) -> list[Figure]:
    """The figures that a comparison of runs with these per-call columns is made of, in the order of a report."""
    known = set(columns)
    causes = sorted(name.removeprefix(LOST) for name in known if name.startswith(LOST))
    figures = [CALLS_PER_S, *(share(name) for name in SHARES)]
    for phase in _phases():
        figures += [duration(phase, statistic) for statistic in ("median", "mean")]
    figures += [lost_per_call(cause) for cause in ["", *causes] if causes]
    return [figure for figure in figures if figure.column in known or figure.column == LOST]


def _phases() -> list[str]:
    """The phases in the order of a call, the hold of the mutex first and the sum after its parts."""
    rest = [name for name in PHASE_NAMES if name != "mutex_held"]
    rest.insert(rest.index("coset_intt_sync") + 1, BOTH_COPIES)
    return ["mutex_held", *rest]


def names() -> list[str]:
    """Every name that `--fail-if` knows, without statistics and causes."""
    return [
        CALLS_PER_S.name,
        *SHARES,
        *(duration_column(phase) for phase in _phases()),
        "lost_s",
        "lost_s_per_call",
        *_COUNTS,
    ]


def find(name: str) -> Figure:
    """The figure of that name; durations without a statistic are medians. Raises `UsageError` with the nearest name."""
    base, _, detail = name.partition(".")
    if base not in names():
        raise UsageError(f"{base!r} is no figure{_nearest(base, names())}")
    if base in ("lost_s", "lost_s_per_call"):
        if detail and detail not in CAUSES:
            raise UsageError(f"{detail!r} is no cause{_nearest(detail, CAUSES)}")
        if base == "lost_s_per_call":
            return lost_per_call(detail)
        return Figure(name, f"lost: {detail or 'all'}", "s", "total", LOST + detail)
    phases = {duration_column(phase): phase for phase in _phases()}
    if base in phases:
        statistic = detail or "median"
        if statistic not in DURATION_STATISTICS:
            raise UsageError(f"{detail!r} is no statistic of a duration{_nearest(detail, DURATION_STATISTICS)}")
        return duration(phases[base], statistic)
    if detail:
        raise UsageError(f"{base} has no {detail!r}: it is one number")
    if base in SHARES:
        return share(base)
    if base == CALLS_PER_S.name:
        return CALLS_PER_S
    return Figure(base, base.replace("_", " "), "", "count", base, better="higher" if base == "calls" else "lower")


def _nearest(name: str, known: Iterable[str]) -> str:
    options = list(known)
    close = difflib.get_close_matches(name, options, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(options)}"
