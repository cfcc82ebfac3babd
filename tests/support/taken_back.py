"""What a full node is told to give up when an operation starves that is owed half of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.effective_options import of_pool, of_tree
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, TakeBack
from headrace.wire.ledger import LiveOperation
from headrace.wire.snapshots import DetailedShare, ElementKind, PreemptionPriority, ShareItem, StarvationStatus
from tests.support.allocating import Desk, an_operation, cores, with_task_sizes
from tests.support.small_trees import a_tree
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, report

__all__ = ["groups_on_a_full_node", "large_and_small", "on_a_full_node", "taken_back", "taken_for_a_large_job"]


def taken_back(options: Mapping[str, Any] | None = None, **spec: Any) -> list[TakeBack]:
    """The orders, under options of the tree and of the operation that has the whole node."""
    return on_a_full_node(options, **spec).next_beat().take_back


def groups_on_a_full_node(options: Mapping[str, Any], **given: Any) -> list[int]:
    """The number of allocations in each group of the operation that has the whole node."""
    host = on_a_full_node(options, **given)
    return list(host.operation("rich").cut_groups(host.facts.pools).counts().values())


def on_a_full_node(
    options: Mapping[str, Any] | None = None,
    *,
    pool: Mapping[str, Any] | None = None,
    owed: float = 2,
    aggressive: bool = False,
    both_starve: bool = False,
    other_pool: bool = False,
    pool_changes: Mapping[str, Any] | None = None,
    poor: Mapping[str, Any] | None = None,
    poor_tasks: Sequence[tuple[int, Resources]] = (),
    **spec: Any,
) -> Host:
    """Before the heartbeat on which `rich`, in pool p, is to make room for `poor`, there or in another pool."""
    host = Host(_poor("q" if other_pool else "p", poor or {}, poor_tasks))
    rich = host.operation("rich")
    host.facts.set_spec(rich, msgspec.structs.replace(rich.spec, **spec))
    tree = a_tree(
        {"p": pool or {}}, {"min_spare_allocation_resources_on_node": {"user_slots": 1}} | dict(options or {})
    )
    host.engine.on_options(tree.options, host.now)
    host.options = tree.options.for_allocation()
    host.next_beat()
    starving = a_share("poor", 2, starves=True)
    if aggressive:
        starving = msgspec.structs.replace(
            starving,
            starvation_status=StarvationStatus.AGGRESSIVELY_STARVING,
            preemption_priority=PreemptionPriority.AGGRESSIVE,
        )
    settings = tree.pools[0].settings
    item = ShareItem(
        ElementKind.POOL,
        "p",
        ROOT_POOL,
        fair_share=DetailedShare(total=(1.0, 1.0, 0.0, 0.0, 0.0)),
        demand_share=(1.0, 1.0, 0.0, 0.0, 0.0),
        limits=settings.resource_limits,
        options=of_pool(of_tree(host.options), settings),
    )
    item = msgspec.structs.replace(item, **dict(pool_changes or {}))
    host.tell([item, a_share("rich", owed, starves=both_starve), starving], total=FOUR)
    return host


def _poor(pool: str, spec: Mapping[str, Any], tasks: Sequence[tuple[int, Resources]]) -> LiveOperation:
    live = an_operation("poor")
    live = msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, pool=PoolName(pool), **spec))
    return with_task_sizes(live, *tasks) if tasks else live


def taken_for_a_large_job(options: Mapping[str, Any]) -> list[str]:
    """The operations that lose a place where a small new one alone makes too little room, and a large old one enough."""
    desk, running = large_and_small(options)
    desk.tell([a_share("large", 0), a_share("small", 0), a_share("poor", 4, starves=True)], total=FOUR)
    desk.now_s += 6
    orders = desk.beat("n", allocations=running)[0]
    names = {one.id: one.operation for one in running}
    return [names[one.allocation] for one in orders.take_back]


def large_and_small(
    options: Mapping[str, Any] | None = None, small_in: str = "p"
) -> tuple[Desk, list[AllocationReport]]:
    """A node of three cores with a job of two, then one of one; `poor` waits for two cores. And what runs there."""
    desk = Desk({"n": cores(3, slots=4)})
    tree = a_tree({"p": {}}, {"min_spare_allocation_resources_on_node": {"user_slots": 1}} | dict(options or {}))
    desk.options = tree.options.for_allocation()
    large, small, poor = (an_operation(name, 1, cores(size, slots=1)) for name, size in _LARGE_AND_SMALL.items())
    small = msgspec.structs.replace(small, spec=msgspec.structs.replace(small.spec, pool=PoolName(small_in)))
    desk.start(large, small)
    desk.tell([a_share("large", 4), a_share("small", 4)], total=FOUR)
    running = [report(start, number) for number, start in enumerate(desk.beat("n")[0].start)]
    desk.now_s += 6
    desk.beat("n", allocations=running)
    desk.start(large, small, poor)
    return desk, running


_LARGE_AND_SMALL = {"large": 2, "small": 1, "poor": 2}
