"""Which of many things belong together: pairs whose intervals overlap, and the likeliest choice among rivals."""

import numpy as np

from gputrace.rebuild.columns import Bools, Floats, Ints
from gputrace.rebuild.groups import groups_of

# A row is worth this less what makes it odd, nats: no choice between rivals is worth leaving an item out.
PLACED = 1000.0
# So often a value may occur, or not, by chance.
_CHANCE = 3.0
# So many rival rows are weighed in one call of the solver: one by one its start would cost more than its work.
_WEIGHED_AT_ONCE = 300
# What was found after so many branches is taken: rows of this kind need none, as a rule.
_MOST_BRANCHES = 1000


def ranges(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """All whole numbers in [first, last) of each row: the row and the number."""
    counts = np.maximum(last - first, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts - first, counts)


def overlapping(low: Floats, high: Floats, other_low: Floats, other_high: Floats) -> tuple[Ints, Ints]:
    """All pairs of one interval and one other that have a point in common."""
    ranked, other_ranked = np.argsort(low, kind="stable"), np.argsort(other_low, kind="stable")
    begins, other_begins = low[ranked], other_low[other_ranked]
    # The other begins within the one, or the one within the other, after its begin.
    one, other = ranges(
        np.searchsorted(other_begins, low, side="left"), np.searchsorted(other_begins, high, side="right")
    )
    late_other, late_one = ranges(
        np.searchsorted(begins, other_low, side="right"), np.searchsorted(begins, other_high, side="right")
    )
    return np.concatenate([one, ranked[late_one]]), np.concatenate([other_ranked[other], late_other])


def rarity(values: Floats | Ints) -> Floats:
    """How much rarer than the commonest each value is among all, nats: what truly belongs together agrees alike."""
    if not len(values):
        return np.zeros(0)
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(np.log((counts.max() + _CHANCE) / (counts + _CHANCE))[place])


def disjoint(members: Ints, worth: Floats) -> Bools:
    """Which rows to choose so that no item is in two of them and their worth is greatest in sum.

    `members` has a row's items in its columns: numbers from 0, each of one kind; -1 where a row has none. `worth` is
    above 0.
    """
    if not len(members):
        return np.zeros(0, dtype=bool)
    uses = np.bincount(members.ravel() + 1)
    uses[0] = 0
    chosen = np.asarray((uses[members + 1] <= 1).all(axis=1))
    rivals = np.flatnonzero(~chosen)
    if len(rivals):
        groups = _groups(members[rivals])
        ranked = np.argsort(groups, kind="stable")
        batch = np.searchsorted(groups[ranked], groups[ranked]) // _WEIGHED_AT_ONCE
        for rows in np.split(rivals[ranked], np.flatnonzero(np.diff(batch)) + 1):
            chosen[rows] = _likeliest(members[rows], worth[rows])
    return chosen


def _groups(members: Ints) -> Ints:
    """A number a row; rows that share items, directly or through others, have the same."""
    rows, items = _uses(members)
    return groups_of(rows, len(members) + items, len(members) + int(items.max()) + 1)[: len(members)]


def _uses(members: Ints) -> tuple[Ints, Ints]:
    """Each use of an item by a row: the row, and the item's number among those that are used at all."""
    rows, columns = np.nonzero(members >= 0)
    return rows, np.unique(members[rows, columns], return_inverse=True)[1]


def _likeliest(members: Ints, worth: Floats) -> Bools:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    rows, items = _uses(members)
    uses = csr_array((np.ones(len(rows)), (items, rows)), shape=(int(items.max()) + 1, len(members)))
    found = milp(
        -worth,
        integrality=np.ones(len(members), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(uses, ub=1),
        options={"node_limit": _MOST_BRANCHES, "mip_rel_gap": 0.0},
    )
    return found.x > 0.5 if found.x is not None else np.zeros(len(members), dtype=bool)
