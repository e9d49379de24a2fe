"""Which partition a block belongs to.

Blocks carry no worker and no partition. What ties one to an attempt: order (its start is written before the lock's
line, its end and its worker's next pickup after the unlock's line), arithmetic (`prove_start >= total_start_fn`), and
time (entry + pre_lock + mutex_wait is the lock; a worker that waited gets the mutex the moment the holder lets go).
Blocks of one GPU form a chain in which the lock's time depends on the block before, so the assignment with the
smallest total residual is found by following the best partial assignments along the chain.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from gputrace.rebuild.attempts import Attempts
from gputrace.rebuild.blocks import Blocks
from gputrace.rebuild.columns import Bools, Floats, Ints
from gputrace.rebuild.timebounds import JITTER_MS, TimeBounds

# Costs in ms. Printing and scheduling move a line by a few ms; a block without a partition costs more than any
# disagreement that a right binding was seen to have.
_UNBOUND_MS = 200.0
_IMPOSSIBLE_MS = 10_000.0
_MOST_MS = 2_000.0
_BEAM = 48
# A partial assignment this much worse than the best will not win: leaving two blocks without a partition costs less.
_HOPELESS_MS = 2 * _UNBOUND_MS
# A block is not left without a partition where one fits as well as this.
_CLEAR_MS = 10.0
_UNKNOWN_SPAWN_WEIGHT = 0.05
_CENTRE_WEIGHT = 0.02
_PAIRS_AT_ONCE = 4096
# Nothing is known of when its mutex was free.
_UNKNOWN_GPU = -1
# Overtaking a call that waits longer, where nothing else tells two apart.
_TURN_MS = 5.0


class _Free(NamedTuple):
    """When a mutex was given back; `sure` unless a wait for a thread, which is not printed, may have come before."""

    at_ns: float
    sure: bool


class _Partial(NamedTuple):
    """A partial assignment: what it cost, when each GPU's mutex was last free, what it used, how it came about."""

    cost: float
    free: dict[int, _Free]
    used: frozenset[int]
    choice: int
    choice_cost: float
    before: "_Partial | None"


class _Pair(NamedTuple):
    """A block and an attempt that order allows for it, and what binding the two costs, ms.

    `release_ms` and `edges_ms` (the lock's and the unlock's, by the lines around and by their middle) are the parts of
    the cost that no other binding changes. Where it is `timed`, so does when the mutex was last free; `sure` is its
    entry, unless a wait for a thread, which is not printed, came before.
    """

    block: int
    attempt: int
    gpu: int
    release_ms: float
    lock_ns: float
    unlock_ns: float
    timed: bool
    waited: bool
    sure: bool
    edges_ms: tuple[float, float, float, float]

    def cost_ms(self, free: _Free | None) -> float:
        """The whole cost, where the mutex was last free then."""
        cost = self.release_ms
        if free is not None and self.timed:
            late_ms = (self.lock_ns - free.at_ns) / 1e6
            if late_ms < 0:
                cost += min(_MOST_MS, -late_ms if self.sure else -late_ms * _UNKNOWN_SPAWN_WEIGHT)
            elif self.waited:
                cost += min(_MOST_MS, late_ms if free.sure else late_ms * _UNKNOWN_SPAWN_WEIGHT)
        for edge_ms in self.edges_ms:
            cost += edge_ms
        return cost


class _Pairs(NamedTuple):
    """The columns of many `_Pair`, in order of blocks; the four edges one by one."""

    block: Ints
    attempt: Ints
    gpu: Ints
    release_ms: Floats
    lock_ns: Floats
    unlock_ns: Floats
    timed: Bools
    waited: Bools
    sure: Bools
    lock_edge_ms: Floats
    lock_middle_ms: Floats
    unlock_edge_ms: Floats
    unlock_middle_ms: Floats

    def rows(self, wanted: Bools) -> Iterator[_Pair]:
        """The wanted pairs, one after the other."""
        places = np.flatnonzero(wanted)
        for start in range(0, len(places), _PAIRS_AT_ONCE):
            part = places[start : start + _PAIRS_AT_ONCE]
            *columns, first, second, third, fourth = (column[part].tolist() for column in self)
            yield from map(_Pair._make, zip(*columns, zip(first, second, third, fourth, strict=True), strict=True))

    def handed_over_ms(self) -> Floats:
        """What each costs by when the mutex was last free, if the pair before is bound."""
        free_ns, free_sure = np.append(np.nan, self.unlock_ns[:-1]), np.append(False, self.sure[:-1])
        late_ms = (self.lock_ns - free_ns) / 1e6
        early = -late_ms * np.where(self.sure, 1.0, _UNKNOWN_SPAWN_WEIGHT)
        late = np.where(self.waited, late_ms * np.where(free_sure, 1.0, _UNKNOWN_SPAWN_WEIGHT), 0.0)
        return np.minimum(_MOST_MS, np.where(late_ms < 0, early, late))

    def cost_ms(self, handed_over_ms: Floats) -> Floats:
        """The whole costs, as `_Pair.cost_ms`."""
        cost = self.release_ms + handed_over_ms
        for edge_ms in (self.lock_edge_ms, self.lock_middle_ms, self.unlock_edge_ms, self.unlock_middle_ms):
            cost = cost + edge_ms
        return cost


