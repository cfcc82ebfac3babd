"""Requests that `headrace up` sends to services.

By these requests `up` finds out whether all services answer, whether all nodes are online, and what an administrator has paused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

import anyio

from headrace.client import Client, NotRunning, Place, Refused, Unanswered, connect
from headrace.errors import HeadraceError
from headrace.ids import TreeName
from headrace.runtime.role import role_of
from headrace.wire.nodes import NodeView
from headrace.wire.refusals import NotFound
from headrace_cli.up.commands import ADMISSION, SERVICES, STANDBY, process_name
from headrace_cli.up.options import UpOptions

_POLL_S = 0.05
#: Longest time in seconds of one attempt to connect, and of one request. Attempts and requests are repeated until the caller's time is
#: over.
_TRY_S = 2.0
_SILENT = "does not answer"
#: Seconds between two checks for pauses.
_PAUSES_S = 5.0
#: States of nodes whose agent sends heartbeats. In some of these states no jobs start on the node.
_HEARD = frozenset({"online", "suspect", "drained", "outside", "unisolated"})


async def wait_ready(
    place: Place, options: UpOptions, on_progress: Callable[[str, str], None]
) -> tuple[list[NodeView], list[str]]:
    """Wait until everything is ready, then return the nodes and the warnings about the trees.

    `on_progress` is called with the process that is waited for, and with the reason, such as `does not answer`. The caller must limit the
    time.
    """
    nodes: list[NodeView] = []
    warnings: list[str] = []
    for tree in options.trees:
        there, warned = await _tree_ready(place, tree, options, on_progress)
        nodes += there
        warnings += warned
    return nodes, warnings


async def _tree_ready(
    place: Place, tree: TreeName, options: UpOptions, on_progress: Callable[[str, str], None]
) -> tuple[list[NodeView], list[str]]:
    while True:
        on_progress("nats-server", _SILENT)
        try:
            async with _client(place, tree) as client:
                return await _ask_everybody(client, tree, options, on_progress)
        except NotRunning:
            await anyio.sleep(_POLL_S)


def _client(place: Place, tree: TreeName) -> AbstractAsyncContextManager[Client]:
    return connect(
        url=place.url, credential_file=place.credential_file, ca_file=place.ca_file, tree=tree, timeout_s=_TRY_S
    )


async def tell_pauses(place: Place, tree: TreeName, known: Sequence[str], tell: Callable[[str], None]) -> None:
    """Report each pause by an administrator, and the end of each pause.

    Pauses in the `known` warnings are not reported again. Runs until cancelled.
    """
    told: list[str] | None = None
    while True:
        with suppress(HeadraceError):
            async with _client(place, tree) as client:
                while True:
                    (view,) = (await client.trees.list(tree)).trees
                    paused = view.options.pauses()
                    told = [words for words in paused if words in known] if told is None else told
                    for words in paused:
                        if words not in told:
                            tell(words)
                    for words in told:
                        if words not in paused:
                            tell(f"{words.split()[0]} resumed")
                    told = paused
                    await anyio.sleep(_PAUSES_S)
        await anyio.sleep(_PAUSES_S)


async def tell_troubles(place: Place, tree: TreeName, tell: Callable[[str], None]) -> None:
    """Report the troubles that the services have now, such as entries that the log has lost."""
    with suppress(HeadraceError):
        async with _client(place, tree) as client:
            for view in await client.processes.list():
                if view.trouble:
                    tell(f"{view.service}: {view.trouble}")


async def _ask_everybody(
    client: Client, tree: TreeName, options: UpOptions, on_progress: Callable[[str, str], None]
) -> tuple[list[NodeView], list[str]]:
    for service, ask in (
        ("admission", partial(client.list, limit=1)),
        ("fair_share", client.pools.list),
        ("allocator", client.nodes),
    ):
        on_progress(process_name(service, tree, options), _SILENT)
        await _until_answered(ask)
    while options.standby:
        standing_by = {view.role for view in await client.processes.list() if not view.leads}
        missing_services = [name for name in SERVICES if _role(name, tree) not in standing_by]
        if not missing_services:
            break
        on_progress(process_name(min(missing_services), tree, options) + STANDBY, "is not a standby yet")
    nodes = [node.node for node in options.nodes if node.tree == tree]
    while True:
        listed = {node.node: node for node in (await client.nodes()).nodes}
        missing = [name for name in nodes if name not in listed or listed[name].state not in _HEARD]
        if not missing:
            (view,) = (await client.trees.list(tree)).trees
            there = [listed[name] for name in nodes]
            return there, [*view.warnings, *closed_nodes(there)]
        on_progress(f"agent-{missing[0]}", f"has not brought its node online ({_state_of(listed.get(missing[0]))})")
        await anyio.sleep(_POLL_S)


def closed_nodes(nodes: Sequence[NodeView]) -> list[str]:
    """Return the reason for each node that sends heartbeats and gets no jobs."""
    said = []
    for view in nodes:
        if view.state == "drained":
            said.append(
                f"node {view.node} is drained and gets no new jobs; `headrace node undrain {view.node}` ends the drain"
            )
        elif view.held_back:
            said.append(f"node {view.node} gets single jobs: {view.held_back}")
        elif view.state != "online":
            said.append(f"node {view.node} gets no jobs: {view.left_out or view.state}")
    return said


def _state_of(node: NodeView | None) -> str:
    return "not known yet" if node is None else node.state


def _role(service: str, tree: TreeName) -> str:
    return role_of(service) if service == ADMISSION else role_of(service, tree)


async def _until_answered(ask: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await ask()
        except Unanswered:
            continue
        except Refused as error:
            # `NotFound` does not end the wait: the services of another tree may answer before the services of this tree have made the
            # tree.
            if not isinstance(error.refusal, NotFound):
                raise
            await anyio.sleep(_POLL_S)
            continue
        return
