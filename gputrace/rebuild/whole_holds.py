"""Finds the lines of whole holds of several GPUs' mutexes where the log has times around them.

Every line says when the mutex was locked: the time at which it was written, less the milliseconds since the lock that
its figures say. Lines of one hold agree on that, and their figures add up: `total_start_fn` is what passed before the
lock and the hold; `gpu_total` the sum of its phases; `ntt_msm_h` that of its circuits. All sets of lines that agree are
made, each with how odd it is beside the others, and of those that share lines the likeliest are chosen. A set that
lacks a line is no whole hold: its lines are left.

What an identity may miss: the prover takes its figures from one clock and prints whole milliseconds, so that a sum of
k parts falls short of the whole by up to k - 1 ms, and what lies between the parts, prints above all, takes its time.
"""

from typing import NamedTuple

import numpy as np

from gputrace.rebuild.circuits import CircuitSearch
from gputrace.rebuild.columns import Bools, Floats, Ints
from gputrace.rebuild.hold_lines import HoldLines, apart
from gputrace.rebuild.rivals import PLACED, disjoint, overlapping, rarity

# What `total_start_fn` exceeds the sum of its parts by, at most.
CALL_SLACK_MS = 3.0
# The same of `gpu_total`, in which three lines are printed.
_GPU_SLACK_MS, _GPU_PRINTS = 5.0, 3
# From the GPU thread's end to the unlock: a few ms, more where the device is slow.
_MOST_AFTER_GPU_MS = 500.0
_ROUNDS_OF_TIGHTENING = 4
# Figures of the lines that the GPU thread prints between ntt_msm_h and tail_msm, in this order.
_BETWEEN = {"barrier_wait": "barrier_wait_ms", "batch_add": "batch_add_ms"}
_SPINE = ("mutex_acquired", "ntt_msm_h", "tail_msm", "mutex_released")


class _Work(NamedTuple):
    """What the GPU may have done in one hold, a row each: its lines, when the mutex was locked, and how odd it is.

    A line that the run does not print is -1.
    """

    ntt: Ints
    barrier: Ints
    batch: Ints
    tail: Ints
    low_ms: Floats
    high_ms: Floats
    oddity: Floats

    def rows(self, kept: Ints | Bools) -> "_Work":
        return _Work(
            self.ntt[kept],
            self.barrier[kept],
            self.batch[kept],
            self.tail[kept],
            self.low_ms[kept],
            self.high_ms[kept],
            self.oddity[kept],
        )


class _Spines(NamedTuple):
    """Lines that may be a hold's, a row each: `lines` has those of _SPINE in columns; times are of the lock."""

    lines: Ints
    low_ms: Floats
    high_ms: Floats
    oddity: Floats

    def rows(self, kept: Ints | Bools) -> "_Spines":
        return _Spines(self.lines[kept], self.low_ms[kept], self.high_ms[kept], self.oddity[kept])


def whole_holds(lines: HoldLines) -> Ints:
    """The number of the hold that each line belongs to; -1 where it belongs to none that is whole."""
    owner = np.full(len(lines.event), -1, dtype=np.int64)
    if not lines.printed.issuperset(_SPINE):
        return owner
    works = _works(lines)
    spines = _tightened(lines, _spines(lines, works))
    spines = spines.rows(disjoint(spines.lines, PLACED - spines.oddity))
    members = _members(lines, spines, works)
    search = CircuitSearch(lines, members["mutex_acquired"], members["ntt_msm_h"], spines.low_ms, spines.high_ms)
    whole = search.whole() & np.logical_and.reduce([at >= 0 for at in members.values()])
    for at in members.values():
        owner[at[whole]] = np.flatnonzero(whole)
    found = np.flatnonzero(search.hold_of >= 0)
    found = found[whole[search.hold_of[found]]]
    owner[found] = search.hold_of[found]
    return owner


