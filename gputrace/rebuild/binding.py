"""Which partition a block belongs to, and which floating lines belong to which call.

Blocks carry no worker and no partition. What ties one to an attempt: order (its start is written before the lock's
line, its end and its worker's next pickup after the unlock's line), arithmetic (`prove_start >= total_start_fn`), and
time (entry + pre_lock + mutex_wait is the lock; a worker that waited gets the mutex the moment the holder lets go).
Blocks of one GPU form a chain in which the lock's time depends on the block before, so the assignment with the
smallest total residual is found by following the best partial assignments along the chain.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gputrace.rebuild.attempts import Attempt
from gputrace.rebuild.blocks import Block
from gputrace.rebuild.timebounds import TimeBounds, outside_ms

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
# Overtaking a call that waits longer, where nothing else tells two apart.
_TURN_MS = 5.0


class _Free(NamedTuple):
    """When a mutex was given back; `sure` unless a wait for a thread, which is not printed, may have come before."""

    at_ns: float
    sure: bool


@dataclass(slots=True)
class _Partial:
    """A partial assignment: what it cost, when each GPU's mutex was last free, what it used, how it came about."""

    cost: float
    free: dict[int | None, _Free]
    used: frozenset[int]
    choice: int | None
    choice_cost: float
    before: "_Partial | None"


class _Hold(NamedTuple):
    """What a block says, read once: it is held against every attempt that may be its own.

    `edges` are its lock's and unlock's lines, where it has them: whether it is the unlock, when the line came (None
    where nothing stamped it), and between which times it was written.
    """

    lower_ms: int | None
    held_ms: int | None
    before_lock_ms: int | None
    waited: bool
    unlocked: tuple[float, float]
    edges: tuple[tuple[bool, int | None, float, float], ...]

    @classmethod
    def of(cls, block: Block, bounds: TimeBounds) -> "_Hold":
        ms = block.ms
        edges = []
        for event in ("mutex_acquired", "mutex_released"):
            arrival_ns, order = block.arrivals.get(event), block.orders.get(event)
            if arrival_ns is not None or order is not None:
                span = (0.0, 0.0) if arrival_ns is not None or order is None else bounds.span_ns(order)
                edges.append((event == "mutex_released", arrival_ns, *span))
        return cls(
            ms.get("total_start_fn_ms", ms.get("gpu_total_ms")),
            block.held_ms,
            block.before_lock_ms,
            ms.get("mutex_wait_ms", 0) > 1,
            bounds.span_ns(block.order_unlocked),
            tuple(edges),
        )


def _fit(hold: _Hold, attempt: Attempt, entry_ns: float | None, free: _Free | None) -> tuple[float, float | None]:
    """Cost in ms of binding the two, and the unlock time that follows. `entry_ns` is the attempt's."""
    cost = 0.0
    if attempt.prove_start_ms is not None and hold.lower_ms is not None:
        release_ms = attempt.prove_start_ms - hold.lower_ms
        # Adjacency: of two that fit alike, the one that returns sooner after the unlock.
        cost += _IMPOSSIBLE_MS - release_ms if release_ms < -1 else release_ms * 1e-3
    if entry_ns is None or hold.held_ms is None:
        return cost, None
    if hold.before_lock_ms is None:
        # Old builds: only that the block follows the entry and ends before the proof is finished.
        return cost + outside_ms(hold.unlocked, entry_ns + hold.held_ms * 1e6)[1] * 1e-2, None
    lock_ns = entry_ns + (hold.before_lock_ms + 1.0) * 1e6
    unlock_ns = lock_ns + (hold.held_ms + 0.5) * 1e6
    # Without the line that says how long the call waited for a thread, the entry is only known not to be earlier.
    early_weight = 1.0 if attempt.spawn_to_enter_ms is not None else _UNKNOWN_SPAWN_WEIGHT
    if free is not None:
        late_ms = (lock_ns - free.at_ns) / 1e6
        late_weight = 0.0 if not hold.waited else 1.0 if free.sure else _UNKNOWN_SPAWN_WEIGHT
        cost += min(_MOST_MS, -late_ms * early_weight if late_ms < 0 else late_ms * late_weight)
    for is_unlock, arrival_ns, low, high in hold.edges:
        at_ns = unlock_ns if is_unlock else lock_ns
        if arrival_ns is not None:
            off_ms = (at_ns - arrival_ns) / 1e6
            cost += min(_MOST_MS, off_ms if off_ms > 0 else -off_ms * early_weight)
        else:
            early_ms, late_ms = outside_ms((low, high), at_ns)
            cost += min(_MOST_MS, early_ms * early_weight + late_ms)
            if isfinite(low) and isfinite(high):
                # Of two that fit, the one nearer the middle of what is possible.
                cost += min(_MOST_MS, _CENTRE_WEIGHT * abs(at_ns - (low + high) / 2) / 1e6)
    return cost, unlock_ns


