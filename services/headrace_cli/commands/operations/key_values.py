"""Settings of an operation as words: `weight=2 pool=research` of `op set`, `gpu:pool=vision,weight=2` of `run --pool-tree`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName, pool_or_path, tree_name
from headrace.suggestions import hint
from headrace.wire.operation_spec import PerTree

#: The settings that `op set` changes. Completion offers them without importing the command.
KEYS: Final = ("weight", "pool", "operation_time_limit")
#: The settings of an operation in one tree.
_KEYS_IN_A_TREE: Final = ("weight", "pool")
_ACCEPTED: Final = "weight=NUMBER, pool=NAME or operation_time_limit=TIME"


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """Return the value of each setting as it was written. Raises `BadInput`."""
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise BadInput("settings", word, _ACCEPTED)
        if key == "time_limit":
            fixed = "operation_time_limit: the time limit of jobs is fixed at the start, because running jobs were started with it"
            raise BadInput("settings", word, fixed)
        if key not in KEYS:
            raise BadInput("settings", key, hint(key, KEYS))
        if key in given:
            raise BadInput("settings", word, f"{key} only once")
        given[key] = value
    if not given:
        raise BadInput("settings", "", _ACCEPTED)
    return given


def parse_weight(text: str, place: str) -> float:
    """Return a weight. Raises `BadInput` unless it is a number from 1e-8 to 1e8."""
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 1e-8 <= weight <= 1e8:
        raise BadInput(place, text, "a number from 1e-8 to 1e8")
    return weight


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
        if not equals or key not in _KEYS_IN_A_TREE or key in said:
            raise BadInput(f"--pool-tree {tree}", item, "pool=POOL or weight=NUMBER, each once")
        said[key] = value.strip()
    pool = pool_or_path(said["pool"]) if "pool" in said else PoolName("")
    return PerTree(pool, parse_weight(said["weight"], f"--pool-tree {tree}: weight") if "weight" in said else None)


def parse_environment(items: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Parse `NAME=VALUE` and `NAME`; the latter takes its value from `own`. Raises `BadInput`."""
    environment: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or any(letter.isspace() for letter in name):
            raise BadInput("--env", item, "NAME=VALUE or NAME, without blanks in the name")
        if not equals:
            if name not in own:
                raise BadInput("--env", name, "the name of a variable that is set in this shell, or NAME=VALUE")
            value = own[name]
        environment[name] = value
    return environment
