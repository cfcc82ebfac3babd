"""Read and write the pools and options of a file.

    tree: default
    options: {max_running_operation_count: 100}
    pools:
      research:
        weight: 2
        pools:
          vision: {strong_guarantee_resources: {cpu: 4}}

Pools are given as a map by name, or as a list of maps with `name`. A pool is nested in another pool, or names its `parent`. This
module does not interpret attributes: the tables of `headrace.pools` parse them, and the fair share service checks the rules of
the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, pool_name
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, PoolConfig, Record, Schema, TreeOptions
from headrace.pools.attributes.kinds import Duration, Kind, refuse_large_numbers, refuse_too_deep
from headrace.pools.attributes.map_kinds import Data, ResourceAmounts
from headrace.pools.attributes.schema import split_key
from headrace.suggestions import hint
from headrace.tree_file.problems import Problems, shown
from headrace.tree_file.values import Listing, Map

_KEYS: Final = ("tree", "options", "pools")
#: Keys of a pool that are not attributes.
_PLACES: Final = frozenset({"parent", "pools"})


@dataclass(frozen=True)
class ConfiguredPool:
    """A pool with its attributes, as people write them."""

    name: str
    parent: str
    attributes: dict[str, Any]
    #: Location in its file, such as `pools.research.pools.vision`.
    place: str = field(default="", compare=False)

    @staticmethod
    def of(name: str, parent: str, settings: PoolConfig) -> ConfiguredPool:
        """Return a pool with its settings as people write them."""
        return ConfiguredPool(name, parent, POOL_ATTRIBUTES.written(settings))


@dataclass(frozen=True)
class TreeFile:
    """A tree as a file describes it."""

    #: Pools. If the file has the parent of a pool, the parent comes first.
    pools: list[ConfiguredPool]
    #: Options of the tree; None if the file has none.
    options: dict[str, Any] | None = None
    tree: str = ""
    #: A text for each attribute that is set but not supported, with its line and the reason.
    ignored: tuple[str, ...] = field(default=(), compare=False)


def read_tree_file(root: Map, problems: Problems, more_keys: Sequence[str] = ()) -> TreeFile:
    """Return the pools and options of a file. At its top, the file may also have the keys `more_keys`."""
    keys = (*_KEYS, *more_keys)
    for key in root:
        if key not in keys:
            problems.say(key, "unknown key", hint(key, keys), key)
    options = root.get("options")
    if options is not None and not isinstance(options, Map):
        problems.say("options", f"{shown(options)} cannot be used", "a map of options", shown(options))
        options = None
    if options is not None:
        _refuse_unusable(TREE_ATTRIBUTES, options, "options", problems)
        options = as_typed(options, Record(TREE_ATTRIBUTES))
    pools = list(_pools(root.get("pools"), "pools", "", problems, {}))
    ignored = list(_ignored(TREE_ATTRIBUTES, options or {}, "options", problems))
    for pool in pools:
        ignored += _ignored(POOL_ATTRIBUTES, pool.attributes, pool.place, problems)
    return TreeFile(_parents_first(pools), options, root.texts.get("tree", ""), tuple(ignored))


def as_typed(entry: Map, kind: Kind, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the values of a map, as numbers where the file has numbers. Only memory and durations are always texts, because a
    number has no unit.

    `kind` is the kind of the outermost map. `path` leads from the outermost map to `entry`, and is empty if `entry` is the outermost map.
    """
    typed: dict[str, Any] = {}
    for key, value in entry.items():
        here = (*path, *split_key(key))
        if isinstance(value, Map):
            typed[key] = as_typed(value, kind, here)
        else:
            typed[key] = entry.texts.get(key, value) if _has_unit(kind, here) else value
    return typed


def _has_unit(kind: Kind, path: tuple[str, ...]) -> bool:
    match kind:
        case Duration():
            return not path
        case ResourceAmounts():
            return path == ("memory",)
        case Record() if path and path[0] in kind.schema.names:
            return _has_unit(kind.schema.names[path[0]].kind, path[1:])
        case _:
            return False


def named_entries(entries: object, place: str, problems: Problems) -> Iterator[tuple[str, Map, str]]:
    """Yield name, settings and location of each entry of a map, or of a list of maps with `name`."""
    match entries:
        case None:
            return
        case Map():
            for name, entry in entries.items():
                here = f"{place}.{name}"
                if entry is None:
                    yield name, Map(problems.line_of(here)), here
                elif isinstance(entry, Map):
                    yield name, entry, here
                else:
                    problems.say(here, f"{shown(entry)} cannot be used", "a map of attributes", shown(entry))
        case Listing():
            for at, entry in enumerate(entries):
                if isinstance(entry, Map) and "name" in entry.texts:
                    yield entry.texts["name"], entry, f"{place}[{at}]"
                else:
                    problems.say(f"{place}[{at}]", "no name", "a map with name and settings")
        case _:
            expected = "a map by name, or a list of maps with name"
            problems.say(place, f"{shown(entries)} cannot be used", expected, shown(entries))