class _Certain(NamedTuple):
    """Blocks whose attempt is beyond doubt, whatever the others are bound to: which, to what, and at what cost."""

    block: Bools
    pair: Ints
    cost_ms: Floats


def _certain(pairs: _Pairs, blocks: Blocks, one_mutex: bool) -> _Certain:
    """The blocks that have one attempt, which has no other block, at less than leaving them without one would save.

    To leave a block unbound costs `_UNBOUND_MS`; it saves what the pair costs, and what the next block's costs because
    of when this one let go of the mutex. Nothing before such a block matters for what comes after it.
    """
    count = len(blocks)
    number = np.bincount(pairs.block, minlength=count)
    first = np.cumsum(number) - number
    pair = np.where(number == 1, np.minimum(first, max(0, len(pairs.block) - 1)), -1)
    nobody = _Certain(np.zeros(count, dtype=bool), pair, np.zeros(count))
    if not one_mutex or not len(pairs.block):
        return nobody
    reach = np.zeros(pairs.attempt.max() + 1, dtype=np.int64)
    np.maximum.at(reach, pairs.attempt, pairs.block)
    furthest = np.zeros(count, dtype=np.int64)
    np.maximum.at(furthest, pairs.block, reach[pairs.attempt])
    cut = np.maximum.accumulate(furthest) <= np.arange(count)
    times_taken = np.bincount(pairs.attempt)[pairs.attempt[pair]]
    single = (number == 1) & (times_taken == 1) & pairs.timed[pair] & cut
    own = _Pairs._make(column[pair] for column in pairs)
    follows = np.concatenate([[False], single[:-1] & (np.diff(blocks.restart) == 0)])
    handed_ms = np.where(follows, own.handed_over_ms(), 0.0)
    begins = np.concatenate([[True], np.diff(blocks.restart) != 0])
    cost_ms = own.cost_ms(handed_ms)
    passed_on_ms = np.append(np.where(follows & single, handed_ms, np.where(begins, 0.0, np.inf))[1:], 0.0)
    known = single & (follows | begins) & (cost_ms + passed_on_ms < _UNBOUND_MS)
    return _Certain(known, pair, cost_ms)


def bind_blocks(blocks: Blocks, attempts: Attempts, bounds: TimeBounds) -> tuple[Ints, Floats]:
    """For each block the number of its attempt (-1 if none fits) and the residual of that choice in ms.

    `blocks` are in order of their locks. Where attempts name no GPU, all are taken to share one mutex unless holds
    overlap: then nothing is known of whose mutex a hold was.
    """
    bound, residual_ms = np.full(len(blocks), -1), np.zeros(len(blocks))
    closed = attempts.closed_order.tolist()
    locked, restarts = blocks.order_locked.tolist(), blocks.restart.tolist()
    turn_ms = np.where(np.isnan(blocks.before_lock_ms), _TURN_MS, _TURN_MS * 1e-2).tolist()
    # Tracing lines alone: no order to go by.
    ordered = not np.isnan(attempts.figure("start_order")).all()
    beam = [_Partial(0.0, {}, frozenset(), -1, 0.0, None)]
    one_mutex = bool((blocks.order_locked[1:] >= blocks.order_unlocked[:-1]).all())
    table = _pairs(blocks, attempts, bounds, one_mutex)
    certain = _certain(table, blocks, one_mutex)
    after_certain = np.append(False, certain.block[:-1])
    # After a block beyond doubt another one needs no search.
    skipped = certain.block & after_certain
    bound[skipped] = table.attempt[certain.pair[skipped]]
    residual_ms[skipped] = certain.cost_ms[skipped]
    searched = np.flatnonzero(~skipped)
    for number, pairs in _by_block(table.rows(~skipped[table.block]), searched.tolist()):
        if number and skipped[number - 1]:
            last = int(certain.pair[number - 1])
            free = {0: _Free(float(table.unlock_ns[last]), bool(table.sure[last]))}
            beam = [_Partial(0.0, free, frozenset(), -1, 0.0, None)]
        if number and restarts[number] != restarts[number - 1]:
            beam = [partial._replace(free={}) for partial in beam]
        at = locked[number]
        # A later block may end before this one, on another GPU: only what is closed by its start is closed for good.
        alive = None if ordered else {pair.attempt for pair in pairs}
        best: dict[tuple[frozenset[int], int], _Partial] = {}
        for partial in beam:
            # Attempts that no later block can take need not be remembered.
            kept = [i for i in partial.used if (closed[i] > at if alive is None else i in alive)]
            unchanged = frozenset(kept)
            for choice, cost, free in _options(partial, pairs, turn_ms[number]):
                used = unchanged if choice < 0 else frozenset((*kept, choice))
                total = partial.cost + cost
                known = best.get((used, choice))
                if known is None or total < known.cost:
                    best[used, choice] = _Partial(total, free, used, choice, cost, partial)
        if len(best) == 1:
            beam = list(best.values())
        else:
            least = min(partial.cost for partial in best.values())
            near = [partial for partial in best.values() if partial.cost <= least + _HOPELESS_MS]
            beam = sorted(near, key=itemgetter(0))[:_BEAM]
        if certain.block[number]:
            own = int(table.attempt[certain.pair[number]])
            beam = [min((partial for partial in beam if partial.choice == own), key=itemgetter(0))]
        if len(beam) == 1:
            _settle_choices(beam[0], number, bound, residual_ms)
            beam = [beam[0]._replace(before=None)]
    if len(beam) > 1:
        # Then the last block was searched for.
        _settle_choices(min(beam, key=itemgetter(0)), len(blocks) - 1, bound, residual_ms)
    return bound, residual_ms


