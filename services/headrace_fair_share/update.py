"""One update: from an immutable cut of everything known to the figures of every element; pure, meant for a worker thread."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.resources import ZERO, Resources
from headrace.wire import integral as wire
from headrace.wire.integral import PoolVolume
from headrace.wire.operations import OperationState
from headrace.wire.pools import Pool
from headrace.wire.snapshots import (
    ElementKind,
    SchedulingStatus,
    ShareFrame,
    ShareItem,
    StarvationStatus,
    UsageItem,
)
from headrace.wire.version import Version
from headrace_fair_share.hdrf.model import IntegralKind, IntegralState, OperationInput, PoolInput, TreeInput, Volume
from headrace_fair_share.hdrf.update import HdrfEngine
from headrace_fair_share.satisfaction import INFINITE, local_satisfaction, owed_everything, status_of
from headrace_fair_share.shares import Handed, distribute
from headrace_fair_share.starvation import Clock, Timeouts, step
from headrace_fair_share.tree import PoolTree

__all__ = ["Cut", "KnownOperation", "Options", "PoolFigures", "Update", "compute", "pool_input", "pool_key"]


class KnownOperation(msgspec.Struct, frozen=True):
    """What fair_share knows of an operation from admission."""

    operation: OperationId
    pool: PoolName
    weight: float
    state: OperationState
    suspended: bool
    #: Of all its jobs together: its demand until the allocator first names it.
    initial: Resources
    initial_jobs: int

    @property
    def takes_part(self) -> bool:
        """True while it may get more than it has."""
        return self.state is OperationState.RUNNING and not self.suspended


class Options(msgspec.Struct, frozen=True):
    """What an administrator sets for the whole tree."""

    starvation_tolerance: float = 0.8
    timeouts: Timeouts = Timeouts()


class Cut(msgspec.Struct, frozen=True):
    """Everything an update is made from, as it was at one moment. Nobody changes what it holds."""

    pools: PoolTree
    operations: Mapping[OperationId, KnownOperation]
    usage: Mapping[OperationId, UsageItem]
    #: Operations that the allocator has named in its present term.
    named: frozenset[OperationId]
    volumes: Mapping[PoolName, PoolVolume]
    total: Resources
    usage_version: Version
    pools_revision: int
    stale_volumes: bool
    troubles: list[str]
    now_ms: int
    #: The judging clock, and what turns its moments into moments of Unix time.
    clock_ms: int
    clock_offset_ms: int
    #: False: usage is too old or incomplete; statuses keep.
    judged: bool
    clocks: Mapping[str, Clock]


class PoolFigures(msgspec.Struct, frozen=True):
    """Figures of a pool beside its share item."""

    usage: Resources = ZERO
    demand: Resources = ZERO
    operations: int = 0
    running_operations: int = 0
    #: Largest component of the integral share that was granted, used or not: what its savings are charged for.
    grant_ratio: float = 0.0


class Update(msgspec.Struct, frozen=True):
    """The outcome of an update: the whole snapshot, and how it differs from the one before."""

    frame: ShareFrame
    items: dict[str, ShareItem]
    changed: list[ShareItem]
    removed: list[str]
    figures: dict[PoolName, PoolFigures]
    clocks: dict[str, Clock]


def pool_key(name: PoolName) -> str:
    """The key of a pool's share item."""
    return f"/{name}"


class _Node(msgspec.Struct, frozen=True, gc=False):
    """One element before its figures are known."""

    kind: ElementKind
    name: str
    parent: PoolName
    #: Of its parent among the nodes; -1 for the root.
    parent_place: int = -1
    ephemeral: bool = False
    takes_part: bool = True

    @property
    def key(self) -> str:
        return self.name if self.kind is ElementKind.OPERATION else f"/{self.name}"


