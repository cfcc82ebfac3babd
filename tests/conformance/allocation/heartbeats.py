"""Heartbeats of a scenario: the allocator's engine, with nodes that do as they are told.

Every node's picture is sent to the engine as its agent would send it. After each heartbeat that counts a second one shows what became
of the orders, while starts and preemption are paused, so that the engine knows it as soon as the scenario does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headrace.ids import ROOT_POOL, AllocationId, Incarnation, NodeName, OperationId, PoolName
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.runtime.engine import Moment
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace.wire.heartbeat import (
    AllocationState,
    Heartbeat,
    HeartbeatReason,
    JobEnd,
    JobResult,
    JobSlot,
    Orders,
    Retry,
    TakeBack,
)
from headrace.wire.ledger import LiveOperation
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationState
from headrace.wire.start_stages import StartStage
from headrace_allocator.decide import HeartbeatDecision
from headrace_allocator.decision.least_satisfied import entry_of_pool, satisfaction
from headrace_allocator.decision.scheduling_order import Batch, in_scheduling_order
from headrace_allocator.decision.start_limits import held_back
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts import pool_tree
from headrace_allocator.facts.allocations import Allocation, waits_for_room
from headrace_allocator.facts.job_slots import JobSlots
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.stages import StageOutcome
from tests.conformance.allocation.passed_over import BEFORE_ATTEMPTS, PassedOver, known_reasons
from tests.conformance.allocation.places import EPOCH_S, Place, waiter_on
from tests.conformance.allocation.scenario import TREE, Scenario
from tests.conformance.allocation.updates import ShareSnapshot, agree
from tests.conformance.reporting import Comparison, Problem, Unsupported, only

__all__ = ["KEYS", "Fleet"]

_TERM: Final = 7
#: Stands for the node of allocations that are on no modelled one.
_NOWHERE: Final = "<nowhere>"
_REGULAR_STAGES: Final = {StartStage.REGULAR_HIGH_PRIORITY.value, StartStage.REGULAR_MEDIUM_PRIORITY.value}


def _written(amounts: Resources) -> dict[str, float]:
    """Amounts as a case writes them."""
    named = zip(RESOURCE_NAMES, amounts.as_tuple(), strict=True)
    return {name: amount / (100 if name == "cpu" else 1) for name, amount in named if amount}


def _sorted(key: str, expected: Any) -> Any:
    """An expectation with its sets in order."""
    if key == "preempted_reasons":
        return sorted(expected)
    if key == "deactivation_reasons":
        return {name: known_reasons(names) for name, names in expected.items()}
    return expected


def _named(pool: PoolName) -> str:
    return "<root>" if pool == ROOT_POOL else pool


@dataclass
class Happened:
    """What one heartbeat, or all of a run, led to."""

    scheduled: Counter[str]
    preempted: Counter[str]
    aborted: Counter[str]
    order: list[str]
    taken: list[TakeBack]
    stages_ran: bool = False
    passed_over: PassedOver | None = None
    #: Of the last heartbeat.
    decided: HeartbeatDecision = field(default_factory=HeartbeatDecision)
    precommitted: bool | None = None
    active: list[str] | None = None


class Fleet:
    """The nodes of a scenario and the engine that they speak with."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.places: dict[str, Place] = {}
        #: Nodes on which a started allocation of others waits for room.
        self.waiting: set[str] = set()
        self.happened = self._nothing()
        self._seq: Counter[str] = Counter()
        self._numbers = 0
        #: Name of an allocation in the case.
        self._names: dict[str, str] = {}
        self._cut: ShareSnapshot | None = None
        self.engine = self._an_engine()

    def revive(self) -> None:
        """A restart without saved state: the engine learns all from heartbeats."""
        self._seq.clear()
        self.engine = self._an_engine([self._left_running(name) for name in self.scenario.operations])
        for node in self._nodes():
            self._show(node)
        self._sync_operations()

    def add(self, given: Mapping[str, Any]) -> None:
        """Operations that came, and allocations that run already, in the order of the file."""
        self._sync_operations()
        for one in given.get("allocations", ()):
            for number in range(one.get("count", 1)):
                start_s = one.get("start", self.scenario.now_s) + number * one.get("start_step", 0.001)
                progress_s = one.get("progress_start", start_s)
                self._run(one, progress_s)
        self.write_back()

    def take(self, cut: ShareSnapshot) -> None:
        """A snapshot of shares."""
        self._cut = cut
        self._sync_operations()
        removed = [key for key in self.engine.facts.pools.pools if f"/{key}" not in cut.items]
        told = pool_tree.ShareSnapshot(
            cut.items, cut.items.keys(), [f"/{key}" for key in removed], cut.frame.total, cut.frame.options
        )
        self.engine.on_shares(told, self.now)
        while self.engine.on_refresh_due(10_000, self.now).answer:
            pass
        # Only this part of a tick: time passes between events without heartbeats, so a whole tick would give up nodes as silent.
        self.engine.reservations.tick(self.now)

    @property
    def now(self) -> Moment:
        """The scenario's."""
        now_s = self.scenario.now_s + EPOCH_S
        return Moment(steady_ns=round(now_s * 1e6) * 1000, wall_ms=round(now_s * 1000))

    # --- events ---------------------------------------------------------------------------------------------------

    def heartbeat(self, node: str, *, skip: bool = False) -> None:
        """One heartbeat and what follows from it."""
        self._end_overdue(node)
        self._show(node)
        self._let_waiting_run(node)
        facts = self.engine.facts
        facts.starts_paused = skip
        known = facts.nodes[NodeName(node)]
        ran_s = known.preemptive_stages_s
        high = {name for name in facts.operations if self.engine.ranking.order.is_high(name)}
        may_start = not skip and not waits_for_room(known.allocations.values())
        orders = self._beat(node)
        facts.starts_paused = False
        self.happened.stages_ran = known.preemptive_stages_s != ran_s
        self.happened.decided = self.engine.answers.decided
        self.happened.passed_over = PassedOver(facts, known, self.happened.decided, high, may_start=may_start)
        self._obey(node, orders)
        self._show(node)
        self.write_back()

    def set_usage(self, name: str, usage: Resources) -> None:
        """An allocation uses another amount than it was given."""
        self.engine.facts.set_usage(self._allocation_of(self._place(name)), usage)
        self.write_back()

    def set_waiting(self, nodes: Mapping[str, bool]) -> None:
        """Another's allocation was started on nodes and waits there for room, or does so no more."""
        for name, waits in nodes.items():
            if name not in self.scenario.nodes:
                raise Problem(f"no node is named {name}")
            (self.waiting.add if waits else self.waiting.discard)(name)

    def reset_progress(self, name: str) -> None:
        """A new job begins in an allocation."""
        place = self._place(name)
        place.progress_s = self.scenario.now_s
        self._show(place.node)

    def precommit(self, operation: str) -> None:
        """Another heartbeat, which is not over, holds room for a job of the operation."""
        facts, known = self.engine.facts, self._operation(operation)
        self.happened.precommitted = held_back(known, known.slots.ready_count, known.held) is None
        if self.happened.precommitted:
            name = AllocationId(f"concurrent-{len(facts.nodes[NodeName(_NOWHERE)].allocations)}")
            facts.add(Allocation(name, known.id, NodeName(_NOWHERE), known.spec.resources))
            self.engine.ranking.refresh(known)

    def preschedule(self, considered: Iterable[str]) -> None:
        """Exactly these operations take part."""
        batch = Batch.of(self.engine.facts, [OperationId(name) for name in considered])
        self.happened.active = sorted({*map(_named, batch.pools), *batch.operations})

    def finish(self, operation: str) -> None:
        """The operation is over, and all of it."""
        for place in [one for one in self.places.values() if one.operation == operation]:
            del self.places[place.name]
            self.engine.facts.remove(self._allocation_of(place))
        self.engine.facts.forget(self.engine.facts.operations[OperationId(operation)])
        self.engine.ranking.forget(OperationId(operation))

    def end_jobs(self, name: str, node: str, result: JobResult) -> None:
        """All running jobs of the operation on the node end, and the node says so. Failed jobs are ready again at once."""
        mine = [one for one in self.places.values() if (one.operation, one.node) == (name, node)]
        ends = [
            JobEnd(OperationId(name), one.slot.index, one.slot.attempt, AllocationId(one.name), result) for one in mine
        ]
        for one in mine:
            del self.places[one.name]
        self._beat(node, paused=True, ends=ends)
        operation = self._operation(name)
        for end in ends if result is JobResult.FAILED else ():
            operation.slots.retry(Retry(end.index, end.attempt + 1))
        self.engine.facts.note_jobs(operation)
        self.engine.ranking.refresh(operation)

    def name_of(self, place: str) -> str:
        """What the case calls an allocation."""
        return self._names[place]

    def begin(self) -> None:
        """What happens from now on is counted anew."""
        self.happened = self._nothing()

    def write_back(self) -> None:
        """The scenario knows what runs and what waits."""
        for name, work in self.scenario.operations.items():
            operation = self.engine.facts.operations[OperationId(name)]
            work.usage = operation.held
            if operation.spec.tasks:
                for number, task in enumerate(work.tasks):
                    task.pending = operation.slots.ready_of(number)
            else:
                work.tasks[0].pending = operation.slots.ready_count

    # --- what is expected -----------------------------------------------------------------------------------------

    def compared(self, expect: Mapping[str, Any]) -> Iterator[Comparison]:
        """Comparisons of those expectations that heartbeats answer, once the engine is found whole."""
        self._check()
        for key in KEYS & expect.keys():
            expected = _sorted(key, expect[key])
            actual = self._actual(key, expected)
            agrees = agree(expected, actual, 1e-6) if key == "local_satisfaction_now" else expected == actual
            yield Comparison(key, str(expected), str(actual), agrees)

    def _actual(self, key: str, expected: Any) -> Any:
        happened, records = self.happened, [one.preemption for one in self.happened.taken if one.preemption]
        match key:
            case "scheduled" | "preempted" | "aborted":
                return dict(getattr(happened, key))
            case "scheduled_order":
                return happened.order
            case "preempted_ids":
                return [self._names[one.allocation] for one in happened.taken]
            case "preempted_reasons":
                return sorted({record.reason.value for record in records})
            case "preempted_for":
                return [record.beneficiary or None for record in records][: len(expected)]
            case "preempted_properly":
                return [record.properly for record in records]
            case "preemption_timeouts":
                return [record.timeout_ms / 1000 for record in records]
            case "preemptive_stages_run":
                return happened.stages_ran
            case "deactivation_reasons":
                over = happened.passed_over
                return {name: sorted(over.reasons(name)) if over else [] for name in expected}
            case "preemption_counts":
                return {name: {group: self._counts(name)[group] for group in expected[name]} for name in expected}
            case "preemption_status":
                return {name: self.group_of(name).name.lower() for name in expected}
            case "not_preemptible":
                return [name for name in expected if self.group_of(name) is not Group.PREEMPTIBLE]
            case "usage":
                return {name: self._usage(name, amounts) for name, amounts in expected.items()}
            case "allocation_count":
                return {name: self._count(name) for name in expected}
            case "allocations_on_node":
                return {node: {name: self._count(name, node) for name in counts} for node, counts in expected.items()}
            case "stages":
                return {name: self._stage(name, figures) for name, figures in expected.items()}
            case "scheduled_stages":
                started = [*happened.decided.placements, *(each.placement for each in happened.decided.stages)]
                return [each.stage.value for each in started if each is not None]
            case "local_satisfaction_now":
                return {name: self._satisfaction(name) for name in expected}
            case "scheduling_index":
                order = self.engine.ranking.order
                names = list(in_scheduling_order(self.engine.facts, order))
                index = {
                    name: place for place, name in enumerate(sorted(names, key=lambda name: not order.is_high(name)))
                }
                return {name: index.get(OperationId(name)) for name in expected}
            case "scheduling_priority":
                order = self.engine.ranking.order
                return {name: "high" if order.is_high(OperationId(name)) else "medium" for name in expected}
            case "precommitted":
                return happened.precommitted
            case "active":
                return happened.active
            case "suspect":
                return sorted(self.engine.facts.failing.suspect)
            case "held_back":
                return sorted(self.engine.facts.failing.held)
            case "alive":
                return {name: name in {self._names[one] for one in self.places} for name in expected}
        raise Problem(f"nobody knows {key}")

    def _counts(self, name: str) -> dict[str, int]:
        groups = self._operation(name).cut_groups(self.engine.facts.pools)
        return {group.name.lower(): count for group, count in groups.counts().items()}

    def group_of(self, name: str) -> Group:
        """The group of an allocation, by what the case calls it."""
        place = self._place(name)
        groups = self._operation(place.operation).cut_groups(self.engine.facts.pools)
        return groups.group(self._allocation_of(place))

    def _usage(self, name: str, expected: Mapping[str, float]) -> dict[str, float]:
        facts = self.engine.facts
        is_operation = name in self.scenario.operations
        used = self._operation(name).held if is_operation else facts.pools.pool(name).used  # type: ignore[arg-type]
        return {part: getattr(used, part) / (100 if part == "cpu" else 1) for part in expected}

    def _stage(self, name: str, figures: Iterable[str]) -> dict[str, Any]:
        """Figures of a stage of the last heartbeat."""
        outcome = next((one for one in self.happened.decided.stages if one.stage.name.value == name), None)
        known: dict[str, Callable[[], Any]] = {"attempts": lambda: self._attempts(StartStage(name), outcome)}
        if outcome is not None:
            known |= {
                "preemptible_allocation_count": lambda: outcome.candidates,
                "discount": lambda: _written(outcome.discount),
                "conditional_discount": lambda: self._held(outcome),
            }
        elif name not in _REGULAR_STAGES:
            raise Problem(f"no stage {name} ran")
        return {figure: known[figure]() for figure in only(figures, known, name)}

    def _attempts(self, stage: StartStage, outcome: StageOutcome | None) -> int:
        """Starts, and operations that were tried in vain, where these are known: a stage that stopped early tried some of them."""
        started = [one.stage for one in (*self.happened.decided.placements, outcome and outcome.placement) if one]
        starts, over = started.count(stage), self.happened.passed_over
        if over is None or (starts and (outcome or not over.tried_all)):
            raise Unsupported(f"attempts of {stage.value}, which did not try everybody")
        high, operations = stage is StartStage.REGULAR_HIGH_PRIORITY, self.engine.facts.operations.values()
        if outcome is None:
            tried = [over.regular.get(one.id) for one in operations if (one.id in over.high) is high]
        else:
            tried = [over.all[one.id] for one in operations if one.preemption_priority is outcome.stage.priority]
        return starts + sum(not why <= BEFORE_ATTEMPTS for why in tried if why)

    def _held(self, outcome: StageOutcome) -> dict[str, dict[str, float]]:
        """What each operation below a shielded pool could have had in addition."""
        pools, found = self.engine.facts.pools, {}
        for name in self.scenario.operations:
            path = pools.pool(self._operation(name).spec.pool).path()
            amounts = Resources.sum(outcome.held.get(pool.name, ZERO) for pool in path)
            if amounts != ZERO:
                found[name] = _written(amounts)
        return found

    def _satisfaction(self, name: str) -> float | str:
        facts = self.engine.facts
        if name in self.scenario.operations:
            operation = self._operation(name)
            found = satisfaction(operation, operation.held)
        else:
            pool = facts.pools.pool(PoolName(name))
            found = entry_of_pool(pool, pool.used, facts.pools.total)[0]
        return "infinite" if found >= INFINITE_SATISFACTION else found

    def _count(self, operation: str, node: str | None = None) -> int:
        return sum(one.operation == operation and node in (None, one.node) for one in self.places.values())

    # --- the engine -----------------------------------------------------------------------------------------------

    def _an_engine(self, left_running: Sequence[LiveOperation] = ()) -> AllocatorEngine:
        """An engine that knows all nodes; with operations that run it waits for what the nodes show."""
        options = self.scenario.options
        allowed_s = options.get("allowed_node_resources_overcommit_duration", 15.0)
        most = options.get("max_started_allocations_per_heartbeat")
        engine = AllocatorEngine(TREE, _TERM, Timing(allowed_overcommit_s=allowed_s, most_starts=most))
        engine.on_operations(left_running, self.now)
        if not left_running:
            engine.on_nodes({}, self.now)
        records = {
            NodeName(name): NodeRecord(NodeName(name), tags=[name, *self.scenario.tags.get(name, ())])
            for name in self._nodes()
        }
        engine.on_nodes(records, self.now)
        self.engine = engine
        for name in self._nodes() if not left_running else ():
            self._beat(name, paused=True, shown=False)
        return engine

    def _left_running(self, name: str) -> LiveOperation:
        """The operation as the ledger has it for a new allocator: the jobs that run were given out by the one before."""
        work = self.scenario.operations[name]
        spec = work.spec()
        indexes = [place.slot.index for place in self.places.values() if place.operation == name]
        block = max(indexes, default=-1) + 1
        return LiveOperation(
            OperationId(name), "user", msgspec.structs.replace(spec, job_count=max(spec.job_count, block)),
            OperationState.RUNNING, False, False, work.order, block, _TERM - 1, done=bytes((block + 7) // 8),
        )  # fmt: skip

    def _nodes(self) -> list[str]:
        return [*self.scenario.nodes, _NOWHERE]

    def _operation(self, name: str) -> Operation:
        return self.engine.facts.operations[OperationId(name)]

    def _place(self, name: str) -> Place:
        """By what the case calls it."""
        return next(place for place in self.places.values() if self._names[place.name] == name)

    def _allocation_of(self, place: Place) -> Allocation:
        return self.engine.facts.nodes[NodeName(place.node)].allocations[AllocationId(place.name)]

    def _sync_operations(self) -> None:
        """The engine knows the operations of the scenario, and as many jobs as wait."""
        facts = self.engine.facts
        for name, work in self.scenario.operations.items():
            spec = work.spec()
            known = facts.operations.get(OperationId(name))
            if known is None:
                live = LiveOperation(
                    OperationId(name), "user", spec, OperationState.RUNNING, False, False,
                    work.order, 0, _TERM,
                )  # fmt: skip
                self.engine.on_operations([*self._known(), live], self.now)
                known = facts.operations[OperationId(name)]
            elif known.spec != spec:
                facts.set_spec(known, spec)
            waits = sum(task.pending for task in work.tasks)
            if spec.tasks:
                known.slots.draw(spec.job_count)
                for number, task in enumerate(work.tasks):
                    _let_wait(known.slots, number, task.pending)
            else:
                self._draw(known, waits - known.slots.ready_count)
                known.slots.return_ready(max(0, known.slots.ready_count - waits))
            known.set_state(known.state, suspended=work.given.get("suspended", False))
            facts.note_jobs(known)
            self.engine.ranking.refresh(known)

    def _known(self) -> Iterable[LiveOperation]:
        return [
            LiveOperation(
                each.id, each.user, each.spec, each.state, each.suspended, False, each.rank, each.slots.block, _TERM
            )
            for each in self.engine.facts.operations.values()
        ]

    @staticmethod
    def _draw(operation: Operation, more: int) -> None:
        if more > 0:
            below = operation.slots.block + more
            operation.slots.job_count = max(operation.slots.job_count, below)
            operation.slots.draw(below)

    def _run(self, given: Mapping[str, Any], progress_s: float | None) -> None:
        """An allocation that runs when the scenario begins, registered in the order of the file."""
        facts, operation = self.engine.facts, self._operation(given["operation"])
        work = self.scenario.operations[given["operation"]]
        resources = work.resources_of(given)
        task = given.get("task", 0) if operation.spec.tasks else None
        if task is None:
            self._draw(operation, 1)
        else:
            _let_wait(operation.slots, task, operation.slots.ready_of(task) + 1)
        slot = operation.slots.take(1, task=task)[0]
        node, name = given["node"] or _NOWHERE, f"given-{self._numbers}"
        place = Place(name, given["operation"], node, resources, slot, progress_s)
        self._enter(given.get("id"), place)
        allocation = Allocation(AllocationId(name), operation.id, NodeName(node), resources)
        allocation.slots = {slot.index: slot}
        allocation.state = AllocationState.RUNNING
        facts.add(allocation)
        facts.confirm(allocation)
        facts.set_job(allocation, place.report().job)
        facts.note_jobs(operation)
        self.engine.ranking.refresh(operation)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _beat(self, node: str, *, paused: bool = False, shown: bool = True, ends: Sequence[JobEnd] = ()) -> Orders:
        facts = self.engine.facts
        if paused:
            facts.starts_paused = facts.preemption_paused = True
        self._seq[node] += 1
        heartbeat = Heartbeat(
            node=NodeName(node),
            tree=TREE,
            incarnation=Incarnation("life-1"),
            seq=self._seq[node],
            applied=self._seq[node] - 1,
            term=_TERM,
            reason=HeartbeatReason.PERIOD,
            total=self.scenario.nodes.get(node, ZERO),
            allocations=[one.report() for one in self.places.values() if shown and one.node == node],
            ends=[*ends],
            # Every host was booted at the Unix epoch.
            boottime_ms=self.now.wall_ms,
        )
        if shown and node in self.waiting:
            heartbeat.allocations.append(waiter_on(node))
        answer = self.engine.on_heartbeat(heartbeat, self.now).answer
        assert answer is not None
        facts.starts_paused = facts.preemption_paused = False
        if not paused:
            self._check()
        return answer

    def _check(self) -> None:
        broken = self.engine.check()
        if broken:
            raise Problem("; ".join(broken))

    def _show(self, node: str) -> None:
        """The engine learns what the node has, and decides nothing."""
        orders = self._beat(node, paused=True)
        for place in [one for one in self.places.values() if one.node == node]:
            if place.state is AllocationState.ENDED:
                del self.places[place.name]
        # A pause does not hold up a gang for which all resources are held.
        self._obey_starts(node, orders)

    def _end_overdue(self, node: str) -> None:
        for place in self.places.values():
            if place.node == node and place.ends_s is not None and self.scenario.now_s >= place.ends_s:
                place.state = AllocationState.ENDED

    def _let_waiting_run(self, node: str) -> None:
        mine = [one for one in self.places.values() if one.node == node]
        used = Resources.sum(one.resources for one in mine if one.state is not AllocationState.WAITING)
        for place in mine:
            if place.state is AllocationState.WAITING and self.scenario.nodes[node].dominates(used + place.resources):
                place.state, place.progress_s = AllocationState.RUNNING, self.scenario.now_s
                used = used + place.resources
        if any(one.state is not AllocationState.WAITING for one in mine):
            self._show(node)

    def _obey(self, node: str, orders: Orders) -> None:
        for order in orders.take_back:
            place = self.places.get(order.allocation)
            if place is None or place.state is AllocationState.ENDED:
                continue
            work = self.scenario.operations[place.operation]
            if order.preemption is None:
                self.happened.aborted[place.operation] += 1
                place.state = AllocationState.ENDED
                continue
            if place.preemption is None:
                self.happened.preempted[place.operation] += 1
                self.happened.taken.append(order)
            place.preemption = order.preemption
            if work.given.get("interruptible", False) and (order.timeout_ms or 0) > 0:
                ends_s = self.scenario.now_s + (order.timeout_ms or 0) / 1000
                place.state = AllocationState.CLOSING
                place.ends_s = min(ends_s, place.ends_s if place.ends_s is not None else ends_s)
            else:
                place.state = AllocationState.ENDED
        self._obey_starts(node, orders)

    def _obey_starts(self, node: str, orders: Orders) -> None:
        for start in orders.start:
            self.happened.scheduled[start.operation] += 1
            self.happened.order.append(start.operation)
            self._start(node, start.allocation, start.operation, start.resources, start.slots[0])

    def _start(self, node: str, name: str, operation: str, resources: Resources, slot: JobSlot) -> None:
        kept = Resources.sum(
            one.resources
            for one in self.places.values()
            if one.node == node and one.state in (AllocationState.RUNNING, AllocationState.CLOSING)
        )
        fits = self.scenario.nodes[node].dominates(kept + resources)
        state = AllocationState.RUNNING if fits else AllocationState.WAITING
        self._enter(None, Place(name, operation, node, resources, slot, self.scenario.now_s if fits else None, state))

    def _enter(self, name: str | None, place: Place) -> None:
        """An allocation that the case knows by `name`, or by its number."""
        self.places[place.name] = place
        self._names[place.name] = name or f"a{self._numbers}"
        self._numbers += 1

    @staticmethod
    def _nothing() -> Happened:
        return Happened(Counter(), Counter(), Counter(), [], [])


KEYS: Final = {
    "suspect", "held_back",
    "scheduled", "preempted", "aborted", "scheduled_order", "preempted_ids", "preempted_reasons", "preempted_for",
    "preempted_properly", "preemption_timeouts", "preemptive_stages_run", "deactivation_reasons", "preemption_counts",
    "stages", "scheduled_stages", "local_satisfaction_now", "preemption_status", "not_preemptible", "usage",
    "allocation_count", "allocations_on_node", "alive", "scheduling_index", "scheduling_priority", "precommitted", "active",
}  # fmt: skip


def _let_wait(slots: JobSlots, task: int, count: int) -> None:
    """As many jobs of a task wait; its other jobs that are not out are elsewhere."""
    idle = [index for index in slots.tasks[task] if not slots.is_out(index)]
    for index in idle:
        slots.lose(index)
    for index in idle[:count]:
        slots._put(index, 0)
