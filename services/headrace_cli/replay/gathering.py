"""Gather all data for a replay: the log, the pools, the nodes, and what runs now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.client import Client, Refused
from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, NodeName
from headrace.pools import Pool, Tree
from headrace.resources import RESOURCE_NAMES, ZERO
from headrace.runtime.clock import SystemClock
from headrace.wire.integral import PoolVolume, Volume
from headrace.wire.nodes import NodeView
from headrace.wire.pool_changes import PoolChange
from headrace.wire.pools import PoolList
from headrace.wire.replay import LiveRun, ReplayNode, ReplayTask
from headrace_cli.replay.needed_log import NeededLog

#: Upper bound of the operations whose running jobs are requested.
_MOST_LIVE: Final = 1_000
#: Upper bound of the updates of shares in a replay, even if something changes all the time.
_MOST_STEPS: Final = 10_000
_SHORTEST_STEP_MS: Final = 200
_GONE: Final = ("offline", "unheard", "removed")


class Wished(msgspec.Struct, frozen=True):
    """The period and the detail that the user wants replayed."""

    since_ms: int
    until_ms: int
    resource: str
    #: Milliseconds between two updates of shares; None: the shortest time with which the replay still takes only minutes.
    step_ms: int | None = None


async def gathered(
    client: Client, wished: Wished, listed: PoolList, changes: list[PoolChange], say: Callable[[str], None]
) -> ReplayTask:
    """Return all data for a replay.

    Raises `BadInput` if nothing or too much was recorded, `Refused`, `Unanswered`.
    """
    tree = client.trees.own
    options = (await client.trees.list(tree)).trees[0].options
    log = await _log(client, wished, say)
    if not log.first_ms:
        raise BadInput.because("replay", "the log is empty. Replay a cluster on which operations have run")
    since_ms = max(wished.since_ms, log.first_ms)
    if not log.tells:
        raise BadInput.because(
            "--since", "the log has no entries in this period. Choose a period in which operations ran"
        )
    length_ms = wished.until_ms - since_ms
    return ReplayTask(
        tree=tree,
        since_ms=since_ms,
        until_ms=wished.until_ms,
        step_ms=wished.step_ms or max(_SHORTEST_STEP_MS, length_ms // _MOST_STEPS),
        resource=wished.resource,
        entries=log.entries,
        nodes=[_node(node) for node in (await client.nodes()).nodes if _counts(node)],
        running=await _running(client, wished.until_ms),
        configured=Tree(tree, _configured(listed), options),
        changes=changes,
        volumes=_volumes(listed),
    )


async def _log(client: Client, wished: Wished, say: Callable[[str], None]) -> NeededLog:
    log = NeededLog(wished.since_ms, wished.until_ms)
    async for page in client.happenings.log():
        log.add(page.entries)
        if page.next is not None:
            say(f"{len(log.entries)} entries of the log read")
    log.cut()
    return log


async def _running(client: Client, until_ms: int) -> list[LiveRun]:
    """Return the jobs that run now and began before the end of the period."""
    found: list[LiveRun] = []
    for view in await client.list(live=True, limit=_MOST_LIVE):
        if view.spec.tree != client.trees.own:
            continue
        try:
            places = await client.places(view.operation, [client.trees.own])
        except Refused:
            # The operation was not found, so it is over by now, and has no running jobs.
            continue
        now_ms = SystemClock().wall_ms()
        found += [
            LiveRun(view.operation, place.index, place.attempt, place.node, max(1, now_ms - place.ran_ms))
            for place in places.running
        ]
    return [each for each in found if each.started_at_ms < until_ms]


def _configured(listed: PoolList) -> list[Pool]:
    return [
        Pool(pool.name, pool.parent, pool.settings)
        for pool in listed.pools
        if not pool.ephemeral and pool.name != ROOT_POOL
    ]


def _counts(node: NodeView) -> bool:
    return node.total != ZERO and node.state not in _GONE


def _node(node: NodeView) -> ReplayNode:
    return ReplayNode(NodeName(node.node), node.total, node.tags, node.isolation == "full")


def _volumes(listed: PoolList) -> list[PoolVolume]:
    """Return the savings that pools have now. The replay begins with them."""
    found: list[PoolVolume] = []
    for pool in listed.pools:
        saved = pool.accumulated_resource_volume
        if saved is not None:
            slots, cores, gpu, memory, network = (saved.get(name, 0.0) for name in RESOURCE_NAMES)
            volume = Volume(slots, round(100 * cores), gpu, memory, network)
            found.append(PoolVolume(pool.name, volume, pool.accumulated_resource_ratio_volume or 0.0))
    return found
