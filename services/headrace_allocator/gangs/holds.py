"""Room that is held for gangs: an allocation in the books, of which its node is not told yet."""

from __future__ import annotations

from headrace.ids import AllocationId
from headrace.resources import Resources
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.gangs.gang import GangPhase


def hold(facts: Facts, name: AllocationId, operation: Operation, node: Node, job: Resources) -> Allocation:
    """Holds room on a node for one job of a gang, which is precommit until a heartbeat shows it."""
    assert operation.gang is not None
    allocation = Allocation(name, operation.id, node.record.node, job)
    allocation.slots = {slot.index: slot for slot in operation.slots.take(1)}
    operation.gang.holds[allocation] = None
    facts.add(allocation, held=True)
    return allocation


def let_go(facts: Facts, operation: Operation, node: Node | None = None) -> None:
    """Lets go of all room that is held for an operation, or of that on one node."""
    for allocation in [] if operation.gang is None else [*operation.gang.holds]:
        if node is None or allocation.node == node.record.node:
            _let_go(facts, operation, allocation)


def let_go_of_empty(facts: Facts, operation: Operation) -> None:
    """Lets go of room for jobs that ended by the word of somebody else."""
    for allocation in [] if operation.gang is None else [*operation.gang.holds]:
        if not allocation.slots:
            _let_go(facts, operation, allocation)


def take_up(node: Node, operation: Operation, allocation: Allocation) -> None:
    """The node is told of the allocation now."""
    assert operation.gang is not None
    del operation.gang.holds[allocation]
    node.allocations[allocation.id] = node.holds.pop(allocation.id)
    node.picture.booked = None


def hold_again(facts: Facts, allocation: Allocation) -> bool:
    """The node was told in vain: it is told with its next answer. False if that must not be."""
    operation, node = facts.operations.get(allocation.operation), facts.nodes[allocation.node]
    if operation is None or operation.gang is None or operation.gang.phase is not GangPhase.STARTING:
        return False
    operation.gang.holds[allocation] = None
    node.holds[allocation.id] = node.allocations.pop(allocation.id)
    node.picture.booked = None
    return True


def has_room_for_holds(node: Node) -> bool:
    """True if what is held fits on the node beside all that is still there."""
    there = (*node.allocations.values(), *node.holds.values())
    return node.total.dominates(Resources.sum(one.resources for one in there))


def _let_go(facts: Facts, operation: Operation, allocation: Allocation) -> None:
    assert operation.gang is not None
    operation.slots.give_back(allocation.slots.values())
    del operation.gang.holds[allocation]
    facts.remove(allocation)
    facts.note_jobs(operation)
