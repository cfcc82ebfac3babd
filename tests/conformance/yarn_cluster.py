"""A small cluster for the timelines of YARN's vectors: its hosts, and who asks for what. Who starves and loses is not decided here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from headrace.pools.effective_options import EffectiveOptions, of_pool, of_tree
from headrace.pools.pool_config import PoolConfig
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import LARGEST_SUM, RESOURCE_NAMES, ZERO, Resources
from headrace.yarn_comparison import QueuePolicy
from headrace_fair_share.hdrf.input_arrays import laid_out
from headrace_fair_share.hdrf.model import OperationInput, PoolInput
from headrace_fair_share.yarn.tree_division import Sharers, active_elements, tree_division
from tests.conformance.reporting import Problem, only_keys
from tests.conformance.watched import plain

__all__ = ["MIB", "App", "Cluster", "Node", "Placed", "Queue", "amounts", "figures", "queues_of"]

MIB: Final = 2**20
#: No timeout is longer.
NEVER_MS: Final = 2**53


def amounts(pair: list[int]) -> Resources:
    """Memory in MB and cores, as the vectors have them."""
    return Resources(0, pair[1] * 100, 0, pair[0] * MIB)


def figures(amount: Resources) -> list[int]:
    return [amount.memory // MIB, amount.cpu // 100]


@dataclass(eq=False)
class Queue:
    name: str
    above: Queue | None
    number: int
    policy: QueuePolicy
    options: EffectiveOptions
    weight: float
    least: Resources
    most: Resources
    is_leaf: bool
    fair: Resources = ZERO


@dataclass(eq=False)
class Placed:
    """A container on a node."""

    app: App
    size: Resources
    node: Node
    is_master: bool = False
    priority: int = 1
    #: When it is to be killed, if it is marked.
    killed_at_ms: int | None = None
    waits: bool = False
    #: Resources that were freed for a waiting container and are kept for it.
    kept: Resources = ZERO


@dataclass(eq=False)
class Node:
    name: str
    capacity: Resources
    rack: str
    containers: list[Placed] = field(default_factory=list)

    @property
    def room(self) -> Resources:
        """What nobody has once those that are marked are gone. Who waits for that has it already."""
        return self.capacity - Resources.sum(one.size for one in self.containers if one.killed_at_ms is None)


@dataclass
class Request:
    size: Resources
    count: int
    where: str
    priority: int
    #: False: a container in another place is of no use.
    relax: bool


@dataclass(eq=False)
class App:
    name: str
    queue: Queue
    start: int
    runnable: bool
    requests: list[Request]
    containers: list[Placed] = field(default_factory=list)
    lost: int = 0
    fair: Resources = ZERO

    @property
    def usage(self) -> Resources:
        return Resources.sum(one.size for one in self.containers if not one.waits)

    @property
    def demand(self) -> Resources:
        return self.usage + Resources.sum(one.size * one.count for one in self.requests if one.where == "*")


def queues_of(queues: dict[str, Any], defaults: dict[str, Any]) -> list[Queue]:
    """All queues, parents first, with what they inherit."""
    tree = of_tree(
        AllocationOptions(
            fair_share_starvation_tolerance=_own(queues, "threshold", defaults.get("threshold", 0.5)),
            fair_share_starvation_timeout=_own(queues, "fair_timeout", defaults.get("fair_timeout", NEVER_MS)),
            min_share_preemption_timeout=_own(queues, "min_timeout", defaults.get("min_timeout", NEVER_MS)),
        )
    )
    found: list[Queue] = []

    def add(queue: dict[str, Any], above: Queue | None, name: str) -> None:
        only_keys(
            queue,
            {"name", "children", "policy", "weight", "min", "max", "min_timeout", "fair_timeout", "threshold"}
            | {"preemptable"},
            "queue",
        )
        config = PoolConfig(
            fair_share_starvation_tolerance=queue.get("threshold"),
            fair_share_starvation_timeout=queue.get("fair_timeout"),
            min_share_preemption_timeout=queue.get("min_timeout"),
            allow_preemption_from=queue.get("preemptable"),
        )
        children = queue.get("children", [])
        made = Queue(
            name,
            above,
            len(found) - 1,
            QueuePolicy(queue.get("policy", defaults.get("policy", "fair"))),
            tree if above is None else of_pool(above.options, config),
            queue.get("weight", 1.0),
            amounts(queue.get("min", [0, 0])),
            amounts(queue["max"]) if "max" in queue else Resources(*[LARGEST_SUM] * 5),
            not children,
        )
        found.append(made)
        for child in children:
            add(child, made, f"{name}.{child['name']}".lstrip("."))

    add(queues, None, "")
    return found


def _own(queue: dict[str, Any], key: str, default: Any) -> Any:
    return queue.get(key, default)


class Cluster:
    def __init__(self, setup: dict[str, Any]) -> None:
        only_keys(setup, {"queues", "nodes", "apps", "conf"}, "setup")
        self.queues = queues_of(setup["queues"], plain(setup.get("conf", {})).get("defaults", {}))
        self._default_policy = QueuePolicy(plain(setup.get("conf", {})).get("defaults", {}).get("policy", "fair"))
        self.nodes = [Node(one["name"], amounts(one["capacity"]), one.get("rack", "r")) for one in setup["nodes"]]
        self.apps: dict[str, App] = {}
        for app in setup["apps"]:
            self.submit(app)

    @property
    def total(self) -> Resources:
        return Resources.sum(node.capacity for node in self.nodes)

    def submit(self, app: dict[str, Any]) -> None:
        only_keys(app, {"id", "queue", "start", "runnable", "requests", "containers"}, "app")
        queue = self.queue(app["queue"], makes=True)
        requests = []
        for one in app["requests"]:
            only_keys(one, {"capability", "count", "where", "relax", "priority"}, "request")
            size = amounts(one["capability"])
            requests.append(
                Request(size, one["count"], one.get("where", "*"), one.get("priority", 1), one.get("relax", True))
            )
        made = App(app["id"], queue, app["start"], app.get("runnable", True), requests)
        self.apps[made.name] = made
        for one in app["containers"]:
            only_keys(one, {"node", "res", "count", "am", "priority"}, "container")
            (node,) = (each for each in self.nodes if each.name == one["node"])
            for _ in range(one["count"]):
                placed = Placed(made, amounts(one["res"]), node, one.get("am", False), one.get("priority", 1))
                node.containers.append(placed)
                made.containers.append(placed)

    def queue(self, path: str, *, makes: bool = False) -> Queue:
        """The queue of a path, with or without `root.` before it. One that nobody set up is made at run time, if it may be."""
        name = "" if path == "root" else path.removeprefix("root.")
        found = next((each for each in self.queues if each.name == name), None)
        if found is not None:
            return found
        if not makes:
            raise Problem(f"there is no queue {path}")
        above = self.queue(name.rpartition(".")[0], makes=True)
        above.is_leaf = False
        options, most = of_pool(above.options, PoolConfig()), Resources(*[LARGEST_SUM] * 5)
        made = Queue(name, above, len(self.queues) - 1, self._default_policy, options, 1.0, ZERO, most, is_leaf=True)
        self.queues.append(made)
        return made

    def below(self, queue: Queue) -> Iterator[App]:
        """Its applications, and those of all below it."""
        for app in self.apps.values():
            above: Queue | None = app.queue
            while above is not None and above is not queue:
                above = above.above
            if above is queue:
                yield app

    def usage(self, queue: Queue) -> Resources:
        return Resources.sum(app.usage for app in self.below(queue))

    def demand(self, queue: Queue) -> Resources:
        return Resources.sum(app.demand for app in self.below(queue)).within(queue.most.or_more(queue.least))

    def share_out(self) -> None:
        """Divides the cluster over queues and applications."""
        apps = list(self.apps.values())
        pools = [PoolInput(name=one.name, parent=one.above.number) for one in self.queues[1:] if one.above is not None]
        operations = [OperationInput(name=one.name, pool=one.queue.number) for one in apps]
        layout = laid_out(pools, operations)
        at_queue = [0, *layout.of_pool.tolist()]
        least, most = (np.full((5, layout.size), amount) for amount in (0, LARGEST_SUM))
        weight, began = np.ones(layout.size), np.zeros(layout.size, np.int64)
        fifo, memory_only, runs = (np.zeros(layout.size, np.bool_) for _ in range(3))
        for place, queue in zip(at_queue, self.queues, strict=True):
            least[:, place], most[:, place] = _in_units(queue.least), _in_units(queue.most)
            weight[place] = float(np.float32(queue.weight))
            fifo[place], memory_only[place] = (queue.policy is each for each in (QueuePolicy.FIFO, QueuePolicy.FAIR))
        for place, app in zip(layout.of_operation.tolist(), apps, strict=True):
            runs[place], began[place] = app.runnable, app.start
        sharers = Sharers(weight, least, most, active_elements(layout, runs), fifo, memory_only, began)
        shares = tree_division(layout, np.array(_in_units(self.total)), sharers)
        shared: list[Queue | App] = [*self.queues, *apps]
        for place, each in zip((*at_queue, *layout.of_operation.tolist()), shared, strict=True):
            each.fair = Resources(*(int(units * of) for units, of in zip(shares[:, place], _UNITS, strict=True)))

    def kill(self, one: Placed) -> None:
        one.node.containers.remove(one)
        one.app.containers.remove(one)

    def fire(self, now_ms: int) -> None:
        """The hosts kill what they were told to, once its time is over."""
        for node in self.nodes:
            for one in list(node.containers):
                if one.killed_at_ms is not None and one.killed_at_ms <= now_ms:
                    one.app.lost += 1
                    self.kill(one)

    def serve(self) -> None:
        """What waits for room on a node runs there. A request that names another place does not."""
        for node in self.nodes:
            for one in [one for one in node.containers if one.waits]:
                request = next(each for each in one.app.requests if each.size == one.size and each.count)
                if request.where in ("*", node.name, node.rack) and any(
                    each.where == "*" and each.size == one.size for each in one.app.requests
                ):
                    one.waits = False
                    request.count -= 1


_UNITS: Final = tuple({"cpu": 100, "memory": MIB}.get(name, 1) for name in RESOURCE_NAMES)


def _in_units(amount: Resources) -> list[int]:
    return [
        LARGEST_SUM if of >= LARGEST_SUM else of // unit for of, unit in zip(amount.as_tuple(), _UNITS, strict=True)
    ]
