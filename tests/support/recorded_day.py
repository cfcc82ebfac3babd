"""Logs of days that never were: starts of operations and runs of their jobs, as admission records them."""

from __future__ import annotations

from typing import Any

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, Tree, TreeOptions
from headrace.resources import Resources
from headrace.wire.heartbeat import JobEnd, JobResult, Retry
from headrace.wire.log import Event, JobsEnded, LoggedEnd, OperationStarted
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace.wire.replay import ReplayNode, ReplayTask, ToldEntry

__all__ = ["NOON_MS", "Day", "a_tree"]

TREE = TreeName("default")
NOON_MS = 1_790_000_000_000
_CORE = Resources(user_slots=1, cpu=100)


def a_tree(**weights: float) -> Tree:
    """Pools below the root by their weights."""
    pools = [Pool(PoolName(name), ROOT_POOL, PoolConfig(weight=weight)) for name, weight in weights.items()]
    options = TreeOptions(max_operation_count_per_pool=100_000, max_running_operation_count_per_pool=100_000)
    return Tree(TREE, pools, options)


class Day:
    """Events of a log in the order in which they are added; times are seconds after noon."""

    def __init__(self) -> None:
        self.entries: list[ToldEntry] = []
        self._specs: dict[str, OperationSpec] = {}
        self._tickets = 0

    def start(self, name: str, pool: str, jobs: int, at_s: float, *, user: str = "anna", **options: Any) -> None:
        """An operation is started."""
        self._tickets += 1
        spec = OperationSpec(PoolName(pool), ["true"], jobs, **{"resources": _CORE, **options})
        self._specs[name] = spec
        self.add(
            OperationStarted(
                operation=OperationId(name),
                user=user,
                spec=spec,
                state=OperationState.RUNNING,
                ephemeral_pool=False,
                block=min(256, jobs),
                block_term=1,
                at_ms=_ms(at_s),
                placements=[TreePlacement(TREE, PoolName(pool), self._tickets)],
            )
        )

    def end(
        self,
        name: str,
        index: int,
        began_s: float,
        ended_s: float,
        result: JobResult = JobResult.COMPLETED,
        *,
        attempt: int = 1,
        node: str = "alpha",
    ) -> None:
        """A run of a job is over. One that did not complete runs again."""
        end = JobEnd(
            OperationId(name),
            index,
            attempt,
            AllocationId(f"a-{name}-{index}-{attempt}"),
            result,
            started_at_ms=_ms(began_s),
            ended_at_ms=_ms(ended_s),
        )
        retry = None if result is JobResult.COMPLETED else Retry(index, attempt + 1)
        self.add(JobsEnded(OperationId(name), [LoggedEnd(end, NodeName(node), retry)], _ms(ended_s)))

    def task(
        self, tree: Tree, since_s: float, until_s: float, *, cores: int = 4, nodes: int = 1, **more: Any
    ) -> ReplayTask:
        """The task of a replay of a part of the day."""
        names = ["alpha", *(f"node-{number}" for number in range(1, nodes))]
        total = Resources(user_slots=cores, cpu=100 * cores, memory=cores * 2**30)
        given: dict[str, Any] = {
            "tree": TREE,
            "since_ms": _ms(since_s),
            "until_ms": _ms(until_s),
            "step_ms": 200,
            "resource": "cpu",
            "entries": self.entries,
            "nodes": [ReplayNode(NodeName(name), total) for name in names],
            "running": [],
            "configured": tree,
            "changes": [],
        }
        return ReplayTask(**{**given, **more})

    def add(self, event: Event) -> None:
        """An event is recorded."""
        self.entries.append(ToldEntry(len(self.entries) + 1, 1, [event]))


def _ms(seconds: float) -> int:
    return NOON_MS + round(seconds * 1000)
