"""Where elements stand."""

from random import Random

import pytest

from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.hdrf.input_arrays import laid_out
from headrace_fair_share.hdrf.model import OperationInput, PoolInput
from tests.support.trees import random_tree


def test_levels_are_rows_and_children_follow_one_another() -> None:
    pools = [PoolInput(name="a", parent=-1), PoolInput(name="b", parent=-1), PoolInput(name="a1", parent=0)]
    operations = [OperationInput(name="x", pool=1), OperationInput(name="y", pool=0), OperationInput(name="z", pool=2)]

    layout = laid_out(pools, operations)

    assert layout.levels == [0, 1, 3, 6, 7]
    assert layout.of_pool.tolist() == [1, 2, 3]
    assert layout.of_operation.tolist() == [5, 4, 6]
    assert layout.parent.tolist() == [-1, 0, 0, 1, 1, 2, 3]
    assert (layout.first_child[1], layout.end_pools[1], layout.end_child[1]) == (3, 4, 5)
    assert layout.preorder.tolist() == [1, 3, 2]
    assert layout.path(3).tolist() == [3, 1]


def test_a_tree_of_nothing_is_a_root() -> None:
    layout = laid_out([], [])

    assert (layout.size, layout.levels) == (1, [0, 1])


def test_a_pool_before_its_parent_is_refused() -> None:
    with pytest.raises(BrokenInvariant):
        laid_out([PoolInput(name="a", parent=1), PoolInput(name="b", parent=-1)], [])


def test_always_each_element_is_in_its_parents_range() -> None:
    for seed in range(100):
        tree = random_tree(Random(seed), 9, 12)
        layout = laid_out(tree.pools, tree.operations)
        for number in range(1, layout.size):
            parent = layout.parent[number]
            assert parent < number
            assert layout.first_child[parent] <= number < layout.end_child[parent]
            assert (number < layout.end_pools[parent]) == layout.is_pool[number]
        numbers = [*layout.of_pool.tolist(), *layout.of_operation.tolist()]
        assert list(range(1, layout.size)) == sorted(numbers)
