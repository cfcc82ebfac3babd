"""No healthy node becomes suspect, however many jobs it runs, and a broken one does, however many it completed before."""

from __future__ import annotations

import math
from random import Random

import pytest

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_allocator.facts.failure_runs import least_suspect
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from tests.support.allocating import Desk, an_operation, cores
from tests.support.effort import few_or_many, seeds

pytestmark = pytest.mark.long

_NODES = 100
_OPERATIONS = 12
#: Part of the jobs of healthy nodes that fail by themselves.
_HONEST = 0.05
_JOB_S = 0.01


class Cluster:
    """A hundred nodes that run the jobs of a dozen operations, one job after the other. Operations end, and others begin."""

    def __init__(self, seed: int, rates: list[float]) -> None:
        self.random = Random(seed)
        self.rates = rates
        self.desk = Desk({f"n{number}": cores(8, slots=8) for number in range(_NODES)})
        self.desk.options = type(self.desk.options)(hold_back_failing_nodes=True)
        self.desk.tell([])
        for name in self.desk.nodes:
            self.desk.beat(name)
        self.nodes: list[Node] = list(self.desk.facts.nodes.values())
        self.broken: Node | None = None
        self._begun = 0
        self._left: dict[OperationId, int] = {}
        #: Attempts that failed, to be tried again.
        self._again: dict[OperationId, list[int]] = {}
        self._begin()

    def _begin(self) -> None:
        """Fill up the operations that live."""
        while len(self._left) < _OPERATIONS:
            name = OperationId(f"op-{self._begun}-{self.rates[self._begun % len(self.rates)]}")
            self._begun += 1
            self._left[name] = self.random.choice([1, 20, 300, 4_000])
            self._again[name] = []
        self.desk.start(*(an_operation(name, 300) for name in self._left))

    def job(self) -> None:
        """Run a job on a node that is free to take it."""
        facts = self.desk.facts
        facts.failing.now_s += _JOB_S
        operation = facts.operations[self.random.choice(list(self._left))]
        again = self._again[operation.id]
        index = again.pop() if again else self._left[operation.id] % 300
        node = self._node_for(operation)
        if node is None:
            again.append(index)
            return
        facts.failing.note_start(node, operation)
        rate = float(operation.id.rsplit("-", 1)[1])
        fails = node is self.broken or self.random.random() < rate
        result = JobResult.FAILED if fails else JobResult.COMPLETED
        facts.failing.note_end(node, operation, JobEnd(operation.id, index, 1, AllocationId("a"), result))
        if fails:
            again.append(index)
            return
        self._left[operation.id] -= 1
        if not self._left[operation.id]:
            del self._left[operation.id], self._again[operation.id]
            self._begin()

    def _node_for(self, operation: Operation) -> Node | None:
        for _ in range(5):
            node = self.random.choice(self.nodes)
            allowed = self.desk.facts.failing.allowed(node)
            if allowed.most_starts != 0 and operation.id not in allowed.avoided:
                return node
        return None


@pytest.mark.both
def test_no_node_of_a_healthy_fleet_is_ever_suspect() -> None:
    cluster = Cluster(1, [_HONEST])
    for _ in range(few_or_many(20_000, 6_000_000)):
        cluster.job()
        assert not cluster.desk.facts.failing.changes
    assert [cluster.desk.facts.failing.check(node) for node in cluster.nodes] == [[]] * _NODES


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_operations_that_fail_often_blame_no_node(seed: int) -> None:
    """Half of them are healthy; of the others half of the jobs, or all jobs, fail everywhere."""
    cluster = Cluster(seed, [_HONEST, 0.5, _HONEST, 1.0])
    for _ in range(10_000):
        cluster.job()
        assert not cluster.desk.facts.failing.changes


@pytest.mark.parametrize("completed", [0, 20, 1_000])
@pytest.mark.parametrize("seed", seeds(2, 60))
def test_a_broken_node_becomes_suspect_after_few_failures(seed: int, completed: int) -> None:
    cluster = Cluster(seed, [_HONEST])
    for _ in range(completed * 20):
        cluster.job()
    node = cluster.broken = cluster.nodes[7]
    ended_before = 0 if node.failures is None else node.failures.run.ended_before
    jobs = 0
    while not cluster.desk.facts.failing.suspect and jobs < 1_000_000:
        cluster.job()
        jobs += 1
    assert list(cluster.desk.facts.failing.suspect) == [node.record.node]
    assert node.failures is not None
    # Failures of operations that completed nothing elsewhere yet do not count at first.
    assert node.failures.run.failures <= 2 * least_suspect(ended_before) + 4


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])
def test_runs_of_chance_are_too_long_as_rarely_as_the_documented_bound_says(rate: float) -> None:
    """The chance that a run begins after t jobs and is too long, summed up over all t. The rest of the sum is below 1e-6 of the bound."""
    chance = sum(rate ** math.ceil(least_suspect(ended_before)) for ended_before in range(1_000_000))
    assert chance <= rate**4 * math.pi**2 / 6