def _works(lines: HoldLines) -> _Work:
    """Every set of lines of the GPU thread that add up to its total and agree on the lock's time."""
    ntt_at, tail_at = lines.at("ntt_msm_h"), lines.at("tail_msm")
    low, high = lines.before_ms(ntt_at, lines.since_lock_ms[ntt_at])
    tail_low, tail_high = lines.before_ms(tail_at, lines.since_lock_ms[tail_at])
    one, other = overlapping(low, high, tail_low, tail_high)
    low, high = np.maximum(low[one], tail_low[other]), np.minimum(high[one], tail_high[other])
    none = np.full(len(one), -1, dtype=np.int64)
    works = _Work(ntt_at[one], none, none, tail_at[other], low, high, np.zeros(len(one)))
    works = works.rows(works.ntt < works.tail)
    steps = [event for event in _BETWEEN if event in lines.printed]
    works = _adding_up(lines, works, steps)
    for number, event in enumerate(steps):
        works = _adding_up(lines, _followed_by(lines, works, event), steps[number + 1 :])
    oddity = rarity(_unexplained_ms(lines, works)) + lines.disagreement(works.low_ms, works.high_ms)
    return works._replace(oddity=works.oddity + oddity)


def _since_lock_ms(lines: HoldLines, works: _Work) -> Floats:
    """When after the lock the last of each row's lines before its tail was printed."""
    barrier_ms = np.where(works.barrier < 0, 0.0, lines.ms["barrier_wait_ms"][works.barrier])
    batch_ms = np.where(works.batch < 0, 0.0, lines.ms["batch_add_ms"][works.batch])
    return np.asarray(lines.ms["ntt_msm_h_ms"][works.ntt] + barrier_ms + batch_ms)


def _unexplained_ms(lines: HoldLines, works: _Work) -> Floats:
    """What of the GPU thread's total the lines of each row do not explain."""
    total_ms = lines.ms["gpu_total_ms"][works.tail] - lines.ms["tail_msm_ms"][works.tail]
    return np.asarray(total_ms - _since_lock_ms(lines, works))


def _adding_up(lines: HoldLines, works: _Work, missing: list[str]) -> _Work:
    """The rows whose total leaves as much as the lines that are still missing may take."""
    figures_ms = [lines.ms[_BETWEEN[event]][lines.at(event)] for event in missing]
    left_ms = _unexplained_ms(lines, works)
    least_ms, most_ms = sum(own.min() for own in figures_ms), sum(own.max() for own in figures_ms)
    return works.rows((left_ms >= least_ms) & (left_ms <= most_ms + _GPU_SLACK_MS + _GPU_PRINTS * lines.print_ms))


def _followed_by(lines: HoldLines, works: _Work, event: str) -> _Work:
    """Every row with each line of the event that may come next in it."""
    since_ms, key = _since_lock_ms(lines, works), _BETWEEN[event]
    row, at = lines.written_in(event, works.low_ms + since_ms, works.high_ms + since_ms, key)
    works, since_ms = works.rows(row), since_ms[row] + lines.ms[key][at]
    previous = np.maximum(works.ntt, works.barrier)
    low, high = lines.before_ms(at, since_ms)
    works = works._replace(low_ms=np.maximum(works.low_ms, low), high_ms=np.minimum(works.high_ms, high))
    works = works._replace(barrier=at) if event == "barrier_wait" else works._replace(batch=at)
    kept = (previous < at) & (at < works.tail) & (works.low_ms <= works.high_ms)
    works = works.rows(kept)
    return works._replace(oddity=works.oddity + apart((at - previous)[kept]))


def _spines(lines: HoldLines, works: _Work) -> _Spines:
    """Every lock, GPU thread and release that may be of one hold."""
    lock, release, low, high, oddity = _ends(lines)
    works = _likeliest_works(works)
    one, other = overlapping(low, high, works.low_ms, works.high_ms)
    members = np.stack([lock[one], works.ntt[other], works.tail[other], release[one]], axis=1)
    low, high = np.maximum(low[one], works.low_ms[other]), np.minimum(high[one], works.high_ms[other])
    spines = _Spines(members, low, high, oddity[one] + works.oddity[other])
    after_ms = lines.ms["mutex_held_ms"][members[:, 3]] - lines.ms["gpu_total_ms"][members[:, 2]]
    kept = (np.diff(members, axis=1) > 0).all(axis=1) & (after_ms >= 0.0) & (after_ms <= _MOST_AFTER_GPU_MS)
    spines = spines.rows(kept)
    oddity = rarity(after_ms[kept]) + apart(spines.lines[:, 3] - spines.lines[:, 2])
    return spines._replace(oddity=spines.oddity + oddity + lines.disagreement(spines.low_ms, spines.high_ms))


