"""The options of starvation and preemption in force for one element of a tree. Pure.

The root has the options of the tree. Every other element has the options of its parent, with the changes that are set on the
element itself. A pool may change an option in either direction, for everything below it. An operation may change options only to
its own disadvantage, except for some timeouts (section 4 of the allocation rules).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.pool_config import FifoPoolSchedulingOrder, PoolConfig, PreemptionSwitch
from headrace.pools.tree_options import NO_SSD, AllocationOptions, SsdNodes
from headrace.resources import Finite

_Number = TypeVar("_Number", int, float)


class EffectiveOptions(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The options of the root, a pool or an operation. Durations are in milliseconds."""

    #: An element that has less than this fraction of its fair share counts as below its fair share.
    fair_share_starvation_tolerance: Finite = 0.8
    fair_share_starvation_timeout_ms: int = 30_000
    enable_aggressive_starvation: bool = False
    #: Time in milliseconds after which a pool below its strong guarantee starves. None: a pool never starves because of its guarantee.
    min_share_preemption_timeout_ms: int | None = None
    allow_aggressive_preemption: bool = True
    #: True if allocations may be preempted for starving operations. If false for a pool, it is false for everything below.
    allow_normal_preemption: bool = True
    non_preemptible_resource_usage_threshold: PartialResources = NOTHING
    #: Milliseconds for which an allocation may wait on its node for free resources. None: no limit.
    waiting_for_resources_on_node_timeout_ms: int | None = None
    allocation_preemption_timeout_ms: int = 10_000
    allocation_graceful_preemption_timeout_ms: int = 60_000
    use_pool_satisfaction_for_scheduling: bool = False
    fifo_pool_scheduling_order: FifoPoolSchedulingOrder = FifoPoolSchedulingOrder.SATISFACTION
    preemption: PreemptionSwitch = PreemptionSwitch.ON
    #: Amounts by which preemptive stages may exceed the limits of the pool. This option does not apply to an operation: the tolerance of
    #: an operation is in its spec.
    resource_limits_overcommit_tolerance: PartialResources = NOTHING
    #: Formulas over tags of nodes, of the pool and of all pools above it. A node may run the pool's jobs if it matches every formula.
    scheduling_tag_filters: tuple[str, ...] = ()
    #: Under a YARN policy: true if only memory is divided among the children of the pool. If true for a pool, it is true for all
    #: pools below.
    yarn_memory_only: bool = False
    #: Under a YARN policy: false if no allocation may be preempted. If false for a pool, it is false for everything below.
    allow_preemption_from: bool = True
    #: Run time in milliseconds before which a job is not preempted. An operation cannot change it; otherwise it could
    #: protect itself for ever.
    preemption_exempt_time_ms: int = 0
    #: Lower bounds of the resources of one job: the highest bound of the pool and all pools above it.
    min_job_resource_limits: PartialResources = NOTHING
    #: Upper bounds of the resources of one job: the lowest bound of the pool and all pools above it.
    max_job_resource_limits: PartialResources = NOTHING


class OperationWishes(Protocol):
    """The part of an operation's spec that affects its options. None and empty amounts mean no wish."""

    @property
    def has_gang(self) -> bool: ...
    @property
    def fair_share_starvation_tolerance(self) -> float | None: ...
    @property
    def fair_share_starvation_timeout_ms(self) -> int | None: ...
    @property
    def non_preemptible_resource_usage_threshold(self) -> PartialResources: ...
    @property
    def max_unpreemptible_allocation_count(self) -> int | None: ...
    @property
    def waiting_for_resources_on_node_timeout_ms(self) -> int | None: ...
    @property
    def allocation_preemption_timeout_ms(self) -> int | None: ...
    @property
    def allocation_graceful_preemption_timeout_ms(self) -> int | None: ...


def of_tree(options: AllocationOptions) -> EffectiveOptions:
    """Return the options of the root."""
    return EffectiveOptions(
        fair_share_starvation_tolerance=options.fair_share_starvation_tolerance,
        fair_share_starvation_timeout_ms=options.fair_share_starvation_timeout,
        enable_aggressive_starvation=options.enable_aggressive_starvation,
        min_share_preemption_timeout_ms=options.min_share_preemption_timeout,
        non_preemptible_resource_usage_threshold=_with_slots(
            options.non_preemptible_resource_usage_threshold, options.max_unpreemptible_running_allocation_count
        ),
        waiting_for_resources_on_node_timeout_ms=options.waiting_for_resources_on_node_timeout,
        allocation_preemption_timeout_ms=options.allocation_preemption_timeout,
        allocation_graceful_preemption_timeout_ms=options.allocation_graceful_preemption_timeout,
        use_pool_satisfaction_for_scheduling=options.use_pool_satisfaction_for_scheduling,
        fifo_pool_scheduling_order=options.fifo_pool_scheduling_order,
        preemption=options.preemption,
        yarn_memory_only=options.yarn.memory_only,
        preemption_exempt_time_ms=options.preemption_exempt_time,
        min_job_resource_limits=options.min_job_resource_limits,
        max_job_resource_limits=options.max_job_resource_limits,
    )


