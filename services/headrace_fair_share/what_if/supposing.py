"""Suppositions: the input of an update as it would be after the changes of a what-if question. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import Person, PoolTree
from headrace.resources import LARGEST_SUM, RESOURCE_NAMES, Resources, format_amount
from headrace.suggestions import near
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.placements import EphemeralPool
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.refusals import BadRequest, NotFound, Refusal
from headrace.wire.what_if import SupposedNodes, SupposedOperation, WhatIf
from headrace_fair_share.configuration.change_decisions import Change, TreeConfiguration
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.update.node_guarantees import promise_warnings
from headrace_fair_share.update.update_facts import UpdateFacts


class Supposed(NamedTuple):
    """Two worlds at one point in time, each the input of an update."""

    plan: PoolPlan
    before: UpdateFacts
    #: The input after the changes; None if not even an administrator could make the changes.
    after: UpdateFacts | None
    notes: list[str]


def supposed(
    request: WhatIf,
    person: Person,
    cut: UpdateFacts,
    configuration: TreeConfiguration,
    held_back: Callable[[PoolTree], str],
) -> Supposed | Refusal:
    """Return the world after the changes of a question, together with the world before.

    Rights matter for the plan only: a person who may read the tree may ask about changes that only other people may make. `held_back`
    returns why a configuration could not come into force yet, or an empty text.
    """
    in_use = Counter(operation.pool for operation in cut.operations.values())
    decided = _decided(request, person, cut, configuration, in_use)
    if isinstance(decided, Refusal):
        return decided
    plan, pools = decided
    if pools is None:
        return Supposed(plan, cut, None, [])
    notes = [f"the changes would be held back: {why}"] if (why := held_back(pools)) else []
    # If the changed configuration would be held back, it would not be in force. So the pools stay the same after the changes, too.
    after = msgspec.structs.replace(cut, pools=cut.pools if why else pools)
    for nodes in request.nodes:
        with_nodes = _with_nodes(after, nodes)
        if not isinstance(with_nodes, UpdateFacts):
            return with_nodes
        after = with_nodes
    for operation in request.operations:
        started = _with_operation(after, operation, notes)
        if not isinstance(started, UpdateFacts):
            return started
        after = started
    return Supposed(plan, cut, after, notes)


def _decided(
    request: WhatIf, person: Person, cut: UpdateFacts, configuration: TreeConfiguration, in_use: Mapping[PoolName, int]
) -> tuple[PoolPlan, PoolTree | None] | Refusal:
    """Return the plan of the changes, and the resulting tree; None if not even an administrator could make the changes."""
    if not request.changes:
        return PoolPlan(request.tree, dry_run=True), configuration.pools
    change = ChangePools(request.changes, request.tree, dry_run=True)
    warn = promise_warnings(cut.rooms)
    decision = configuration.decide(change, in_use, person, cut.total, warn)
    if isinstance(decision, Change):
        return decision.plan, decision.pools
    if not isinstance(decision, PoolPlan):
        return decision
    everything = msgspec.structs.replace(person, administrator=True)
    by_anybody = configuration.decide(change, in_use, everything, cut.total)
    return decision, by_anybody.pools if isinstance(by_anybody, Change) else None


def _with_nodes(cut: UpdateFacts, nodes: SupposedNodes) -> UpdateFacts | Refusal:
    """Return the input with these nodes added, or removed if their count is negative.

    Return a refusal if the tree has fewer resources than are to be removed, or if the amounts would be too large.
    """
    moved = nodes.resources * abs(nodes.count)
    total = cut.total + moved if nodes.count > 0 else cut.total - moved
    rooms = None
    if cut.rooms is not None:
        rooms = dict(cut.rooms)
        tags = tuple(sorted(nodes.tags))
        room = rooms.get(tags, Resources())
        rooms[tags] = room + moved if nodes.count > 0 else room - moved
    for left in (total, *(rooms or {}).values()):
        if min(left.as_tuple()) < 0:
            there = cut.total if rooms is None else (cut.rooms or {}).get(tuple(sorted(nodes.tags)), Resources())
            tagged = f" with the tags {', '.join(nodes.tags)}" if nodes.tags else ""
            return BadRequest.because(
                "nodes",
                f"{-nodes.count} nodes of {_words(nodes.resources)} each cannot be removed: "
                f"all nodes{tagged} together have {_words(there)}",
            )
        if max(left.as_tuple()) > LARGEST_SUM:
            # The amounts would be too large: arrays of an update hold 64-bit integers.
            return BadRequest.because(
                "nodes",
                f"{nodes.count} nodes of {_words(nodes.resources)} each are too many: all nodes together "
                f"may have at most {LARGEST_SUM} of each resource",
            )
    return msgspec.structs.replace(cut, total=total, rooms=rooms)


def _with_operation(cut: UpdateFacts, asked: SupposedOperation, notes: list[str]) -> UpdateFacts | Refusal:
    """Return the input with one more operation, none of whose jobs runs yet."""
    spec = asked.spec
    told: dict[PoolName, EphemeralPool] = {
        **{pool.name: pool for pool in asked.ephemeral_pools if pool.name not in cut.pools.pools},
        **cut.ephemeral_pools,
    }
    used = {operation.pool for operation in cut.operations.values()}
    known = {*cut.pools.pools, *used, *(pool.name for pool in asked.ephemeral_pools)}
    if spec.pool not in known:
        return NotFound(what="pool", name=spec.pool, near=near(spec.pool, known))
    name = next(each for each in _free_names() if each not in cut.operations)
    limit = _full(cut, spec.pool, told) if asked.waits is None and not _is_lightweight(cut.pools, spec) else ""
    if limit:
        notes.append(f"{name} would wait and be owed nothing yet: {limit}")
    known_operation = KnownOperation.of(
        spec.in_tree(cut.pools.name, spec.pool),
        spec.job_count,
        operation=name,
        state=OperationState.PENDING if limit or asked.waits else OperationState.RUNNING,
        suspended=False,
        started_at_ms=cut.now_ms,
    )
    operations = {**cut.operations, name: known_operation}
    return msgspec.structs.replace(cut, operations=operations, ephemeral_pools=told)


def _free_names() -> Iterator[OperationId]:
    number = 0
    while True:
        number += 1
        yield OperationId(f"supposed-{number}")


def _full(cut: UpdateFacts, pool: PoolName, told: Mapping[PoolName, EphemeralPool]) -> str:
    """Return a text about a pool on the operation's path that has reached its limit of running operations; empty if none has."""
    pools, running = cut.pools, Counter[PoolName]()
    counted = (each.pool for each in cut.operations.values() if not each.waits and not _is_lightweight(pools, each))
    for used, count in Counter(counted).items():
        running.update(dict.fromkeys(_upwards(pools, used, told), count))
    for each in _upwards(pools, pool, told):
        own = told[each].max_running_operation_count if each in told and each not in pools.pools else None
        most = own if own is not None else pools.max_running_operation_count(each)
        if running[each] >= most:
            where = "the tree" if each == ROOT_POOL else f"pool {each}"
            return f"{running[each]} of {most} operations run in {where}"
    return ""


def _is_lightweight(pools: PoolTree, operation: KnownOperation | OperationSpec) -> bool:
    return operation.is_vanilla and pools.settings(operation.pool).for_lightweight_operations


def _upwards(pools: PoolTree, pool: PoolName, told: Mapping[PoolName, EphemeralPool]) -> Iterator[PoolName]:
    """Yield the pool and all pools above it, the root last."""
    while pool not in pools.pools and pool in told:
        yield pool
        pool = told[pool].parent
    yield from pools.upwards(pool)


def _words(resources: Resources) -> str:
    pairs = zip(RESOURCE_NAMES, resources.as_tuple(), strict=True)
    return ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in pairs if amount) or "nothing"
