"""Which floating lines belong to which call: the cheapest one-to-one matching of the two."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from gputrace.rebuild.columns import Floats, Ints
from gputrace.rebuild.groups import groups_of

# What a call without a line costs, ms: more than any disagreement that a right choice was seen to have.
_WITHOUT_MS = 200.0


def match_lines(calls: int, pairs: "Pairs") -> tuple[Ints, Floats]:
    """For each of `calls`, which line is its own (-1: none) and at what residual (ms): the cheapest matching."""
    likely = pairs.residual_ms < _WITHOUT_MS
    call, line, residual = pairs.call[likely], pairs.line[likely], pairs.residual_ms[likely]
    # Every call with its own cheapest line, and of those alike the first: where no two want the same, that is all.
    ranked = np.lexsort((np.arange(len(call)), residual, call))
    best = ranked[np.flatnonzero(np.diff(call[ranked], prepend=-1))] if len(call) else ranked
    own_line, own_residual_ms = np.full(calls, -1), np.zeros(calls)
    own_line[call[best]], own_residual_ms[call[best]] = line[best], residual[best]
    wanted, times = np.unique(line[best], return_counts=True)
    if (times > 1).any():
        for number, (chosen, cost) in _settled(Pairs(call, line, residual), wanted[times > 1]):
            own_line[number], own_residual_ms[number] = -1 if chosen is None else chosen, cost
    return own_line, own_residual_ms


class Pairs(NamedTuple):
    """Calls and lines that may belong together, by number, in order of calls and then of lines; what each costs."""

    call: Ints
    line: Ints
    residual_ms: Floats


# The line of each call and its residual in ms; None where it has none.
Matched = list[tuple[int | None, float]]


def _settled(pairs: Pairs, wanted: Ints) -> Iterator[tuple[int, tuple[int | None, float]]]:
    """Calls matched anew: those that want the same lines, and all that they share lines with."""
    calls, lines = int(pairs.call.max()) + 1, int(pairs.line.max()) + 1
    group_of = groups_of(pairs.call, calls + pairs.line, calls + lines)
    disputed = np.isin(group_of[pairs.call], np.unique(group_of[calls + wanted]))
    choices: dict[int, list[tuple[float, int]]] = {}
    for call, line, residual in zip(*(column[disputed].tolist() for column in pairs), strict=True):
        choices.setdefault(call, []).append((residual, line))
    members = list(choices)
    unsettled: list[int] = []
    for group in _contested(list(choices.values())):
        numbers = [members[number] for number in group]
        found = _each_takes_its_best([choices[number] for number in numbers])
        if found is None:
            unsettled += numbers
        else:
            yield from zip(numbers, found, strict=True)
    if unsettled:
        # Groups that share no line do not disturb each other.
        yield from zip(unsettled, _cheapest_matching([choices[number] for number in unsettled]), strict=True)


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
    """The one-to-one matching of the smallest total cost; a call may go without, at a price.

    Call after call takes its line by the cheapest chain of exchanges, found by prices on calls and lines that let no
    step cost less than nothing (Jonker and Volgenant 1987). scipy has it, in a module that costs more than the few
    calls do.
    """
    # A call that goes without takes a line of its own, which nobody else wants.
    wanted = [[*own, (_WITHOUT_MS, -1 - call)] for call, own in enumerate(choices)]
    taken_by: dict[int, int] = {}
    line_of: dict[int, int] = {}
    saved, price = [0.0] * len(choices), defaultdict[int, float](float)
    for newcomer in range(len(choices)):
        reached, asked_by, settled = dict[int, float](), dict[int, int](), dict[int, float]()
        ahead: list[tuple[float, int]] = []
        call, cost = newcomer, 0.0
        while True:
            for residual, line in wanted[call]:
                through = cost + residual - saved[call] - price[line]
                if line not in settled and through < reached.get(line, inf):
                    reached[line], asked_by[line] = through, call
                    heappush(ahead, (through, line))
            cost, line = heappop(ahead)
            while line in settled:
                cost, line = heappop(ahead)
            if line not in taken_by:
                break
            settled[line], call = cost, taken_by[line]
        saved[newcomer] += cost
        for passed, at in settled.items():
            saved[taken_by[passed]] += cost - at
            price[passed] -= cost - at
        while True:
            call = asked_by[line]
            taken_by[line] = call
            given_up, line_of[call] = line_of.get(call), line
            if call == newcomer:
                break
            assert given_up is not None
            line = given_up
    cost_of = [{line: residual for residual, line in own} for own in choices]
    return [
        (line, cost_of[call][line]) if (line := line_of[call]) >= 0 else (None, 0.0) for call in range(len(choices))
    ]
