"""The value of `--node`: a node's name and what it offers, such as `small:cpu=2,memory=2G,user_slots=8`."""

from __future__ import annotations

import msgspec

from headrace.errors import BadInput
from headrace.ids import NodeName, node_name
from headrace.resources import RESOURCE_NAMES, parse_amount

__all__ = ["NodeOption", "parse_node", "parse_nodes"]


class NodeOption(msgspec.Struct, frozen=True):
    """One agent to start. Amounts that are left out are the host's own."""

    node: NodeName
    #: As people write them.
    amounts: dict[str, str] = {}


def parse_node(text: str) -> NodeOption:
    """Reads `NAME` or `NAME:resource=amount,…`. Raises `BadInput`."""
    name, _, rest = text.partition(":")
    amounts: dict[str, str] = {}
    for item in filter(None, (piece.strip() for piece in rest.split(","))):
        resource, equals, figure = item.partition("=")
        if not equals or resource not in RESOURCE_NAMES:
            raise BadInput("--node", item, "resource=amount, the resource one of " + ", ".join(RESOURCE_NAMES))
        if resource in amounts:
            raise BadInput("--node", item, f"{resource} only once")
        parse_amount(resource, figure, place=f"--node {name}: {resource}")
        amounts[resource] = figure.strip()
    return NodeOption(node=node_name(name.strip()), amounts=amounts)


def parse_nodes(texts: list[str]) -> list[NodeOption]:
    """Reads all values of `--node`. A name may stand only once. Raises `BadInput`."""
    nodes = [parse_node(text) for text in texts]
    names = [node.node for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise BadInput("--node", name, "a name that no other --node has")
    return nodes
