"""The decisions of the allocator, message by message.

    message -> facts -> ranking of the operations it changed -> (heartbeats only) decision -> answer and effects

All state is rebuilt from the heartbeats of nodes, the ledger's log and the snapshots of fair_share. Nothing is saved. While the allocator
is recovering, usage is published as incomplete, and jobs that a former allocator may have given out stay
unconfirmed (`facts/recovery`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from headrace.ids import NodeName, OperationId, TreeName
from headrace.pools import TreeOptions
from headrace.pools.node_filter import parse_formula
from headrace.runtime.engine import Check, Figure, Moment, Outcome, counter, gauge, run_checks
from headrace.wire.heartbeat import Heartbeat, NodeState, Orders
from headrace.wire.ledger import DrawAnswer, LiveOperation, ReportedEnd, ReportedSession, Wanted
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
from headrace_allocator.explain.answers import AnswerToQuestion, Question, answer_to
from headrace_allocator.explain.words import ends_of_lost
from headrace_allocator.explain.words_of_failing import suspects_reported
from headrace_allocator.facts.facts import Facts, filter_nodes
from headrace_allocator.facts.job_slots import not_given_out
from headrace_allocator.facts.ledger_reports import (
    OperationNews,
    drawing_terms,
    forget_untold,
    learn_events,
    learn_live,
)
from headrace_allocator.facts.lost_jobs import lose_doubtful
from headrace_allocator.facts.nodes import Node, NodeRules, Timing
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.facts.reconcile import Findings, reconcile
from headrace_allocator.gangs.rearranging import better_places
from headrace_allocator.gangs.turns import GangStarts
from headrace_allocator.heartbeat_answer import HeartbeatAnswers
from headrace_allocator.heartbeat_pace import Pace
from headrace_allocator.index_leasing import next_lease, pending_returns, set_aside_to_return, wants
from headrace_allocator.lost_nodes import LostNodes, runs_nothing
from headrace_allocator.preemption.audit.alarms import PreemptionAlarms
from headrace_allocator.preemption.gang_resources import GangResourceSearch
from headrace_allocator.preemption.yarn.passes import YarnPasses
from headrace_allocator.reserving.node_reservations import NodeReservations
from headrace_allocator.start_watchdog import Watchdog
from headrace_allocator.unmet_guarantees import UnmetGuarantees
from headrace_allocator.usage_changes import UsageChanges, UsageCollector

#: Upper bound of the operations in one message to the ledger; their ids have up to 64 characters.
_MOST_RELEASED: Final = 4_000
#: Upper bound of the bytes that the list of jobs which were not given out takes in the record of a stopping allocator.
_MOST_LEFT_BYTES: Final = 160 * 1024
#: Bytes that a run of consecutive job indexes takes in the record of a stopping allocator.
_BYTES_OF_A_RUN: Final = 24
#: Upper bound of the operations that are settled while one message is handled. `on_refresh_due` settles the remaining operations.
_SETTLED_AT_ONCE: Final = 64


class AllocatorEngine:
    """The allocator of one tree in one term. With term 0 it is a standby and gives out no job until `on_leading`."""

    def __init__(self, tree: TreeName, term: int, timing: Timing) -> None:
        self.facts = Facts(tree, term, timing)
        self.ranking = Ranking(self.facts)
        self.pace = Pace(self.facts.last_heard)
        self.yarn = YarnPasses(self.facts)
        self.gangs = GangStarts(self.facts, self.ranking)
        self.reservations = NodeReservations(self.facts, self.ranking, self.gangs)
        self.answers = HeartbeatAnswers(
            self.facts, self.ranking, self.pace, self.yarn.plans, self.gangs, self.reservations
        )
        self.gang_resources = GangResourceSearch(self.facts, self.ranking.order)
        self.heartbeats = 0
        #: Number of heartbeats that were repeated, overtaken, or sent by a former process of the agent.
        self.void_heartbeats = 0
        #: Number of jobs that a node held although another allocation held them: the cause is a defect, or a host that ran jobs beyond the
        #: end of its lease.
        self.twice_held_jobs = 0
        #: Number of running and ended jobs that nodes reported although the nodes had not been given these jobs.
        self.foreign_claims = 0
        self.alarms = PreemptionAlarms()
        self.watchdog = Watchdog()
        self.unmet_guarantees = UnmetGuarantees()
        self.lost_nodes = LostNodes(self.facts, self.ranking)
        self._cutting = UsageCollector(self.facts)

    # --- the ledger -----------------------------------------------------------------------------------------------

    def on_leading(self, term: int, timing: Timing, now: Moment) -> Outcome[None, Effect]:
        """Begin to lead with this term.

        Call this once the ledger knows the term, and this engine knows everything that the ledger recorded before it learned the term. Jobs
        stay unconfirmed if their indexes may have been leased to an earlier term. Operations that started after the ledger learned this
        term have indexes of this term only, and their jobs become ready.
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
        effects += self._settle(_SETTLED_AT_ONCE, now)
        return Outcome(None, effects + self._settle_gangs(now))

    def on_left(self, left: LongestLeaseRecord, now: Moment) -> Outcome[None, Effect]:
        """Take over the record of the previous allocator: the nodes that run nothing, and the jobs that were never given out.

        Jobs that were never given out become ready. Call it after `on_leading` and before `on_nodes`, once the record carries this term.
        """
        self.facts.empty_nodes.begin(left.empty_nodes)
        for name, runs in left.not_given_out.items():
            operation = self.facts.operations.get(name)
            if operation is not None:
                operation.slots.release(runs)
                self.facts.note_jobs(operation)
        # The operations are placed in the order a few at a time, by `on_refresh_due`.
        self.ranking.mark_all()
        return Outcome(None, self._settle_gangs(now))

    def on_stopping(self, now: Moment) -> Outcome[dict[OperationId, list[IndexRun]], Effect]:
        """Stop giving out jobs. The answer lists, by operation, the jobs that no node has. Operations that do not fit into the record of a
        stopping allocator are left out.
        """
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

    def on_empty_nodes_recorded(self, *, durable: bool, now: Moment) -> Outcome[None, Effect]:
        """Note that a `RecordEmptyNodes` was performed (`durable` is True), or that its outcome is unknown. In the second case the next
        tick repeats the effect.
        """
        released = self.facts.empty_nodes.written(durable=durable)
        effects: list[Effect] = [NudgeNode(name) for name in sorted(released) if name in self.facts.nodes]
        return Outcome(None, effects + (self._record_empty_nodes() if durable else []))

    def on_more_operations(self, page: Collection[LiveOperation], now: Moment) -> Outcome[None, Effect]:
        """Apply one page of the list of all live operations. Operations that are known already keep their job slots."""
        # Operations of other trees are left out: terms of another tree's allocators cannot be compared with this term.
        effects = self._judge_term(each.block_term for each in page if each.spec.tree == self.facts.tree)
        effects += self._follow(learn_live(self.facts, page))
        return Outcome(None, effects + self._settle_gangs(now))

    def on_operations(self, page: Collection[LiveOperation], now: Moment) -> Outcome[None, Effect]:
        """Take the last page of all live operations, or all of them at once. A known operation that is on no page has ended."""
        effects = [*self.on_more_operations(page, now).effects, *self._follow(forget_untold(self.facts))]
        return Outcome(None, effects + self._finish_recovery(now))

    def on_events(self, events: Collection[Event], now: Moment) -> Outcome[None, Effect]:
        """Apply events of the log. An event that is already known changes nothing."""
        effects = self._judge_term(drawing_terms(events, self.facts.tree))
        effects += self._follow(learn_events(self.facts, events))
        return Outcome(None, effects + self._settle_gangs(now))

    def on_drawn(self, operation: OperationId, answer: DrawAnswer | None, now: Moment) -> Outcome[None, Effect]:
        """Apply the ledger's answer to a `Draw`. If no answer came (None), a later tick requests the lease again."""
        known = self.facts.operations.get(operation)
        if known is None:
            return Outcome(None)
        if known.slots.free is not None:
            # The operation runs in several trees. Which indexes each tree has leased is taken from the events of the log, which come in the
            # same order for all trees, and not from this answer. If no index was leased, the next tick requests the lease again.
            if answer is None or not answer.drawn:
                known.drawing, known.yields = False, True
                self.facts.unsettled.note(operation)
            return Outcome(None)
        known.drawing = False
        if answer is None:
            self.facts.unsettled.note(operation)
            return Outcome(None)
        known.slots.draw(answer.below)
        return Outcome(None, self._changed(known) + self._settle_gangs(now))

    def on_wanted(self, wanted: Wanted, now: Moment) -> Outcome[None, Effect]:
        """Release half of the ready jobs of these operations, since another tree could run them."""
        operations = [self.facts.operations.get(name) for name in wanted.operations if wanted.tree != self.facts.tree]
        returned = [each for each in operations if each is not None and set_aside_to_return(each)]
        self.ranking.refresh_all(each.id for each in returned)
        return Outcome(None, pending_returns(returned))

    def on_sessions_recorded(self, sessions: Iterable[ReportedSession], now: Moment) -> Outcome[None, Effect]:
        """Note that the ledger has recorded these session spans. The next answer to each node says which of its recorded spans the node may
        forget.
        """
        for one in sessions:
            node = self.facts.nodes.get(one.node)
            if node is not None and one.span in node.sessions:
                node.sessions[one.span] = True
        return Outcome(None)

    def on_recorded(self, ends: Iterable[ReportedEnd], now: Moment) -> Outcome[None, Effect]:
        """Note that the ledger has recorded these ends. The next answer to each node says which of its recorded ends the node may
        forget.
        """
        for one in ends:
            node = self.facts.nodes.get(one.node)
            self.facts.recovery.unrecorded_losses.discard(one.end.key)
            if node is not None and one.end.key in node.reporting:
                node.reporting.discard(one.end.key)
                node.recorded.add(one.end.key)
        return Outcome(None)

    def on_release_failed(self, operations: Iterable[OperationId], now: Moment) -> Outcome[None, Effect]:
        """Repeat a `Release` that the ledger did not receive."""
        for name in operations:
            if name in self.facts.operations:
                self.facts.operations[name].release_told = False
                self.facts.unsettled.note(name)
        return Outcome(None)

    # --- shares ---------------------------------------------------------------------------------------------------

    def on_shares(self, cut: ShareSnapshot, now: Moment) -> Outcome[None, Effect]:
        """Apply a new snapshot of shares. `on_refresh_due` then gives the operations their new shares, a few at a time, first the
        operations that were owed nothing before.
        """
        self.facts.shares_heard_s = now.steady_s
        self.ranking.on_other_places(self.facts.pools.apply(cut))
        self.ranking.on_shares(cut.items, cut.changed)
        self.yarn.on_shares(cut)
        return Outcome(None)

    def on_refresh_due(self, most: int, now: Moment) -> Outcome[bool, Effect]:
        """Process a few nodes, settle up to `most` operations, and update the position of up to `most` operations in the order.

        The answer is True while more nodes or operations are to be processed.
        """
        effects = self._settle(most, now)
        self.gangs.judge_anew()
        if filter_nodes(self.facts):
            self.ranking.mark_all()
        if self.lost_nodes.some_due:
            effects += self.lost_nodes.settle(now) + self._finish_recovery(now)
        for operation in self.ranking.refresh_marked(most):
            effects += self._nudges(operation)
        effects += self._nudges_below_limits()
        more = self.ranking.some_marked or self.facts.unsettled.some_due or self.lost_nodes.some_due
        return Outcome(more or bool(self.facts.unfiltered), effects + self._settle_gangs(now))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def on_nodes(self, changed: Mapping[NodeName, NodeRecord | None], now: Moment) -> Outcome[None, Effect]:
        """Apply changes of this tree's enrolled nodes; None stands for a removed node. The first call has all enrolled nodes."""
        if not self.facts.term:
            # A standby ignores nodes: their leases count from the time at which this allocator leads and receives heartbeats.
            return Outcome(None)
        effects: list[Effect] = []
        room_changed = False
        for name, record in changed.items():
            known = self.facts.nodes.get(name)
            if record is not None:
                if known is not None and known.record.undrained != record.undrained:
                    self.facts.failing.clear(known)
                if known is not None and (known.record.drained, known.record.ends_jobs) != (
                    record.drained,
                    record.ends_jobs,
                ):
                    effects.append(NudgeNode(name))
                room_changed |= self.facts.enrol(record, now)
            elif known is not None:
                room_changed |= self.facts.let_go(known)
        if not self.facts.recovery.nodes_known:
            self.facts.recovery.begin(changed.keys() - self.facts.empty_nodes.names)
            for name in self.facts.empty_nodes.names - changed.keys():
                self.facts.empty_nodes.discard(name)
        self.lost_nodes.remove_gone()
        if room_changed:
            self.ranking.mark_all()
        effects += self._finish_recovery(now)
        return Outcome(None, effects + self._settle_gangs(now))

    def on_options(self, options: TreeOptions, now: Moment) -> Outcome[None, Effect]:
        """Apply the options of the tree: node rules, and whether starts or preemption are paused.

        Raises `BadInput` if the node filter is not a formula; all previous options then stay.
        """
        parse_formula(options.node_filter)
        self.facts.starts_paused, self.facts.preemption_paused = options.pause_starts, options.pause_preemption
        self.facts.set_node_rules(NodeRules(options.node_filter, options.require_isolation))
        if filter_nodes(self.facts):
            self.ranking.mark_all()
        return Outcome(None)

    def on_heartbeat(self, heartbeat: Heartbeat, now: Moment) -> Outcome[Orders | None, Effect]:
        """Answer a heartbeat. A void heartbeat (repeated, overtaken, or sent by a former process of the agent) gets no answer."""
        facts = self.facts
        if heartbeat.term > facts.term:
            return Outcome(None, [StepDown(heartbeat.term)])
        node = facts.nodes.get(heartbeat.node)
        if node is None or not node.record.is_of(heartbeat.machine):
            return Outcome(self.answers.not_enrolled(heartbeat))
        if not node.is_newest(heartbeat) and not node.may_begin_anew(heartbeat, facts.longest_lease_s, now):
            self.void_heartbeats += 1
            return Outcome(None)
        self.heartbeats += 1
        if facts.hear(node, heartbeat, now):
            self.ranking.mark_all()
        if heartbeat.starts:
            node.note_starts(heartbeat.starts)
        findings = reconcile(facts, node, heartbeat)
        if heartbeat.term == facts.term:
            # The node sent this heartbeat after it obeyed an answer of this term. So the heartbeat is not a late message, and the node no
            # longer obeys orders of former allocators.
            if heartbeat.ends_waiting == 0:
                facts.recovery.settle(node.record.node, lost=False)
            else:
                # A missing job may be among the ends that did not fit into the heartbeat. Until these ends come, the index of the missing
                # job is given to no other node.
                facts.recovery.miss_no_more(node.record.node)
        effects = [] if findings is None else self._tell(node, findings, now)
        effects += self._finish_recovery(now)
        orders = self.answers.answer(node, heartbeat, findings, now)
        if orders.start or orders.extend or orders.take_back:
            node.sent = orders
            extended = [node.allocations[extend.allocation].operation for extend in orders.extend]
            for name in dict.fromkeys([*(start.operation for start in orders.start), *extended]):
                effects += self._draws(facts.operations[name])
        effects += self._suspects(now)
        effects += self._nudges_below_limits()
        if node.state is NodeState.STOPPING or node.record.node in facts.empty_nodes.names:
            effects += self._note_emptiness(node, heartbeat)
        return Outcome(orders, effects + self._settle_gangs(now))

    def on_give_up_node(self, request: GiveUpNode, now: Moment) -> Outcome[GivenUpNode | WrongState, Effect]:
        """Give up a node that is to be removed. If the node is silent, its jobs count as lost at once, although its lease is not over
        yet.
        """
        node = self.facts.nodes.get(request.node)
        if node is None:
            return Outcome(GivenUpNode(request.node, 0))
        if request.to_machine:
            return Outcome(self.lost_nodes.kept_from(node, request.to_machine, now) or GivenUpNode(request.node, 0))
        if not node.may_be_removed(self.facts.timing, now):
            timeout_s = self.facts.timing.node_heartbeat_timeout_s
            expected = f"a node that has been silent for {timeout_s:g} s, or a drained node without jobs"
            return Outcome(WrongState("node", request.node, node.condition.value, expected))
        jobs = sum(len(one.slots) for one in node.allocations.values())
        self.lost_nodes.mark_offline(node)
        effects = self.lost_nodes.requeue_jobs_of(node, now, for_good=True)
        effects += self._finish_recovery(now)
        return Outcome(GivenUpNode(request.node, jobs), effects + self._settle_gangs(now))

    def on_tick(self, now: Moment) -> Outcome[None, Effect]:
        """Look, once a second, for silent nodes, indexes to lease and operations to release."""
        effects: list[Effect] = [*self.alarms.on_tick(self.facts, now)]
        effects += self.pace.on_tick(len(self.facts.nodes), self.facts.timing)
        effects += self.watchdog.on_tick(self.facts, self.ranking.order, now)
        effects += self.unmet_guarantees.on_tick(self.facts, self.ranking.order, now)
        self.lost_nodes.tick(now)
        self.gangs.tick(now)
        self._rearrange_gang(now)
        effects += self._make_room_for_gangs(now)
        self.reservations.tick(now)
        self.facts.failing.tick(now.steady_s)
        effects += self._suspects(now)
        effects += self.lost_nodes.settle(now) + self._finish_recovery(now)
        effects += self.lost_nodes.shorten_lease(now) + self._record_empty_nodes()
        self.facts.unsettled.tick()
        if self.facts.recovery.doubt_over:
            # Operations that still have unconfirmed jobs, because a lost node may run them, are checked at each tick until the node reports
            # or the operations are to end.
            self.facts.unsettled.make_due(self.facts.doubtful)
        shared = list(self.facts.of_several_trees.values())
        for operation in shared:
            operation.yields = False
            effects += self._draws(operation)
        effects += pending_returns(shared) + wants(self.facts) + self._settle(_SETTLED_AT_ONCE, now)
        return Outcome(None, effects + self._settle_gangs(now))

    def on_usage_due(self, most: int, now: Moment) -> Outcome[UsageChanges | None, Effect]:
        """Collect the usage of up to `most` operations.

        The answer is None until all changed operations are collected. Then it contains all changes since the previous publication.
        """
        return Outcome(self._cutting.slice(most))

    def on_question(self, question: Question, now: Moment) -> Outcome[AnswerToQuestion, Effect]:
        """Answer a question of a user."""
        return Outcome(answer_to(question, self.facts, self.ranking.order, self.alarms, now))

    def checks(self) -> Iterator[Check]:
        """Yield the checks of nodes, operations, totals, limits and the order."""
        yield from self.facts.checks()
        yield from self.ranking.checks()

    def check(self) -> list[str]:
        """Return the broken invariants as text; an empty list if all hold."""
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        """Return the metrics of the allocator."""
        return [
            gauge("nodes", "nodes", len(self.facts.nodes), "Nodes that are known."),
            gauge("online_nodes", "nodes", self.facts.online_nodes, "Nodes that send heartbeats."),
            gauge("operations", "operations", len(self.facts.operations), "Operations that may have jobs."),
            counter("heartbeats", "heartbeats", self.heartbeats, "Heartbeats that were handled."),
            counter(
                "void_heartbeats",
                "heartbeats",
                self.void_heartbeats,
                "Ignored heartbeats: repeated, overtaken, or from an agent process that is over.",
            ),
            counter("twice_held_jobs", "jobs", self.twice_held_jobs, "Jobs that two nodes reported at the same time."),
            counter(
                "foreign_claims",
                "jobs",
                self.foreign_claims,
                "Jobs that a node reported without having been given them.",
            ),
            *self.pace.figures(),
            *self.ranking.figures(),
            *self.answers.figures(),
            *self.alarms.figures(),
            *self.watchdog.figures(),
            *self.unmet_guarantees.figures(),
            *self.yarn.figures(),
            *self.gangs.figures(),
            *self.facts.reservations.figures(),
            *self.facts.failing.figures(),
        ]

    def _note_emptiness(self, node: Node, heartbeat: Heartbeat) -> list[Effect]:
        """Record a stopping node as empty at once if it runs nothing. Remove a node from the record once it is no longer stopping."""
        name, empty = node.record.node, self.facts.empty_nodes
        if node.state is not NodeState.STOPPING:
            empty.discard(name)
        elif heartbeat.term == self.facts.term and not heartbeat.ends_waiting and runs_nothing(self.facts, node):
            empty.add(name)
        return self._record_empty_nodes()

    def _record_empty_nodes(self) -> list[Effect]:
        names = self.facts.empty_nodes.next_write() if self.facts.term else None
        return [] if names is None else [RecordEmptyNodes(names)]

    def _suspects(self, now: Moment) -> list[Effect]:
        """Report the nodes that became suspect or are suspect no more."""
        reported = suspects_reported(self.facts)
        for one in reported:
            self.answers.made.note_suspect(one, now)
        return [*reported]

    # --- what follows from a change -------------------------------------------------------------------------------

    def _tell(self, node: Node, findings: Findings, now: Moment) -> list[Effect]:
        """Return the effects that report what a heartbeat showed: ends of jobs, and claims of the node that are logged or alarmed."""
        ends = [ReportedEnd(node.record.node, end) for end in findings.ends]
        sessions = [ReportedSession(node.record.node, span) for span in findings.sessions]
        effects = report_of(ends + ends_of_lost(findings.lost, now), sessions)
        effects += [HeldTwice(node.record.node, allocation, job) for job, allocation in findings.held_twice]
        effects += [UnknownOperation(node.record.node, *unknown) for unknown in findings.unknown]
        self.twice_held_jobs += len(findings.held_twice)
        if findings.foreign:
            self.foreign_claims += len(findings.foreign)
            effects.append(ForeignClaim(node.record.node, len(findings.foreign), findings.foreign[0]))
        self.answers.preemptions.undone += findings.undone
        return effects + self.alarms.on_preempted(findings.preempted, now)

    def _judge_term(self, drawn: Iterable[int]) -> list[Effect]:
        """Stop giving out jobs once jobs were leased for a later term than this allocator's."""
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
        """Update everything that depends on the jobs an operation can give out: its position in the order, leases and nudges."""
        self.facts.note_jobs(operation)
        self.ranking.refresh(operation)
        return [*self._draws(operation), *self._nudges(operation)]

    def _draws(self, operation: Operation) -> list[Effect]:
        draw = next_lease(operation) if self.facts.term else None
        if draw is None:
            return []
        operation.drawing = True
        return [draw]

    def _nudges(self, operation: Operation) -> list[Effect]:
        # Under load no node is nudged. A nudge makes a node send a heartbeat at once, even while the node pauses because its last heartbeat
        # got no answer. These heartbeats would add to the load.
        is_in_order = not self.pace.is_late and operation.id in self.ranking.order
        return [NudgeNode(node.record.node) for node in nudge_for(operation, self.facts)] if is_in_order else []

    def _nudges_below_limits(self) -> list[Effect]:
        nodes = nudge_below_limits(self.ranking.order, self.facts, is_late=self.pace.is_late)
        return [NudgeNode(node.record.node) for node in nodes]

    def _settle_gangs(self, now: Moment) -> list[Effect]:
        """Move the gangs that the message changed to their next phases."""
        nodes, looking = self.gangs.settle(now)
        effects: list[Effect] = [NudgeNode(node) for node in nodes]
        return effects + [nudge for operation in looking for nudge in self._nudges(operation)]

    def _rearrange_gang(self, now: Moment) -> None:
        """Exchange the resources that are held for the gang with tasks that gathers resources, if all its jobs can get resources so."""
        facts = self.facts
        name = facts.gangs.gathering
        if name is None or name not in self.ranking.order or facts.starts_paused or facts.superseded or not facts.term:
            return
        gang = facts.gangs.of[name]
        if facts.pools.limits_known and (packed := better_places(facts, gang)):
            self.answers.rearrange(gang, packed, now)

    def _make_room_for_gangs(self, now: Moment) -> list[Effect]:
        facts = self.facts
        may_take = facts.recovery.complete and not (facts.preemption_paused or facts.starts_paused or facts.superseded)
        if not (may_take and facts.pools.limits_known and facts.term) or facts.shares_are_old(now):
            return []
        taken = self.gang_resources.tick(now)
        return [] if taken is None else [NudgeNode(node) for node in self.answers.make_room(taken, now)]

    def _releases(self, operations: Iterable[Operation]) -> list[Effect]:
        """Return the effects that tell the ledger which ending operations hold nothing on any node."""
        if not self.facts.term:
            return []
        released = [each for each in operations if each.ending and not each.may_run and not each.release_told]
        for operation in released:
            operation.release_told = True
        names = [operation.id for operation in released]
        return [Release(names[at : at + _MOST_RELEASED]) for at in range(0, len(names), _MOST_RELEASED)]

    def _finish_recovery(self, now: Moment) -> list[Effect]:
        if not self.facts.recovery.end_doubt(now):
            return []
        self.facts.unsettled.make_due(self.facts.doubtful)
        return self._settle(_SETTLED_AT_ONCE, now)

    def _settle(self, most: int, now: Moment) -> list[Effect]:
        """Settle up to `most` operations that are due: settle their unconfirmed jobs, lease indexes for them, or tell the ledger that no
        node holds anything of them.
        """
        due = [each for name in self.facts.unsettled.take(most) if (each := self.facts.operations.get(name))]
        doubtful = [each for each in due if self.facts.recovery.doubt_over and each.charged_doubt]
        effects = report_of(ends_of_lost(lose_doubtful(self.facts, doubtful), now))
        effects += [effect for operation in doubtful for effect in self._changed(operation)]
        for operation in due:
            effects += self._draws(operation)
        return effects + self._releases(due)
