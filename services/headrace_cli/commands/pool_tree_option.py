"""The value of `--pool-tree`: a tree and the operation's settings in that tree, such as `gpu:pool=vision,weight=2`."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName, pool_or_path, tree_name
from headrace.wire.operation_spec import PerTree


def parse_pool_trees(texts: Sequence[str]) -> dict[TreeName, PerTree]:
    """Parse all values of `--pool-tree`, in their order. Raises `BadInput`, also for a tree that is given twice."""
    trees: dict[TreeName, PerTree] = {}
    for text in texts:
        name, _, rest = text.partition(":")
        tree = tree_name(name.strip())
        if tree in trees:
            raise BadInput("--pool-tree", name, "a tree that no other --pool-tree names")
        trees[tree] = _per_tree(tree, rest)
    return trees


def _per_tree(tree: TreeName, text: str) -> PerTree:
    said: dict[str, str] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = item.partition("=")
        if not equals or key not in ("pool", "weight") or key in said:
            raise BadInput(f"--pool-tree {tree}", item, "pool=POOL or weight=NUMBER, each once")
        said[key] = value.strip()
    pool = pool_or_path(said["pool"]) if "pool" in said else PoolName("")
    return PerTree(pool, _weight(tree, said["weight"]) if "weight" in said else None)


def _weight(tree: TreeName, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 1e-8 <= weight <= 1e8:
        raise BadInput(f"--pool-tree {tree}: weight", text, "a number from 1e-8 to 1e8")
    return weight
