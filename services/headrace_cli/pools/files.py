"""A file of pools, YAML or JSON: written by `pool export`, read by `pool import`.

    tree: default
    options: {max_running_operation_count: 100}
    pools:
      research:
        weight: 2
        pools:
          vision: {strong_guarantee_resources: {cpu: 4}}

Attributes stand as people write them; child pools stand under `pools`, or name their `parent`. Keys are texts whatever they look
like, and none may stand twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Defects, PoolConfig, TreeOptions
from headrace.pools.attributes.kinds import refuse_too_deep
from headrace.wire.pool_changes import Create, Move, PoolChange, Remove, Set, SetOptions

__all__ = ["ConfiguredPool", "Described", "changes_between", "exported", "read_file"]

LARGEST_FILE_BYTES: Final = 4 * 1024**2
_KEYS: Final = ("tree", "options", "pools")


class ConfiguredPool(msgspec.Struct, frozen=True):
    """A pool with what is set on it, as people write it."""

    name: str
    parent: str
    attributes: dict[str, Any]


class Described(msgspec.Struct, frozen=True):
    """What a file says; `options` is None where it says nothing of them."""

    pools: list[ConfiguredPool]
    options: dict[str, Any] | None = None
    tree: str = ""


class _Loader(yaml.SafeLoader):
    """Plain YAML: only `true` and `false` are truths, and no text is a moment."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag.rsplit(":", 1)[-1] in ("int", "float", "null")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def _map_of_texts(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise BadInput(f"line {line}", "a key that is no text", "keys that are texts")
        if key.value in found:
            raise BadInput(f"line {line}", key.value, "each key once")
        found[key.value] = loader.construct_object(value, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _map_of_texts)


def read_file(path: Path, *, attributes: bool = True) -> Described:
    """Reads a file. Raises `BadInput`, `Defects` with all that is wrong with it, `OSError`; what is wrong with `attributes` may be left
    for whoever looks at the rules of the tree as well, and tells both together."""
    data = path.read_bytes()
    if len(data) > LARGEST_FILE_BYTES:
        raise BadInput(str(path), f"{len(data)} bytes", f"at most {LARGEST_FILE_BYTES} bytes")
    return described(data, str(path), attributes=attributes)


def described(data: bytes, place: str, *, attributes: bool = True) -> Described:
    """What the bytes of a file say. Raises `BadInput`, `Defects`."""
    try:
        plain = yaml.load(data.decode("utf-8-sig"), Loader=_Loader)
    except BadInput as error:
        raise BadInput(f"{place}: {error.place}", error.value, error.expected) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadInput(place, " ".join(str(error).split())[:200], "YAML or JSON") from None
    refuse_too_deep(plain, place)
    if not isinstance(plain, Mapping):
        raise BadInput(place, plain, "a map with pools, and perhaps tree and options")
    problems = [
        BadInput(f"{place}: {key}", plain[key], "one of " + ", ".join(_KEYS)) for key in plain if key not in _KEYS
    ]
    pools = _parents_first(list(_pools(plain.get("pools"), "pools", ROOT_POOL, problems)), problems)
    options = plain.get("options")
    if attributes:
        for read in [*(_problems(pool) for pool in pools), _option_problems(options)]:
            problems.extend(read)
    if problems:
        raise Defects(problems)
    return Described(pools, options, str(plain.get("tree") or ""))


def exported(pools: Sequence[ConfiguredPool], tree: str, options: TreeOptions | None, *, as_json: bool = False) -> str:
    """The text of pools, in YAML or JSON; `described` reads the same out of it."""
    inside: dict[str, dict[str, Any]] = {}
    top: dict[str, Any] = {}
    known = {pool.name for pool in pools}
    for pool in pools:
        entry = dict(pool.attributes)
        inside[pool.name] = entry
        if pool.parent in known:
            inside[pool.parent].setdefault("pools", {})[pool.name] = entry
        else:
            top[pool.name] = entry if pool.parent == ROOT_POOL else {"parent": pool.parent, **entry}
    whole: dict[str, Any] = {"tree": tree}
    if options is not None:
        whole["options"] = TREE_ATTRIBUTES.written(options)
    whole["pools"] = top
    if as_json:
        return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def changes_between(before: Sequence[ConfiguredPool], after: Described, *, keep: bool = False) -> list[PoolChange]:
    """What makes the pools of a file of those that there are. What the file does not name is taken away, unless `keep`."""
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
        # From the leaves up: what the file has moved elsewhere stays.
        changes.extend(Remove(PoolName(pool.name)) for pool in reversed(gone_pools))
    return changes


def _without(keys: Mapping[str, None], given: Mapping[str, object]) -> dict[str, None]:
    """The keys that are given under none of their names."""
    names = TREE_ATTRIBUTES.names | POOL_ATTRIBUTES.names
    said = {names[key].name if key in names else key for key in given}
    return {key: None for key in keys if (names[key].name if key in names else key) not in said}


def _pools(plain: object, place: str, parent: str, problems: list[BadInput]) -> Iterator[ConfiguredPool]:
    if plain is None:
        return
    if not isinstance(plain, Mapping):
        problems.append(BadInput(place, plain, "a map of pools by name"))
        return
    for name, entry in plain.items():
        here = f"{place}.{name}"
        if entry is not None and not isinstance(entry, Mapping):
            problems.append(BadInput(here, entry, "a map of attributes"))
            continue
        attributes = dict(entry or {})
        below, above = attributes.pop("pools", None), attributes.pop("parent", parent)
        if above != parent and parent != ROOT_POOL:
            problems.append(BadInput(f"{here}.parent", above, f"{parent}, under which it stands, or nothing"))
        yield ConfiguredPool(str(name), str(above), attributes)
        yield from _pools(below, f"{here}.pools", str(name), problems)


def _parents_first(pools: list[ConfiguredPool], problems: list[BadInput]) -> list[ConfiguredPool]:
    """In their order, but each behind its parent where the file names that; a name that stands twice is a problem."""
    listed = {pool.name: pool for pool in pools}
    if len(listed) != len(pools):
        names = [pool.name for pool in pools]
        problems.extend(
            BadInput("pools", name, "each name once in the tree") for name in listed if names.count(name) > 1
        )
    placed: dict[str, ConfiguredPool] = {}
    for pool in pools:
        chain: list[ConfiguredPool] = []
        above: ConfiguredPool | None = pool
        while above is not None and above.name not in placed and above not in chain:
            chain.append(above)
            above = listed.get(above.parent)
        placed.update((each.name, each) for each in reversed(chain))
    return list(placed.values())


def _problems(pool: ConfiguredPool) -> list[BadInput]:
    try:
        POOL_ATTRIBUTES.changed(PoolConfig(), pool.attributes, f"pools.{pool.name}")
    except Defects as defects:
        return defects.problems
    return []


def _option_problems(options: object) -> list[BadInput]:
    if options is None:
        return []
    try:
        TREE_ATTRIBUTES.changed(TreeOptions(), options, "options")
    except Defects as defects:
        return defects.problems
    return []