def compute(cut: Cut, options: Options, before: Mapping[str, ShareItem], engine: HdrfEngine | None = None) -> Update:
    """Computes all figures of the tree from a cut; `before` are the items of the update before.

    With the `engine` of the updates before, what has not changed since is not worked out again.
    """
    nodes, tree = _lay_out(cut)
    distribution = distribute(tree, engine or HdrfEngine())
    satisfaction = _satisfaction(nodes, distribution.elements)
    clocks = _clocks(cut, options, nodes, distribution.elements)
    items: dict[str, ShareItem] = {}
    for node, handed, ratio in zip(nodes, distribution.elements, satisfaction, strict=True):
        items[node.key] = _item(cut, node, handed, ratio, clocks.get(node.key))
    changed = [item for key, item in items.items() if before.get(key) != item]
    errors = [*cut.troubles, *distribution.errors]
    if distribution.overcommitted:
        errors.extend(cut.pools.overcommitted(cut.total))
    frame = ShareFrame(
        usage_version=cut.usage_version,
        pools_revision=cut.pools_revision,
        total=cut.total,
        at_ms=cut.now_ms,
        stale_volumes=cut.stale_volumes,
        errors=errors,
    )
    return Update(
        frame=frame,
        items=items,
        changed=changed,
        removed=[key for key in before if key not in items],
        figures=_figures(cut, nodes, distribution.elements),
        clocks=clocks,
    )


def _lay_out(cut: Cut) -> tuple[list[_Node], TreeInput]:
    """The elements in an order in which parents stand before their children: root, pools, ephemeral pools, operations."""
    nodes = [_Node(ElementKind.ROOT, ROOT_POOL, PoolName(""))]
    pools: list[PoolInput] = []
    operations: list[OperationInput] = []
    places: dict[PoolName, int] = {ROOT_POOL: 0}

    def add_pool(pool: Pool, ephemeral: bool) -> None:
        places[pool.name] = len(nodes)
        nodes.append(_Node(ElementKind.POOL, pool.name, pool.parent, places[pool.parent], ephemeral))
        pools.append(pool_input(pool, places[pool.parent] - 1))

    for name in cut.pools.preorder:
        add_pool(cut.pools.pools[name], ephemeral=False)
    guests = dict.fromkeys(each.pool for each in cut.operations.values() if each.pool not in places)
    for name in guests:
        add_pool(Pool(name=name, parent=ROOT_POOL), ephemeral=True)
    for operation in cut.operations.values():
        demand, usage, wants = _wishes(cut, operation)
        place = places[operation.pool]
        nodes.append(_Node(ElementKind.OPERATION, operation.operation, operation.pool, place, takes_part=wants))
        operations.append(
            OperationInput(
                name=operation.operation, pool=place - 1, weight=operation.weight, demand=demand, usage=usage
            )
        )
    integral: dict[str, IntegralState] = {
        name: IntegralState(_volume(volume.volume)) for name, volume in cut.volumes.items()
    }
    tree = TreeInput(total=cut.total, pools=pools, operations=operations, integral=integral)
    return nodes, tree


def pool_input(pool: Pool, parent: int) -> PoolInput:
    """A configured pool as the algorithm reads it."""
    settings, integral = pool.settings, pool.settings.integral_guarantees
    # A figure that is left out cannot be told from a zero here; the one that means something is to infer it.
    slots, cpu, gpu, memory, network = (amount or None for amount in settings.strong_guarantee_resources.as_tuple())
    return PoolInput(
        name=pool.name,
        parent=parent,
        weight=settings.weight,
        strong_guarantee=(slots, cpu, gpu, memory, network),
        integral=IntegralKind(integral.guarantee_type.value),
        resource_flow=integral.resource_flow,
        burst_guarantee=integral.burst_guarantee_resources,
    )


def _volume(volume: wire.Volume) -> Volume:
    return (volume.user_slots, float(volume.cpu), volume.gpu, volume.memory, volume.network)


def _wishes(cut: Cut, operation: KnownOperation) -> tuple[Resources, Resources, bool]:
    """Demand, usage, and whether it waits for anything."""
    item = cut.usage.get(operation.operation)
    if item is None:
        if operation.operation in cut.named or not operation.takes_part:
            return ZERO, ZERO, False
        return operation.initial, ZERO, operation.initial_jobs > 0
    if not operation.takes_part:
        return item.usage, item.usage, False
    return item.usage + item.precommit + item.pending, item.usage, item.pending_jobs > 0


