"""Questions of `headrace up`: whether everything answers and all nodes are online, and what an operator has paused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import anyio

from headrace.client import Client, NotRunning, Unanswered, connect
from headrace.errors import HeadraceError
from headrace.wire.nodes import NodeView
from headrace_cli.up.commands import SERVICES, STANDBY

__all__ = ["tell_pauses", "wait_ready"]

_LOOK_S = 0.05
#: One try at connecting or at a question; it is tried again until the caller's time is over.
_TRY_S = 2.0
#: Between two looks at what is paused.
_PAUSES_S = 5.0


async def wait_ready(
    url: str, credential_file: str, nodes: Sequence[str], standby: bool, on_progress: Callable[[str], None]
) -> tuple[list[NodeView], list[str]]:
    """Returns the nodes, and the warnings about the tree, once all is well.

    `on_progress` is told what is waited for. The caller limits the time.
    """
    while True:
        on_progress("nats-server")
        try:
            async with connect(url=url, credential_file=credential_file, timeout_s=_TRY_S) as client:
                return await _ask_everybody(client, nodes, standby, on_progress)
        except NotRunning:
            await anyio.sleep(_LOOK_S)


async def tell_pauses(url: str, credential_file: str, known: Sequence[str], tell: Callable[[str], None]) -> None:
    """Tells what an operator pauses and resumes from now on, beside the warnings that are known. Runs until cancelled."""
    told: list[str] | None = None
    while True:
        with suppress(HeadraceError):
            async with connect(url=url, credential_file=credential_file, timeout_s=_TRY_S) as client:
                while True:
                    (tree,) = (await client.trees.list(client.trees.own)).trees
                    paused = tree.options.pauses()
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


async def _ask_everybody(
    client: Client, nodes: Sequence[str], standby: bool, on_progress: Callable[[str], None]
) -> tuple[list[NodeView], list[str]]:
    for service, ask in (
        ("admission", partial(client.list, limit=1)),
        ("fair_share", client.pools.list),
        ("allocator", client.nodes),
    ):
        on_progress(service)
        await _until_answered(ask)
    while standby:
        standing_by = {view.service for view in await client.services() if not view.leads}
        missing_services = SERVICES.keys() - standing_by
        if not missing_services:
            break
        on_progress(min(missing_services) + STANDBY)
    while True:
        listed = {node.node: node for node in (await client.nodes()).nodes}
        missing = [name for name in nodes if name not in listed or listed[name].state != "online"]  # type: ignore[index]
        if not missing:
            (tree,) = (await client.trees.list(client.trees.own)).trees
            return [listed[name] for name in nodes], tree.warnings  # type: ignore[index]
        on_progress(f"agent-{missing[0]}")
        await anyio.sleep(_LOOK_S)


async def _until_answered(ask: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await ask()
        except Unanswered:
            continue
        return
