"""Groups of things that share something, held against scipy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gputrace.rebuild.groups import groups_of

TIES = st.integers(1, 60).flatmap(
    lambda count: st.tuples(
        st.just(count), st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=80)
    )
)


@given(TIES)
def test_groups_are_scipys(ties: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = ties
    one, other = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    found = groups_of(one, other, count)
    expected = connected_components(coo_array((np.ones(len(one)), (one, other)), shape=(count, count)), directed=False)
    members: dict[int, set[int]] = {}
    for thing, group in enumerate(expected[1]):
        members.setdefault(int(group), set()).add(thing)
    assert found.tolist() == [min(members[int(group)]) for group in expected[1]]


def test_a_long_chain_is_one_group() -> None:
    links = np.random.default_rng(1).permutation(20_000)
    assert not groups_of(links[:-1], links[1:], len(links)).any()