def tree_as_map(pools: Sequence[ConfiguredPool], options: TreeOptions | None) -> dict[str, Any]:
    """Return the pools nested in each other, after the options that are set, in the form that `read_tree_file` reads."""
    # An earlier release stored an unknown attribute of any name, also of a name that says in a file where a pool stands.
    inside: dict[str, dict[str, Any]] = {
        pool.name: {key: value for key, value in pool.attributes.items() if key not in _PLACES} for pool in pools
    }
    top: dict[str, Any] = {}
    for pool in pools:
        entry = inside[pool.name]
        if pool.parent in inside:
            inside[pool.parent].setdefault("pools", {})[pool.name] = entry
        else:
            top[pool.name] = entry if pool.parent == ROOT_POOL else {"parent": pool.parent, **entry}
    return ({} if options is None else {"options": TREE_ATTRIBUTES.written(options)}) | {"pools": top}


def as_yaml(whole: Mapping[str, Any]) -> str:
    """Return the file as YAML, with the keys in their order."""
    return yaml.safe_dump(dict(whole), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def _pools(
    entries: object, place: str, above: str, problems: Problems, seen: dict[str, int]
) -> Iterator[ConfiguredPool]:
    for name, entry, here in named_entries(entries, place, problems):
        try:
            pool_name(name)
        except BadInput as error:
            problems.say(here, f"{name!r} is not a name of a pool", error.expected, name)
            continue
        if name in seen:
            problems.say(here, f"pool {name} is on line {seen[name]} already", "each name once in the tree", name)
            continue
        seen[name] = problems.line_of(here)
        parent = entry.texts.get("parent", above or ROOT_POOL)
        if above and parent != above:
            expected = f"{above}, the pool that it is nested in, or no parent"
            problems.say(f"{here}.parent", f"{parent} cannot be used", expected, parent)
            parent = above
        places = _PLACES if isinstance(entries, Map) else {*_PLACES, "name"}
        attributes = {
            key: value for key, value in as_typed(entry, Record(POOL_ATTRIBUTES)).items() if key not in places
        }
        _refuse_unusable(POOL_ATTRIBUTES, attributes, here, problems)
        yield ConfiguredPool(name, parent, attributes, here)
        yield from _pools(entry.get("pools"), f"{here}.pools", name, problems, seen)


def _ignored(schema: Schema, values: dict[str, Any], place: str, problems: Problems) -> Iterator[str]:
    """Yield a text for each attribute of a map that is set but not supported. Values that cannot be used are skipped here; the
    fair share service reports them.
    """
    changed, _ = schema.usable(schema.of(), values)
    for why, name in schema.ignored(changed.value):
        key = f"{place}.{name.replace('/', '.')}"
        yield f"{problems.file}:{problems.line_of(key)}: {key}: {why}"


def _is_kept_as_it_is(schema: Schema, key: str) -> bool:
    attribute = schema.names.get(split_key(key)[0])
    return attribute is None or isinstance(attribute.kind, Data)


def _refuse_unusable(schema: Schema, values: dict[str, Any], place: str, problems: Problems) -> None:
    """If a map is nested too deep to be read, or an attribute without a type has a number that cannot be stored, report that and empty the
    map.
    """
    try:
        refuse_too_deep(values, place)
        refuse_large_numbers({key: each for key, each in values.items() if _is_kept_as_it_is(schema, key)}, place)
    except BadInput as problem:
        problems.add(problem)
        values.clear()


def _parents_first(pools: list[ConfiguredPool]) -> list[ConfiguredPool]:
    """Return the pools in the order of the file, except that a parent in the file is moved in front of its children."""
    listed = {pool.name: pool for pool in pools}
    placed: dict[str, ConfiguredPool] = {}
    for pool in pools:
        chain: dict[str, ConfiguredPool] = {}
        above: ConfiguredPool | None = pool
        while above is not None and above.name not in placed and above.name not in chain:
            chain[above.name] = above
            above = listed.get(above.parent)
        placed.update((each.name, each) for each in reversed(chain.values()))
    return list(placed.values())
