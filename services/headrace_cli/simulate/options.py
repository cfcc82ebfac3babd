"""The options of `headrace simulate`: sizes of nodes, rules that choose pools, and configurations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import TreeName, pool_name
from headrace.pools import Tree
from headrace.resources import RESOURCE_NAMES, Resources, parse_amount
from headrace.suggestions import hint
from headrace.tree_file.problems import Problems, shown
from headrace.tree_file.values import Map, parse_list, read
from headrace.wire.nodes import LONGEST_TAG, MOST_TAGS
from headrace.wire.pool_changes import SetOptions
from headrace.wire.simulation import NodesOf, PoolOf, Setup
from headrace_cli.show.tables import printable

#: User slots of a node, which is the agent's default.
_SLOTS: Final = 1_000
_MOST_NODES: Final = 100_000
_NODES: Final = "a number of nodes and the size of each, such as 32:cpu=4,memory=16G"
_TAGS: Final = "tags"
#: The characters of tags in formulas: headrace.pools.node_filter.
_TAG: Final = re.compile(r"[a-z0-9_./:@-]+\Z")
POLICIES: Final = ("native", "yarn", "fifo")
_KEYS: Final = PoolOf.__struct_fields__
_TREE: Final = TreeName("default")


def parse_nodes(text: str) -> NodesOf:
    """Parse a value of `--nodes`, such as `32:cpu=4,memory=16G,gpu=2,tags=ssd+fast`. Raises `BadInput`."""
    number, _, rest = text.partition(":")
    if not (number.isdigit() and number.isascii() and len(number) <= 6 and 1 <= int(number) <= _MOST_NODES and rest):
        raise BadInput("--nodes", text, f"{_NODES}; at most {_MOST_NODES} nodes")
    amounts: dict[str, int] = {}
    tags: list[str] | None = None
    for item in rest.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        place = f"--nodes {printable(text)}: {name}"
        if name == _TAGS and equals and tags is None:
            tags = value.split("+")
            if len(tags) > MOST_TAGS or not all(_TAG.match(tag) and len(tag) <= LONGEST_TAG for tag in tags):
                raise BadInput(place, value, f"at most {MOST_TAGS} tags of a-z, 0-9 and _./:@-, such as ssd+fast")
        elif name in amounts or name == _TAGS:
            raise BadInput.because(f"--nodes {printable(text)}", f"{name} is given twice or has no value")
        elif not equals or name not in RESOURCE_NAMES:
            raise BadInput("--nodes", item, hint(name, (*RESOURCE_NAMES, _TAGS)) if name else _NODES)
        else:
            amounts[name] = parse_amount(name, value, place=place)
    if not amounts.get("cpu"):
        raise BadInput("--nodes", text, f"{_NODES}. A node has more than 0 cores")
    return NodesOf(int(number), Resources(**{"user_slots": _SLOTS, **amounts}), tags or [])


def read_rules(path: str) -> list[PoolOf]:
    """Return the rules in a YAML file, a list of maps. Raises `UnusableFile`, which names each place with its line."""
    problems = Problems(path)
    rules = parse_list(read(path, problems), problems, "a list of rules such as {pool: vision, user: anna}")
    found: list[PoolOf] = []
    for number, rule in enumerate(rules):
        place = f"[{number}]"
        if not isinstance(rule, Map):
            problems.say(place, f"{shown(rule)} was found", "a map such as {pool: vision, user: anna}")
            continue
        wrong = len(problems.found)
        for key, value in rule.items():
            if key not in _KEYS:
                problems.say(f"{place}.{key.replace('/', '.')}", "unknown key", hint(key, _KEYS))
            elif key not in rule.texts:
                problems.say(f"{place}.{key}", f"{shown(value)} was found", "a name; * stands for any letters")
        if "pool" not in rule:
            problems.say(place, "a rule without a pool", "a map with the key pool")
        if len(problems.found) == wrong:
            names = dict(rule.texts)
            try:
                found.append(PoolOf(pool_name(names.pop("pool")), **names))
            except BadInput as error:
                problems.add(error.at(f"{place}.pool"))
    problems.refuse()
    return found


def parse_policies(text: str) -> list[str]:
    """Return the policies in a comma-separated list. Raises `BadInput`."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in POLICIES:
            raise BadInput("--policy", name, hint(name, POLICIES))
        if names.count(name) > 1:
            raise BadInput.because("--policy", f"{name} is given twice")
    return names


def setups_of(
    pools: Path | None,
    compared: Sequence[Path],
    policies: Sequence[str],
    nodes: Sequence[NodesOf],
    warn: Callable[[str], None],
) -> list[Setup]:
    """Return a configuration for each policy, and one for each file to compare with. Files warn about what they cannot say.

    Raises `BadInput`, `UnusableFile`.
    """
    base = _setup("native", pools, nodes, warn) if pools is not None else Setup("native", Tree(_TREE))
    with_yarn = [*base.changes, SetOptions(msgspec.json.encode({"preemption_policy": "yarn"}))]
    kinds = {
        "native": base,
        "yarn": msgspec.structs.replace(base, name="yarn", changes=with_yarn),
        "fifo": msgspec.structs.replace(base, name="fifo", is_fifo=True),
    }
    found = [kinds[name] for name in policies]
    for path in compared:
        name = printable(path.stem)
        taken = Counter(each.name.rpartition(" ")[0] or each.name for each in found)[name]
        found.append(_setup(f"{name} {taken + 1}" if taken else name, path, nodes, warn))
    return found


def _setup(name: str, path: Path, nodes: Sequence[NodesOf], warn: Callable[[str], None]) -> Setup:
    # Imported only for this command, because the parsers of YAML and XML take longer to import than most commands take to run.
    from headrace_cli.commands.pools.importing import read_import

    importing = read_import(str(path), None)
    if importing.has_percentages and not nodes:
        raise BadInput.because(
            "--nodes", f"{path} is a fair-scheduler.xml, whose percentages need the size of the cluster. Add --nodes"
        )
    changes, warnings = importing.changes([], Resources.sum(each.size * each.count for each in nodes), keep=False)
    for warning in warnings:
        warn(warning)
    return Setup(name, Tree(TreeName(importing.tree) if importing.tree else _TREE), changes)