def bind_blocks(blocks: list[Block], attempts: list[Attempt], bounds: TimeBounds) -> list[tuple[int | None, float]]:
    """For each block the index of its attempt (None if none fits) and the residual of that choice in ms.

    `blocks` are in order of their locks. Where attempts name no GPU, all are taken to share one mutex unless holds
    overlap: then nothing is known of whose mutex a hold was.
    """
    by_start = sorted(
        (i for i, a in enumerate(attempts) if a.start_order is not None), key=lambda i: attempts[i].start_order or 0
    )
    entries = [attempt.entry_ns for attempt in attempts]
    untimed = [i for i, a in enumerate(attempts) if a.start_order is None and a.spawned_ns is not None]
    one_mutex = all(later.order_locked >= block.order_unlocked for block, later in pairwise(blocks))
    coming, open_now = 0, list[int]()
    beam = [_Partial(0.0, {}, frozenset(), None, 0.0, None)]
    restart = blocks[0].restart if blocks else 0
    for position, block in enumerate(blocks):
        while coming < len(by_start) and (attempts[by_start[coming]].start_order or 0) < block.order_locked:
            open_now.append(by_start[coming])
            coming += 1
        # A later block may end before this one, on another GPU: only what is closed by its start is closed for good.
        open_now = [i for i in open_now if attempts[i].closed_order > block.order_locked]
        candidates = [
            i
            for i in open_now
            if attempts[i].restart == block.restart and attempts[i].closed_order > block.order_unlocked
        ]
        if not by_start:
            # Tracing alone: no order to go by. Returns come in order of unlocks, give or take the workers.
            open_now = candidates = untimed[max(0, position - 2) : position + 3]
        if block.restart != restart:
            restart = block.restart
            beam = [_Partial(p.cost, {}, p.used, p.choice, p.choice_cost, p.before) for p in beam]
        hold = _Hold.of(block, bounds)
        beam = _step(beam, hold, candidates, frozenset(open_now), attempts, entries, one_mutex)
    if not blocks:
        return []
    best: _Partial | None = min(beam, key=lambda partial: partial.cost)
    chosen: list[tuple[int | None, float]] = []
    while best is not None and best.before is not None:
        chosen.append((best.choice, best.choice_cost))
        best = best.before
    return chosen[::-1]


def _step(
    beam: list[_Partial],
    hold: _Hold,
    candidates: list[int],
    alive: frozenset[int],
    attempts: list[Attempt],
    entries: list[float | None],
    one_mutex: bool,
) -> list[_Partial]:
    best: dict[tuple[frozenset[int], int | None], _Partial] = {}
    turn_ms = _TURN_MS if hold.before_lock_ms is None else _TURN_MS * 1e-2
    for partial in beam:
        options: list[tuple[int | None, float, dict[int | None, _Free]]] = []
        turns: dict[int | None, int] = {}
        for i in candidates:
            if i in partial.used:
                continue
            gpu = 0 if one_mutex else attempts[i].gpu
            free = partial.free.get(gpu) if gpu is not None else None
            cost, unlock_ns = _fit(hold, attempts[i], entries[i], free)
            # The mutex is not fair, but with two workers only one can wait, and with more the first mostly comes first.
            turn = turns.get(gpu, 0)
            cost += turn * turn_ms
            turns[gpu] = turn + 1
            sure = attempts[i].spawn_to_enter_ms is not None
            now = {} if unlock_ns is None else {gpu: _Free(unlock_ns, sure)}
            options.append((i, cost, partial.free | now))
        if not any(cost <= _CLEAR_MS for _, cost, _ in options):
            options.append((None, _UNBOUND_MS, {}))
        for choice, cost, free_now in options:
            # Attempts that no later block can take need not be remembered.
            used = (partial.used | {choice} if choice is not None else partial.used) & alive
            grown = _Partial(partial.cost + cost, free_now, used, choice, cost, partial)
            key = (used, choice)
            if key not in best or grown.cost < best[key].cost:
                best[key] = grown
    least = min(partial.cost for partial in best.values())
    near = [partial for partial in best.values() if partial.cost <= least + _HOPELESS_MS]
    return sorted(near, key=lambda partial: partial.cost)[:_BEAM]


Matched = list[tuple[int | None, float]]


