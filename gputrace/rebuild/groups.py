"""Groups of things that share something, directly or through others."""

import numpy as np

from gputrace.rebuild.columns import Ints


def groups_of(one: Ints, other: Ints, count: int) -> Ints:
    """A number for each of `count` things: those tied by pairs of `one` and `other` have the same, the least of them.

    Every round each thing takes the least number among its own ties' and then that thing's: rounds grow with the
    logarithm of the longest chain. scipy has it, in a module that takes a fifth of a second to import.
    """
    group = np.arange(count)
    while True:
        least = np.minimum(group[one], group[other])
        np.minimum.at(group, group[one], least)
        np.minimum.at(group, group[other], least)
        while (group != group[group]).any():
            group = group[group]
        if (group[one] == group[other]).all():
            return group
