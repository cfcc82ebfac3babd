"""Timelines, orders and gates of YARN's vectors, through the functions of fair_share and of the allocator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from headrace.pools.tree_options import MinShareSpread
from headrace.resources import ZERO, Resources
from headrace.yarn_comparison import ComparedChild, QueuePolicy, larger, serving_key
from headrace_allocator.preemption.yarn.containers import Container, Owner
from headrace_allocator.preemption.yarn.queue_victims import Branch, Round, Size, WarnedContainers
from headrace_allocator.preemption.yarn.search import (
    FewestMasters,
    NodeContainers,
    missing_containers,
    smallest_first,
)
from headrace_fair_share.yarn import queue_shortage
from headrace_fair_share.yarn.shortage import Applicant, Due, LeafQueue, Rules, ShareTimes, examine, gate_is_open
from tests.conformance.reporting import Comparison, Problem, only_keys
from tests.conformance.watched import plain
from tests.conformance.yarn_cluster import App, Cluster, Node, Placed, Queue, Request, amounts, figures

__all__ = ["gate", "order", "timeline"]

_CONF: Final = {
    "preemption", "utilization_threshold", "wait_before_kill", "nm_heartbeat", "wait_before_next_check", "starvation_delay",
    "minspread", "minshare_form", "preemption_interval", "legacy_calc", "legacy_skip", "defaults",
}  # fmt: skip
#: Actions that the steps of each engine may have, besides `shares`, `fire`, `serve` and the end of a container.
_ACTIONS: Final = {
    "new": {"update", "process", "mock_process"},
    "legacy": {"legacy_update", "legacy_pass", "legacy_take"},
}


def order(case: dict[str, Any]) -> list[Comparison]:
    total = amounts(case["cluster"] or [1, 1])
    key = serving_key(QueuePolicy(case["policy"]), total, needy_quirk=True)
    first, second = (key(_sibling(case[which], which)) for which in ("first", "second"))
    sign = (first > second) - (first < second)
    return [Comparison("sign", str(case["sign"]), str(sign), case["sign"] == sign)]


def _sibling(each: dict[str, Any], name: str) -> ComparedChild:
    only_keys(each, {"usage", "min", "demand", "weight", "start", "name", "priority"}, "schedulable")
    usage, least, demand = (amounts(each.get(what, [0, 0])) for what in ("usage", "min", "demand"))
    weight, start, priority = each.get("weight", 1.0), each.get("start", 0), each.get("priority", 1)
    return ComparedChild(each.get("name", name), usage, demand, least, weight, start, priority)


def gate(case: dict[str, Any]) -> list[Comparison]:
    is_open = _is_open(case["conf"], amounts(case["used"]), amounts(case["cluster"]))
    return [Comparison("open", str(case["open"]), str(is_open), case["open"] == is_open)]


def _is_open(conf: dict[str, Any], used: Resources, total: Resources) -> bool:
    threshold = conf.get("utilization_threshold", 0.8)
    return conf.get("preemption", True) and gate_is_open(used, total, threshold)


def timeline(case: dict[str, Any]) -> list[Comparison]:
    run = _Run(case["setup"], case["engine"])
    found: list[Comparison] = []
    for number, step in enumerate(case["steps"]):
        only_keys(step, {"tick", "submit", "do", "expect"}, "step")
        run.now_ms += step.get("tick", 0)
        for app in step.get("submit", []):
            run.cluster.submit(app)
            run.clocks.fair[app["id"]] = run.now_ms
        for what in step.get("do", []):
            run.do(what)
        for what, expected in step.get("expect", {}).items():
            found += run.compared(f"step {number} {what}", what, expected)
    return found


class _Run:
    def __init__(self, setup: dict[str, Any], engine: str) -> None:
        if engine not in _ACTIONS:
            raise Problem(f"unknown engine {engine}")
        self._engine = engine
        # Whichever of these an engine does not ask for has no effect in it.
        self.conf: dict[str, Any] = plain(setup.get("conf", {}))
        only_keys(self.conf, _CONF, "conf")
        only_keys(self.conf.get("defaults", {}), {"policy", "min_timeout", "fair_timeout", "threshold"}, "defaults")
        self.cluster = Cluster(setup)
        self.now_ms = 0
        self.dues: dict[str, Due] = {}
        #: Applications and queues have what they are owed when they come.
        self.clocks = ShareTimes(
            dict.fromkeys([*self.cluster.apps, *(f"/{each.name}" for each in self.cluster.queues)], 0),
            {f"/{each.name}": 0 for each in self.cluster.queues},
        )
        self._starved: list[str] = []
        self._starved_new: list[str] = []
        self._paused_until_ms: dict[str, int] = {}
        self._warned: WarnedContainers[Placed] = WarnedContainers()
        self._shared_out: dict[str, tuple[Resources, Resources]] = {}
        self._passed_ms = 0
        self._requested: Resources | None = None

    @property
    def _rules(self) -> Rules:
        return Rules(
            self.cluster.total,
            MinShareSpread(self.conf.get("minspread", "yarn")),
            older_release=self.conf.get("minshare_form") == "old" or self.conf.get("legacy_calc") == "memory",
        )

    def _wait_ms(self) -> int:
        return int(self.conf.get("wait_before_kill", 15_000))

    def _pause_ms(self) -> int:
        allowance, check = 4 * self.conf.get("nm_heartbeat", 1000), self.conf.get("wait_before_next_check", 10_000)
        return int(self.conf.get("starvation_delay", self._wait_ms() + allowance + check))

    def _gate(self) -> bool:
        used = Resources.sum(app.usage for app in self.cluster.apps.values())
        return _is_open(self.conf, used, self.cluster.total)

    def do(self, what: str | dict[str, Any]) -> None:
        actions = {
            "update": self._update,
            "process": self._process,
            "mock_process": self._pause_starved,
            "fire": lambda: self.cluster.fire(self.now_ms),
            "serve": self.cluster.serve,
            "shares": self.cluster.share_out,
            "legacy_update": self._legacy_update,
            "legacy_pass": self._legacy_pass,
        }
        name = what if isinstance(what, str) else next(iter(what))
        if any(name in theirs for engine, theirs in _ACTIONS.items() if engine != self._engine):
            raise Problem(f"{name} is no action of the {self._engine} engine")
        match what:
            case str() if what in actions:
                actions[what]()
            case {"kill_container": str(name)}:
                self.cluster.kill(self.cluster.apps[name].containers[-1])
            case {"legacy_take": list(pair)}:
                self._take(amounts(pair))
            case _:
                raise Problem(f"unknown action {what}")

    # --- the newer engine -------------------------------------------------------------------------------------------

    def _update(self) -> None:
        self.cluster.share_out()
        if not self._gate():
            return
        for queue in self.cluster.queues:
            if queue.is_leaf:
                examine(self._asking(queue), self.clocks, self.dues, self.now_ms, self._rules)
        for name, due in self.dues.items():
            if due.claims and name not in self._starved and not self._is_paused(name):
                self._starved.append(name)
                self._starved_new.append(name)

    def _is_paused(self, name: str) -> bool:
        return self.now_ms < self._paused_until_ms.get(name, 0)

    def _asking(self, queue: Queue, *, earlier: bool = False) -> LeafQueue:
        options = queue.options
        apps = [app for app in self.cluster.below(queue) if app.runnable and app.demand != app.usage]
        fair, demand = queue.fair, self.cluster.demand(queue)
        if earlier:
            fair, demand = self._shared_out.get(queue.name, (ZERO, ZERO))
        return LeafQueue(
            f"/{queue.name}",
            queue.policy,
            self.cluster.usage(queue),
            demand,
            fair,
            queue.least,
            options.fair_share_starvation_tolerance,
            options.fair_share_starvation_timeout_ms,
            options.min_share_preemption_timeout_ms or 0,
            [Applicant(app.name, _sibling_of(app), app.fair) for app in apps if not self._is_paused(app.name)],
        )

    def _pause_starved(self) -> None:
        for name in self._starved:
            self._paused_until_ms[name] = self.now_ms + self._pause_ms()
        self._starved.clear()

    def _process(self) -> None:
        for name in sorted(self._starved, key=lambda name: smallest_first(self.dues[name].amount)):
            app, left = self.cluster.apps[name], self.dues[name].amount
            first: dict[tuple[Resources, int], Request] = {}
            for one in app.requests:
                first.setdefault((one.size, one.priority), one)
            for one in first.values():
                sought = missing_containers([(one.size, one.count)], left, by_memory=True)
                left = (left - one.size * len(sought)).or_more(ZERO)
                # A request of which less is sought than it asks for is not strict any more.
                relaxed = one.relax or len(sought) < one.count
                for _ in sought:
                    self._seek(app, one, relaxed=relaxed)
        self._pause_starved()

    def _seek(self, app: App, request: Request, *, relaxed: bool) -> None:
        """Looks for victims where the request says, and elsewhere only if it may and would kill fewer masters so."""
        search = FewestMasters[Placed](request.size, self.cluster.total)
        named = [node for node in self.cluster.nodes if request.where in ("*", node.name, node.rack)]
        is_done = any(search.look_at(self._containers_on(node)) for node in named)
        if relaxed and search.best is not None and not is_done:
            elsewhere = [node for node in self.cluster.nodes if node not in named]
            any(search.look_at(self._containers_on(node)) for node in elsewhere)
        if search.best is None or not search.best.containers:
            return
        for one in search.best.containers:
            one.id.killed_at_ms = self.now_ms + self._wait_ms()
        node = next(each for each in self.cluster.nodes if each.name == search.best.node)
        placed = Placed(app, request.size, node, waits=True)
        placed.kept = Resources.sum(one.size for one in search.best.containers)
        node.containers.append(placed)
        app.containers.append(placed)

    def _containers_on(self, node: Node) -> NodeContainers[Placed]:
        owners: dict[App, Owner] = {}
        found = []
        for one in node.containers:
            if one.waits or one.killed_at_ms is not None:
                continue
            app, queue = one.app, one.app.queue
            marked = Resources.sum(each.size for each in app.containers if each.killed_at_ms is not None)
            if app not in owners:
                may_lose = queue.options.allow_preemption_from
                owners[app] = Owner(app.name, app.usage - marked, app.fair, queue.policy, may_lose)
            found.append(Container(one, owners[app], one.size, one.is_master))
        return NodeContainers(node.name, node.room, found)

    # --- the older engine -------------------------------------------------------------------------------------------

    def _legacy_update(self) -> None:
        for queue in self.cluster.queues:
            if queue.is_leaf:
                queue_shortage.refresh(self._asking(queue, earlier=True), self.clocks, self.now_ms, self._rules)
        self.cluster.share_out()
        self._shared_out = {each.name: (each.fair, self.cluster.demand(each)) for each in self.cluster.queues}

    def _deficit(self, queue: Queue) -> Resources:
        asking = self._asking(queue)
        due = queue_shortage.due_to(asking, self.clocks, self.now_ms, self._rules)
        return larger(due.to_fair_share, due.to_min_share, self.cluster.total, queue.policy)

    def _legacy_pass(self) -> None:
        self._requested = None
        if not self._gate() or self.now_ms - self._passed_ms < self.conf.get("preemption_interval", 5_000):
            return
        self._passed_ms = self.now_ms
        self._requested = Resources.sum(self._deficit(queue) for queue in self.cluster.queues if queue.is_leaf)
        self._take(self._requested)

    def _take(self, amount: Resources) -> None:
        branches: dict[App, Branch[Placed]] = {}
        root = self._branch(self.cluster.queues[0], branches)
        going = Round(amount, root, self.cluster.total, skips_content=self.conf.get("legacy_skip", True))

        def find(one: Placed) -> tuple[Branch[Placed], Resources] | None:
            return (branches[one.app], one.size) if one in one.app.containers else None

        for over in self._warned.take(going, find, self.now_ms, self._wait_ms()):
            if over is not None:
                over.app.lost += 1
                self.cluster.kill(over)

    def _branch(self, queue: Queue, branches: dict[App, Branch[Placed]]) -> Branch[Placed]:
        made: Branch[Placed] = Branch(
            queue.name, self.cluster.usage(queue), queue.fair, queue.least, queue.weight, 0, queue.policy
        )
        made.may_lose = queue.options.allow_preemption_from
        for below in self.cluster.queues:
            if below.above is queue:
                made.below.append(self._branch(below, branches))
        for app in self.cluster.apps.values():
            if app.queue is queue:
                branches[app] = Branch(app.name, app.usage, began=app.start, containers=self._going(app))
                made.below.append(branches[app])
        for each in made.below:
            each.above = made
        return made

    def _going(self, app: App) -> Iterator[Size[Placed]]:
        for one in sorted(reversed(app.containers), key=lambda one: -one.priority):
            if one not in self._warned.listed:
                yield Size(one, one.size)

    # --- what is expected -------------------------------------------------------------------------------------------

    def compared(self, where: str, what: str, expected: Any) -> Iterator[Comparison]:
        if what in ("starved_new", "legacy_requested"):
            actual: Any = self._starved_new if what == "starved_new" else self._requested
            if what == "starved_new":
                agrees, self._starved_new = sorted(actual) == sorted(expected), []
            else:
                agrees = _same(None if actual is None else figures(actual), expected)
            yield Comparison(where, str(expected), str(actual), agrees)
            return
        if what == "marked_nodes":
            actual = sorted({node.name for node in self.cluster.nodes if any(map(_is_marked, node.containers))})
            yield Comparison(where, str(expected), str(actual), actual == sorted(expected))
            return
        if what == "reserved":
            kept = {node.name: self._kept_on(node) for node in self.cluster.nodes}
            actual = {name: amounts_of for name, amounts_of in kept.items() if amounts_of}
            yield Comparison(where, str(expected), str(actual), actual == expected)
            return
        for name, figure in expected.items():
            actual = self._figure(what, name)
            yield Comparison(f"{where} {name}", str(figure), str(actual), _same(actual, figure))

    @staticmethod
    def _kept_on(node: Node) -> dict[str, list[int]]:
        """What is kept on a node for each application that waits there: all that was taken for it."""
        apps = {one.app.name for one in node.containers if one.waits}
        waiting = {
            name: [one for one in node.containers if one.waits and one.app.name == name] for name in sorted(apps)
        }
        return {name: figures(Resources.sum(one.kept for one in ones)) for name, ones in waiting.items()}

    def _figure(self, what: str, name: str) -> Any:
        app, due = self.cluster.apps.get(name), self.dues.get(name, Due())
        if what in ("deficit", "legacy_starved_fair", "queue_fair", "queue_usage"):
            return self._figure_of_queue(what, self.cluster.queue(name))
        if what in ("fair_starvation", "min_starvation"):
            return figures(due.to_fair_share if what == "fair_starvation" else due.to_min_share)
        if app is None:
            raise Problem(f"unknown figure {what} of {name}")
        marked = [one for one in app.containers if _is_marked(one) or one in self._warned.listed]
        running = [one for one in app.containers if not one.waits]
        values = {
            "containers": len(running),
            "preempted_total": app.lost,
            "marked": len(marked),
            "marked_am": sum(one.is_master for one in marked),
            "marked_priorities": [one.priority for one in marked],
            "nodes_of": len({one.node.name for one in running}),
            "app_fair": figures(app.fair),
        }
        if what not in values:
            raise Problem(f"unknown figure {what}")
        return values[what]

    def _figure_of_queue(self, what: str, queue: Queue) -> Any:
        if what == "deficit":
            return figures(self._deficit(queue))
        if what == "legacy_starved_fair":
            return queue_shortage.is_short_of_fair_share(self._asking(queue), self._rules)
        return figures(queue.fair if what == "queue_fair" else self.cluster.usage(queue))


def _is_marked(one: Placed) -> bool:
    return one.killed_at_ms is not None


def _sibling_of(app: App) -> ComparedChild:
    return ComparedChild(app.name, app.usage, app.demand, ZERO, 1.0, app.start)


def _same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, list) and isinstance(actual, list) and len(actual) == len(expected):
        return all(want is None or want == got for want, got in zip(expected, actual, strict=True))
    return bool(actual == expected)
