"""Endpoints for nodes and for the processes of Headrace itself."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.wire.nodes import ChangedNode, ListNodes, NodeChange, NodeView
from headrace.wire.services import ServiceView
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint
from headrace_web.api.pages import Limit, page_of


class ListedNodes(msgspec.Struct, frozen=True):
    """Which nodes to list."""

    #: Tree of the nodes; empty: the tree that this service was started for.
    tree: str = ""
    #: Only nodes whose name begins with this text.
    name_prefix: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: Only nodes in this state, such as `online`, `suspect`, `offline` or `drained`.
    state: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: Only nodes that have this tag.
    tag: Annotated[str, msgspec.Meta(max_length=200)] = ""
    limit: Limit = 1000
    #: `next` of the page before; empty for the first page.
    cursor: Annotated[str, msgspec.Meta(max_length=63)] = ""


class NodePage(msgspec.Struct, frozen=True):
    """A page of nodes, by name."""

    nodes: list[NodeView]
    #: While the allocator is recovering: the number of nodes that it has heard and the number of enrolled nodes, such as `3/5`. Else empty.
    recovering: str
    #: `cursor` of the next page; null on the last page.
    next: str | None


class OneNode(msgspec.Struct, frozen=True):
    """A node."""

    node: str
    #: Tree of the node; empty: the tree that this service was started for.
    tree: str = ""


class NodeOnly(msgspec.Struct, frozen=True):
    """A node to change."""

    node: str


class DrainRequest(msgspec.Struct, frozen=True):
    """A request to drain a node. Times are milliseconds of Unix time."""

    node: str
    #: Reason, shown wherever the node is shown.
    reason: str = ""
    #: Beginning of the drain; 0: now.
    from_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: End of the drain; 0: until the node is undrained.
    until_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: Milliseconds after the beginning of the drain at which running jobs are interrupted and requeued. Null: running jobs run to their
    #: end.
    abort_after_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None


class ListedProcesses(msgspec.Struct, frozen=True):
    """Which processes to list."""

    #: Only processes of this service, such as `allocator`.
    service: str = ""
    limit: Limit = 1000
    #: `next` of the page before; empty for the first page.
    cursor: str = ""


class ProcessPage(msgspec.Struct, frozen=True):
    """A page of processes of services, by role."""

    services: list[ServiceView]
    #: Processes whose answer could not be read, each with the reason.
    unread: list[str]
    #: `cursor` of the next page; null on the last page.
    next: str | None


async def list_nodes(context: Context, request: ListedNodes) -> NodePage:
    """List the nodes of a tree, by name."""
    wanted = ListNodes(
        limit=request.limit,
        after=request.cursor,
        name_prefix=request.name_prefix,
        state=request.state,
        tag=request.tag,
    )
    page = await context.client.hosts.page(await context.tree(request.tree), wanted)
    return NodePage(page.nodes, page.recovering, page.nodes[-1].node if page.more and page.nodes else None)


async def get_node(context: Context, request: OneNode) -> NodeView:
    """Return a node with the jobs that run on it."""
    return await context.client.hosts.get(request.node, await context.tree(request.tree))


async def drain_node(context: Context, request: DrainRequest) -> ChangedNode:
    """Let no jobs start on a node, from now on or in a window of time."""
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
    """Refuse the key of a node, even if jobs run on it. These jobs go on until the node's lease is over."""
    return await context.client.change_node(request.node, NodeChange.SHUT_OUT)


async def remove_node(context: Context, request: NodeOnly) -> ChangedNode:
    """Remove a node, which must either be drained and empty, or be silent."""
    return await context.client.change_node(request.node, NodeChange.REMOVE)


async def list_services(context: Context, request: ListedProcesses) -> ProcessPage:
    """List the processes of Headrace itself, by role: leaders and standbys."""
    found = await context.client.processes.list()
    wanted = (each for each in found if request.service in ("", each.service))
    processes, cursor = page_of(wanted, _key_of_process, limit=request.limit, cursor=request.cursor)
    return ProcessPage(processes, [each.text() for each in context.client.processes.unread], cursor)


def _key_of_process(view: ServiceView) -> str:
    """Return the key by which processes are sorted: by role, and within a role the leader first."""
    return f"{view.role} {'standby' if not view.leads else 'leader'} {view.instance} {view.pid}"


ENDPOINTS: Final = (
    Endpoint("GET", "/nodes", list_nodes),
    Endpoint("GET", "/nodes/{node}", get_node),
    Endpoint("DELETE", "/nodes/{node}", remove_node),
    Endpoint("POST", "/nodes/{node}/drain", drain_node),
    Endpoint("POST", "/nodes/{node}/undrain", undrain_node),
    Endpoint("POST", "/nodes/{node}/shut-out", shut_out_node),
    Endpoint("GET", "/services", list_services),
)
