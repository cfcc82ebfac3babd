"""The decisions of the allocator, message by message.

    message -> facts -> ranking of the operations it changed -> (heartbeats only) decision -> answer and effects

All state is rebuilt from the nodes' heartbeats, the ledger's word and the snapshots of fair_share. Nothing is saved. While it is
recovering, usage is published as incomplete, and jobs that a former allocator may have given out stay in doubt (`facts/recovery`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from headrace.ids import NodeName, OperationId, TreeName
from headrace.pools import TreeOptions
from headrace.pools.node_filter import parse_formula
from headrace.runtime.engine import Check, Figure, Moment, Outcome, counter, gauge, run_checks
from headrace.wire.heartbeat import Heartbeat, NodeState, Orders
from headrace.wire.ledger import DrawAnswer, LiveOperation, ReportedEnd, Wanted
from headrace.wire.log import Event, IndexRun
from headrace.wire.nodes import GivenUpNode, GiveUpNode, LongestLeaseRecord, NodeRecord
from headrace.wire.refusals import WrongState
from headrace_allocator.decision.nudging import nudge_below_limits, nudge_for
from headrace_allocator.decision.ranking import Ranking
from headrace_allocator.effects import (
    Effect,
    ForeignClaim,
    HeldTwice,
    NudgeNode,
    RecordEmptyNodes,
    Release,
    StepDown,
    Superseded,
    UnknownOperation,
    report_of,
)
from headrace_allocator.explain import Answer, Question, answer_to
from headrace_allocator.facts.facts import Facts, filter_nodes
from headrace_allocator.facts.ledger import OperationNews, drawing_terms, forget_untold, learn_events, learn_live
from headrace_allocator.facts.lost_jobs import lose_doubtful
from headrace_allocator.facts.nodes import Node, NodeRules, Timing
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import ShareCut
from headrace_allocator.facts.reconcile import Findings, reconcile
from headrace_allocator.facts.slots import not_given_out
from headrace_allocator.gangs.starts import GangStarts
from headrace_allocator.heartbeat_answer import HeartbeatAnswers
from headrace_allocator.lost_nodes import LostNodes, runs_nothing
from headrace_allocator.pace import Pace
from headrace_allocator.preemption.alarms import PreemptionAlarms
from headrace_allocator.preemption.room_for_gangs import RoomForGangs
from headrace_allocator.preemption.yarn.passes import YarnPasses
from headrace_allocator.reserving.node_reservations import NodeReservations
from headrace_allocator.telling.drawing import next_draw, pending_returns, set_aside_to_return, wants
from headrace_allocator.telling.usage_cut import UsageCut, UsageCutting
from headrace_allocator.unmet_guarantees import UnmetGuarantees
from headrace_allocator.watchdog import Watchdog
from headrace_allocator.words import ends_of_lost

#: Operations in one message to the ledger; their ids are up to 64 letters.
_MOST_RELEASED: Final = 4_000
#: Jobs that were not given out, in the record that an allocator leaves, and one run of them there.
_MOST_LEFT_BYTES: Final = 160 * 1024
_BYTES_OF_A_RUN: Final = 24
#: Operations that are settled with a message; the others follow with `on_refresh_due`.
_SETTLED_AT_ONCE: Final = 64


class AllocatorEngine:
    """One tree's allocator of one term. Of term 0 it learns what another one does, and does nothing until `on_leading`."""

    def __init__(self, tree: TreeName, term: int, timing: Timing) -> None:
        self.facts = Facts(tree, term, timing)
        self.ranking = Ranking(self.facts)
        self.pace = Pace(self.facts.last_heard)
        self.yarn = YarnPasses(self.facts)
        self.gangs = GangStarts(self.facts, self.ranking)
        self.reservations = NodeReservations(self.facts, self.ranking)
        self.answers = HeartbeatAnswers(
            self.facts, self.ranking, self.pace, self.yarn.plans, self.gangs, self.reservations
        )
        self.room_for_gangs = RoomForGangs(self.facts, self.ranking.order)
        self.heartbeats = 0
        #: Heartbeats that were repeated, overtaken, or of a former life of the agent.
        self.void_heartbeats = 0
        #: Jobs that a node held beside another allocation: a defect, or a host that outlived its lease.
        self.twice_held_jobs = 0
        #: Ends and jobs of which a node spoke though it was not given the jobs.
        self.foreign_claims = 0
        self.alarms = PreemptionAlarms()
        self.watchdog = Watchdog()
        self.unmet_guarantees = UnmetGuarantees()
        self.lost_nodes = LostNodes(self.facts, self.ranking)
        self._cutting = UsageCutting(self.facts)

    # --- the ledger -----------------------------------------------------------------------------------------------

    def on_leading(self, term: int, timing: Timing, moment: Moment) -> Outcome[None, Effect]:
        """The ledger hears this term, and everything that it recorded before is known here.

        What was drawn until then stays in doubt, but for operations that were started since.
        """
        self.facts.lead(term, timing)
        known = list(self.facts.operations.values())
        effects = self._judge_term(operation.block_term for operation in known)
        for operation in known:
            operation.slots.are_ours = True
            if operation.block_term == term:
                operation.slots.release_doubt()
                effects += self._changed(operation)
        self.facts.unsettled.make_due(self.facts.operations)
        effects += self._settle(_SETTLED_AT_ONCE, moment)
        return Outcome(None, effects + self._settle_gangs(moment))

    def on_left(self, left: LongestLeaseRecord, moment: Moment) -> Outcome[None, Effect]:
        """The allocator before left this, and our term stands there now. To be called after `on_leading` and before `on_nodes`.

        Jobs that it never gave out are ready.
        """
        self.facts.empty_nodes.begin(left.empty_nodes)
        for name, runs in left.not_given_out.items():
            operation = self.facts.operations.get(name)
            if operation is not None:
                operation.slots.release(runs)
                self.facts.note_jobs(operation)
        # They get their places a few at a time, with `on_refresh_due`.
        self.ranking.mark_all()
        return Outcome(None, self._settle_gangs(moment))

    def on_stopping(self, moment: Moment) -> Outcome[dict[OperationId, list[IndexRun]], Effect]:
        """Answers the jobs that no node has, as far as the record holds them. Nothing may be given out after it."""
        self.facts.superseded = True
        told: dict[OperationId, list[IndexRun]] = {}
        left = _MOST_LEFT_BYTES
        for operation in self.facts.operations.values():
            runs = not_given_out(operation.slots)
            left -= len(operation.id) + _BYTES_OF_A_RUN * (1 + len(runs))
            if left < 0:
                break
            if runs:
                told[operation.id] = runs
        return Outcome(told)

    def on_empty_nodes_recorded(self, *, durable: bool, moment: Moment) -> Outcome[None, Effect]:
        """A `RecordEmptyNodes` was performed, or its outcome is not known. Then it is repeated with the next tick."""
        released = self.facts.empty_nodes.written(durable=durable)
        effects: list[Effect] = [NudgeNode(name) for name in sorted(released) if name in self.facts.nodes]
        return Outcome(None, effects + (self._record_empty_nodes() if durable else []))

    def on_more_operations(self, page: Collection[LiveOperation], moment: Moment) -> Outcome[None, Effect]:
        """Takes a page of everything live. A known operation keeps its slots."""
        # Another tree has terms of its own.
        effects = self._judge_term(each.block_term for each in page if each.spec.tree == self.facts.tree)
        effects += self._follow(learn_live(self.facts, page))
        return Outcome(None, effects + self._settle_gangs(moment))

    def on_operations(self, page: Collection[LiveOperation], moment: Moment) -> Outcome[None, Effect]:
        """Takes the last page, or all in one. An operation that no page told of is over."""
        effects = [*self.on_more_operations(page, moment).effects, *self._follow(forget_untold(self.facts))]
        return Outcome(None, effects + self._finish_recovery(moment))

    def on_events(self, events: Collection[Event], moment: Moment) -> Outcome[None, Effect]:
        """The log recorded these. An event that is known already changes nothing."""
        effects = self._judge_term(drawing_terms(events, self.facts.tree))
        effects += self._follow(learn_events(self.facts, events))
        return Outcome(None, effects + self._settle_gangs(moment))

    def on_drawn(self, operation: OperationId, answer: DrawAnswer | None, moment: Moment) -> Outcome[None, Effect]:
        """The ledger answered a `Draw`, or None: it is asked again on the next occasion."""
        known = self.facts.operations.get(operation)
        if known is None:
            return Outcome(None)
        if known.slots.free is not None:
            # The log tells which indexes, in order with what other trees draw. Where there were none, one waits for the next tick.
            if answer is None or not answer.drawn:
                known.drawing, known.yields = False, True
                self.facts.unsettled.note(operation)
            return Outcome(None)
        known.drawing = False
        if answer is None:
            self.facts.unsettled.note(operation)
            return Outcome(None)
        known.slots.draw(answer.below)
        return Outcome(None, self._changed(known) + self._settle_gangs(moment))

    def on_wanted(self, wanted: Wanted, moment: Moment) -> Outcome[None, Effect]:
        """Another tree could run jobs of these operations. It gets half of those that wait here."""
        operations = [self.facts.operations.get(name) for name in wanted.operations if wanted.tree != self.facts.tree]
        returned = [each for each in operations if each is not None and set_aside_to_return(each)]
        self.ranking.refresh_all(each.id for each in returned)
        return Outcome(None, pending_returns(returned))

    def on_recorded(self, ends: Iterable[ReportedEnd], moment: Moment) -> Outcome[None, Effect]:
        """The ledger has these ends. Their nodes may forget them with the next answer."""
        for one in ends:
            node = self.facts.nodes.get(one.node)
            self.facts.recovery.unrecorded_losses.discard(one.end.key)
            if node is not None and one.end.key in node.reporting:
                node.reporting.discard(one.end.key)
                node.recorded.add(one.end.key)
        return Outcome(None)

    def on_release_failed(self, operations: Iterable[OperationId], moment: Moment) -> Outcome[None, Effect]:
        """The ledger could not be told of a `Release`. It is told again."""
        for name in operations:
            if name in self.facts.operations:
                self.facts.operations[name].release_told = False
                self.facts.unsettled.note(name)
        return Outcome(None)

    # --- shares ---------------------------------------------------------------------------------------------------

    def on_shares(self, cut: ShareCut, moment: Moment) -> Outcome[None, Effect]:
        """New shares of pools and operations. Operations take theirs by `on_refresh_due`, the new ones first."""
        self.facts.shares_heard_s = moment.steady_s
        self.ranking.on_other_places(self.facts.pools.take(cut))
        self.ranking.on_shares(cut.items, cut.changed)
        self.yarn.on_shares(cut)
        return Outcome(None)

    def on_refresh_due(self, most: int, moment: Moment) -> Outcome[bool, Effect]:
        """Settles a few nodes and up to `most` operations, and gives these their place. The answer is True while there are more."""
        effects = self._settle(most, moment)
        self.gangs.judge_anew()
        if filter_nodes(self.facts):
            self.ranking.mark_all()
        if self.lost_nodes.some_due:
            effects += self.lost_nodes.settle(moment) + self._finish_recovery(moment)
        for operation in self.ranking.refresh_marked(most):
            effects += self._nudges(operation)
        effects += self._nudges_below_limits()
        more = self.ranking.some_marked or self.facts.unsettled.some_due or self.lost_nodes.some_due
        return Outcome(more or bool(self.facts.unfiltered), effects + self._settle_gangs(moment))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def on_nodes(self, changed: Mapping[NodeName, NodeRecord | None], moment: Moment) -> Outcome[None, Effect]:
        """Nodes of this tree that were enrolled, or changed, or are (None) enrolled no more. The first word is of all that are enrolled."""
        if not self.facts.term:
            # Their leases count from when we listen.
            return Outcome(None)
        effects: list[Effect] = []
        room_changed = False
        for name, record in changed.items():
            known = self.facts.nodes.get(name)
            if record is not None:
                if known is not None and known.record.drained != record.drained:
                    effects.append(NudgeNode(name))
                room_changed |= self.facts.enrol(record, moment)
            elif known is not None:
                room_changed |= self.facts.let_go(known)
        if not self.facts.recovery.nodes_known:
            self.facts.recovery.begin(changed.keys() - self.facts.empty_nodes.names)
            for name in self.facts.empty_nodes.names - changed.keys():
                self.facts.empty_nodes.discard(name)
        self.lost_nodes.remove_gone()
        if room_changed:
            self.ranking.mark_all()
        effects += self._finish_recovery(moment)
        return Outcome(None, effects + self._settle_gangs(moment))

    def on_options(self, options: TreeOptions, moment: Moment) -> Outcome[None, Effect]:
        """The tree uses only nodes that meet its rules. While an operator lets no job start or nothing be taken, the rest goes on.

        Raises `BadInput` for what is no formula, and keeps the one before.
        """
        self.facts.starts_paused, self.facts.preemption_paused = options.pause_starts, options.pause_preemption
        parse_formula(options.node_filter)
        self.facts.set_node_rules(NodeRules(options.node_filter, options.require_isolation))
        if filter_nodes(self.facts):
            self.ranking.mark_all()
        return Outcome(None)

    def on_heartbeat(self, heartbeat: Heartbeat, moment: Moment) -> Outcome[Orders | None, Effect]:
        """The answer to one heartbeat, and what must be told elsewhere. No answer at all for a void one."""
        facts = self.facts
        if heartbeat.term > facts.term:
            return Outcome(None, [StepDown(heartbeat.term)])
        node = facts.nodes.get(heartbeat.node)
        if node is None or not node.record.is_of(heartbeat.machine):
            return Outcome(self.answers.not_enrolled(heartbeat))
        if not node.is_newest(heartbeat) and not node.may_begin_anew(heartbeat, facts.longest_lease_s, moment):
            self.void_heartbeats += 1
            return Outcome(None)
        self.heartbeats += 1
        if facts.hear(node, heartbeat, moment):
            self.ranking.mark_all()
        if heartbeat.starts:
            node.note_starts(heartbeat.starts)
        findings = reconcile(facts, node, heartbeat)
        if heartbeat.term == facts.term:
            # It was sent after an answer of ours was obeyed: it is no late word of before, and former allocators' orders are void.
            if heartbeat.ends_waiting == 0:
                facts.recovery.settle(node.record.node, lost=False)
            else:
                # A job that is nowhere may be among the ends that found no room: until they come its index goes to nobody.
                facts.recovery.miss_no_more(node.record.node)
        effects = [] if findings is None else self._tell(node, findings, moment)
        effects += self._finish_recovery(moment)
        orders = self.answers.answer(node, heartbeat, findings, moment)
        if orders.start or orders.extend or orders.take_back:
            node.sent = orders
            extended = [node.allocations[extend.allocation].operation for extend in orders.extend]
            for name in dict.fromkeys([*(start.operation for start in orders.start), *extended]):
                effects += self._draws(facts.operations[name])
        effects += self._nudges_below_limits()
        if node.state is NodeState.STOPPING or node.record.node in facts.empty_nodes.names:
            effects += self._note_emptiness(node, heartbeat)
        return Outcome(orders, effects + self._settle_gangs(moment))

    def on_give_up_node(self, request: GiveUpNode, moment: Moment) -> Outcome[GivenUpNode | WrongState, Effect]:
        """Gives a node up that is to be removed. Of a silent one the jobs are lost at once, before its lease is over."""
        node = self.facts.nodes.get(request.node)
        if node is None:
            return Outcome(GivenUpNode(request.node, 0))
        if request.to_machine:
            return Outcome(self.lost_nodes.kept_from(node, request.to_machine, moment) or GivenUpNode(request.node, 0))
        if not node.may_be_removed(self.facts.timing, moment):
            timeout_s = self.facts.timing.node_heartbeat_timeout_s
            expected = f"silent for {timeout_s:g} s, or drained with no job on it"
            return Outcome(WrongState("node", request.node, node.condition.value, expected))
        jobs = sum(len(one.slots) for one in node.allocations.values())
        self.lost_nodes.fall_silent(node)
        effects = self.lost_nodes.lose(node, moment, for_good=True)
        effects += self._finish_recovery(moment)
        return Outcome(GivenUpNode(request.node, jobs), effects + self._settle_gangs(moment))

    def on_tick(self, moment: Moment) -> Outcome[None, Effect]:
        """Looks once a second for silent nodes, blocks to draw and operations to release."""
        effects: list[Effect] = [*self.alarms.on_tick(self.facts, moment), *self.answers.take_cases()]
        effects += self.watchdog.on_tick(self.facts, self.ranking.order, moment)
        effects += self.unmet_guarantees.on_tick(self.facts, self.ranking.order, moment)
        self.lost_nodes.tick(moment)
        self.gangs.tick(moment)
        effects += self._make_room_for_gangs(moment)
        self.reservations.tick(moment)
        effects += self.lost_nodes.settle(moment) + self._finish_recovery(moment)
        effects += self.lost_nodes.shorten_lease(moment) + self._record_empty_nodes()
        self.facts.unsettled.tick()
        if self.facts.recovery.doubt_over:
            # Some wait for a lost node, until it speaks or they are to end.
            self.facts.unsettled.make_due(self.facts.doubtful)
        shared = list(self.facts.of_several_trees.values())
        for operation in shared:
            operation.yields = False
            effects += self._draws(operation)
        effects += pending_returns(shared) + wants(self.facts) + self._settle(_SETTLED_AT_ONCE, moment)
        return Outcome(None, effects + self._settle_gangs(moment))

    def on_usage_due(self, most: int, moment: Moment) -> Outcome[UsageCut | None, Effect]:
        """Cuts the usage of up to `most` operations. Answers all that changed since the last answer, None while there is more to cut."""
        return Outcome(self._cutting.slice(most))

    def on_question(self, question: Question, moment: Moment) -> Outcome[Answer, Effect]:
        """Answers a person."""
        return Outcome(answer_to(question, self.facts, self.ranking.order, self.alarms, moment))

    def checks(self) -> Iterator[Check]:
        """Each node, each operation, the totals, the limits, the order."""
        yield from self.facts.checks()
        yield from self.ranking.checks()

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        """Nodes, operations, heartbeats, and allocations made."""
        return [
            gauge("nodes", "nodes", len(self.facts.nodes), "Nodes that are known."),
            gauge("online_nodes", "nodes", self.facts.online_nodes, "Nodes that send heartbeats."),
            gauge("operations", "operations", len(self.facts.operations), "Operations that may have jobs."),
            counter("heartbeats", "heartbeats", self.heartbeats, "Heartbeats that were taken in."),
            counter("void_heartbeats", "heartbeats", self.void_heartbeats, "Heartbeats of a life that is over."),
            counter("twice_held_jobs", "jobs", self.twice_held_jobs, "Jobs that two nodes told of at once."),
            counter("foreign_claims", "jobs", self.foreign_claims, "Jobs that a node reported and was not given."),
            *self.pace.figures(),
            *self.ranking.figures(),
            *self.answers.figures(),
            *self.alarms.figures(),
            *self.watchdog.figures(),
            *self.unmet_guarantees.figures(),
            *self.yarn.figures(),
            *self.gangs.figures(),
            *self.facts.reservations.figures(),
        ]

    def _note_emptiness(self, node: Node, heartbeat: Heartbeat) -> list[Effect]:
        """A node that stops in order with nothing on it is recorded as empty at once. One that is back is taken out of the record."""
        name, empty = node.record.node, self.facts.empty_nodes
        if node.state is not NodeState.STOPPING:
            empty.discard(name)
        elif heartbeat.term == self.facts.term and not heartbeat.ends_waiting and runs_nothing(self.facts, node):
            empty.add(name)
        return self._record_empty_nodes()

    def _record_empty_nodes(self) -> list[Effect]:
        names = self.facts.empty_nodes.next_write() if self.facts.term else None
        return [] if names is None else [RecordEmptyNodes(names)]

    # --- what follows from a change -------------------------------------------------------------------------------

    def _tell(self, node: Node, findings: Findings, moment: Moment) -> list[Effect]:
        """Tells others of the news that a heartbeat brought."""
        ends = [ReportedEnd(node.record.node, end) for end in findings.ends]
        effects = report_of(ends + ends_of_lost(findings.lost, moment))
        effects += [HeldTwice(node.record.node, allocation, job) for job, allocation in findings.held_twice]
        effects += [UnknownOperation(node.record.node, *unknown) for unknown in findings.unknown]
        self.twice_held_jobs += len(findings.held_twice)
        if findings.foreign:
            self.foreign_claims += len(findings.foreign)
            effects.append(ForeignClaim(node.record.node, len(findings.foreign), findings.foreign[0]))
        self.answers.preemptions.undone += findings.undone
        return effects + self.alarms.on_preempted(findings.preempted, moment)

    def _judge_term(self, drawn: Iterable[int]) -> list[Effect]:
        """Gives nothing out any more once jobs were drawn for a later term than ours."""
        latest = max(drawn, default=0)
        if latest <= self.facts.term or not self.facts.term:
            return []
        self.facts.superseded = True
        return [Superseded(latest)]

    def _follow(self, news: OperationNews) -> list[Effect]:
        effects: list[Effect] = []
        known = []
        for name in news.changed:
            operation = self.facts.operations.get(name)
            if operation is None:
                self.ranking.forget(name)
            else:
                known.append(operation)
                effects += self._changed(operation)
        effects += [NudgeNode(node) for node in sorted(news.holders)]
        return effects + self._releases(known)

    def _changed(self, operation: Operation) -> list[Effect]:
        """Its jobs to give out changed: its place in the order, indexes to draw, nodes to nudge."""
        self.facts.note_jobs(operation)
        self.ranking.refresh(operation)
        return [*self._draws(operation), *self._nudges(operation)]

    def _draws(self, operation: Operation) -> list[Effect]:
        draw = next_draw(operation) if self.facts.term else None
        if draw is None:
            return []
        operation.drawing = True
        return [draw]

    def _nudges(self, operation: Operation) -> list[Effect]:
        # Under load nodes come at the pace: a nudge ends even the pause of one whose heartbeat was lost.
        is_in_order = not self.pace.is_late and operation.id in self.ranking.order
        return [NudgeNode(node.record.node) for node in nudge_for(operation, self.facts)] if is_in_order else []

    def _nudges_below_limits(self) -> list[Effect]:
        nodes = nudge_below_limits(self.ranking.order, self.facts, is_late=self.pace.is_late)
        return [NudgeNode(node.record.node) for node in nodes]

    def _settle_gangs(self, moment: Moment) -> list[Effect]:
        """Leads the gangs on that the message changed."""
        nodes, looking = self.gangs.settle(moment)
        effects: list[Effect] = [NudgeNode(node) for node in nodes]
        return effects + [nudge for operation in looking for nudge in self._nudges(operation)]

    def _make_room_for_gangs(self, moment: Moment) -> list[Effect]:
        facts = self.facts
        may_take = facts.recovery.complete and not (facts.preemption_paused or facts.starts_paused or facts.superseded)
        if not (may_take and facts.pools.limits_known and facts.term) or facts.shares_are_old(moment):
            return []
        taken = self.room_for_gangs.tick(moment)
        return [] if taken is None else [NudgeNode(node) for node in self.answers.make_room(taken, moment)]

    def _releases(self, operations: Iterable[Operation]) -> list[Effect]:
        """Tells the ledger of ending operations that hold nothing on any node."""
        if not self.facts.term:
            return []
        released = [each for each in operations if each.ending and not each.may_run and not each.release_told]
        for operation in released:
            operation.release_told = True
        names = [operation.id for operation in released]
        return [Release(names[at : at + _MOST_RELEASED]) for at in range(0, len(names), _MOST_RELEASED)]

    def _finish_recovery(self, moment: Moment) -> list[Effect]:
        if not self.facts.recovery.end_doubt(moment):
            return []
        self.facts.unsettled.make_due(self.facts.doubtful)
        return self._settle(_SETTLED_AT_ONCE, moment)

    def _settle(self, most: int, moment: Moment) -> list[Effect]:
        """Settles the doubt of up to so many operations that are due, and draws or releases jobs of them."""
        due = [each for name in self.facts.unsettled.take(most) if (each := self.facts.operations.get(name))]
        doubtful = [each for each in due if self.facts.recovery.doubt_over and each.charged_doubt]
        effects = report_of(ends_of_lost(lose_doubtful(self.facts, doubtful), moment))
        effects += [effect for operation in doubtful for effect in self._changed(operation)]
        for operation in due:
            effects += self._draws(operation)
        return effects + self._releases(due)
