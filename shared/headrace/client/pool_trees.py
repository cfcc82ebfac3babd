"""The trees of an operation as words: `gpu:pool=vision,weight=2`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName, pool_or_path, tree_name
from headrace.wire.operation_spec import PerTree

#: The settings of an operation in one tree.
_KEYS: Final = ("weight", "pool")


def parse_pool_trees(texts: Sequence[str], *, place: str) -> dict[TreeName, PerTree]:
    """Parse all trees of an operation, in their order. Raises `BadInput`, also for a tree that is given twice."""
    trees: dict[TreeName, PerTree] = {}
    for text in texts:
        name, _, rest = text.partition(":")
        tree = tree_name(name.strip())
        if tree in trees:
            raise BadInput.because(place, f"tree {tree} is named twice")
        trees[tree] = _per_tree(rest, f"{place} {tree}")
    return trees


def parse_weight(text: str, place: str) -> float:
    """Return a weight. Raises `BadInput` unless it is a number from 1e-8 to 1e8."""
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 1e-8 <= weight <= 1e8:
        raise BadInput(place, text, "a number from 1e-8 to 1e8")
    return weight


def _per_tree(text: str, place: str) -> PerTree:
    said: dict[str, str] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = item.partition("=")
        if not equals or key not in _KEYS or key in said:
            raise BadInput(place, item, "pool=POOL or weight=NUMBER, each once")
        said[key] = value.strip()
    try:
        pool = pool_or_path(said["pool"]) if "pool" in said else PoolName("")
    except BadInput as error:
        raise error.at(f"{place}: pool") from None
    return PerTree(pool, parse_weight(said["weight"], f"{place}: weight") if "weight" in said else None)