def of_pool(above: EffectiveOptions, config: PoolConfig, ssd: SsdNodes = NO_SSD) -> EffectiveOptions:
    """Return the options of a pool: the options that it sets itself, and for the rest the options of its parent, `above`."""
    filters, may_use_ssd = above.scheduling_tag_filters, config.allow_regular_allocations_on_ssd_nodes
    if may_use_ssd is not None:
        filters = tuple(formula for formula in filters if formula not in _other_nodes(ssd))
    if may_use_ssd is False:
        filters += _other_nodes(ssd)
    own = {
        "fair_share_starvation_tolerance": config.fair_share_starvation_tolerance,
        "fair_share_starvation_timeout_ms": config.fair_share_starvation_timeout,
        "enable_aggressive_starvation": config.enable_aggressive_starvation,
        "min_share_preemption_timeout_ms": config.min_share_preemption_timeout,
        "allow_aggressive_preemption": config.allow_aggressive_preemption,
        "non_preemptible_resource_usage_threshold": config.non_preemptible_resource_usage_threshold,
        "waiting_for_resources_on_node_timeout_ms": config.waiting_for_resources_on_node_timeout,
        "use_pool_satisfaction_for_scheduling": config.use_pool_satisfaction_for_scheduling,
        "fifo_pool_scheduling_order": config.fifo_pool_scheduling_order,
        "preemption": config.preemption,
        "preemption_exempt_time_ms": config.preemption_exempt_time,
    }
    return replace(
        above,
        allow_normal_preemption=above.allow_normal_preemption and config.allow_normal_preemption is not False,
        allow_preemption_from=above.allow_preemption_from and config.allow_preemption_from is not False,
        resource_limits_overcommit_tolerance=config.resource_limits_overcommit_tolerance,
        scheduling_tag_filters=filters + _formulas(config.scheduling_tag_filter),
        yarn_memory_only=above.yarn_memory_only or config.yarn_memory_only,
        min_job_resource_limits=_of_both(max, above.min_job_resource_limits, config.min_job_resource_limits),
        max_job_resource_limits=_of_both(min, above.max_job_resource_limits, config.max_job_resource_limits),
        **{name: value for name, value in own.items() if value is not None},
    )


def of_operation(above: EffectiveOptions, wishes: OperationWishes, options: AllocationOptions) -> EffectiveOptions:
    """Return the options of an operation: the options of its pool, `above`, with the changes that the operation wishes.

    A wish counts only if it is to the operation's disadvantage: to starve later or less often, or to have fewer allocations that
    are protected from preemption. The timeouts for waiting on a node and for preemption are exceptions: the operation's values
    always count.
    """
    if _says_nothing(wishes):
        return above
    tolerance, timeout_ms = wishes.fair_share_starvation_tolerance, wishes.fair_share_starvation_timeout_ms
    threshold = _with_slots(wishes.non_preemptible_resource_usage_threshold, wishes.max_unpreemptible_allocation_count)
    shielded = wishes.has_gang and not options.allow_aggressive_preemption_for_gang_operations
    times = {
        "waiting_for_resources_on_node_timeout_ms": wishes.waiting_for_resources_on_node_timeout_ms,
        "allocation_preemption_timeout_ms": wishes.allocation_preemption_timeout_ms,
        "allocation_graceful_preemption_timeout_ms": wishes.allocation_graceful_preemption_timeout_ms,
    }
    return replace(
        above,
        fair_share_starvation_tolerance=_least(above.fair_share_starvation_tolerance, tolerance),
        fair_share_starvation_timeout_ms=max(above.fair_share_starvation_timeout_ms, timeout_ms or 0),
        allow_aggressive_preemption=above.allow_aggressive_preemption and not shielded,
        non_preemptible_resource_usage_threshold=_of_both(
            min, above.non_preemptible_resource_usage_threshold, threshold
        ),
        **{name: value for name, value in times.items() if value is not None},
    )


def _says_nothing(wishes: OperationWishes) -> bool:
    """True if the operation changes no option. This holds for nearly all operations, and no new struct is made for them."""
    return (
        wishes.fair_share_starvation_tolerance
        is wishes.fair_share_starvation_timeout_ms
        is wishes.max_unpreemptible_allocation_count
        is wishes.waiting_for_resources_on_node_timeout_ms
        is wishes.allocation_preemption_timeout_ms
        is wishes.allocation_graceful_preemption_timeout_ms
        is None
        and not wishes.has_gang
        and wishes.non_preemptible_resource_usage_threshold == NOTHING
    )


def _other_nodes(ssd: SsdNodes) -> tuple[str, ...]:
    """Return the formula that matches all nodes without SSD, if the tree treats nodes with SSD differently."""
    return (f"!({ssd.node_tag_filter})",) if ssd.enable and ssd.node_tag_filter else ()


def _formulas(own: str | None) -> tuple[str, ...]:
    return (own,) if own else ()


def _with_slots(threshold: PartialResources, user_slots: int | None) -> PartialResources:
    """Return the threshold. If it does not name slots, add `user_slots`, the value of an older option for the same purpose."""
    return replace(threshold, user_slots=user_slots) if threshold.user_slots is None else threshold


def _of_both(choose: Callable[[int, int], int], above: PartialResources, own: PartialResources) -> PartialResources:
    """Return one amount for each resource: `choose` of both amounts if both sides name the resource, else the amount that one
    side names.
    """
    if own == NOTHING:
        return above
    pairs = zip(above.as_tuple(), own.as_tuple(), strict=True)
    return PartialResources(
        *(mine if theirs is None else theirs if mine is None else choose(mine, theirs) for theirs, mine in pairs)
    )


def _least(one: _Number, other: _Number | None) -> _Number:
    return one if other is None else min(one, other)
