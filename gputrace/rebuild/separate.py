"""Takes the interleaved blocks of several GPUs apart.

Every GPU has its own mutex, and all print the same words (`gpu_tid=0`), so on a host with several GPUs the lines of
their holds mix. Where the log has times around them, whole holds are found by what their figures say of the lock's
time and of each other (`whole_holds`). What that leaves (holds that lack a line, a log without times) is put together
line by line (`beam`), each neighbourhood by itself.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gputrace.rebuild.beam import Kinds, likeliest_holds
from gputrace.rebuild.columns import Ints
from gputrace.rebuild.hold_lines import HoldLines
from gputrace.rebuild.sequence import Sequence
from gputrace.rebuild.timebounds import TimeBounds
from gputrace.rebuild.whole_holds import CALL_SLACK_MS, whole_holds

if TYPE_CHECKING:
    from gputrace.rebuild.blocks import MutexLine

# No more holds than this are open at once.
_MOST_OPEN = 16
# Signs of mixed holds that are no more than this share of the holds are those of a few lost lines.
_MIXED_SHARE = 0.01
# Where more than this share of the lines is in no whole hold, prints are slow, or the log has no times.
_MOST_LEFT = 0.5
_SLOW_PRINT_MS = 100.0
# A line may be so late that its figures say nothing of its time.
_LATE_MS = 500.0


def interleaved(sequence: Sequence) -> bool:
    """Whether holds of several GPUs mix. There are three signs of it, and one alone may be chance or a lost line.

    A release's figures add up with a lock that is not the last before it; two locks follow each other without a
    release, and two releases without a lock; two ntt_msm_h have neither a lock nor a release between them.
    """
    locks, releases, ntts = map(sequence.figures_of, ("mutex_acquired", "mutex_released", "ntt_msm_h"))
    if locks.is_empty() or releases.is_empty():
        return False
    locked, released = locks["order"].to_numpy(), releases["order"].to_numpy()
    before_ms = (locks["pre_lock_cpu_ms"] + locks["mutex_wait_ms"]).to_numpy()
    left_ms = (releases["total_start_fn_ms"] - releases["mutex_held_ms"]).to_numpy()
    lock = np.searchsorted(locked, released)[:, None] - 1 - np.arange(_MOST_OPEN)
    off_ms = left_ms[:, None] - before_ms[np.maximum(lock, 0)]
    agrees = (lock >= 0) & (off_ms >= 0) & (off_ms <= CALL_SLACK_MS)
    of_earlier = int(np.count_nonzero(~agrees[:, 0] & agrees[:, 1:].any(axis=1)))
    both_open = min(_in_a_row(locked, released), _in_a_row(released, locked))
    in_turns = 0
    if ntts.height:
        # A call that is spread over several GPUs prints one for each.
        first = ntts if "gpu_tid" not in ntts.columns else ntts.filter(pl.col("gpu_tid").fill_null(0) == 0)
        in_turns = _in_a_row(first["order"].to_numpy(), np.sort(np.concatenate([locked, released])))
    return of_earlier + both_open + in_turns > max(1.0, _MIXED_SHARE * len(released))


def _in_a_row(orders: Ints, between: Ints) -> int:
    """How many lines follow another of their kind with none of `between` in between."""
    return int(np.count_nonzero(np.diff(np.searchsorted(between, orders)) == 0))


def separate(lines: "list[MutexLine]", bounds: TimeBounds) -> "list[list[MutexLine]]":
    """The lines of each hold, in order of their locks."""
    kinds = Kinds.by(lines)
    groups: list[list[MutexLine]] = []
    for _, run in groupby(lines, key=lambda line: line.restart):
        own = list(run)
        table = HoldLines.of(own, bounds)
        hold = whole_holds(table)
        if np.mean(hold < 0) > _MOST_LEFT:
            hold = whole_holds(replace(table, print_ms=_SLOW_PRINT_MS))
        ranked = np.argsort(hold, kind="stable")[np.count_nonzero(hold < 0) :]
        edges = np.flatnonzero(np.diff(hold[ranked])) + 1
        groups += [[own[at] for at in members.tolist()] for members in np.split(ranked, edges) if len(members)]
        for members in _neighbourhoods(table, np.flatnonzero(hold < 0)):
            groups += likeliest_holds([own[at] for at in members.tolist()], bounds, kinds)
    return sorted(groups, key=lambda group: group[0].order)


def _neighbourhoods(table: HoldLines, left: Ints) -> Iterator[Ints]:
    """Divides lines so that no two parts share a hold: the times that lines say for their locks are far apart."""
    if not len(left):
        return
    since_ms = table.since_lock_ms[left]
    longest_ms = np.nanmax(table.ms["mutex_held_ms"], initial=0.0)
    low = table.low_ms[left] - np.where(np.isnan(since_ms), longest_ms, since_ms) - _LATE_MS
    high = table.high_ms[left] - np.nan_to_num(since_ms) + _LATE_MS
    ranked = np.argsort(low, kind="stable")
    reached = np.maximum.accumulate(high[ranked])
    for members in np.split(left[ranked], np.flatnonzero(low[ranked][1:] > reached[:-1]) + 1):
        yield np.sort(members)