def match_lines(calls: int, pairs: "Pairs") -> Matched:
    """For each of `calls`, which line is its own and at what residual (ms): the cheapest one-to-one matching."""
    likely = pairs.residual_ms < _UNBOUND_MS
    call, line, residual = pairs.call[likely], pairs.line[likely], pairs.residual_ms[likely]
    # Every call with its own cheapest line, and of those alike the first: where no two want the same, that is all.
    ranked = np.lexsort((np.arange(len(call)), residual, call))
    best = ranked[np.flatnonzero(np.diff(call[ranked], prepend=-1))] if len(call) else ranked
    matched: Matched = [(None, 0.0)] * calls
    for own, chosen, least in zip(call[best].tolist(), line[best].tolist(), residual[best].tolist(), strict=True):
        matched[own] = (chosen, least)
    wanted, times = np.unique(line[best], return_counts=True)
    if (times > 1).any():
        _settle(matched, Pairs(call, line, residual), wanted[times > 1])
    return matched


class Pairs(NamedTuple):
    """Calls and lines that may belong together, by number, in order of calls and then of lines; what each costs."""

    call: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    residual_ms: npt.NDArray[np.float64]


def _settle(matched: Matched, pairs: Pairs, wanted: npt.NDArray[np.int64]) -> None:
    """Matches anew the calls that want the same lines, and all that they share lines with."""
    # Imported here: it costs time, and most logs do not need it.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    calls, lines = int(pairs.call.max()) + 1, int(pairs.line.max()) + 1
    shape = (calls + lines, calls + lines)
    graph = coo_array((np.ones(len(pairs.call)), (pairs.call, calls + pairs.line)), shape=shape)
    _, group_of = connected_components(graph, directed=False)
    disputed = np.isin(group_of[pairs.call], np.unique(group_of[calls + wanted]))
    choices: dict[int, list[tuple[float, int]]] = {}
    for call, line, residual in zip(*(column[disputed].tolist() for column in pairs), strict=True):
        choices.setdefault(call, []).append((residual, line))
    members = list(choices)
    for group in _contested(list(choices.values())):
        own = [choices[members[number]] for number in group]
        found = _each_takes_its_best(own) or _cheapest_matching(own)
        for number, choice in zip(group, found, strict=True):
            matched[members[number]] = choice


def _contested(choices: list[list[tuple[float, int]]]) -> Iterable[list[int]]:
    """Groups of calls that share candidate lines, directly or through others: each is a problem of its own."""
    group_of_line: dict[int, list[int]] = {}
    groups: dict[int, list[int]] = {}
    for call, own in enumerate(choices):
        merged = [call]
        for other in {
            id(group_of_line[line]): group_of_line[line] for _, line in own if line in group_of_line
        }.values():
            del groups[id(other)]
            merged = other + merged
        groups[id(merged)] = merged
        for member in merged if len(merged) > 1 else [call]:
            for _, line in choices[member]:
                group_of_line[line] = merged
    return groups.values()


def _each_takes_its_best(choices: list[list[tuple[float, int]]]) -> Matched | None:
    """Every call with its own cheapest line, where no two want the same: nothing can be cheaper. Else None."""
    taken: set[int] = set()
    matched: Matched = []
    for own in choices:
        if not own:
            matched.append((None, 0.0))
            continue
        least = min(own)[0]
        line = next((line for residual, line in own if residual == least and line not in taken), None)
        if line is None:
            return None
        taken.add(line)
        matched.append((line, least))
    return matched


def _cheapest_matching(choices: list[list[tuple[float, int]]]) -> Matched:
    """The one-to-one matching of the smallest total cost; a call may go without, at a price."""
    # Imported here: it costs time, and most logs do not need it.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    known = sorted({line for own in choices for _, line in own})
    column_of = {line: column for column, line in enumerate(known)}
    rows, columns, weights = [], [], []
    for call, own in enumerate(choices):
        for residual, line in own:
            rows.append(call)
            columns.append(column_of[line])
            # Zero weights would read as no edge.
            weights.append(residual + 1.0)
        rows.append(call)
        columns.append(len(known) + call)
        weights.append(_UNBOUND_MS + 1.0)
    graph = coo_array((weights, (rows, columns)), shape=(len(choices), len(known) + len(choices))).tocsr()
    matched: Matched = [(None, 0.0)] * len(choices)
    for call, column in zip(*(index.tolist() for index in min_weight_full_bipartite_matching(graph)), strict=True):
        if column < len(known):
            line = known[column]
            matched[call] = (line, next(residual for residual, other in choices[call] if other == line))
    return matched
