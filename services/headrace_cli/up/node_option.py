"""The value of `--node`: name, amounts, tags and tree of a node, such as `small:cpu=2,memory=2G,tag=ssd,tree=one`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, cycle, islice
from typing import Final, Literal

import msgspec

from headrace.errors import BadInput
from headrace.ids import NodeName, TreeName, node_name, tree_name
from headrace.resources import RESOURCE_NAMES, parse_amount
from headrace.wire.heartbeat import MOST_GPUS

_CONTAINERS: Final = ("auto", "podman", "apptainer", "off")


class NodeOption(msgspec.Struct, frozen=True):
    """An agent to start. For amounts that are left out, the agent offers what the host has."""

    node: NodeName
    #: Amounts by resource, as the user wrote them.
    amounts: dict[str, str] = {}
    #: Tree of the node; empty: the user named none.
    tree: TreeName | Literal[""] = ""
    tags: list[str] = []
    #: Numbers of the host's GPU devices that the node offers, separated by commas; empty: all devices that its agent finds.
    gpus: str = ""
    #: Setting `containers` of the agent; empty: its default.
    containers: str = ""


def parse_node(text: str) -> NodeOption:
    """Parse `NAME` or `NAME:resource=amount,…,tag=TAG,…,tree=TREE,containers=off`. Raises `BadInput`."""
    name, _, rest = text.partition(":")
    amounts: dict[str, str] = {}
    tags: list[str] = []
    tree: TreeName | Literal[""] = ""
    containers = ""
    for item in filter(None, (piece.strip() for piece in rest.split(","))):
        resource, equals, figure = item.partition("=")
        if resource == "tree":
            tree = tree_name(figure.strip())
            continue
        if resource == "tag" and figure.strip():
            tags.append(figure.strip())
            continue
        if resource == "containers" and figure.strip() in _CONTAINERS:
            containers = figure.strip()
            continue
        if not equals or resource not in RESOURCE_NAMES:
            known = ", ".join(RESOURCE_NAMES)
            others = f"tag=TAG, tree=NAME, containers={'|'.join(_CONTAINERS)}"
            raise BadInput("--node", item, f"{others}, or RESOURCE=AMOUNT, where RESOURCE is {known}")
        if resource in amounts:
            raise BadInput.because("--node", f"{resource} is given twice for one node")
        parse_amount(resource, figure, place=f"--node {name}: {resource}")
        amounts[resource] = figure.strip()
    return NodeOption(node=node_name(name.strip()), amounts=amounts, tree=tree, tags=tags, containers=containers)


def parse_trees(texts: list[str]) -> list[TreeName]:
    """Parse all values of `--tree`. Raises `BadInput`, also for a name that is given twice."""
    for text in texts:
        if texts.count(text) > 1:
            raise BadInput("--tree", text, "a name that no other --tree has")
    return [tree_name(text) for text in texts]


def spread(nodes: Sequence[NodeOption], trees: Sequence[TreeName]) -> list[NodeOption]:
    """Assign the nodes that name no tree to the trees in turn.

    Raises `BadInput` if a tree gets no node, or if a node names a tree that is not served.
    """
    for node in nodes:
        if node.tree and node.tree not in trees:
            raise BadInput(f"--node {node.node}: tree", node.tree, "a tree that is served: " + ", ".join(trees))
    turns = cycle(trees)
    placed = [node if node.tree else msgspec.structs.replace(node, tree=next(turns)) for node in nodes]
    for tree in trees:
        if not any(node.tree == tree for node in placed):
            raise BadInput.because(
                "--tree", f"tree {tree} has no node. Add one, such as --node NAME:cpu=2,memory=4G,tree={tree}"
            )
    return placed


def parse_nodes(texts: list[str]) -> list[NodeOption]:
    """Parse all values of `--node`. Raises `BadInput`, also for a name that is given twice.

    No two nodes offer the same GPU device: each node gets the device numbers that follow the numbers of the node before it. If there are
    several nodes, a node without `gpu` offers no GPU device.
    """
    nodes = [parse_node(text) for text in texts]
    names = [node.node for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise BadInput("--node", name, "a name that no other --node has")
    numbers = count()
    placed: list[NodeOption] = []
    for node in nodes:
        wanted = parse_amount("gpu", node.amounts.get("gpu", 0))
        if wanted > MOST_GPUS:
            raise BadInput(f"--node {node.node}: gpu", wanted, f"at most {MOST_GPUS}")
        is_sole = len(nodes) == 1 and "gpu" not in node.amounts
        amounts = node.amounts if is_sole else {**node.amounts, "gpu": str(wanted)}
        gpus = ",".join(str(number) for number in islice(numbers, wanted))
        placed.append(msgspec.structs.replace(node, amounts=amounts, gpus=gpus))
    return placed
