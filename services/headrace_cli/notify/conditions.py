"""Requests the conditions that rules watch: pools that starve, and nodes that are lost. Ends of operations come from the log instead."""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

from headrace.client import Client, Refused, Unanswered
from headrace.ids import TreeName
from headrace.wire.snapshots import ElementKind, StarvationReason, StarvationStatus
from headrace_cli.notify.notifier import Notifier, Present
from headrace_cli.notify.rules import Rule, RuleKind

#: States of a node from which no heartbeat arrives.
_LOST: Final = ("offline", "unheard")


async def look(client: Client, rules: list[Rule], notifier: Notifier, now_ms: int) -> bool:
    """Give the notifier the conditions of all trees that rules watch. True if there is something new to send.

    A tree whose services do not answer is left out this time.
    """
    found = False
    trees: list[TreeName] = []
    if all(rule.when is RuleKind.OPERATION_ENDED for rule in rules):
        return False
    with suppress(Unanswered, Refused):
        trees = [view.tree for view in (await client.trees.list()).trees]
    for tree in trees:
        for kind in (RuleKind.POOL_STARVES, RuleKind.NODE_LOST):
            here = [rule for rule in rules if rule.when is kind and _watches(rule, tree)]
            if here:
                with suppress(Unanswered, Refused):
                    present = await (
                        _starving(client, tree) if kind is RuleKind.POOL_STARVES else _lost(client, tree, now_ms)
                    )
                    for rule in here:
                        found |= notifier.on_conditions(rule, tree, present, now_ms)
    return found


def _watches(rule: Rule, tree: str) -> bool:
    return not rule.trees or any(fnmatchcase(tree, pattern) for pattern in rule.trees)


async def _starving(client: Client, tree: TreeName) -> dict[str, Present]:
    pools = (await client.pools.of(tree).list()).pools
    return {
        pool.name: Present(
            pool.share.starving_since_ms,
            {
                "pool": pool.name,
                "path": pool.path,
                "tree": tree,
                "status": pool.share.starvation_status.value,
                "short_of": "strong guarantee"
                if pool.share.starvation_reason is StarvationReason.MIN_SHARE
                else "fair share",
            },
        )
        for pool in pools
        if pool.share.kind is ElementKind.POOL and pool.share.starvation_status is not StarvationStatus.NON_STARVING
    }


async def _lost(client: Client, tree: TreeName, now_ms: int) -> dict[str, Present]:
    """Return the nodes from which no heartbeat arrives. Nodes that an administrator drains are left out."""
    nodes = (await client.nodes(tree)).nodes
    return {
        node.node: Present(
            None if node.heartbeat_age_ms is None else max(0, now_ms - node.heartbeat_age_ms),
            {"node": node.node, "tree": tree, "state": node.state, "jobs": node.running_jobs},
        )
        for node in nodes
        if node.state in _LOST and not (node.drain is not None and node.drain.is_in_force(now_ms))
    }
