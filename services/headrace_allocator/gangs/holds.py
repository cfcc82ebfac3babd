"""Resources held for gangs: each hold is an allocation in the books that its node does not know yet."""

from __future__ import annotations

from headrace.ids import AllocationId
from headrace.resources import Resources
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.gangs.gang import GangPhase


def hold(
    facts: Facts, name: AllocationId, operation: Operation, node: Node, job: Resources, task: int | None
) -> Allocation:
    """Hold resources on a node for one job of a gang. The held resources count as precommit (usage that no node has confirmed) until a
    heartbeat shows the allocation. In an operation with tasks, `task` is the number of the task of the job.
    """
    assert operation.gang is not None
    allocation = Allocation(name, operation.id, node.record.node, job)
    allocation.slots = {slot.index: slot for slot in operation.slots.take(1, task=task)}
    operation.gang.holds[allocation] = None
    facts.add(allocation, held=True)
    return allocation


def let_go(facts: Facts, operation: Operation, node: Node | None = None) -> None:
    """Release all resources held for an operation, or only those on one node."""
    for allocation in [] if operation.gang is None else [*operation.gang.holds]:
        if node is None or allocation.node == node.record.node:
            _let_go(facts, operation, allocation)


def release_ended(facts: Facts, operation: Operation) -> None:
    """Release resources held for jobs that the ledger has reported as ended."""
    for allocation in [] if operation.gang is None else [*operation.gang.holds]:
        if not allocation.slots:
            _let_go(facts, operation, allocation)


def take_up(node: Node, operation: Operation, allocation: Allocation) -> None:
    """Turn a hold into an allocation that the next answer orders the node to start."""
    assert operation.gang is not None
    del operation.gang.holds[allocation]
    node.allocations[allocation.id] = node.holds.pop(allocation.id)
    node.picture.booked = None


def restore_hold(facts: Facts, allocation: Allocation) -> bool:
    """Turn an allocation back into a hold after the node did not obey the order to start it. The next answer orders the start again.

    Return False, and change nothing, if the allocation does not belong to a gang that is starting.
    """
    operation, node = facts.operations.get(allocation.operation), facts.nodes[allocation.node]
    if operation is None or operation.gang is None or operation.gang.phase is not GangPhase.STARTING:
        return False
    if allocation not in operation.gang.allocations:
        return False
    operation.gang.holds[allocation] = None
    node.holds[allocation.id] = node.allocations.pop(allocation.id)
    node.picture.booked = None
    return True


def has_room_for_holds(node: Node) -> bool:
    """True if the held resources fit on the node beside everything that still runs there."""
    there = (*node.allocations.values(), *node.holds.values())
    return node.total.dominates(Resources.sum(one.resources for one in there))


def _let_go(facts: Facts, operation: Operation, allocation: Allocation) -> None:
    assert operation.gang is not None
    operation.slots.give_back(allocation.slots.values())
    del operation.gang.holds[allocation]
    facts.remove(allocation)
    facts.note_jobs(operation)