def _satisfaction(nodes: list[_Node], handed: list[Handed]) -> list[tuple[float, float]]:
    """Satisfaction (a pool's is the least of its operations') and local satisfaction of each element."""
    local = [local_satisfaction(each.usage_share, each.fair_share.total, each.demand_share) for each in handed]
    least = [
        INFINITE if node.kind is not ElementKind.OPERATION else own for node, own in zip(nodes, local, strict=True)
    ]
    for place in range(len(nodes) - 1, 0, -1):
        parent = nodes[place].parent_place
        least[parent] = min(least[parent], least[place])
    return list(zip(least, local, strict=True))


def _clocks(cut: Cut, options: Options, nodes: list[_Node], handed: list[Handed]) -> dict[str, Clock]:
    """The clocks of all elements that are below their fair share."""
    keys = [node.key for node in nodes]
    if not cut.judged:
        return {key: cut.clocks[key] for key in keys if key in cut.clocks}
    clocks: dict[str, Clock] = {}
    for key, node, each in zip(keys, nodes, handed, strict=True):
        if node.kind is ElementKind.ROOT:
            continue
        status = SchedulingStatus.NORMAL
        if node.takes_part:
            status = status_of(
                each.usage_share,
                each.fair_share.total,
                each.demand_share,
                options.starvation_tolerance,
                operation=node.kind is ElementKind.OPERATION,
            )
        clock = step(cut.clocks.get(key), status, cut.clock_ms, options.timeouts)
        if clock is not None:
            clocks[key] = clock
    return clocks


def _item(cut: Cut, node: _Node, handed: Handed, ratio: tuple[float, float], clock: Clock | None) -> ShareItem:
    below = SchedulingStatus.BELOW_FAIR_SHARE if clock is not None else SchedulingStatus.NORMAL
    volume = cut.volumes.get(PoolName(node.name)) if node.kind is ElementKind.POOL else None
    operation = node.kind is ElementKind.OPERATION
    return ShareItem(
        kind=node.kind,
        name=node.name,
        parent=node.parent,
        fair_share=handed.fair_share,
        usage_share=handed.usage_share,
        demand_share=handed.demand_share,
        limits_share=handed.limits_share,
        strong_guarantee_share=handed.strong_guarantee_share,
        promised_fair_share=handed.promised_fair_share,
        estimated_guarantee_share=handed.estimated_guarantee_share,
        weight=handed.weight,
        dominant_resource=handed.dominant_resource,
        satisfaction_ratio=ratio[0],
        local_satisfaction_ratio=ratio[1],
        scheduling_status=below,
        starvation_status=clock.starvation if clock is not None else StarvationStatus.NON_STARVING,
        below_fair_share_since_ms=_moment(cut, clock.below_since if clock is not None else None),
        starving_since_ms=_moment(cut, clock.starving_since if clock is not None else None),
        schedulable=node.takes_part,
        preemptible=not (operation and owed_everything(handed.fair_share.total, handed.demand_share)),
        accumulated_ratio_volume=volume.ratio_volume if volume is not None else 0.0,
        ephemeral=node.ephemeral,
    )


def _moment(cut: Cut, clock_ms: int | None) -> int | None:
    return None if clock_ms is None else max(0, clock_ms + cut.clock_offset_ms)


def _figures(cut: Cut, nodes: list[_Node], handed: list[Handed]) -> dict[PoolName, PoolFigures]:
    counts = [0] * len(nodes)
    running = [0] * len(nodes)
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        if node.kind is ElementKind.OPERATION:
            state = cut.operations[OperationId(node.name)].state
            counts[place] = 1
            running[place] = int(state not in (OperationState.STARTING, OperationState.PENDING))
        if place:
            counts[node.parent_place] += counts[place]
            running[node.parent_place] += running[place]
    return {
        PoolName(node.name): PoolFigures(
            each.usage, each.demand, counts[place], running[place], max(each.proposed_integral_share)
        )
        for place, (node, each) in enumerate(zip(nodes, handed, strict=True))
        if node.kind is not ElementKind.OPERATION
    }