def _by_block(pairs: Iterator[_Pair], blocks: list[int]) -> Iterator[tuple[int, list[_Pair]]]:
    """These blocks with their pairs, which are in order of blocks."""
    groups = groupby(pairs, itemgetter(0))
    coming = next(groups, None)
    for number in blocks:
        if coming is not None and coming[0] == number:
            yield number, list(coming[1])
            coming = next(groups, None)
        else:
            yield number, []


def _settle_choices(partial: _Partial, number: int, bound: Ints, residual_ms: Floats) -> None:
    """Writes down what led to a partial assignment of the blocks up to a number, as far as that is not done yet."""
    step: _Partial | None = partial
    while step is not None and step.before is not None:
        bound[number], residual_ms[number] = step.choice, step.choice_cost
        step, number = step.before, number - 1


def _options(partial: _Partial, pairs: list[_Pair], turn_ms: float) -> list[tuple[int, float, dict[int, _Free]]]:
    """What a block may be bound to after a partial assignment: attempt or -1, cost, and when mutexes were last free."""
    turns: dict[int, int] = {}
    options: list[tuple[int, float, dict[int, _Free]]] = []
    clear = False
    for pair in pairs:
        if pair.attempt in partial.used:
            continue
        gpu = pair.gpu
        # The mutex is not fair, but with two workers only one can wait, and with more the first mostly comes first.
        turn = turns.get(gpu, 0)
        cost = pair.cost_ms(partial.free.get(gpu)) + turn * turn_ms
        turns[gpu] = turn + 1
        clear = clear or cost <= _CLEAR_MS
        free = partial.free
        if pair.timed and gpu != _UNKNOWN_GPU:
            free = free | {gpu: _Free(pair.unlock_ns, pair.sure)}
        options.append((pair.attempt, cost, free))
    if not clear:
        options.append((-1, _UNBOUND_MS, {}))
    return options


def _candidates(blocks: Blocks, attempts: Attempts) -> tuple[Ints, Ints]:
    """Blocks and attempts that may belong together by order, by number: by block, then by the attempts' starts."""
    start = attempts.figure("start_order")
    by_start = np.argsort(start, kind="stable")[: np.count_nonzero(~np.isnan(start))]
    locked, closed = blocks.order_locked, attempts.closed_order
    if len(by_start):
        # An attempt starts before the lock's line, in the same run of the prover, and is closed after the unlock's.
        last = np.searchsorted(blocks.restart, attempts.figure("restart")[by_start], side="right")
        low = np.searchsorted(locked, start[by_start], side="right")
        high = np.minimum(np.searchsorted(locked, closed[by_start]), last)
    else:
        # Tracing alone. Returns come in order of unlocks, give or take the workers.
        by_start = np.flatnonzero(~np.isnan(attempts.figure("spawned_ns")))
        low, high = np.arange(len(by_start)) - 2, np.arange(len(by_start)) + 3
        low, high = np.maximum(low, 0), np.minimum(high, len(blocks))
    count = np.maximum(high - low, 0)
    attempt = np.repeat(by_start, count)
    block = np.arange(len(attempt)) - np.repeat(np.cumsum(count) - count - low, count)
    if not np.isnan(start).all():
        fits = (closed[attempt] > blocks.order_unlocked[block]) & (
            attempts.figure("restart")[attempt] == blocks.restart[block]
        )
        block, attempt = block[fits], attempt[fits]
    ranked = np.argsort(block, kind="stable")
    return block[ranked], attempt[ranked]


