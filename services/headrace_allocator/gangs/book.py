"""All gangs of a tree, and the gang for which resources are gathered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.ids import OperationId, PoolName
from headrace_allocator.facts.operations import Operation, members
from headrace_allocator.gangs.gang import TOGETHER, Gang, GangPhase

_IDLE: Final = frozenset({GangPhase.WAITING, GangPhase.GATHERING, GangPhase.PAUSED, GangPhase.YIELDING})
_HOLDING: Final = frozenset({GangPhase.GATHERING, GangPhase.STARTING})


class Gangs:
    """The gangs of a tree."""

    def __init__(self) -> None:
        self.of: dict[OperationId, Operation] = {}
        #: Gangs that changed since they were last settled.
        self.changed: dict[OperationId, None] = {}
        #: The gang for which resources are gathered; None if there is none.
        self.gathering: OperationId | None = None
        #: Value of `bounds_of_gangs` when the numbers of jobs that can run at once were last computed.
        self.judged_by: tuple[int, ...] = ()
        #: By pool, the number of the last turn in which a gang of the pool found too few resources.
        self.vain_turns: dict[PoolName, int] = {}

    def note(self, operation: OperationId) -> None:
        """Record that an operation changed, if it is a gang."""
        if operation in self.of:
            self.changed[operation] = None

    def forget(self, operation: OperationId) -> None:
        """Forget an operation that has ended."""
        self.of.pop(operation, None)
        self.changed.pop(operation, None)
        if self.gathering == operation:
            self.gathering = None

    def check(self) -> list[str]:
        """Return the broken invariants as text; an empty list if all hold."""
        broken: list[str] = []
        for name, operation in self.of.items():
            broken += [f"gang {name}: {words}" for words in _broken(operation, self.gathering)]
        return broken


def _broken(operation: Operation, gathering: OperationId | None) -> Iterator[str]:
    gang = operation.gang
    if gang is None:
        yield "is no gang"
        return
    if (gang.phase is GangPhase.GATHERING) is not (gathering == operation.id):
        yield f"is {gang.phase.value}, and the gang that gathers resources is {gathering}"
    yield from _broken_allocations(operation, gang)
    if gang.holds and gang.phase not in _HOLDING:
        yield f"is {gang.phase.value} and holds resources"
    if gang.phase in _IDLE and members(operation):
        yield f"is {gang.phase.value}, and {members(operation)} jobs are on nodes"
    if gang.phase in TOGETHER and operation.slots.gang_pending_count:
        yield f"is {gang.phase.value}, and {operation.slots.gang_pending_count} jobs are on no node"


def _broken_allocations(operation: Operation, gang: Gang) -> Iterator[str]:
    slots, there = operation.slots, set(operation.allocations.values())
    if not gang.holds.keys() <= gang.allocations.keys() <= there:
        yield "resources are held that are not among its allocations"
    if slots.gang_tasks is None and gang.allocations.keys() != there:
        yield "some allocations of its operation are not counted for it"
    if any(slots.is_of_gang(index) is not (one in gang.allocations) for one in there for index in one.slots):
        yield "its allocations differ from the allocations that hold its jobs"
