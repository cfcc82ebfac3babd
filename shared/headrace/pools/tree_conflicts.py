"""Conflicts because of which configurations of trees cannot be used.

Conflicts between trees: the default tree is missing, or a node is in two trees or in none. Conflict within a tree: ephemeral
pools exist below a pool that is to become fifo. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping

import msgspec

from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.pools.node_filter import matches
from headrace.pools.tree_options import TreeOptions
from headrace.suggestions import near, some

#: Upper bound of the nodes or pools that a message names.
_MOST_NAMED = 5


class TreeTrouble(enum.StrEnum):
    """Kinds of conflicts between trees."""

    #: The default tree does not exist.
    NO_DEFAULT_TREE = "no_default_tree"
    #: A node belongs to two trees.
    NODE_IN_TWO_TREES = "node_in_two_trees"
    #: A node belongs to no tree.
    NODES_WITHOUT_TREE = "nodes_without_pool_tree"


class TreesJudgement(msgspec.Struct, frozen=True):
    """The conflicts found. If `refused`, no part of the new configuration of any tree may be used."""

    refused: bool
    troubles: list[TreeTrouble]
    #: Text for each of `troubles`.
    alerts: list[str]


def judge_trees(
    trees: Mapping[str, TreeOptions], default_tree: str, nodes: Mapping[str, Collection[str]]
) -> TreesJudgement:
    """Return the conflicts of the trees' node filters. `nodes` maps names of nodes to their tags."""
    found: dict[TreeTrouble, str] = {}
    if default_tree not in trees:
        hint = near(default_tree, trees)
        words = f"; did you mean {' or '.join(hint)}?" if hint else ""
        found[TreeTrouble.NO_DEFAULT_TREE] = f"the default tree {default_tree} does not exist{words}"
    homes = {node: [name for name, options in trees.items() if _holds(options, tags)] for node, tags in nodes.items()}
    several = [f"{node} ({' and '.join(where)})" for node, where in homes.items() if len(where) > 1]
    nowhere = [node for node, where in homes.items() if not where]
    if several:
        found[TreeTrouble.NODE_IN_TWO_TREES] = (
            f"nodes that the filters of several trees accept: {some(several, _MOST_NAMED)}"
        )
    if nowhere:
        found[TreeTrouble.NODES_WITHOUT_TREE] = f"nodes that no tree's filters accept: {some(nowhere, _MOST_NAMED)}"
    refused = bool(found.keys() & {TreeTrouble.NO_DEFAULT_TREE, TreeTrouble.NODE_IN_TWO_TREES})
    return TreesJudgement(refused, list(found), list(found.values()))


def fifo_above_ephemeral(
    ephemeral: Mapping[PoolName, Collection[PoolName]],
    is_fifo: Callable[[PoolName], bool],
    becomes_fifo: Callable[[PoolName], bool],
) -> str:
    """Return why a configuration must wait: it makes a pool fifo while ephemeral pools exist below that pool. Return ""
    if nothing is in the way.

    `ephemeral` has the names of ephemeral pools by their parent. A fifo pool may have no pools below it, so the whole configuration
    waits until they are gone.
    """
    in_the_way = [
        f"{parent} has {some(sorted(names), _MOST_NAMED)}"
        for parent, names in ephemeral.items()
        if becomes_fifo(parent) and not is_fifo(parent)
    ]
    if not in_the_way:
        return ""
    return f"a fifo pool has no pools below it, but ephemeral pools exist there: {some(in_the_way, _MOST_NAMED)}"


def _holds(options: TreeOptions, tags: Collection[str]) -> bool:
    try:
        return matches(options.node_filter, tags)
    except BadInput:
        return False
