"""A case as it stands between two events: the tree, its nodes and operations, and how much of each runs and waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.job_tasks import with_tasks
from headrace.pools import (
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    PartialResources,
    Pool,
    PoolConfig,
    Schema,
    Tree,
    TreeOptions,
)
from headrace.pools.attributes.kinds import Duration
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.wire import tasks as wire
from headrace.wire.operation_spec import OperationSpec, PreemptionMode
from tests.conformance.reporting import Problem, Unsupported, only, only_keys
from tests.conformance.watched import plain

__all__ = ["TREE", "Scenario", "Task", "Work", "amounts", "pool_name_of"]

TREE: Final = TreeName("default")
#: Options that have another default in the cases than in the product.
_DEFAULTS: Final = {
    "aggressive_preemption_satisfaction_threshold": 0.2,
    "min_spare_allocation_resources_on_node": {"user_slots": 1, "cpu": 1},
}
#: Options of the scheduler that are none of a tree: the engine is made with the former, the others have one value here.
_OTHERS: Final = {
    "allowed_node_resources_overcommit_duration": None, "max_started_allocations_per_heartbeat": None,
    "enable_allocation_abort_on_zero_user_slots": True, "schedule_allocation_fail_backoff_time": 0.1,
}  # fmt: skip
_NODE: Final = {"name", "count", "limits", "tags"}
_ALLOCATION: Final = {
    "operation", "node", "count", "start", "start_step", "resources", "id", "progress_start", "task",
}  # fmt: skip
_ROOT: Final = "<root>"
_JOBS_OF_A_TASK: Final = 100
_CASE: Final = {
    "name", "source", "note", "total", "tolerance", "options", "nodes", "pools", "operations", "allocations", "events",
}  # fmt: skip
_OPERATION: Final = {
    "name", "parent", "job", "pending", "jobs", "tasks", "preemption_mode", "interruptible", "gang", "suspended", "always_schedulable",
    "scheduling_tag_filter", "resource_limits", "resource_limits_overcommit_tolerance", "allocation_preemption_timeout",
    "fair_share_starvation_tolerance", "fair_share_starvation_timeout", "non_preemptible_resource_usage_threshold",
}  # fmt: skip


def amounts(given: Mapping[str, float]) -> Resources:
    """Amounts as a case writes them, what is missing 0."""
    return _partial(given).whole


def _partial(given: Mapping[str, float] | None) -> PartialResources:
    only_keys(dict(given or {}), set(RESOURCE_NAMES), "resources")
    return PartialResources(
        **{name: round(amount * 100) if name == "cpu" else round(amount) for name, amount in (given or {}).items()}
    )


def pool_name_of(name: str) -> PoolName:
    """A pool as the product names it."""
    return ROOT_POOL if name == _ROOT else PoolName(name)


@dataclass
class Task:
    """Jobs of one size that wait."""

    job: Resources
    pending: int


@dataclass
class Work:
    """An operation: what the case says of it, and how it stands."""

    given: dict[str, Any]
    #: Its place among all operations of the case.
    order: int
    tasks: list[Task] = field(default_factory=list)
    usage: Resources = ZERO
    precommit: Resources = ZERO

    def spec(self) -> OperationSpec:
        """The operation as a person would start it. Each of several tasks has more jobs than a case ever lets wait."""
        tasks = [wire.Task(f"task-{n}", ["work"], _JOBS_OF_A_TASK, task.job) for n, task in enumerate(self.tasks)]
        one_kind = self._spec()
        return with_tasks(one_kind, tasks) if len(tasks) > 1 else one_kind

    def _spec(self) -> OperationSpec:
        given = self.given
        timeout = given.get("allocation_preemption_timeout")
        starving = given.get("fair_share_starvation_timeout")
        return OperationSpec(
            pool=pool_name_of(given["parent"]),
            argv=["work"],
            resources=self.tasks[0].job,
            # A gang whose number of jobs a case does not give starts job by job, as in the published scheduler.
            job_count=given.get("jobs", 1),
            is_gang=given.get("gang", False),
            resource_limits=_partial(given.get("resource_limits")),
            preemption_mode=PreemptionMode(given.get("preemption_mode", "normal")),
            interruptible=given.get("interruptible", False),
            allocation_preemption_timeout_ms=None if timeout is None else round(timeout * 1000),
            fair_share_starvation_tolerance=given.get("fair_share_starvation_tolerance"),
            fair_share_starvation_timeout_ms=None if starving is None else round(starving * 1000),
            non_preemptible_resource_usage_threshold=_partial(given.get("non_preemptible_resource_usage_threshold")),
            resource_limits_overcommit_tolerance=_partial(given.get("resource_limits_overcommit_tolerance")),
            scheduling_tag_filter=given.get("scheduling_tag_filter", ""),
        )

    def resources_of(self, allocation: Mapping[str, Any]) -> Resources:
        """The amount that an allocation of the case has."""
        given = allocation.get("resources")
        return self.tasks[allocation.get("task", 0)].job if given is None else amounts(given)

    def pending(self) -> Resources:
        """What all of its waiting jobs need."""
        return Resources.sum(task.job * task.pending for task in self.tasks)

    def min_needed(self) -> Resources:
        """The least of each resource that any waiting job needs."""
        waiting = [task.job for task in self.tasks if task.pending] or [self.tasks[0].job]
        least = waiting[0]
        for job in waiting[1:]:
            least = least.within(job)
        return least

    def is_pending(self) -> bool:
        """True if it may get more. A test double always may."""
        return self.given.get("always_schedulable", False) or any(task.pending for task in self.tasks)


def _node_limits(limits: dict[str, float]) -> Resources:
    """The room of a node. One of which a case names no slots has enough: with none of them no job may be there."""
    return amounts({"user_slots": 1_000, **limits})


class Scenario:
    """A case between two events."""

    def __init__(self, case: dict[str, Any]) -> None:
        only_keys(case, _CASE, "case")
        self.now_s = 0.0
        self.options: dict[str, Any] = dict(_DEFAULTS)
        self.nodes: dict[str, Resources] = {}
        self.tags: dict[str, list[str]] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, Work] = {}
        self._total = amounts(case["total"]) if "total" in case else None
        self._read_options(case.get("options", {}))
        for node in case.get("nodes", ()):
            only_keys(node, _NODE, "node")
            names = [f"{node['name']}{n}" for n in range(node["count"])] if "count" in node else [node["name"]]
            self.nodes |= dict.fromkeys(names, _node_limits(node["limits"]))
            self.tags |= dict.fromkeys(names, node.get("tags", []))
        self.add(case)

    @property
    def now_ms(self) -> int:
        """The moment of the scenario."""
        return round(self.now_s * 1000)

    @property
    def total(self) -> Resources:
        """The cluster."""
        return self._total if self._total is not None else Resources.sum(self.nodes.values())

    def resources_by_tags(self) -> dict[tuple[str, ...], Resources]:
        """Return the resources of the nodes with each set of tags. The name of a node is one of its tags."""
        return {(name, *self.tags[name]): limits for name, limits in self.nodes.items()}

    def add(self, given: Mapping[str, Any]) -> None:
        """More pools, operations and allocations, as the case or an event names them."""
        for pool in given.get("pools", ()):
            self.pools[pool["name"]] = pool
        for operation in given.get("operations", ()):
            only_keys(operation, _OPERATION, "operation")
            tasks = operation.get("tasks") or [operation]
            for task in operation.get("tasks") or ():
                only_keys(task, {"job", "pending"}, "task")
            work = Work(operation, len(self.operations))
            work.tasks = [Task(amounts(task["job"]), task["pending"]) for task in tasks]
            self.operations[operation["name"]] = work
        for allocation in given.get("allocations", ()):
            only_keys(allocation, _ALLOCATION, "allocation")
            work = self.operations[allocation["operation"]]
            work.usage += work.resources_of(allocation) * allocation.get("count", 1)

    def set(self, event: Mapping[str, Any]) -> None:
        """Changes options, elements, limits of nodes and pending jobs."""
        self._read_options(event.get("options", {}))
        for name, patch in event.get("elements", {}).items():
            if name in self.pools:
                self.pools[name] = self.pools[name] | patch
            elif name in self.operations:
                self.operations[name].given = self.operations[name].given | patch
                only_keys(self.operations[name].given, _OPERATION, "operation")
            else:
                raise Problem(f"no element is named {name}")
        for name, limits in event.get("nodes", {}).items():
            self.nodes[name] = _node_limits(limits)
        for name, pending in event.get("pending", {}).items():
            self.operations[name].tasks[0].pending = pending

    def _read_options(self, given: Mapping[str, Any]) -> None:
        for name, value in plain(given).items():
            only([name], {*TREE_ATTRIBUTES.names, *_OTHERS}, "options")
            only_value = _OTHERS.get(name)
            if only_value is not None and value != only_value:
                raise Unsupported(f"{name} is {only_value} here, and no option")
            self.options[name] = value

    def tree(self) -> Tree:
        """The configuration. Options of the scheduler that are no options of a tree are left to who reads them."""
        known = {name: value for name, value in self.options.items() if name not in _OTHERS}
        options = TREE_ATTRIBUTES.changed(TreeOptions(), _in_ms(known, TREE_ATTRIBUTES)).value
        return Tree(TREE, [self._pool(name, given) for name, given in self.pools.items()], options)

    def _pool(self, name: str, given: dict[str, Any]) -> Pool:
        settings = {key: value for key, value in given.items() if key not in {"name", "parent"}}
        if "strong_guarantee" in settings:
            settings["strong_guarantee_resources"] = settings.pop("strong_guarantee")
        config = POOL_ATTRIBUTES.changed(PoolConfig(), _in_ms(settings, POOL_ATTRIBUTES)).value
        return Pool(PoolName(name), pool_name_of(given["parent"]), config)


def _in_ms(given: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Seconds become milliseconds. Raises `Problem` for what is no attribute."""
    only(given, schema.names, "attributes")
    return {
        name: round(value * 1000) if isinstance(schema.names[name].kind, Duration) and value is not None else value
        for name, value in given.items()
    }
