"""Suppositions from a command line: changes of pools, additional jobs, more or fewer nodes. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.errors import BadInput, said_of
from headrace.ids import ROOT_POOL, PoolName, pool_name
from headrace.pools import POOL_ATTRIBUTES
from headrace.resources import Resources, parse_resources
from headrace.suggestions import hint
from headrace.wire.nodes import NodeView
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.pool_changes import Create, PoolChange, Remove, Set
from headrace.wire.what_if import SupposedNodes, SupposedOperation
from headrace_cli.commands.pools.key_values import assignments, checked, parse_figures
from headrace_cli.show.amounts import amounts

_JOBS_EXPECTED: Final = "POOL:COUNT, or POOL:COUNT,cpu=AMOUNT,memory=AMOUNT with what each job needs"
_NODES_EXPECTED: Final = "+COUNT or -COUNT, such as -2,cpu=16,memory=64G with what each node has, or -NODE"
_COUNT: Final = re.compile(r"[0-9]{1,9}\Z")
#: States of the nodes whose resources are part of the cluster's total.
_COUNTED: Final = frozenset({"online", "suspect", "draining"})


def supposed_changes(changed: Sequence[str], create: Sequence[str], remove: Sequence[str]) -> list[PoolChange]:
    """Return the changes from texts such as `research.weight=3`, new pools such as `research/vision`, and pools to remove.

    Raises `BadInput`.
    """
    made: list[PoolChange] = []
    for text in create:
        *above, name = text.strip("/").split("/")
        made.append(Create(pool_name(name), pool_name(above[-1]) if above else ROOT_POOL))
    of_pools: dict[PoolName, list[str]] = {}
    for text in changed:
        path, dot, assigned = text.partition(".")
        name = path.strip("/").rpartition("/")[2]
        if not dot or "=" not in assigned:
            raise BadInput(
                "change", text, "POOL.ATTRIBUTE=VALUE, such as research.weight=3, as in `pool set research weight=3`"
            )
        of_pools.setdefault(pool_name(name), []).append(assigned)
    for pool, assigned_to in of_pools.items():
        attributes = assignments(assigned_to, POOL_ATTRIBUTES, above=f"{pool}.")
        checked(attributes, POOL_ATTRIBUTES, above=f"{pool}.")
        made.append(Set(pool, msgspec.json.encode(attributes)))
    # Pools in use can be removed too: their operations go on in ephemeral pools, and the answer should show these ephemeral pools.
    made += [Remove(pool_name(text.strip("/").rpartition("/")[2]), recursive=True, in_use=True) for text in remove]
    return made


def supposed_jobs(texts: Iterable[str]) -> list[SupposedOperation]:
    """Parse texts such as `research:200,cpu=1,memory=4G`, each of them one operation. Raises `BadInput`."""
    operations: list[SupposedOperation] = []
    for text in texts:
        pool, _, rest = text.partition(":")
        count, _, figures = rest.partition(",")
        if not _COUNT.match(count) or int(count) < 1:
            raise BadInput("--jobs", text, _JOBS_EXPECTED)
        each = _resources("--jobs", figures) if figures else Resources(cpu=100)
        job = msgspec.structs.replace(each, user_slots=1)
        name = pool_name(pool.strip("/").rpartition("/")[2])
        operations.append(SupposedOperation(OperationSpec(name, ["true"], job_count=int(count), resources=job)))
    return operations


def supposed_nodes(texts: Iterable[str], nodes: Sequence[NodeView]) -> list[SupposedNodes]:
    """Parse `-2` (two nodes of the most frequent kind), `-2,cpu=16,memory=64G`, or `-alpha` (the node alpha). Raises `BadInput`."""
    there = [node for node in nodes if node.state in _COUNTED and not node.left_out]
    return [_nodes(text, there) for text in texts]


def nodes_in_words(nodes: SupposedNodes) -> str:
    """Return in words which nodes are meant, such as `2 nodes fewer of cpu 4, memory 8 GiB`."""
    count = abs(nodes.count)
    tagged = f", tags {', '.join(nodes.tags)}" if nodes.tags else ""
    which = "more" if nodes.count > 0 else "fewer"
    return f"{count} {'node' if count == 1 else 'nodes'} {which} of {amounts(nodes.resources)}{tagged}"


def _nodes(text: str, there: Sequence[NodeView]) -> SupposedNodes:
    count, _, figures = text.partition(",")
    sign, digits = (count[0], count[1:]) if count[:1] in ("+", "-") else ("+", count)
    if sign == "-" and digits and not digits.isdigit() and not figures:
        node = next((each for each in there if each.node == digits), None)
        if node is None:
            raise BadInput.because(
                "--nodes", f"no node {digits} is online; {said_of(hint(digits, (each.node for each in there)))}"
            )
        return SupposedNodes(-1, node.total, node.tags)
    if not _COUNT.match(digits) or int(digits) < 1:
        raise BadInput("--nodes", text, _NODES_EXPECTED)
    kinds = Counter((node.total, tuple(node.tags)) for node in there)
    if figures:
        each = _resources("--nodes", figures)
        each = each if each.user_slots else msgspec.structs.replace(each, user_slots=_slots(each, there))
        tags = next((tags for total, tags in kinds if sign == "-" and total == each), ())
    elif kinds:
        ((each, tags), _), *_ = kinds.most_common(1)
    else:
        raise BadInput(
            "--nodes", text, "the resources of each node, such as +2,cpu=16,memory=64G, because no node is online"
        )
    return SupposedNodes(int(sign + digits), each, list(tags))


def _slots(resources: Resources, there: Sequence[NodeView]) -> int:
    """Return the largest number of slots among the nodes with the same cpu and memory; without such nodes, among all nodes."""
    alike = [
        node.total.user_slots
        for node in there
        if (node.total.cpu, node.total.memory) == (resources.cpu, resources.memory)
    ]
    return max(alike or [node.total.user_slots for node in there], default=1_000)


def _resources(option: str, text: str) -> Resources:
    return parse_resources(parse_figures(option, text), place=option)
