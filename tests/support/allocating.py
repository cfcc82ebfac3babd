"""Builders for tests of the allocator: nodes, operations, heartbeats, in a line each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from headrace.ids import Incarnation, NodeName, OperationId, PoolName, TreeName
from headrace.job_tasks import with_tasks
from headrace.pools.amounts import PartialResources
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import Resources, Share
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Moment
from headrace.wire.codec import encode
from headrace.wire.heartbeat import Heartbeat, HeartbeatReason, Orders
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import Event
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem
from headrace.wire.tasks import Task
from headrace_allocator.effects import Effect
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.explain.waiting import waiting_reasons
from headrace_allocator.explain.words import words_of
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node, Timing
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.links.node_reports import PictureReader
from headrace_allocator.usage_changes import UsageChanges
from tests.support.clocks import at

__all__ = ["TREE", "Desk", "a_share", "an_operation", "cores", "drawn_before", "nothing_owed", "with_task_sizes"]

TREE = TreeName("default")
TERM = 5


def cores(count: float, slots: int = 1) -> Resources:
    return Resources(user_slots=slots, cpu=int(count * 100))


def an_operation(
    name: str, jobs: int = 10, size: Resources | None = None, term: int = TERM, **changes: Any
) -> LiveOperation:
    """A running operation whose first jobs may go out at once."""
    block = min(jobs, 256)
    spec = OperationSpec(PoolName("p"), ["work"], jobs, size or cores(1))
    live = LiveOperation(
        operation=OperationId(name),
        user="anna",
        spec=spec,
        state=OperationState.RUNNING,
        suspended=False,
        ephemeral_pool=False,
        started_at_ms=1,
        block=block,
        block_term=term,
        done=bytes((block + 7) // 8),
    )
    return msgspec.structs.replace(live, **changes)


def with_task_sizes(live: LiveOperation, *tasks: tuple[int, Resources], of_gang: Sequence[int] = ()) -> LiveOperation:
    """The operation, with tasks of these numbers and sizes of jobs in place of its own jobs; all jobs are leased.

    The jobs of the tasks `of_gang` start together.
    """
    told = [Task(f"task-{n}", ["work"], jobs, size, is_gang=n in of_gang) for n, (jobs, size) in enumerate(tasks)]
    spec = with_tasks(live.spec, told)
    return msgspec.structs.replace(live, spec=spec, block=spec.job_count, done=bytes((spec.job_count + 7) // 8))


def drawn_before(live: LiveOperation) -> LiveOperation:
    """The operation, with jobs that a former allocator drew."""
    return msgspec.structs.replace(live, block_term=TERM - 1)


def a_share(name: str, cpu: float, demand: float = 1.0) -> ShareItem:
    """An operation that is owed this share of the cpu, and as many slots as it likes."""
    fair: Share = (1.0, cpu, 0.0, 0.0, 0.0)
    return ShareItem(
        ElementKind.OPERATION,
        name,
        PoolName("p"),
        fair_share=DetailedShare(weight_proportional=fair, total=fair),
        demand_share=(1.0, demand, 0.0, 0.0, 0.0),
    )


def nothing_owed(live: LiveOperation) -> ShareItem:
    """The share of an operation that wants very much and is owed nothing so far."""
    wanted: Share = (1e6, 1e6, 1e6, 1e6, 1e6)
    return ShareItem(
        ElementKind.OPERATION, live.operation, live.spec.pool, demand_share=wanted, rank=live.started_at_ms
    )


class Desk:
    """An engine, and nodes that are spoken for by hand."""

    def __init__(self, nodes: dict[str, Resources], *, recovering: bool = False, **timing: Any) -> None:
        """With `recovering` the engine waits for the word of the nodes, as after a start. Else they were enrolled later."""
        # Shares are told when a test says so, and count until then.
        self.engine = AllocatorEngine(TREE, TERM, Timing(**{"shares_count_for_s": math.inf, **timing}))
        self.nodes = nodes
        self.seq = dict.fromkeys(nodes, 0)
        self.applied = dict.fromkeys(nodes, 0)
        self._pictures = PictureReader(nodes)
        self.now_s = 100.0
        #: Of the tree: nodes here have no memory that could be spared.
        self.options = AllocationOptions(min_spare_allocation_resources_on_node=PartialResources(user_slots=1))
        records = {NodeName(name): NodeRecord(NodeName(name)) for name in nodes}
        self.engine.on_operations([], self.now)
        if not recovering:
            self.engine.on_nodes({}, self.now)
        self.engine.on_nodes(records, self.now)
        Desk.tell(self, [], total=cores(1000, slots=1000))

    @property
    def now(self) -> Moment:
        return at(self.now_s)

    @property
    def facts(self) -> Facts:
        return self.engine.facts

    def refresh(self) -> list[Effect]:
        """Every operation that is marked gets its place in the order."""
        effects: list[Effect] = []
        more = True
        while more:
            outcome = self.engine.on_refresh_due(1000, self.now)
            more = outcome.answer
            effects += outcome.effects
        while (passed := self.engine.yarn.on_due(1000, self.now)).answer:
            effects += passed.effects
        return [*effects, *passed.effects]

    def cut_usage(self) -> UsageChanges:
        """The usage that changed since the last cut."""
        cut = None
        while cut is None:
            cut = self.engine.on_usage_due(1000, self.now).answer
        return cut

    def start(self, *operations: LiveOperation) -> Sequence[Effect]:
        """These operations are all that live. A snapshot names those of them that none named before, and owes them nothing."""
        effects = self.engine.on_operations(operations, self.now).effects
        pools = self.facts.pools
        unnamed = [each for each in operations if self.operation(each.operation).share is None]
        if unnamed and pools.limits_known:
            Desk.tell(self, [nothing_owed(each) for each in unnamed], total=pools.total)
        self.refresh()
        return effects

    def share(self, **shares: float) -> Sequence[Effect]:
        """Shares of operations, by name with `_` for `-`."""
        return self.tell([a_share(name.replace("_", "-"), cpu) for name, cpu in shares.items()])

    def tell(self, shares: Iterable[ShareItem], total: Resources | None = None) -> Sequence[Effect]:
        """A snapshot of shares in which all is new, of all nodes unless another cluster is given.

        Operations stand in the pools that they are in, whatever their items say.
        """
        total = Resources.sum(self.nodes.values()) if total is None else total
        items = {item.key: self._in_its_pool(item) for item in shares}
        self.engine.on_shares(ShareSnapshot(items, items.keys(), total=total, options=self.options), self.now)
        return self.refresh()

    def _in_its_pool(self, item: ShareItem) -> ShareItem:
        known = self.facts.operations.get(OperationId(item.name)) if item.kind is ElementKind.OPERATION else None
        return item if known is None else msgspec.structs.replace(item, parent=known.spec.pool)

    def tick(self, now_s: float) -> Sequence[Effect]:
        return self.engine.on_tick(at(now_s)).effects

    def learn(self, *events: Event) -> Sequence[Effect]:
        return self.engine.on_events(events, self.now).effects

    def operation(self, name: str) -> Operation:
        return self.facts.operations[OperationId(name)]

    def node(self, name: str) -> Node:
        return self.facts.nodes[NodeName(name)]

    def reasons(self, operation: str) -> list[str]:
        """Why its jobs wait, in words."""
        return [
            words_of(reason)
            for reason in waiting_reasons(self.facts, self.engine.ranking.order, self.operation(operation), self.now)
        ]

    def beat(self, node: str, *, obeyed: bool = True, **changes: Any) -> tuple[Orders, Sequence[Effect]]:
        """A heartbeat of the node and the answer; the last answer was obeyed or not."""
        if obeyed:
            self.applied[node] = self.seq[node]
        self.seq[node] += 1
        heartbeat = Heartbeat(
            node=NodeName(node),
            tree=TREE,
            incarnation=Incarnation("life-1"),
            seq=self.seq[node],
            applied=self.applied[node],
            term=TERM if self.applied[node] else 0,
            reason=HeartbeatReason.PERIOD,
            total=self.nodes[node],
        )
        data = encode(msgspec.structs.replace(heartbeat, **changes))
        # As it comes over the wire: what it says again is not read again.
        heard = self._pictures.read(data, Caller(CallerKind.NODE, node, ""))
        outcome = self.engine.on_heartbeat(heard, self.now)
        broken = self.engine.check()
        assert broken == [], broken
        assert outcome.answer is not None
        return outcome.answer, outcome.effects
