"""The state of a decision: one node and the tree at a heartbeat, with everything that is decided so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from headrace.ids import OperationId, PoolName
from headrace.resources import ZERO, Resources
from headrace.satisfaction import INFINITE_SATISFACTION, local_satisfaction
from headrace_allocator.decision.view import View
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.job_slots import is_whole
from headrace_allocator.facts.operations import Operation, members, never_fits, waits_for_a_turn
from headrace_allocator.facts.pool_tree import PoolState
from headrace_allocator.gangs.gang import GangPhase


class State:
    """One node and the tree. Usage of pools is the sum over the operations below them."""

    def __init__(self, view: View) -> None:
        self.view = view
        #: Free resources of the node.
        self.room = view.free
        self._added: dict[OperationId, Resources] = {}
        self._used: dict[PoolName, Resources] = {}
        self._in_doubt: dict[PoolName, Resources] = {}
        for operation in view.operations.values():
            for pool in self.above(operation):
                self._used[pool.name] = self._used.get(pool.name, ZERO) + operation.held
                self._in_doubt[pool.name] = self._in_doubt.get(pool.name, ZERO) + operation.in_doubt
        #: Number of jobs given out, by operation; and by operation and size, for operations with several sizes.
        self.given: Counter[OperationId] = Counter()
        self.tasks: Counter[tuple[OperationId, int]] = Counter()
        #: Number of allocations that start, by user.
        self.starts_of: Counter[str] = Counter()
        #: Allocations that are preempted, so that others may have their resources.
        self.freed: list[Allocation] = []
        #: The operation for which the node is reserved, until a job of it starts; for a gang, until all its jobs have resources.
        self.reserved = view.reserved
        #: The gang whose turn it is from this decision on.
        self.gang: OperationId | None = None
        #: True in preemptive stages, which may exceed limits by their tolerance.
        self.tolerant = False
        #: Operations that get nothing until the stage is over, and the operations that take part in the stage.
        self.refused: set[OperationId] = set()
        self.takes_part: Callable[[Operation], bool] = _everybody
        #: Resources that an operation may use besides the node's free resources, and usage that counts as free under limits of pools.
        self.more_room: Callable[[Operation], Resources] = _nothing
        self.going: Mapping[PoolName, Resources] = {}

    def begin_stage(self, takes_part: Callable[[Operation], bool] | None = None) -> None:
        """Let these operations take part from now on, refused operations included."""
        self.takes_part = takes_part or _everybody
        self.refused.clear()

    def above(self, operation: Operation) -> list[PoolState]:
        """Return the pools above an operation, from the lowest up, without the root."""
        return list(self.view.pools.pool(operation.spec.pool).path())

    def operation_of(self, allocation: Allocation) -> Operation:
        return self.view.operations[allocation.operation]

    def ready(self, operation: Operation) -> int:
        """Return the number of jobs that can be given out at once."""
        elsewhere = self.view.allowed.elsewhere.get(operation.id, ())
        return operation.slots.ready_count - len(elsewhere) - self.given[operation.id]

    def ready_tasks(self, operation: Operation, *, preempts: bool = False) -> list[int]:
        """Return the numbers of the tasks with jobs that can be given out at once. A task that fits on no node has none.

        The tasks of a gang come first, and of these the task with the largest jobs. While the gang waits, only other tasks are returned;
        also if `preempts` says that allocations are preempted for the job, in a tree that preempts for whole gangs only.
        """
        elsewhere, slots = self.view.allowed.elsewhere.get(operation.id, ()), operation.slots
        found, first = [], 0
        for number, task in enumerate(operation.kinds):
            indexes = [*range(first, first + task.job_count)]
            if not operation.spec.tasks:
                indexes = [n for n in range(slots.block) if slots.memory_steps.get(n, 0) == number]
            ready = [n for n in indexes if slots.is_ready(n) and n not in elsewhere]
            if operation.fitting[number] and len(ready) > self.tasks[operation.id, number]:
                found.append(number)
            first += task.job_count
        gang = operation.gang
        if gang is not None:

            def part(number: int) -> float:
                size = operation.kinds[number].resources.as_tuple()
                parts = zip(size[1:], gang.scale.as_tuple()[1:], strict=True)
                return max((n / most for n, most in parts if most), default=0.0)

            tasks = operation.spec.tasks
            alone = [n for n in found if not operation.spec.is_gang and tasks and not tasks[n].is_gang]
            found = [n for n in found if n not in alone]
            found.sort(key=lambda number: (-part(number), [-n for n in operation.kinds[number].resources.as_tuple()]))
            waits = not gang_may_start(operation) or not self.has_turn(operation)
            is_whole = preempts and self.view.pools.options.preempt_gangs_whole
            found = alone if not operation.spec.is_gang and (waits or is_whole) else found + alone
        return found

    def has_turn(self, operation: Operation) -> bool:
        """True if resources may be held for the gang of the operation now: for one gang at a time."""
        is_other = self.view.some_gang_gathers or self.gang not in (None, operation.id)
        return not (waits_for_a_turn(operation) and is_other)

    def avoids_node(self, operation: Operation) -> bool:
        """True if nothing more of the operation may start on the node, because its jobs fail there."""
        allowed, name = self.view.allowed, operation.id
        most = allowed.most_of_a_user
        has_all = most is not None and self.starts_of[operation.user] >= most
        return has_all or name in allowed.avoided or (name in allowed.once and self.given[name] > 0)

    def held(self, operation: Operation) -> Resources:
        return operation.held + self._added.get(operation.id, ZERO)

    def used(self, pool: PoolState) -> Resources:
        return self._used.get(pool.name, ZERO)

    def charged(self, pool: PoolState) -> Resources:
        """Return what counts towards the pool's limit when a job is to start."""
        return self.used(pool) + self._in_doubt.get(pool.name, ZERO) - self.going.get(pool.name, ZERO)

    def satisfaction(self, operation: Operation) -> float:
        """Section 1.4."""
        share = self.held(operation).share_of(operation.total)
        return local_satisfaction(share, operation.fair_share, operation.demand_share)

    def satisfaction_of_pool(self, pool: PoolState) -> float:
        """Section 1.4, for the usage of all operations below the pool."""
        item, share = pool.item, self.used(pool).share_of(self.view.pools.total)
        return (
            INFINITE_SATISFACTION
            if item is None
            else local_satisfaction(share, item.fair_share.total, item.demand_share)
        )

    def start(self, operation: Operation, size: Resources, jobs: int, task: int | None = None) -> None:
        """Start an allocation of the operation, with this number of jobs of a task."""
        self.given[operation.id] += jobs
        self.starts_of[operation.user] += 1
        self.use(operation, size)
        if task is not None:
            self.tasks[operation.id, task] += jobs
        if operation is self.reserved and (operation.gang is None or not self.ready(operation)):
            self.reserved = None
        tasks = operation.spec.tasks
        is_of_gang = operation.spec.is_gang or (task is not None and bool(tasks) and tasks[task].is_gang)
        if is_of_gang and waits_for_a_turn(operation) and self.gang is None:
            self.gang = operation.id

    def usage(self, allocation: Allocation) -> Resources:
        """Return what counts as used by an allocation."""
        return ZERO if allocation in self.freed else allocation.usage

    def free(self, allocation: Allocation) -> None:
        """Preempt an allocation."""
        self.use(self.operation_of(allocation), ZERO - self.usage(allocation))
        self.freed.append(allocation)

    def keep(self, allocation: Allocation) -> None:
        """Keep an allocation that was preempted before."""
        self.freed.remove(allocation)
        self.use(self.operation_of(allocation), allocation.usage)

    def use(self, operation: Operation, amount: Resources) -> None:
        """Let the operation hold `amount` more on the node."""
        self.room = self.room - amount
        self._added[operation.id] = self._added.get(operation.id, ZERO) + amount
        for pool in self.above(operation):
            self._used[pool.name] = self._used.get(pool.name, ZERO) + amount


def gang_may_start(one: Operation) -> bool:
    """True if the operation has no gang, or if resources may be held for its gang."""
    if one.gang is None:
        return True
    if members(one) or never_fits(one):
        return False
    return one.gang.phase in (GangPhase.WAITING, GangPhase.GATHERING) and is_whole(one.slots)


def ready_in_gang(one: Operation) -> int:
    """Return how many jobs of the operation's gang could be given out before this decision."""
    return sum(one.slots.is_ready(n) and one.spec.is_of_gang(n) for n in range(one.slots.block))


def _everybody(_: Operation) -> bool:
    return True


def _nothing(_: Operation) -> Resources:
    return ZERO