def _ends(lines: HoldLines) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Every lock and release whose figures add up: where they are, the lock's earliest and latest time, the oddity."""
    lock_at, release_at = lines.at("mutex_acquired"), lines.at("mutex_released")
    low, high = lines.before_ms(lock_at, 0.0)
    release_low, release_high = lines.before_ms(release_at, lines.since_lock_ms[release_at])
    one, other = overlapping(low, high, release_low, release_high)
    low, high = np.maximum(low[one], release_low[other]), np.minimum(high[one], release_high[other])
    lock, release, ms = lock_at[one], release_at[other], lines.ms
    before_ms = ms["pre_lock_cpu_ms"][lock] + ms["mutex_wait_ms"][lock]
    off_ms = ms["total_start_fn_ms"][release] - ms["mutex_held_ms"][release] - before_ms
    kept = (lock < release) & (off_ms >= 0.0) & (off_ms <= CALL_SLACK_MS)
    return lock[kept], release[kept], low[kept], high[kept], rarity(off_ms[kept])


def _likeliest_works(works: _Work) -> _Work:
    """One row for each ntt_msm_h and tail_msm: the least odd of theirs, with the times that any of theirs allows."""
    ranked = works.rows(np.lexsort((works.oddity, works.tail, works.ntt)))
    new = (np.diff(ranked.ntt, prepend=-1) != 0) | (np.diff(ranked.tail, prepend=-1) != 0)
    first = np.flatnonzero(new)
    if not len(first):
        return ranked
    return ranked.rows(first)._replace(
        low_ms=np.minimum.reduceat(ranked.low_ms, first), high_ms=np.maximum.reduceat(ranked.high_ms, first)
    )


def _tightened(lines: HoldLines, spines: _Spines) -> _Spines:
    """The rows that still agree once each line's time is what its rows allow: lines are written in order of time."""
    low, high = lines.low_ms.copy(), lines.high_ms.copy()
    since_ms = lines.since_lock_ms
    for _ in range(_ROUNDS_OF_TIGHTENING):
        members = spines.lines
        earliest = np.full(len(low), np.inf)
        latest = np.full(len(low), -np.inf)
        np.minimum.at(earliest, members, spines.low_ms[:, None] + since_ms[members] - lines.jitter_ms)
        np.maximum.at(latest, members, spines.high_ms[:, None] + since_ms[members] + lines.jitter_ms)
        low = np.maximum.accumulate(np.fmax(low, np.where(np.isinf(earliest), np.nan, earliest)))
        high = np.minimum.accumulate(np.fmin(high, np.where(np.isinf(latest), np.nan, latest))[::-1])[::-1]
        first = (low[members] - since_ms[members] - lines.jitter_ms).max(axis=1)
        last = (high[members] - since_ms[members] + lines.jitter_ms).min(axis=1)
        spines = spines._replace(low_ms=np.maximum(spines.low_ms, first), high_ms=np.minimum(spines.high_ms, last))
        spines = spines.rows(spines.low_ms <= spines.high_ms)
    return spines


def _members(lines: HoldLines, spines: _Spines, works: _Work) -> dict[str, Ints]:
    """Where each hold has its lines by event; -1 where it has none, though the run prints it."""
    found = {event: spines.lines[:, column] for column, event in enumerate(_SPINE)}
    hold_of = np.full(len(lines.event), -1, dtype=np.int64)
    hold_of[found["ntt_msm_h"]] = np.arange(len(spines.lines))
    works = works.rows(hold_of[works.ntt] >= 0)
    works = works.rows(found["tail_msm"][hold_of[works.ntt]] == works.tail)
    for event in _BETWEEN:
        if event not in lines.printed:
            continue
        at = works.barrier if event == "barrier_wait" else works.batch
        hold = hold_of[works.ntt]
        ranked = np.lexsort((works.oddity, at, hold))
        pairs = np.stack([hold, at], axis=1)[ranked]
        first = ranked[(np.diff(pairs, axis=0, prepend=[[-1, -1]]) != 0).any(axis=1)]
        chosen = first[disjoint(np.stack([works.ntt[first], at[first]], axis=1), PLACED - works.oddity[first])]
        found[event] = np.full(len(spines.lines), -1, dtype=np.int64)
        found[event][hold[chosen]] = at[chosen]
        works = works.rows(found[event][hold] == at)
    return found
