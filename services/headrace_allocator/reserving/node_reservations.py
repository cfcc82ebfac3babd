"""Choose the nodes that are reserved, and end reservations.

An operation looks for a node if its next job fits on no node, if the operation starves or is the first of a fifo pool, and if the operation
or a pool above it is owed another whole job. With each heartbeat of a node, the time at which the job would fit there is estimated. After
one round of heartbeats, the node on which the job fits soonest is reserved. The reservation moves if another node is clearly better. It
moves only a few times, so the wait is bounded by the jobs on the chosen nodes. Reservations are not saved: after a restart nodes are chosen
anew.

Nodes are reserved for a gang in its turn, one for each job that has no resources yet, if the gang or a pool above it is owed all its jobs.
The turn begins when the first nodes are reserved. This is possible if the gang starves, or if it is next in the scheduling order for free
resources that are too small for its job. These reservations do not move, and end with the turn.

Cost: each heartbeat examines up to `_MOST_LOOKS` operations and the allocations of its own node. Each tick examines up to `_MOST_NEW`
operations and the nodes that they may use. It also examines the pools of all operations that have a reserved node or look for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec

from headrace.ids import NodeName, OperationId
from headrace.pools.node_filter import matches
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Moment
from headrace_allocator.decision.least_satisfied import satisfaction
from headrace_allocator.decision.ranking import Ranking
from headrace_allocator.decision.start_limits import pool_limit_reached
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node, Reservation
from headrace_allocator.facts.operations import Operation, covers_a_job, is_starving, never_fits, waits_for_a_turn
from headrace_allocator.facts.pool_tree import PoolState
from headrace_allocator.facts.reservations import ReservationEnd
from headrace_allocator.gangs.turns import GangStarts
from headrace_allocator.reserving.expected import expected_wait_s

#: Upper bound of the operations of a tree that have a reserved node or look for one.
MOST_RESERVED: Final = 64
#: Number of operations that may begin to look for a node on one tick; each takes some 0.2 ms with 10,000 nodes.
_MOST_NEW: Final = 8
#: Number of operations for which one heartbeat computes when a job would fit.
_MOST_LOOKS: Final = 2
#: Number of gangs that one tick examines.
_MOST_GANGS: Final = 100
#: Shortest length in seconds of a round of heartbeats, in which the best node is sought.
_ROUND_S: Final = 2.0
#: Shortest length of a round in heartbeat paces. The longer of this and `_ROUND_S` applies.
_ROUND_PACES: Final = 2
#: A reservation moves to another node only if the wait there is at most this fraction of the wait that is left on the reserved node. A
#: reservation never moves once half of its wait is over.
_MOVES_BELOW: Final = 0.5
#: A reservation moves only if the wait at the other node is shorter by at least this many seconds.
_MOVES_SOONER_S: Final = 10.0
#: Upper bound of the moves of one reservation.
MOST_MOVES: Final = 3
#: Pause after a reservation that timed out, as a fraction of the longest reservation time. Nothing is reserved for the operation
#: during the pause.
_PAUSE: Final = 0.25


class _Looking(msgspec.Struct):
    """An operation that looks for nodes."""

    since_s: float
    #: The best nodes found so far, where a job of the operation is expected to fit soonest. Each has the expected time (steady-clock
    #: seconds).
    best: dict[NodeName, float] = {}

    def offer(self, node: NodeName, expected_s: float, most: int) -> None:
        """Add a node, and keep the best `most` nodes."""
        self.best[node] = expected_s
        while len(self.best) > most:
            del self.best[max(self.best, key=self.best.__getitem__)]


class NodeReservations:
    """Reserves nodes for operations, as heartbeats and ticks arrive."""

    def __init__(self, facts: Facts, ranking: Ranking, gangs: GangStarts) -> None:
        self._facts = facts
        self._ranking = ranking
        self._gangs = gangs
        self._looking: dict[OperationId, _Looking] = {}
        #: Operations that look for a node or have one, in the order in which heartbeats consider them.
        self._turn: deque[OperationId] = deque()
        #: True if nodes may be reserved for some gang, and no gang gathers resources or looks for nodes.
        self._some_gang_is_due = False
        #: Steady-clock seconds until which nothing is reserved for an operation whose reservation timed out.
        self._paused: dict[OperationId, float] = {}
        #: For each pool, the resources promised to operations below it that have a reserved node or look for one. An operation is promised
        #: the resources of its next job; a gang is promised those of all its jobs that have no resources yet.
        self._promised: dict[PoolState, Resources] = {}

    def hear(self, node: Node, pace_ms: int, now: Moment) -> None:
        """Process a heartbeat: check the reservation of the node, or offer the node to some operations."""
        reservation = node.reserved
        if reservation is not None:
            self._look_again(reservation, node, now)
            return
        if self._some_gang_is_due and node.accepts_jobs:
            self._look_for_gang_passed_over(node, now)
        if not self._turn or not node.accepts_jobs or node.record.node in self._facts.failing.held:
            return
        for name in [self._turn[at] for at in range(min(_MOST_LOOKS, len(self._turn)))]:
            self._turn.rotate(-1)
            operation = self._facts.operations.get(name)
            if operation is not None and node.reserved is None:
                self._offer(node, operation, pace_ms, now)

    def tick(self, now: Moment) -> None:
        """End reservations that are over, and let more operations look for a node."""
        book, facts = self._facts.reservations, self._facts
        self._promised.clear()
        for name in dict.fromkeys((*book.of, *self._looking)):
            if (operation := facts.operations.get(name)) is not None:
                self._promise(operation)
        for name, until_s in list(self._paused.items()):
            if now.steady_s >= until_s or name not in facts.operations:
                del self._paused[name]
        for reservation in list(book):
            name = reservation.operation
            if now.steady_s >= reservation.until_s:
                self._paused[name] = now.steady_s + _PAUSE * self._longest_s
                book.end_at(reservation.node, ReservationEnd.TIMED_OUT)
            elif not self._is_due(name) or not _serves(facts, reservation.node, name):
                book.end_at(reservation.node, ReservationEnd.RELEASED)
        self._looking = {name: one for name, one in self._looking.items() if self._is_due(name) and self._lacks(name)}
        self._look_for_more(now)
        self._look_for_gang(now)
        self._turn = deque(dict.fromkeys((*self._looking, *book.of)))

    # --- the choice -----------------------------------------------------------------------------------------------

    def _offer(self, node: Node, operation: Operation, pace_ms: int, now: Moment) -> None:
        """Compute when a job of an operation would fit on a node. Once a round is over, the best nodes are reserved."""
        name, longest_s, book = operation.id, self._longest_s, self._facts.reservations
        looking = self._looking.get(name)
        if not longest_s or not (looking or name in book.of) or not _serves(self._facts, node, name):
            return
        wait_s = expected_wait_s(self._facts, node, operation, longest_s)
        if wait_s is None or wait_s > longest_s:
            return
        expected_s = now.steady_s + wait_s
        if looking is not None:
            looking.best = {one: at_s for one, at_s in looking.best.items() if self._is_unreserved(one)}
            looking.offer(node.record.node, expected_s, max(1, self._lacks(name)))
            if now.steady_s - looking.since_s >= max(_ROUND_S, _ROUND_PACES * pace_ms / 1000):
                del self._looking[name]
                if operation.gang is None or self._may_gather(operation):
                    self._enter(operation, looking.best, now)
        elif operation.gang is None:
            (reservation,) = book.of[name].values()
            if _is_clearly_better(reservation, wait_s, now):
                book.move(reservation, node, expected_s, now.steady_s)

    def _enter(self, operation: Operation, best: Mapping[NodeName, float], now: Moment) -> None:
        """Reserve nodes for an operation. If the operation is a gang, its turn begins."""
        if operation.gang is not None:
            self._gangs.gather(operation, now)
        facts, job, now_s = self._facts, operation.spec.resources, now.steady_s
        for name, expected_s in best.items():
            reservation = Reservation(operation.id, job, facts.nodes[name], expected_s, now_s, now_s + self._longest_s)
            facts.reservations.enter(reservation)

    def _is_unreserved(self, name: NodeName) -> bool:
        node = self._facts.nodes.get(name)
        return node is not None and node.reserved is None

    def _look_again(self, reservation: Reservation, node: Node, now: Moment) -> None:
        """End the reservation if the node can no longer serve the operation. Otherwise update when the job is expected to fit."""
        name, facts = reservation.operation, self._facts
        wait_s = None
        if (name in facts.reservations.wanting or name == facts.gangs.gathering) and _serves(facts, node, name):
            wait_s = expected_wait_s(facts, node, facts.operations[name], self._longest_s)
        if wait_s is None:
            facts.reservations.end_at(node, ReservationEnd.RELEASED)
        else:
            reservation.expected_s = now.steady_s + wait_s
            known_s = expected_wait_s(facts, node, facts.operations[name], unknown_s=0.0)
            reservation.lent_until_s = now.steady_s + (known_s or 0.0)

    # --- rules ----------------------------------------------------------------------------------------------------

    @property
    def _longest_s(self) -> float:
        """The longest time for which a node may be reserved, in seconds; 0 if no node may be reserved."""
        facts = self._facts
        options = facts.pools.options
        # Under a YARN policy nothing is reserved: such a policy has its own rules for starving operations and preempts outside of
        # heartbeats.
        is_on = facts.term and not facts.superseded and options.preemption_policy is PreemptionPolicy.YTSAURUS
        return options.node_reservation_time / 1000 if is_on and not facts.starts_paused else 0.0

    def _is_due(self, name: OperationId) -> bool:
        """True if a node may be reserved for an operation, by its own state, by what it or a pool above it is owed, and by limits."""
        facts, operation = self._facts, self._facts.operations.get(name)
        if operation is None or not self._longest_s:
            return False
        if not (name in facts.reservations.wanting if operation.gang is None else self._may_gather(operation)):
            return False
        if not operation.fits_somewhere or pool_limit_reached(operation, facts.pools) is not None:
            return False
        is_owed = covers_a_job(operation.fair_share, operation.total, operation.held, _wanted(operation))
        return is_owed or self._pool_is_owed(operation)

    def _may_gather(self, operation: Operation) -> bool:
        """True if a gang lacks resources for some of its jobs, and the gang has its turn or may begin its turn."""
        ready, gathering = operation.slots.ready_count, self._facts.gangs.gathering
        # No node is reserved for an operation with tasks, because it is not known which of their sizes comes next.
        if not ready or ready != operation.slots.pending_count or never_fits(operation) or operation.kinds:
            return False
        has_turn = gathering == operation.id if gathering is not None else waits_for_a_turn(operation)
        return has_turn and operation.id in self._ranking.order

    def _lacks(self, name: OperationId) -> int:
        """Return how many more nodes may be reserved for an operation."""
        book, operation = self._facts.reservations, self._facts.operations[name]
        jobs = 1 if operation.gang is None else operation.slots.ready_count
        return max(0, min(jobs - book.count(name), MOST_RESERVED - sum(1 for _ in book)))

    def _pool_is_owed(self, operation: Operation) -> bool:
        """True if the fair share of a pool above the operation covers the operation's next job.

        The pool's usage and the resources promised to other operations are subtracted from the fair share first.

        If the operation is a gang, all its jobs without resources must be covered.
        """
        pools, job = self._facts.pools, _wanted(operation)
        is_promised = operation.id in self._facts.reservations.of or operation.id in self._looking
        for pool in pools.pool(operation.spec.pool).path():
            promised = self._promised.get(pool, ZERO)
            others = promised - job if is_promised else promised
            if pool.item is not None and covers_a_job(
                pool.item.fair_share.total, pools.total, pool.charged + others, job
            ):
                return True
        return False

    def _promise(self, operation: Operation) -> None:
        for pool in self._facts.pools.pool(operation.spec.pool).path():
            self._promised[pool] = self._promised.get(pool, ZERO) + _wanted(operation)

    def _look_for_more(self, now: Moment) -> None:
        """Let some operations begin to look for a node, those that have waited longest first."""
        facts, book = self._facts, self._facts.reservations
        if not self._longest_s or not facts.recovery.complete:
            return
        places = min(_MOST_NEW, MOST_RESERVED - sum(1 for _ in book) - len(self._looking))
        for name in list(islice(book.wanting, 2 * MOST_RESERVED)):
            if places <= 0:
                return
            if name in book.of or name in self._looking:
                continue
            if name not in self._paused and self._is_due(name):
                places -= 1
                if self._has_its_turn(facts.operations[name]) and self._fits_nowhere(facts.operations[name]):
                    self._look_for(facts.operations[name], now)
                    continue
            # Move the operation to the end of the list of waiting operations.
            book.wanting[name] = book.wanting.pop(name)

    def _look_for_gang(self, now: Moment) -> None:
        """Let the gang that has its turn look for nodes, or else the least satisfied of the starving gangs whose turn may begin."""
        facts, gathering = self._facts, self._facts.gangs.gathering
        self._some_gang_is_due = False
        if not self._longest_s or not facts.recovery.complete:
            return
        names = islice(facts.gangs.of, _MOST_GANGS) if gathering is None else (gathering,)
        due = [facts.gangs.of[name] for name in names if name not in self._paused and self._is_due(name)]
        if not due or any(facts.operations[name].gang is not None for name in self._looking):
            return
        if gathering is not None:
            if self._lacks(gathering):
                self._look_for(due[0], now)
            return
        starving = [each for each in due if is_starving(each)]
        first = min(starving, key=lambda each: (satisfaction(each, each.held), each.rank, each.id), default=None)
        if first is not None and self._fits_nowhere(first):
            self._look_for(first, now)
        else:
            self._some_gang_is_due = True

    def _look_for_gang_passed_over(self, node: Node, now: Moment) -> None:
        """Let a gang look for nodes if it is next in the scheduling order for the free resources of a node, but its job does not fit into
        them.

        Without a reservation other operations would always get these resources.
        """
        facts, free = self._facts, node.free
        if not free.dominates(facts.pools.min_spare) or free == ZERO:
            return
        first = next_in_line(Overlay(View.of(facts, node, self._ranking.order, 0, stirring=())), node.total)
        if first is None or not waits_for_a_turn(first) or free.dominates(first.spec.resources):
            return
        if first.id not in self._paused and self._is_due(first.id) and self._fits_nowhere(first):
            self._some_gang_is_due = False
            self._look_for(first, now)

    def _look_for(self, operation: Operation, now: Moment) -> None:
        """Let an operation begin to look for nodes."""
        self._looking[operation.id] = _Looking(now.steady_s)
        self._turn.append(operation.id)
        self._promise(operation)

    def _fits_nowhere(self, operation: Operation) -> bool:
        """True if no node has free resources for a job of the operation, except nodes reserved for other operations."""
        facts, job = self._facts, operation.spec.resources
        fitting = facts.rooms.fitting(job.or_more(facts.pools.min_spare), facts.pools.filters_of(operation.spec))
        return all(node.is_reserved_for_another(operation, job) for node in fitting)

    def _has_its_turn(self, operation: Operation) -> bool:
        """True if the operation may look for a node now: it starves, or it is the first waiting operation of a FIFO pool."""
        if is_starving(operation):
            return True
        pool, order = self._facts.pools.pool(operation.spec.pool), self._ranking.order
        if not pool.keeps_fifo_order or not order.has_pool(pool.name):
            return False
        heads = (entries[0] for entries in order.pool(pool.name).buckets.values())
        return min(heads, default=None) == order.entry(operation.id)


def _wanted(operation: Operation) -> Resources:
    """Return the resources that must be owed for a reservation: for the next job, or for all jobs of a gang without resources."""
    job = operation.spec.resources
    return job if operation.gang is None else job * operation.slots.ready_count


def _serves(facts: Facts, node: Node, name: OperationId) -> bool:
    """True if jobs of the operation may start on the node."""
    operation = facts.operations.get(name)
    if operation is None or not node.accepts_jobs:
        return False
    return all(matches(formula, node.record.tags) for formula in facts.pools.filters_of(operation.spec))


def _is_clearly_better(reservation: Reservation, wait_s: float, now: Moment) -> bool:
    left_s = reservation.expected_s - now.steady_s
    if now.steady_s - reservation.since_s >= left_s:
        # At least half of the wait is over, or the job should fit by now. The reservation stays: a move would lose what has drained so far.
        # If the estimate for this node was wrong, the estimate for the other node may be wrong, too.
        return False
    is_sooner = wait_s <= _MOVES_BELOW * left_s and wait_s <= left_s - _MOVES_SOONER_S
    return is_sooner and reservation.moves < MOST_MOVES
