"""Answers to heartbeats. For each heartbeat a decision is made over a view of the facts, applied to the facts, and sent as orders.

Orders to take back come first, then more jobs for existing allocations, then starts in free resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import ZERO
from headrace.runtime.engine import Figure, Moment, Outcome, by_label, counter
from headrace.wire.happenings import Decisions
from headrace.wire.heartbeat import (
    AllocationState,
    Extend,
    Forget,
    Heartbeat,
    HeartbeatReason,
    Orders,
    Start,
    TakeBack,
    TakeBackReason,
)
from headrace.wire.preemption import LARGEST_RECORD_BYTES
from headrace.wire.snapshots import PreemptionPriority
from headrace.wire.start_stages import LARGEST_START_BYTES, StartStage
from headrace_allocator.decide import DueSteps, HeartbeatDecision, decide
from headrace_allocator.decision.extending import Extension, GiveBack
from headrace_allocator.decision.placing import Placement
from headrace_allocator.decision.ranking import Ranking
from headrace_allocator.decision.view import Overlay, View, restless
from headrace_allocator.decision.walk import RoomLeft, why_nothing_fits
from headrace_allocator.effects import Effect
from headrace_allocator.explain.words import words_of_left_out
from headrace_allocator.facts.allocations import Allocation, waits_for_room
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation, break_up, in_gang, is_in_gang, taken_back_for
from headrace_allocator.facts.preempted import preempt_and_stop_counting
from headrace_allocator.facts.reconcile import Findings
from headrace_allocator.gangs.holds import let_go
from headrace_allocator.gangs.packing import Packed
from headrace_allocator.gangs.turns import GangStarts
from headrace_allocator.heartbeat_orders import AnswerBudget, order_to_give_back, order_to_take_back, start_record
from headrace_allocator.heartbeat_pace import Pace
from headrace_allocator.preemption.audit.counts import PreemptionCounts
from headrace_allocator.preemption.audit.deactivations import Deactivations
from headrace_allocator.preemption.audit.observing import ObservedPreemptionLog
from headrace_allocator.preemption.audit.overreach import Overreach
from headrace_allocator.preemption.audit.records import record_of
from headrace_allocator.preemption.gang_resources import Taken
from headrace_allocator.preemption.stages import StageOutcome, may_have_work, starves_itself
from headrace_allocator.preemption.tries import try_of, try_without_candidates
from headrace_allocator.preemption.victims import Preemption
from headrace_allocator.preemption.yarn.plans import Plans
from headrace_allocator.published_decisions import DecisionsMade
from headrace_allocator.reserving.node_reservations import NodeReservations

#: Milliseconds until the next heartbeat of a node that the recovering allocator still waits for.
_RECOVERING_PACE_MS: Final = 50
#: Milliseconds until the heartbeat that confirms a start, while the pace is the shortest one. With a longer pace the allocator has no time
#: for an extra heartbeat after each start: such heartbeats would be a third of all heartbeats.
_CONFIRM_PACE_MS: Final = 100
#: Reasons for taking an allocation back that may cease to apply before the node obeys. If the reason ceases to apply, the node keeps the
#: allocation.
_WHILE_IT_HOLDS: Final = frozenset(
    {TakeBackReason.LIMITS, TakeBackReason.SUSPENDED, TakeBackReason.GANG, TakeBackReason.NODE_DRAINED}
)
#: `_NO_NEWS` and `_NOTHING_DECIDED` are shared by most heartbeats, so they must never be changed.
_NO_NEWS: Final = Findings()
_NOTHING_DECIDED: Final = HeartbeatDecision()


class HeartbeatAnswers:
    """Answers heartbeats, one at a time."""

    def __init__(
        self,
        facts: Facts,
        ranking: Ranking,
        pace: Pace,
        plans: Plans,
        gangs: GangStarts,
        reservations: NodeReservations,
    ) -> None:
        self._facts = facts
        self._ranking = ranking
        self._pace = pace
        self._plans = plans
        self._gangs = gangs
        self._reservations = reservations
        self.allocations_made = 0
        #: The decision on the last heartbeat.
        self.decided = HeartbeatDecision()
        self.preemptions = PreemptionCounts()
        self._overreach = Overreach()
        #: Number of heartbeats on which free resources of the node stayed free, by the reason why nothing started in them.
        self._room_left: Counter[RoomLeft] = Counter()
        self._deactivations = Deactivations()
        self.observed = ObservedPreemptionLog()
        self.made = DecisionsMade(facts.tree)

    def answer(self, node: Node, heartbeat: Heartbeat, findings: Findings | None, now: Moment) -> Orders:
        """Return the orders for a node whose heartbeat was reconciled with the facts. The orders are booked in the facts before they are
        returned.
        """
        pace_ms = self._pace_ms()
        node.note_overcommit(now)
        self._gangs.hear(node, now)
        self._reservations.hear(node, pace_ms, now)
        stirring = restless(self._facts, node, pace_ms)
        due = self._due(node, stirring, now)
        budget, findings = AnswerBudget(heartbeat), findings or _NO_NEWS
        forget = Forget(
            budget.cut(findings.forget_ends),
            budget.cut(findings.forget_allocations),
            budget.cut(findings.forget_sessions),
        )
        take_back = self._take_back(node, stirring, budget) if stirring else []
        overlay = self.decide(node, due, findings.operations, stirring, pace_ms, now)
        if overlay is None:
            return self._orders(node, heartbeat, now, pace_ms, forget)
        decided = self.decided
        self._note_room_left(decided.room_left)
        if decided.deactivations is not None:
            self._deactivations.add(decided.deactivations)
        self._deactivations.no_best_leaf_descendant += overlay.leafless
        # Nothing is applied before everything is decided, since the overlay counts changes relative to the facts as they were.
        take_back += budget.cut([order_to_give_back(one) for one in decided.extensions if isinstance(one, GiveBack)])
        extends = [self._extend(e) for e in decided.extensions if isinstance(e, Extension) and budget.fits_jobs(e.jobs)]
        starts = self._starts_of_gangs(node, budget, now)
        started, whole = self._starts(node, decided.placements, budget, now)
        starts += started
        # Each stage was decided on the assumption that everything decided before it happens. So once a start or a stage does not fit into
        # the answer, all later stages are dropped.
        for stage in decided.stages:
            carried_out = self._carry_out(node, stage, budget, now) if whole else None
            if carried_out is None:
                break
            node.preemptive_stages_s = now.steady_s
            started, taken = carried_out
            starts, take_back = starts + started, take_back + taken
            if stage.tried_to_start:
                node.tries[stage.stage.priority] = try_of(stage, started, now)
        take_back += [self._preempt(one, now) for one in decided.preemptions if budget.fits(LARGEST_RECORD_BYTES)]
        self.made.note_starts()
        if decided.observed:
            self.made.note_observed(self.observed.note(self._facts, decided.observed, now))
        self._ranking.apply(overlay)
        decided.is_cut_short |= budget.is_short and bool(starts or extends)
        return self._orders(node, heartbeat, now, pace_ms, forget, starts, extends, take_back)

    def decide(
        self,
        node: Node,
        due: DueSteps,
        changed: Collection[OperationId],
        stirring: Sequence[Allocation],
        pace_ms: int,
        now: Moment,
    ) -> Overlay | None:
        """Decide on one heartbeat, and store the decision in `decided`. Nothing is applied.

        `changed` are the operations that the heartbeat changed, and `stirring` the allocations that may need an order. Return the overlay
        of the decision, or None if it is known without a decision that nothing changes. The tests compare every decision here with the
        plain decision of `tests/reference/heartbeats`.
        """
        # Settle first; otherwise a pool that was full and has free resources again is never noticed.
        self._ranking.order.settle()
        if not (changed or stirring or node.holds):
            # Most heartbeats need no decision: in a busy cluster most nodes are full and all their allocations continue.
            room_left = self._room_stays(node, due)
            if not self._some_change(node, due, room_left):
                self._leave(node, due, room_left, now)
                return None
        # Each operation is placed in the order once, after the heartbeat is booked and everything is decided.
        moved = self._ranking.bring_in(changed)
        overlay = Overlay(self._view(node, pace_ms, stirring, moved))
        self.decided = decide(overlay, due)
        return overlay

    def make_room(self, taken: Taken, now: Moment) -> list[NodeName]:
        """Book the allocations of a gang and preempt all victims. Return the nodes of the allocations and of the victims.

        Each node gets its orders with its next answer.
        """
        facts, gang, longest_ms = self._facts, taken.gang, 0
        going = [*taken.victims()]
        groups = {one: facts.operations[one.operation].cut_groups(facts.pools).group(one) for one in going}
        properly = starves_itself(gang, taken.stage.priority)
        for one in going:
            if one.take_back is None and one.usage != ZERO:
                self._preempt(Preemption(one, taken.stage.reason, groups[one], gang, properly), now)
                longest_ms = max(longest_ms, 0 if one.preemption is None else one.preemption.timeout_ms)
        for place in taken.places:
            for _ in range(place.jobs.count):
                name, job = self._next_name(), place.jobs
                self._gangs.hold(name, gang, place.node, job.size, now, job.task).stage = taken.stage.name
        self._gangs.hold_longer(gang, longest_ms / 1000)
        self._ranking.refresh_all({one.operation: None for one in going} | {gang.id: None})
        return sorted({one.node.record.node for one in taken.places} | {one.node for one in going})

    def rearrange(self, gang: Operation, packed: Iterable[Packed[Node]], now: Moment) -> None:
        """Hold resources for all jobs of a gathering gang on these nodes, in place of all that is held for it now."""
        holds = () if gang.gang is None else gang.gang.holds
        stages = {index: one.stage for one in holds for index in one.slots}
        let_go(self._facts, gang)
        for one in packed:
            for node in [node for node in one.nodes for _ in range(one.each)]:
                held = self._gangs.hold(self._next_name(), gang, node, one.jobs.size, now, one.jobs.task)
                (index,) = held.slots
                held.stage = stages.get(index, StartStage.REGULAR_MEDIUM_PRIORITY)
        self._ranking.refresh(gang)

    def on_decisions_due(self, now: Moment) -> Outcome[Decisions | None, Effect]:
        """Answer with a message of decisions that are not published yet. Call it until the answer is None."""
        return Outcome(self.made.take(self._facts.term))

    def figures(self) -> list[Figure]:
        """Return the metrics of starts, preemptions, and free resources that stayed free."""
        room_left = counter(
            "room_left", "heartbeats", 0, "Heartbeats that left free resources on their node, by reason."
        )
        return [
            counter(
                "allocations_made", "allocations", self.allocations_made, "Allocations that were given to operations."
            ),
            *by_label(room_left, "room_left", "reason", {why.value: self._room_left[why] for why in RoomLeft}),
            *self._deactivations.figures(),
            *self.preemptions.figures(),
            *self._overreach.figures(),
            *self.observed.figures(),
        ]

    def not_enrolled(self, heartbeat: Heartbeat) -> Orders:
        """Return the answer to a node that is not enrolled in this tree."""
        return Orders(
            node=heartbeat.node,
            incarnation=heartbeat.incarnation,
            seq=heartbeat.seq,
            term=self._facts.term,
            next_heartbeat_ms=self._pace_ms(),
            enrolled=False,
        )

    def _orders(
        self,
        node: Node,
        heartbeat: Heartbeat,
        now: Moment,
        pace_ms: int,
        forget: Forget,
        starts: Sequence[Start] = (),
        extends: Sequence[Extend] = (),
        take_back: Sequence[TakeBack] = (),
    ) -> Orders:
        return Orders(
            node=node.record.node,
            incarnation=heartbeat.incarnation,
            seq=heartbeat.seq,
            term=self._facts.term,
            next_heartbeat_ms=self._next_ms(node, heartbeat.reason, now, pace_ms, starts),
            start=[*starts],
            extend=[*extends],
            take_back=[*take_back],
            forget=forget,
            lease_ms=int(self._facts.timing.node_lease_s * 1000),
            left_out=words_of_left_out(node),
        )

    def _view(self, node: Node, pace_ms: int, stirring: Sequence[Allocation], moved: Sequence[Operation] = ()) -> View:
        ranking = self._ranking
        return View.of(self._facts, node, ranking.order, pace_ms, moved, ranking.batches.of_priority, stirring)

    def _due(self, node: Node, restless: Iterable[Allocation], now: Moment) -> DueSteps:
        """Return which steps of the decision may be taken for the node now."""
        facts = self._facts
        if facts.superseded:
            return DueSteps(extend=False, start=False, preempt=False)
        # A node that the tree does not use has a total of zero here. Its usage is above that total, but that is no reason to preempt jobs.
        is_used = node.outside is None and not node.has_no_slots
        gives_out = is_used and node.accepts_jobs and not facts.starts_paused
        # A node that may be recorded as empty gets no jobs, since the next allocator would not wait for its report.
        gives_out = gives_out and node.record.node not in facts.empty_nodes.names
        over_since_s, ran_s = node.overcommitted_since_s, node.preemptive_stages_s
        backoff_s = facts.pools.options.preemptive_scheduling_backoff / 1000
        may_preempt = (
            is_used and facts.recovery.complete and not facts.preemption_paused and not facts.shares_are_old(now)
        )
        allowed = facts.failing.allowed(node)
        carries_out = gives_out and may_preempt and facts.pools.limits_known and not allowed.is_held
        return DueSteps(
            extend=gives_out,
            start=(
                gives_out and facts.pools.limits_known and allowed.most_starts != 0 and not waits_for_room(restless)
            ),
            # Nothing is preempted while usage is incomplete or fair_share is away: usage cannot be compared with shares then.
            preempt=may_preempt,
            plans=self._plans.take(node.record.node) if carries_out else (),
            # A node that is held back gets single jobs, to see whether they fail. Nothing is preempted for such a trial.
            preemptive_stages=not allowed.is_held and (ran_s is None or now.steady_s > ran_s + backoff_s),
            repair_overcommit=(
                is_used and over_since_s is not None and now.steady_s > over_since_s + facts.timing.allowed_overcommit_s
            ),
        )

    def _leave(self, node: Node, due: DueSteps, room_left: RoomLeft | None, now: Moment) -> None:
        """Record that nothing was decided for a node, and why. Preemptive stages that would have changed nothing count as run."""
        order = self._ranking.order
        self.decided = _NOTHING_DECIDED
        self._note_room_left(room_left)
        if room_left is RoomLeft.NO_JOB_FITS:
            self._deactivations.add_all_too_large(order)
        node.preemptive_stages_s = now.steady_s if due.stages else node.preemptive_stages_s
        if due.stages and order.some_starve:
            self._deactivations.add_without_candidates(order)
            node.tries[PreemptionPriority.NORMAL] = try_without_candidates(node.free, now)

    def _some_change(self, node: Node, due: DueSteps, room_left: RoomLeft | None) -> bool:
        """True if the decision could change something on a node whose existing allocations need no order."""
        has_room = room_left is None and node.free.dominates(self._facts.pools.min_spare)
        stages_have_work = due.stages and may_have_work(self._facts, node, self._ranking.order)
        return due.some_change(has_room=has_room, stages_have_work=stages_have_work)

    def _room_stays(self, node: Node, due: DueSteps) -> RoomLeft | None:
        """Return the reason why nothing starts in the free resources of a node, if it is known without a decision."""
        free = node.free
        may_start = due.start and free.dominates(self._facts.pools.min_spare)
        return why_nothing_fits(self._ranking.order, free) if may_start else None

    def _note_room_left(self, why: RoomLeft | None) -> None:
        if why is not None:
            self._room_left[why] += 1

    def _take_back(self, node: Node, restless: Iterable[Allocation], budget: AnswerBudget) -> list[TakeBack]:
        """Return the orders for allocations that must be taken back whatever is decided now, for example because their operation has ended.

        The orders are repeated until the node shows the allocations closing.
        """
        orders = []
        operations, ends_all = self._facts.operations, node.ends_all(self._facts.timing)
        for allocation in restless:
            operation = operations.get(allocation.operation)
            if allocation.preemption is None and allocation.take_back in _WHILE_IT_HOLDS:
                allocation.take_back = None
            if operation is not None and allocation.take_back is None:
                why = operation.taken_back if operation.gang is None else taken_back_for(operation, allocation)
                if operation.schedulable and why is None and not (ends_all or node.record.drained):
                    continue
                allocation.take_back = why
            if allocation.state is AllocationState.ENDED:
                continue
            if ends_all and allocation.take_back is None:
                # This is no preemption, because no operation gets the resources of these jobs. So it has no preemption record and is not
                # counted as a preemption. The specification treats the jobs like jobs of a node with disabled jobs (section 7.5) or of a
                # lost node (7.8). The usage of such a node counts as zero (7.6), so the node is never overcommitted.
                allocation.take_back = TakeBackReason.LIMITS
            elif node.record.ends_jobs and allocation.take_back is None:
                allocation.take_back = TakeBackReason.NODE_DRAINED
            if allocation.take_back is not None:
                # The order is repeated for a closing allocation, since it may have been closed for a reason that lets its job run to the
                # end.
                orders += _within(budget, order_to_take_back(allocation, operation, at_once=ends_all))
            elif node.record.drained and allocation.unstarted and allocation.state is not AllocationState.CLOSING:
                order = TakeBack(allocation=allocation.id, reason=TakeBackReason.NODE_DRAINED, timeout_ms=None)
                orders += _within(budget, order)
        return orders

    def _carry_out(
        self, node: Node, stage: StageOutcome, budget: AnswerBudget, now: Moment
    ) -> tuple[list[Start], list[TakeBack]] | None:
        """Book the start and the preemptions of a preemptive stage. If they do not all fit into the answer, book none and return None."""
        starts: list[Start] = []
        if not all(budget.fits(LARGEST_RECORD_BYTES) for _ in stage.preemptions):
            return None
        if stage.placement is not None:
            taken = sum(one.beneficiary is not None for one in stage.preemptions)
            starts, is_booked = self._starts(node, [stage.placement], budget, now, taken)
            if not is_booked:
                return None
            self.preemptions.unused = self.preemptions.unused + stage.unused
        return starts, [self._preempt(one, now) for one in stage.preemptions]

    def _preempt(self, one: Preemption, now: Moment) -> TakeBack:
        """Book a preemption. Return the order to take the allocation back."""
        facts, allocation = self._facts, one.allocation
        operation = facts.operations[allocation.operation]
        boottime_ms = facts.nodes[allocation.node].boottime_ms
        record = record_of(one, operation, facts.pools, now, boottime_ms=boottime_ms)
        if is_in_gang(operation, allocation):
            break_up(operation)
        preempt_and_stop_counting(facts, allocation, record)
        self.made.note_preemption(allocation, operation, record)
        self.preemptions.note(operation.spec.pool, one.reason, one.group)
        self._overreach.note(facts.pools, operation, one.reason, one.group)
        return order_to_take_back(allocation, operation)

    def _extend(self, extension: Extension) -> Extend:
        slots = self._facts.extend(extension.allocation, extension.jobs)
        return Extend(allocation=extension.allocation.id, slots=slots)

    def _starts(
        self, node: Node, placed: list[Placement], budget: AnswerBudget, now: Moment, taken: int = 0
    ) -> tuple[list[Start], bool]:
        """Book new allocations for which `taken` allocations are preempted. Return their orders, and True if all were booked.

        Allocations of gangs get no order yet.
        """
        starts: list[Start] = []
        booked = 0
        shown = _shown(node) if placed else set()
        for one in placed:
            operation, is_shown = one.operation, one.operation.id in shown
            is_held = operation.gang is not None and in_gang(operation, one.task)
            if not is_held and not _fits(budget, operation, one.jobs, is_shown=is_shown):
                continue
            booked += 1
            name = self._next_name()
            if is_held:
                self._gangs.hold(name, operation, node, one.job, now, one.task).stage = one.stage
                continue
            allocation = self._facts.start(name, operation, node, one.jobs, one.job, one.task)
            allocation.stage = one.stage
            starts.append(self._start(allocation, operation, now, taken, is_shown=is_shown))
            shown.add(operation.id)
        return starts, booked == len(placed)

    def _next_name(self) -> AllocationId:
        self.allocations_made += 1
        return AllocationId(f"{self._facts.term:x}-{self.allocations_made:x}")

    def _starts_of_gangs(self, node: Node, budget: AnswerBudget, now: Moment) -> list[Start]:
        """Return the orders for allocations of starting gangs on this node."""
        starts: list[Start] = []
        facts = self._facts
        if not node.holds or not node.accepts_jobs or facts.superseded or node.record.node in facts.empty_nodes.names:
            return starts
        shown = _shown(node)
        for operation, allocation in self._gangs.due(node):
            is_shown = operation.id in shown
            if _fits(budget, operation, 1, is_shown=is_shown):
                self._gangs.take_up(node, operation, allocation)
                starts.append(self._start(allocation, operation, now, is_shown=is_shown))
                shown.add(operation.id)
        return starts

    def _start(
        self, allocation: Allocation, operation: Operation, now: Moment, taken: int = 0, *, is_shown: bool
    ) -> Start:
        """Return the order to start. The order contains the command only if the node knows no other allocation of the operation."""
        spec = None if is_shown else operation.job_spec
        slots, options = list(allocation.slots.values()), operation.options(self._facts.pools)
        waiting_ms = options.waiting_for_resources_on_node_timeout_ms
        if allocation.stage is not None:
            allocation.start = start_record(allocation, operation, self._facts.pools, allocation.stage, taken)
        order = Start(allocation.id, operation.id, allocation.resources, slots, spec, waiting_ms, allocation.start)
        self.made.add_start(order, allocation, now)
        return order

    def _next_ms(self, node: Node, why: HeartbeatReason, now: Moment, pace_ms: int, starts: Sequence[Start]) -> int:
        """Return the milliseconds until the node's next heartbeat.

        The time is shorter if more could start, or if the allocator waits for the node to report in this term or to confirm starts.
        """
        facts = self._facts
        if facts.recovery.awaits(node.record.node):
            return _RECOVERING_PACE_MS
        # Starts are confirmed soon if the pace allows it. Starts of a gang are always confirmed soon, because the gang is taken back if a
        # node does not confirm its start in time.
        is_soon = pace_ms <= facts.timing.shortest_pace_ms
        is_shown_soon = starts and (is_soon or any(one.operation in facts.gangs.of for one in starts))
        if is_shown_soon or self.decided.is_cut_short:
            return max(_CONFIRM_PACE_MS, pace_ms // 10)
        return self._pace.next_ms(node.record.node, why, pace_ms, now, facts.timing)

    def _pace_ms(self) -> int:
        return self._pace.ms(len(self._facts.nodes), self._facts.timing)


def _shown(node: Node) -> set[OperationId]:
    """Return the operations that have at least one allocation which the node knows."""
    return {one.operation for one in node.allocations.values()}


def _fits(budget: AnswerBudget, operation: Operation, jobs: int, *, is_shown: bool) -> bool:
    more_bytes = LARGEST_START_BYTES + (0 if is_shown else operation.job_spec_bytes)
    return budget.fits_jobs(jobs, allocations=1, more_bytes=more_bytes)


def _within(budget: AnswerBudget, order: TakeBack) -> list[TakeBack]:
    """Return the order if it still fits. Otherwise it is sent with the next answer."""
    return [order] if budget.fits(LARGEST_RECORD_BYTES if order.preemption is not None else 0) else []