def _pairs(blocks: Blocks, attempts: Attempts, bounds: TimeBounds, one_mutex: bool) -> _Pairs:
    """The pairs that order allows, with their costs."""
    block, attempt = _candidates(blocks, attempts)
    known_spawn = ~np.isnan(attempts.figure("spawn_to_enter_ms"))[attempt]
    # Without the line that says how long the call waited for a thread, the entry is only known not to be earlier.
    early_weight = np.where(known_spawn, 1.0, _UNKNOWN_SPAWN_WEIGHT)
    lower_ms = np.where(np.isnan(total := blocks.figure("total_start_fn_ms")), blocks.figure("gpu_total_ms"), total)[
        block
    ]
    release = attempts.figure("prove_start_ms")[attempt] - lower_ms
    # Adjacency: of two that fit alike, the one that returns sooner after the unlock.
    release_ms = np.nan_to_num(np.where(release < -1, _IMPOSSIBLE_MS - release, release * 1e-3))
    entry_ns, held_ms = attempts.entry_ns[attempt], blocks.held_ms[block]
    lock_ns = entry_ns + (blocks.before_lock_ms[block] + 1.0) * 1e6
    unlock_ns = lock_ns + (held_ms + 0.5) * 1e6
    timed = ~np.isnan(unlock_ns)
    edges = [
        np.where(timed, part, 0.0)
        for event, at_ns in (("mutex_acquired", lock_ns), ("mutex_released", unlock_ns))
        for part in _edge_ms(blocks, event, bounds, block, at_ns, early_weight)
    ]
    # Old builds: only that the block follows the entry and ends before the proof is finished.
    span = bounds.spans_ns(blocks.order_unlocked)
    old = np.nan_to_num(_outside_ms(span[0][block], span[1][block], entry_ns + held_ms * 1e6)[1] * 1e-2)
    edges[0] = np.where(timed, edges[0], np.where(np.isnan(blocks.before_lock_ms[block]), old, 0.0))
    named = np.nan_to_num(attempts.figure("gpu"), nan=_UNKNOWN_GPU).astype(np.int64)[attempt]
    gpu = np.zeros_like(named) if one_mutex else named
    return _Pairs(block, attempt, gpu, release_ms, lock_ns, unlock_ns, timed, blocks.waited[block], known_spawn, *edges)


def _outside_ms(low: Floats, high: Floats, at_ns: Floats) -> tuple[Floats, Floats]:
    """How far times lie before and after spans, ms, beyond what printing moves a line; 0 where they do not."""
    before, after = (low - at_ns) / 1e6 - JITTER_MS, (at_ns - high) / 1e6 - JITTER_MS
    return np.maximum(0.0, before), np.maximum(0.0, after)


def _edge_ms(
    blocks: Blocks, event: str, bounds: TimeBounds, block: Ints, at_ns: Floats, early_weight: Floats
) -> tuple[Floats, Floats]:
    """What it costs that a lock's or an unlock's line was written at a time: by what is possible, and by its middle."""
    lines = blocks.event_lines(event)
    has = ~np.isnan(lines.order)
    low, high = np.full(len(blocks), -np.inf), np.full(len(blocks), np.inf)
    low[has], high[has] = bounds.spans_ns(lines.order[has].astype(np.int64))
    low, high, arrival_ns = low[block], high[block], lines.arrival_ns[block]
    off_ms = (at_ns - arrival_ns) / 1e6
    early_ms, late_ms = _outside_ms(low, high, at_ns)
    by_bounds = np.minimum(_MOST_MS, early_ms * early_weight + late_ms)
    by_arrival = np.minimum(_MOST_MS, np.where(off_ms > 0, off_ms, -off_ms * early_weight))
    stamped = ~np.isnan(arrival_ns)
    # Of two that fit, the one nearer the middle of what is possible.
    central = np.isfinite(low) & np.isfinite(high) & ~stamped
    middle_ns = (np.where(central, low, 0.0) + np.where(central, high, 0.0)) / 2
    by_middle = np.minimum(_MOST_MS, _CENTRE_WEIGHT * np.abs(at_ns - middle_ns) / 1e6)
    return np.where(stamped, by_arrival, by_bounds), np.where(central, by_middle, 0.0)
