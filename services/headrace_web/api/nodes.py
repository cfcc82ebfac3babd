"""Endpoints for nodes and for the processes of Headrace itself."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.wire.nodes import ChangedNode, NodeChange, NodeView
from headrace.wire.services import ServiceView
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint
from headrace_web.api.pools import NoFields, PageOfTree


class NodePage(msgspec.Struct, frozen=True):
    """A page of nodes, by name."""

    nodes: list[NodeView]
    #: Number of heard and of enrolled nodes while the allocator is recovering, such as `3/5`; else empty.
    recovering: str
    #: `cursor` of the next page; null on the last page.
    next: int | None


class OneNode(msgspec.Struct, frozen=True):
    """A node."""

    node: str
    #: Tree of the node; empty: the tree that this service was started for.
    tree: str = ""


class NodeOnly(msgspec.Struct, frozen=True):
    """A node to change."""

    node: str


class DrainRequest(msgspec.Struct, frozen=True):
    """A drain. Times are milliseconds of Unix time."""

    node: str
    #: Reason, shown wherever the node is.
    reason: str = ""
    #: Beginning of the drain; 0: now.
    from_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: End of the drain; 0: until the node is undrained.
    until_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: Milliseconds from the beginning to the interruption of running jobs, which are requeued. Null: jobs run to their end.
    abort_after_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None


class ProcessList(msgspec.Struct, frozen=True):
    """Processes of services."""

    services: list[ServiceView]
    #: Processes whose answer could not be read, each with the reason.
    unread: list[str]


async def list_nodes(context: Context, request: PageOfTree) -> NodePage:
    """List the nodes of a tree."""
    tree = await context.tree(request.tree)
    page = await context.client.hosts.page(tree, first=request.cursor)
    nodes, cursor = request.cut(page.nodes, has_more=page.more)
    return NodePage(nodes, page.recovering, cursor)


async def get_node(context: Context, request: OneNode) -> NodeView:
    """Return a node with the jobs that run on it."""
    return await context.client.hosts.get(request.node, await context.tree(request.tree))


async def drain_node(context: Context, request: DrainRequest) -> ChangedNode:
    """Let no jobs start on a node, now or in a window of time."""
    return await context.client.change_node(
        request.node,
        NodeChange.DRAIN,
        reason=request.reason,
        from_ms=request.from_ms,
        until_ms=request.until_ms,
        abort_after_ms=request.abort_after_ms,
    )


async def undrain_node(context: Context, request: NodeOnly) -> ChangedNode:
    """Let jobs start on a node again."""
    return await context.client.change_node(request.node, NodeChange.UNDRAIN)


async def shut_out_node(context: Context, request: NodeOnly) -> ChangedNode:
    """Refuse the key of a node, whatever it runs. Its jobs go on until its lease is over."""
    return await context.client.change_node(request.node, NodeChange.SHUT_OUT)


async def remove_node(context: Context, request: NodeOnly) -> ChangedNode:
    """Remove a node that is drained and empty, or silent."""
    return await context.client.change_node(request.node, NodeChange.REMOVE)


async def list_services(context: Context, request: NoFields) -> ProcessList:
    """List the processes of Headrace itself: leaders and standbys."""
    found = await context.client.processes.list()
    return ProcessList([*found], [each.text() for each in context.client.processes.unread])


ENDPOINTS: Final = (
    Endpoint("GET", "/nodes", list_nodes),
    Endpoint("GET", "/nodes/{node}", get_node),
    Endpoint("DELETE", "/nodes/{node}", remove_node),
    Endpoint("POST", "/nodes/{node}/drain", drain_node),
    Endpoint("POST", "/nodes/{node}/undrain", undrain_node),
    Endpoint("POST", "/nodes/{node}/shut-out", shut_out_node),
    Endpoint("GET", "/services", list_services),
)
