"""A world in simulated time: the engines of all services and agents, connected without a bus. Pure.

What an engine wants to send reaches the other engines at the same simulated time, in the order of sending. A replay of the same task always
takes the same course: nothing is random, and nothing depends on real time.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Final, Protocol, TypeVar

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.pools import PoolTree, Tree
from headrace.runtime.engine import NS_PER_MS, Moment, Outcome
from headrace.wire.heartbeat import Heartbeat, JobEnd, JobKey, JobResult, Nudge
from headrace.wire.ledger import ReportedEnd
from headrace.wire.log import OperationStarted, OperationStateChanged
from headrace.wire.nodes import NodeRecord
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import FINAL_STATES, OperationState, StartOperation
from headrace.wire.replay import ReplayNode, ReplayTask, ToldEntry
from headrace.wire.snapshots import UsageItem
from headrace.wire.version import Version
from headrace_agent.run_order import AdoptionNote
from headrace_agent.runner.protocol import Run
from headrace_allocator.effects import Draw, Effect, NudgeNode, RecordEmptyNodes, Release, Report, StepDown, Superseded
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.preemption.stages import may_have_work
from headrace_allocator.usage_changes import UsageChanges, usage_changed
from headrace_fair_share.effects import Publish
from headrace_fair_share.facts.usage import UsageChange
from headrace_simulator.offers import Offers, WaitingJobs
from headrace_simulator.outages import Outage
from headrace_simulator.recording import Action, JobRun, running_at
from headrace_simulator.results import Counted, PoolAccount
from headrace_simulator.simulated_admission import ReplayedLedger
from headrace_simulator.simulated_fair_share import STEPS_UNTIL_AFRESH, ReplayedShares
from headrace_simulator.simulated_node import PACE_MS, BrokenReplay, SimulatedNode, kept_run

A = TypeVar("A")
#: Called with the simulated time, in milliseconds since the beginning.
Say = Callable[[int], None]
#: Value of the steady clock at the beginning. It is so large that jobs which began before the replay have starts above 0.
_BEGIN_NS: Final = 10**9 * NS_PER_MS
#: Seconds after which nodes count as silent and shares as too old. It is longer than any replay, so neither happens.
_NEVER_S: Final = 1e9
#: Number of heartbeats that all nodes together send in a replay in which nothing happens on them. It bounds the time that a replay of a
#: large tree takes.
_QUIET_HEARTBEATS: Final = 20_000
#: Largest number of nodes that are examined at each tick while something starves, and that are nudged because allocations may be preempted
#: there.
_LOOKED_AT: Final = 256
_NUDGED: Final = 16
_TICK_MS: Final = 1_000
#: There is at most one update per step on average. After steps without an update, further updates may follow each other quickly, one for
#: each of these steps, but at most this number.
_MOST_SAVED_STEPS: Final = 50
_SCAN_MS: Final = 60_000
_REFRESHED_AT_ONCE: Final = 1_000
#: Time from the end of an operation until the source may forget it.
_FORGOTTEN_NS: Final = 600 * 10**9
#: Time without a begin or an end of a job, or with failing nodes without an end, after which the operations that wait never start.
_STUCK_NS: Final = 7 * 86_400 * 10**9
#: Longest time between two ticks or updates where quiet times are skipped.
_LONGEST_QUIET_NS: Final = 3_600 * 10**9
#: Times since something happened between which time-outs of starvation and of gangs usually end.
_TIME_OUTS_NS: Final = (15 * 10**9, 60 * 10**9)
#: As `STEPS_UNTIL_AFRESH`, where quiet times are skipped: most steps are quiet, so every second update would be computed from scratch.
_QUIET_STEPS_UNTIL_AFRESH: Final = 600
#: Time from a change of usage to the report of it in a simulation in which quiet times are skipped. Many starts are reported together.
_USAGE_NS: Final = 10 * NS_PER_MS


class Source(Protocol):
    """The input of a simulation: its past, the requests of people, the failures of nodes, and the lengths of jobs."""

    @property
    def past(self) -> Sequence[ToldEntry]:
        """The entries of the log from before the period."""

    @property
    def runs(self) -> Sequence[JobRun]:
        """Runs of jobs, among them those that are running when the period begins."""

    @property
    def specs(self) -> Mapping[OperationId, OperationSpec]:
        """The specs of the operations that have started and not been forgotten."""

    @property
    def users(self) -> Mapping[OperationId, str]:
        """The users of the same operations."""

    @property
    def keeps_finished(self) -> int:
        """Number of finished operations that admission remembers."""

    def requests(self) -> Iterator[Action]:
        """Yield the requests of people. Those are performed in this order; one with an earlier time than the one before at once."""

    def following(self, operation: OperationId, now_ms: int) -> Iterator[Action]:
        """Yield the requests that follow the end of an operation."""

    def outages(self) -> Iterator[Outage]:
        """Yield the failures of nodes in the order of their times."""

    def length_of(self, operation: OperationId, index: int, run: int) -> tuple[int, JobResult]:
        """Return the length in milliseconds and the result of a run of a job. `run` numbers the job's runs that end by themselves."""

    def kept_fraction(self, operation: OperationId) -> float:
        """Return the fraction of the work of an interrupted run that the job's next run need not repeat, from 0 to 1."""

    def forget(self, operation: OperationId) -> None:
        """Forget an operation of which nothing runs any more."""


