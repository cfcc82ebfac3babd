"""Files of pools, in YAML or JSON: `pool export` writes them, and `pool import` makes the tree match them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, TreeOptions
from headrace.tree_file.pools import ConfiguredPool, TreeFile, as_yaml, read_tree_file, tree_as_map
from headrace.tree_file.problems import Problems
from headrace.tree_file.values import parse
from headrace.wire.pool_changes import Create, Move, PoolChange, Remove, Set, SetOptions
from headrace.wire.pools import PoolList


def described(data: bytes, file: str) -> TreeFile:
    """Parse the bytes of a file. The attributes are not checked; fair_share does that. Raises `UnusableFile`."""
    problems = Problems(file)
    read = read_tree_file(parse(data, problems, "a map with pools, and perhaps tree and options"), problems)
    problems.refuse()
    return read


def configured(listed: PoolList) -> list[ConfiguredPool]:
    """Return the configured pools of an answer, without the root and without ephemeral pools."""
    return [
        ConfiguredPool.of(pool.name, pool.parent, pool.settings)
        for pool in listed.pools
        if not pool.ephemeral and pool.name != ROOT_POOL
    ]


def exported(pools: Sequence[ConfiguredPool], tree: str, options: TreeOptions | None, *, as_json: bool = False) -> str:
    """Return pools as YAML or JSON that `described` reads."""
    whole = {"tree": tree} | tree_as_map(pools, options)
    if as_json:
        return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
    return as_yaml(whole)


def changes_between(before: Sequence[ConfiguredPool], after: TreeFile, *, keep: bool = False) -> list[PoolChange]:
    """Return the changes that make the pools match a file. Pools that the file does not name are removed, unless `keep` is true."""
    old = {pool.name: pool for pool in before}
    named = {pool.name for pool in after.pools}
    changes: list[PoolChange] = []
    if after.options is not None:
        unset = {name: None for name in TREE_ATTRIBUTES.attributes}
        changes.append(SetOptions(msgspec.json.encode({**_without(unset, after.options), **after.options})))
    for pool in after.pools:
        name, parent = PoolName(pool.name), PoolName(pool.parent)
        known = old.get(pool.name)
        if known is None:
            changes.append(Create(name, parent, msgspec.json.encode(pool.attributes)))
            continue
        if known.parent != pool.parent:
            changes.append(Move(name, parent))
        if known.attributes != pool.attributes:
            gone = _without({key: None for key in known.attributes}, pool.attributes)
            changes.append(Set(name, msgspec.json.encode({**gone, **pool.attributes})))
    if not keep:
        gone_pools = [pool for pool in before if pool.name not in named]
        # Remove leaves first. The moves come earlier in `changes`, so a pool that the file moves out of a removed pool stays.
        changes.extend(Remove(PoolName(pool.name)) for pool in reversed(gone_pools))
    return changes


def _without(keys: Mapping[str, None], given: Mapping[str, object]) -> dict[str, None]:
    """Return the keys of attributes that `given` does not set, neither by their own names nor by any other name."""
    names = TREE_ATTRIBUTES.names | POOL_ATTRIBUTES.names
    said = {names[key].name if key in names else key for key in given}
    return {key: None for key in keys if (names[key].name if key in names else key) not in said}
