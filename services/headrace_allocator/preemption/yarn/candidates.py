"""The allocations of a node that may be preempted by YARN's rules, and the amounts that their operations hold."""

from __future__ import annotations

from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import AllocationState
from headrace.yarn_comparison import QueuePolicy
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolStates
from headrace_allocator.preemption.yarn.containers import Container, Owner
from headrace_allocator.preemption.yarn.plans import Plans
from headrace_allocator.preemption.yarn.search import NodeContainers


def containers_on(facts: Facts, plans: Plans, node: Node) -> NodeContainers[Allocation]:
    """List the containers on a node that may be victims, the newest first."""
    owners: dict[Operation, Owner] = {}
    found: list[Container[Allocation]] = []
    for one in reversed(node.allocations.values()):
        operation = facts.operations.get(one.operation)
        if operation is None or not is_there(one) or plans.is_marked(one):
            continue
        if operation not in owners:
            owners[operation] = owner_of(operation, facts.pools, operation.held - plans.taken(operation.id))
        found.append(Container(one, owners[operation], one.usage, is_master(operation, one)))
    return NodeContainers(node.record.node, plans.room_on(node), found)


def owner_of(operation: Operation, pools: PoolStates, kept: Resources) -> Owner:
    """Return the operation as the owner of containers. `kept` is the amount that it holds without victims of plans."""
    fair = operation.total.part(operation.fair_share)
    return Owner(operation.id, kept, fair, policy_of(operation, pools), may_lose(operation, operation.options(pools)))


def is_there(allocation: Allocation) -> bool:
    """True if an allocation uses something and is not ending already."""
    return allocation.take_back is None and allocation.state is not AllocationState.ENDED and allocation.usage != ZERO


def is_master(operation: Operation, allocation: Allocation) -> bool:
    """True if the allocation runs the master, the job without which all other jobs of the operation are useless."""
    return operation.spec.first_job_is_master and 0 in allocation.slots


def policy_of(operation: Operation, pools: PoolStates) -> QueuePolicy:
    """Return the scheduling policy of the operation's pool."""
    if operation.in_fifo_pool:
        return QueuePolicy.FIFO
    return QueuePolicy.FAIR if operation.options(pools).yarn_memory_only else QueuePolicy.DRF


def may_lose(operation: Operation, options: EffectiveOptions) -> bool:
    """True if allocations of the operation may be preempted at all."""
    if operation.is_graceful or operation.share is None or options.preemption is not PreemptionSwitch.ON:
        return False
    return options.allow_preemption_from and options.allow_normal_preemption
