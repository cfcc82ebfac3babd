"""Names from a running Headrace. There are none if Headrace does not answer in time. Nothing is started."""

from __future__ import annotations

import os
from collections.abc import Sequence

import anyio

from headrace.client import Client, connect
from headrace.errors import HeadraceError
from headrace.ids import ROOT_POOL
from headrace.obs.logging import configure
from headrace.resources import format_amount
from headrace_cli.commands.pools.fields import read
from headrace_cli.completion.candidates import Name
from headrace_cli.completion.slot import Slot
from headrace_cli.completion.value_kinds import ValueKind, value_kind

#: Seconds for all requests together. After that, typing the name would have been quicker.
TIME_S = 1.0
_MOST_OPERATIONS = 200


def known_names(slot: Slot) -> Sequence[Name]:
    """Return names of the kind that the slot asks for."""
    configure("cli", "error")
    folder = slot.given.get("state") or [""]
    state = os.path.expanduser(folder[-1])
    try:
        return anyio.run(_ask, slot, state)
    except (HeadraceError, OSError, TimeoutError, BaseExceptionGroup):
        return ()


async def _ask(slot: Slot, state: str) -> list[Name]:
    with anyio.fail_after(TIME_S):
        async with connect(state=state or None, timeout_s=TIME_S) as client:
            return await _names(client, slot)


async def _names(client: Client, slot: Slot) -> list[Name]:
    match value_kind(slot):
        case ValueKind.POOL | ValueKind.POOL_OR_ROOT as kind:
            return await _pools(client, root=kind is ValueKind.POOL_OR_ROOT)
        case ValueKind.OPERATION | ValueKind.LIVE_OPERATION as kind:
            return await _operations(client, live=kind is ValueKind.LIVE_OPERATION)
        case ValueKind.NODE:
            nodes = (await client.nodes()).nodes
            return [Name(n.node, f"{n.state}, {format_amount('cpu', n.total.cpu)} cores") for n in nodes]
        case ValueKind.TREE:
            return [Name(t.tree, f"pools: {t.pools}") for t in (await client.trees.list()).trees]
        case ValueKind.GROUP:
            return [Name(each.name, f"members: {each.members}") for each in (await client.groups.list()).groups]
        case ValueKind.USER:
            return [Name(user) for user in sorted({view.user for view in await client.list(limit=_MOST_OPERATIONS)})]
        case ValueKind.OPERATION_SETTING:
            return [Name(f"pool={pool.name}", pool.about) for pool in await _pools(client, root=False)]
        case ValueKind.FIELD:
            return await _parts_of_field(client, slot)
        case _:
            return []


async def _pools(client: Client, *, root: bool) -> list[Name]:
    views = (await client.pools.list()).pools
    made = [view for view in views if view.name != ROOT_POOL]
    names = [Name(v.name, f"in {v.parent}, operations: {v.operation_count}") for v in made]
    return names + ([Name(ROOT_POOL, "the whole tree")] if root else [])


async def _operations(client: Client, *, live: bool) -> list[Name]:
    views = await client.list(live=live, limit=_MOST_OPERATIONS)
    return [
        Name(view.operation, f"{view.state} in {view.spec.pool}: {view.spec.title or ' '.join(view.spec.argv)}")
        for view in views
    ]


async def _parts_of_field(client: Client, slot: Slot) -> list[Name]:
    """Return the names that can complete the last part of a field. An earlier argument names the pool that has the field."""
    name = slot.given.get("name", [""])[0]
    pool = next((view for view in (await client.pools.list(name)).pools if view.name == name), None)
    if pool is None:
        return []
    separator = "/" if "/" in slot.value else "."
    above = slot.value.rpartition(separator)[0]
    value = read(pool, above)
    return [Name(f"{above}{separator}{part}") for part in value] if isinstance(value, dict) else []