class World:
    """One simulation: the requests of a source under one configuration."""

    def __init__(
        self, task: ReplayTask, source: Source, after: Tree, account: PoolAccount, say: Say, *, until_over: bool = False
    ) -> None:
        """`say` is told the simulated time in milliseconds since the beginning of the period.

        With `until_over` the simulation does not end with the period, but when all operations have ended, or when no job has begun or
        ended for a long time although operations wait. Time in which nothing happens is skipped.
        """
        self._task, self._source, self._say = task, source, say
        self._counted = Counted.of(task.resource)
        self.account = account
        self._now_ns, self._numbers = _BEGIN_NS, count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._requests = source.requests()
        self._ended_by_themselves: dict[tuple[OperationId, int], int] = {}
        self._ran_ms: dict[tuple[OperationId, int], int] = {}
        self._begun: dict[JobKey, tuple[Run, int]] = {}
        self._usage_version = 0
        self._next_update_ns = self._spent_ns = self._next_tick_ns = _BEGIN_NS
        self._is_usage_due = self._is_refresh_due = self._is_offer_due = False
        #: True once all requests were performed that follow no operation; number of scheduled requests that follow one.
        self._all_asked, self._follow_ups = False, 0
        #: Time of the last request, or of the last begin or end of a job.
        self._moved_ns = _BEGIN_NS
        #: A number that grows when a further pool or operation starves, or starves more.
        self._starving = 0
        #: Time of the last request or end of a job that ran to its end, and, if no node fails, of the last begin; longest job so far.
        self._progress_ns, self._longest_ms = _BEGIN_NS, 0
        #: True if the time between two ticks or updates grows while nothing happens, and nodes send heartbeats only if they may start jobs.
        self._skips_quiet_times = until_over
        self._waiting = WaitingJobs()
        #: Ends of jobs that are to be reported to admission.
        self._ends: list[ReportedEnd] = []
        self.ledger = ReplayedLedger(task, source.past, after, self.now, keep_finished=source.keeps_finished)
        self._outages = source.outages()
        self._next_outage = next(self._outages, None)
        usual = Timing()
        timing = Timing(
            node_heartbeat_timeout_s=usual.node_heartbeat_timeout_s if self._next_outage else _NEVER_S,
            node_lease_s=usual.node_lease_s if self._next_outage else _NEVER_S,
            shares_count_for_s=_NEVER_S,
            shortest_pace_ms=PACE_MS,
        )
        self.allocator = AllocatorEngine(task.tree, self.ledger.allocator_term, timing)
        self._offers = Offers(self.allocator.facts.nodes)
        self.shares = ReplayedShares(
            task,
            after,
            self._publish,
            steps_until_afresh=_QUIET_STEPS_UNTIL_AFRESH if until_over else STEPS_UNTIL_AFRESH,
        )
        self._node_quiet_ms = (task.until_ms - task.since_ms) * len(task.nodes) // _QUIET_HEARTBEATS
        self._nodes = {node.node: self._new_node(node, 1) for node in task.nodes}
        #: Failed nodes; the runs of each node's agent; what each node offers.
        self._down: set[NodeName] = set()
        self._runs = Counter(list(self._nodes))
        self._kinds = {node.node: node for node in task.nodes}
        #: Nodes in the order in which they are nudged while an operation or pool starves.
        self._order = deque(self._nodes)
        self._pools = PoolTree(after)

    @property
    def now(self) -> Moment:
        """The current simulated time."""
        return Moment(self._now_ns, self._task.since_ms + (self._now_ns - _BEGIN_NS) // NS_PER_MS)

    def at(self, at_ns: int, do: Callable[[], None]) -> None:
        """Call a function when the steady clock reaches this time."""
        heapq.heappush(self._due, (max(at_ns, self._now_ns), next(self._numbers), do))

    def run(self) -> None:
        """Run from the beginning to the end."""
        self._begin()
        end_ns = _BEGIN_NS + (self._task.until_ms - self._task.since_ms) * NS_PER_MS
        if self._skips_quiet_times:
            while not self._is_over():
                self._step()
            end_ns = self._now_ns
        else:
            while self._due and self._due[0][0] <= end_ns:
                self._step()
        self._end(end_ns)

    def _step(self) -> None:
        self._now_ns, _, do = heapq.heappop(self._due)
        do()
        self._say((self._now_ns - _BEGIN_NS) // NS_PER_MS)

    def _is_over(self) -> bool:
        if not self._all_asked or self._follow_ups:
            return False
        if not self.ledger.engine.state.live:
            return not self._begun
        if self._begun and self._next_outage is None:
            return False
        # Jobs that are longer than the time between failures would be tried for ever.
        longest_ns = 2 * self._longest_ms * NS_PER_MS if self._begun else 0
        return self._now_ns > self._progress_ns + _STUCK_NS + longest_ns

    def _end(self, end_ns: int) -> None:
        self._now_ns = end_ns
        for run, began_ms in self._begun.values():
            self._count_run(run, began_ms, self.now.wall_ms, repeats=False)

    # --- the beginning --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        task, now = self._task, self.now
        self.shares.begin(self.ledger.live(), self.ledger.ephemeral_pools(), now)
        self._take(self.allocator.on_options(self._pools.options, now))
        self._take(self.allocator.on_operations(self.ledger.live(), now))
        records = {
            each.node: NodeRecord(each.node, task.tree, each.tags, isolated=each.isolated) for each in task.nodes
        }
        self._take(self.allocator.on_nodes(records, now))
        there = running_at(self._source.runs, task.since_ms, list(self._nodes))
        for name, node in self._nodes.items():
            runs = [run for run in there[name] if self.ledger.is_out(run)]
            node.start([(self._kept(run), run.started_at_ms) for run in runs])
        self._await_request()
        self._await_outage()
        self._await_tick(self._now_ns)
        self.at(self._now_ns, self._scan)
        self.at(self._now_ns, self._update)

    def _kept(self, run: JobRun) -> Run:
        spec = self._source.specs[run.operation]
        size = spec.size_of(run.index)
        note = AdoptionNote(size, spec.job_spec(run.operation, self._source.users[run.operation], 0))
        job = JobKey(run.operation, run.index, run.attempt)
        allocation = f"kept-{run.operation}-{run.index}"
        return kept_run(job, allocation, note, size.cpu, size.memory)

    # --- people and time ------------------------------------------------------------------------------------------

    def _await_request(self) -> None:
        """Schedule the next request. Only one is scheduled at a time, so that a long workload takes little memory."""
        action = next(self._requests, None)
        if action is None:
            self._all_asked = True
            return
        self._perform_at(action.at_ms, lambda: self._act_in_turn(action))

    def _act_in_turn(self, action: Action) -> None:
        self._act(action)
        self._await_request()

    def _act(self, action: Action) -> None:
        self._note_move()
        self._progress_ns = self._now_ns
        self.ledger.act(action, self.account, self.now)
        self._feed()
        request = action.request
        if isinstance(request, StartOperation) and request.operation not in self.ledger.engine.state.operations:
            # It was refused, so it is over.
            self._follow(request.operation)

    def _follow(self, operation: OperationId) -> None:
        """Schedule the requests that follow the end of an operation."""
        for action in self._source.following(operation, self.now.wall_ms):
            self._follow_ups += 1
            self._perform_at(action.at_ms, lambda action=action: self._act_after(action))  # type: ignore[misc]

    def _act_after(self, action: Action) -> None:
        self._follow_ups -= 1
        self._act(action)

    def _perform_at(self, wall_ms: int, do: Callable[[], None]) -> None:
        self.at(_BEGIN_NS + (wall_ms - self._task.since_ms) * NS_PER_MS, do)

    def _tick(self) -> None:
        self.ledger.look_at_times(self.now)
        if self._next_outage is not None:
            self._note_heard()
        self._take(self.allocator.on_tick(self.now))
        self._want_refresh()
        self._feed()
        if self._starving:
            self._look_for_preemption()
        if self._skips_quiet_times:
            self._offer()
        self._await_tick(self._now_ns + max(self._tick_ns, self._quiet_ns()))

    def _look_for_preemption(self) -> None:
        """Let the next nodes on which allocations may be preempted send a heartbeat."""
        facts, order = self.allocator.facts, self.allocator.ranking.order
        looked_at = nudged = 0
        for name in islice(self._order, _LOOKED_AT):
            looked_at += 1
            node = facts.nodes.get(name)
            if node is not None and may_have_work(facts, node, order):
                self._nudge_soon(name)
                nudged += 1
                if nudged == _NUDGED:
                    break
        self._order.rotate(-looked_at)

    def _await_tick(self, at_ns: int) -> None:
        self._next_tick_ns = at_ns
        self.at(at_ns, lambda: self._tick() if self._next_tick_ns == at_ns else None)

    @property
    def _tick_ns(self) -> int:
        """Shortest time between two ticks of the allocator."""
        return max(_TICK_MS, self._task.step_ms) * NS_PER_MS

    def _note_move(self) -> None:
        """Note that something happens now, after which the engines are to be asked soon."""
        self._moved_ns = self._now_ns
        soon_ns = self._now_ns + self._tick_ns
        if self._skips_quiet_times and self._next_tick_ns > soon_ns:
            self._await_tick(soon_ns)

    def _offer(self) -> None:
        """Let the nodes on which jobs may start send a heartbeat, one after the other, if jobs wait."""
        if not self._waiting:
            return
        self._offers.begin(self._waiting.least_cpu)
        if not self._is_offer_due:
            self._is_offer_due = True
            self.at(self._now_ns, self._offer_next)

    def _offer_next(self) -> None:
        name = self._offers.next() if self._waiting else None
        self._is_offer_due = name is not None
        if name is not None:
            self._nudge(name)
            # The next node is asked a nanosecond later: the jobs of this one have started by then.
            self.at(self._now_ns + 1, self._offer_next)

    def _scan(self) -> None:
        self.ledger.scan(self.now)
        self._feed()
        self.at(self._now_ns + _SCAN_MS * NS_PER_MS, self._scan)

    def _update(self) -> None:
        """Update the shares if an update is due, and schedule the next one."""
        if self._update_due_ns() <= self._now_ns:
            before = self.shares.engine.updates
            self.shares.update(self.now)
            if self.shares.starving > self._starving:
                # More may be preempted now, so the next looks follow soon.
                self._note_move()
            self._starving = self.shares.starving
            if self.shares.engine.updates > before:
                self._spent_ns = max(self._spent_ns, self._now_ns) + self._task.step_ms * NS_PER_MS
        self._await_update(max(self._update_due_ns(), self._now_ns + max(NS_PER_MS, self._quiet_ns())))

    def _quiet_ns(self) -> int:
        """Return the shortest time to the next tick or update. While jobs wait, it grows with the time for which nothing has happened: the
        engines are asked often as long as time-outs are running, which are some 30 s.
        """
        if not self._skips_quiet_times:
            return 0
        if not self._waiting:
            return _LONGEST_QUIET_NS
        still_ns = self._now_ns - self._moved_ns
        growth = 1 if _TIME_OUTS_NS[0] <= still_ns < _TIME_OUTS_NS[1] else 3
        return min(growth * still_ns, _LONGEST_QUIET_NS)

    def _update_sooner(self) -> None:
        due_ns = self._update_due_ns()
        if due_ns < self._next_update_ns:
            self._await_update(due_ns)

    def _update_due_ns(self) -> int:
        """Return the time at which the next update is due: soon after a change, but on average at most once per step."""
        due_ns = self._now_ns + round(self.shares.seconds_until_update(self.now) * 1e9)
        return max(due_ns, self._spent_ns - _MOST_SAVED_STEPS * self._task.step_ms * NS_PER_MS)

    def _await_update(self, at_ns: int) -> None:
        self._next_update_ns = at_ns
        self.at(at_ns, lambda: self._update() if self._next_update_ns == at_ns else None)

    # --- between the engines --------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Pass the events that admission recorded to the other engines."""
        for events in self.ledger.take():
            self.shares.on_events(events, self.now)
            self._take(self.allocator.on_events(events, self.now))
            self._update_sooner()
            for event in events:
                if isinstance(event, OperationStarted):
                    self._waiting.change(event.operation, event.spec.resources.cpu, event.spec.job_count)
                elif isinstance(event, OperationStateChanged) and event.state in FINAL_STATES:
                    self._on_over(event)

    def _on_over(self, event: OperationStateChanged) -> None:
        operation, completed = event.operation, event.state is OperationState.COMPLETED
        self._waiting.drop(operation)
        self.account.on_over(operation, self.ledger.pool_of(operation), self.now.wall_ms, completed=completed)
        self._follow(operation)
        # Jobs of an aborted or failed operation may still run for a moment.
        self.at(self._now_ns + _FORGOTTEN_NS, lambda: self._source.forget(operation))

    def _publish(self, effect: Publish) -> None:
        changed, now = [item.key for item in effect.changed], self.now
        self._take(self.allocator.on_shares(self.shares.cut(changed, effect), now))
        self.account.on_shares(effect.frame, effect.changed, effect.removed, now.wall_ms)
        self._want_refresh()
        if self._skips_quiet_times and changed:
            self.at(self._now_ns, self._offer)

    def _want_refresh(self) -> None:
        if not self._is_refresh_due:
            self._is_refresh_due = True
            self.at(self._now_ns, self._refresh)

    def _refresh(self) -> None:
        self._is_refresh_due = False
        while self._take(self.allocator.on_refresh_due(_REFRESHED_AT_ONCE, self.now)):
            pass
        passes = self.allocator.yarn
        more = passes.is_due(self.now)
        while more:
            more = self._take(passes.on_due(_REFRESHED_AT_ONCE, self.now))

    def _tell_usage(self) -> None:
        self._is_usage_due = False
        cut: UsageChanges | None = None
        while cut is None:
            cut = self._take(self.allocator.on_usage_due(_REFRESHED_AT_ONCE, self.now))
        self._usage_version += 1
        version = Version(self.ledger.allocator_term, self._usage_version)
        items: list[UsageItem] = cut.items
        self.shares.on_usage(UsageChange(version, cut.frame, items, frozenset(cut.gone)), self.now)
        # Usage decides only what starves, and the next usual update is soon enough for that. Demand changes come with events.
        if not self._skips_quiet_times:
            self._update_sooner()

    def _take(self, outcome: Outcome[A, Effect]) -> A:
        """Perform the effects of the allocator. Return the answer."""
        for effect in outcome.effects:
            self._perform(effect)
        facts: Facts = self.allocator.facts
        if not self._is_usage_due and usage_changed(facts):
            self._is_usage_due = True
            self.at(self._now_ns + (_USAGE_NS if self._skips_quiet_times else 0), self._tell_usage)
        if facts.unsettled.some_due:
            self._want_refresh()
        return outcome.answer

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Report(ends):
                if not self._ends:
                    self.at(self._now_ns, self._report)
                self._ends += ends
            case Draw() | Release():
                self.at(self._now_ns, lambda: self._ask_ledger(effect))
            case RecordEmptyNodes():
                self.at(self._now_ns, self._record_empty_nodes)
            case NudgeNode(node) if node in self._nodes:
                self._nudge_soon(node)
            case StepDown() | Superseded():
                raise BrokenReplay(f"the allocator believes that another allocator is the leader: {effect}")

    def _record_empty_nodes(self) -> None:
        self._take(self.allocator.on_empty_nodes_recorded(durable=True, now=self.now))

    def _nudge_soon(self, name: NodeName) -> None:
        self.at(self._now_ns, partial(self._nudge, name))

    def _nudge(self, name: NodeName) -> None:
        self._nodes[name].on_nudge(Nudge(name, self.ledger.allocator_term))

    def _report(self) -> None:
        """Report ends of jobs to admission, those of all nodes together."""
        ends, self._ends = self._ends, []
        self.ledger.report(ends, self.now)
        self._take(self.allocator.on_recorded(ends, self.now))
        self._feed()

    def _ask_ledger(self, effect: Draw | Release) -> None:
        now = self.now
        match effect:
            case Draw():
                self._take(self.allocator.on_drawn(effect.operation, self.ledger.draw(effect, now), now))
            case Release(operations):
                self.ledger.release(operations, now)
        self._feed()

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _new_node(self, node: ReplayNode, run: int) -> SimulatedNode:
        return SimulatedNode(node, self._task.tree, self, self._node_quiet_ms, run)

    def _note_heard(self) -> None:
        """Have the allocator count all nodes but the failed ones as heard, since quiet heartbeats are skipped."""
        facts, now = self.allocator.facts, self.now
        for name, node in facts.nodes.items():
            if name not in self._down:
                facts.last_heard.note(node, now)

    def _await_outage(self) -> None:
        outage = self._next_outage
        if outage is not None:
            self._perform_at(outage.at_ms, lambda: self._fail(outage))

    def _fail(self, outage: Outage) -> None:
        """Let a node fail. The allocator notices by its silence, and the node comes back as a new run of its agent."""
        self._note_move()
        self._down.add(outage.node)
        self._nodes[outage.node].fail()
        self.at(self._now_ns + (outage.until_ms - outage.at_ms) * NS_PER_MS, lambda: self._come_back(outage.node))
        self._next_outage = next(self._outages, None)
        self._await_outage()

    def _come_back(self, name: NodeName) -> None:
        self._note_move()
        self._down.discard(name)
        self._runs[name] += 1
        self._nodes[name] = self._new_node(self._kinds[name], self._runs[name])
        self._nodes[name].start([])

    def on_heartbeat(self, node: SimulatedNode, heartbeat: Heartbeat) -> None:
        """Hand a heartbeat to the allocator, and the allocator's answer to the node."""
        orders = self._take(self.allocator.on_heartbeat(heartbeat, self.now))
        if orders is None:
            raise BrokenReplay(f"the allocator did not answer node {heartbeat.node}")
        self.at(self._now_ns, lambda: node.on_orders(orders))

    def on_job_begun(self, run: Run, started_at_ms: int) -> tuple[int, JobResult]:
        """Return for how many milliseconds from its start the job runs if it is not interrupted, and its result then."""
        operation, index = key = (run.job.operation, run.job.index)
        self._note_move()
        self._begun[run.job] = (run, started_at_ms)
        self._note_waiting(operation, -1)
        if self._next_outage is None:
            self._progress_ns = self._now_ns
        self.account.on_job_begun(operation, self.ledger.pool_of(operation), self._amount(run), started_at_ms)
        length_ms, result = self._source.length_of(operation, index, self._ended_by_themselves.get(key, 0))
        self._longest_ms = max(self._longest_ms, length_ms)
        return max(0, length_ms - self._ran_ms.get(key, 0)), result

    def on_job_over(self, run: Run, end: JobEnd, *, repeats: bool) -> None:
        """Record the end of a run. `repeats`: the job runs again because of preemption, its gang or a failure of the node."""
        key = (end.operation, end.index)
        self._note_move()
        del self._begun[run.job]
        if end.result in (JobResult.ABORTED, JobResult.LOST):
            kept_ms = round(self._source.kept_fraction(end.operation) * (end.ended_at_ms - end.started_at_ms))
            self._note_waiting(end.operation, 1)
            if kept_ms:
                self._ran_ms[key] = self._ran_ms.get(key, 0) + kept_ms
        else:
            self._progress_ns = self._now_ns
            self._ran_ms.pop(key, None)
            # A completed job does not run again, so nothing is kept of it.
            if end.result is not JobResult.COMPLETED:
                self._note_waiting(end.operation, 1)
                self._ended_by_themselves[key] = self._ended_by_themselves.get(key, 0) + 1
        self._count_run(run, end.started_at_ms, end.ended_at_ms, repeats=repeats)

    def _note_waiting(self, operation: OperationId, more: int) -> None:
        """Count jobs of an operation that wait. Nothing is counted for operations that are over."""
        if operation in self.ledger.engine.state.live:
            self._waiting.change(operation, self._source.specs[operation].resources.cpu, more)

    def on_preempted(self, allocation: AllocationId) -> None:
        """Count an allocation that was preempted."""
        for node in self.allocator.facts.nodes.values():
            known = node.allocations.get(allocation)
            if known is not None:
                self.account.on_preempted(self.ledger.pool_of(known.operation))
                return

    def _count_run(self, run: Run, began_ms: int, ended_ms: int, *, repeats: bool) -> None:
        operation = run.job.operation
        lost = 1 - self._source.kept_fraction(operation) if repeats else 0.0
        pool = self.ledger.pool_of(operation)
        self.account.on_run(operation, pool, (began_ms, ended_ms), self._amount(run), lost)

    def _amount(self, run: Run) -> float:
        return self._counted.amount(self._source.specs[run.job.operation].resources)
