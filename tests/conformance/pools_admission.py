"""Cases of admission, moves, lightweight operations, ephemeral pools and several trees, with the engine that the service runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, Protocol

import msgspec

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Pool, PoolConfig, Tree, TreeOptions
from headrace.resources import Resources
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.refusals import OverLimit, WrongState
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.operation_states import may_change_parameters
from headrace_admission.state.rules import GlobalRules, rules_of
from tests.conformance.engines import Engine
from tests.conformance.reporting import Comparison, Problem, only_keys
from tests.support.clocks import NOW, at

__all__ = [
    "AdmissionDesk",
    "Configuration",
    "EngineDesk",
    "Verdict",
    "move",
    "multi_tree",
    "refused",
    "run_steps",
    "steps",
    "tree_removal",
]

TREE: Final = TreeName("default")
_STEPS: Final = {
    "start": {"op", "pool", "type", "user", "expect", "blocked_by", "reject_at", "in_pool", "weight", "job"},
    "finish": {"op"},
    "scan": {"at"},
    "set": {"pool", "attr", "value"},
    "move_op": {"op", "pool", "expect", "in_pool", "reject_at"},
    "move_pool": {"pool", "parent"},
    "create_pool": {"pool", "parent", "attrs"},
    "remove_pool": {"pool"},
    "rename_pool": {"pool", "to"},
    "check": {
        "counters",
        "states",
        "queues",
        "parents",
        "op_pools",
        "pool_exists",
        "is_ephemeral",
        "limits",
    },
}
#: Keys of `tree_config` that are no options of the tree under that name.
_CAP: Final = "scheduler_max_operation_count"
_USER_MAP: Final = "user_to_default_pool"


class Verdict(msgspec.Struct, frozen=True):
    """What came of a start or a move."""

    word: str
    pool: str = ""
    blocked_by: str = ""
    rejected_at: str = ""
    detail: str = ""


class Configuration:
    """A tree as a case sets it up and changes it."""

    def __init__(self, tree_config: dict[str, Any], pools: dict[str, dict[str, Any]]) -> None:
        plain = {"promote_only_on_scan": True, **tree_config}
        self.cap = plain.pop(_CAP, GlobalRules().max_operation_count)
        if _USER_MAP in plain:
            plain["use_user_default_parent_pool_map"] = True
        self.options: dict[str, Any] = plain
        self._given = {name: dict(attributes) for name, attributes in pools.items()}

    def tree(self) -> Tree:
        options: TreeOptions = TREE_ATTRIBUTES.changed(TreeOptions(), self.options).value
        return Tree(tree=TREE, pools=[_pool(name, self._given[name]) for name in self._in_order()], options=options)

    @property
    def pools(self) -> dict[str, dict[str, Any]]:
        """Attributes by pool, `parent` among them; parents before children."""
        return {name: self._given[name] for name in self._in_order()}

    def change(self, step: dict[str, Any]) -> None:
        """A step that changes the configuration."""
        match step["do"]:
            case "set" if step["pool"] == "@tree":
                self.options[step["attr"]] = step["value"]
            case "set":
                self._given[step["pool"]][step["attr"]] = step["value"]
            case "move_pool":
                self._given[step["pool"]]["parent"] = step["parent"]
            case "create_pool":
                self._given[step["pool"]] = {"parent": step.get("parent", ROOT_POOL), **step.get("attrs", {})}
            case "remove_pool":
                del self._given[step["pool"]]
            case "rename_pool":
                self._rename(step["pool"], step["to"])
            case other:
                raise Problem(f"unknown change {other}")

    def _rename(self, old: str, new: str) -> None:
        self._given = {new if name == old else name: dict(given) for name, given in self._given.items()}
        for given in self._given.values():
            if given.get("parent") == old:
                given["parent"] = new

    def _in_order(self) -> Iterator[str]:
        """Parents before children, whatever the order of the case."""
        left = dict(self._given)
        while left:
            ready = [name for name, given in left.items() if given.get("parent", ROOT_POOL) not in left]
            if not ready:
                raise Problem(f"pools below each other: {', '.join(left)}")
            for name in ready:
                del left[name]
                yield name


def _pool(name: str, given: dict[str, Any]) -> Pool:
    attributes = {key: value for key, value in given.items() if key != "parent"}
    settings: PoolConfig = POOL_ATTRIBUTES.changed(PoolConfig(), attributes).value
    return Pool(PoolName(name), PoolName(given.get("parent", ROOT_POOL)), settings)


class EngineDesk:
    """Puts what a case does to the engine, and reads what it looks at."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.engine = AdmissionEngine(GlobalRules(max_operation_count=configuration.cap))
        self.configure()

    def configure(self) -> None:
        """The configuration as it is now reaches admission."""
        self.engine.on_configuration(TREE, rules_of(self._configuration.tree()), NOW)

    def start(self, step: dict[str, Any]) -> Verdict:
        spec = OperationSpec(
            pool=PoolName(step["pool"] or ""),
            argv=["true"],
            resources=Resources(user_slots=1, cpu=round(100 * step.get("job", {"cpu": 1})["cpu"])),
            weight=step.get("weight", 1.0),
            type=step.get("type", "map"),
        )
        answer = self.engine.on_start(wire.StartOperation(_id(step["op"]), spec), step.get("user", "root"), NOW).answer
        if not isinstance(answer, wire.StartAnswer):
            return refused(answer)
        blocked_by = next((each.blocked_by for each in answer.waiting), "")
        return Verdict(answer.state.value, answer.pool, blocked_by)

    def move(self, step: dict[str, Any]) -> Verdict:
        answer = self.engine.on_update(
            wire.UpdateOperation(_id(step["op"]), pool=PoolName(step["pool"])), "root", NOW
        ).answer
        if not isinstance(answer, wire.OperationView):
            return refused(answer)
        return Verdict(answer.state.value, answer.spec.pool)

    def finish(self, name: str) -> None:
        """Its one job completes; an operation that waits is aborted."""
        operation = self.engine.state.operations[_id(name)]
        if operation.state is OperationState.PENDING:
            self.engine.on_abort(wire.AbortOperation(operation.id), operation.user, NOW)
        else:
            end = JobEnd(operation.id, 0, 1, AllocationId("1-1"), JobResult.COMPLETED)
            self.engine.on_report(ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)]), NOW)

    def scan(self, at_s: float | None) -> None:
        self.engine.on_scan(NOW if at_s is None else at(at_s))

    def seen(self, what: str, key: str) -> Any:
        """What there is to compare with what a check expects under `what` for `key`."""
        book, pool = self.engine.state.books[TREE], PoolName(key)
        match what:
            case "counters":
                return list(book.counts(pool).as_tuple())
            case "states":
                return self.engine.state.operations[_id(key)].state.value
            case "queues":
                return [_name(operation) for operation in book.queues.get(pool, {})]
            case "parents":
                return book.parent(pool)
            case "op_pools":
                return self.engine.state.operations[_id(key)].spec.pool
            case "pool_exists":
                return book.exists(pool)
            case "is_ephemeral":
                return book.is_ephemeral(pool)
            case "limits":
                return [book.max_operation_count(pool), book.max_running_operation_count(pool)]
            case _:
                raise Problem(f"nothing to compare with {what}")

    def check(self) -> list[str]:
        return self.engine.check()


class AdmissionDesk(Protocol):
    """Where the steps of a case are done: at the engine, or at running services."""

    def configure(self) -> None: ...

    def start(self, step: dict[str, Any]) -> Verdict: ...

    def move(self, step: dict[str, Any]) -> Verdict: ...

    def finish(self, name: str) -> None: ...

    def scan(self, at_s: float | None) -> None: ...

    def seen(self, what: str, key: str) -> Any: ...

    def check(self) -> list[str]: ...


def steps(case: dict[str, Any], _engine: Engine) -> list[Comparison]:
    """A case that is a row of steps."""
    configuration = Configuration(case["tree_config"], case["pools"])
    return run_steps(case, configuration, EngineDesk(configuration))


def run_steps(case: dict[str, Any], configuration: Configuration, desk: AdmissionDesk) -> list[Comparison]:
    """Does the steps of a case at a desk."""
    comparisons: list[Comparison] = []
    for number, step in enumerate(case["steps"], 1):
        kind = step.get("do")
        if kind not in _STEPS:
            raise Problem(f"unknown step {kind}")
        only_keys(step, _STEPS[kind] | {"do", "note"}, f"step {number}")
        place = f"step {number} {kind}"
        match kind:
            case "start" | "move_op":
                verdict = desk.start(step) if kind == "start" else desk.move(step)
                comparisons += _verdict(f"{place} {step['op']}", step, verdict)
            case "finish":
                desk.finish(step["op"])
            case "scan":
                desk.scan(step.get("at"))
            case "check":
                comparisons += _check(place, step, desk)
            case _:
                configuration.change(step)
                desk.configure()
        comparisons.append(_compare(f"{place} invariants", [], desk.check()))
    return comparisons


def _verdict(place: str, step: dict[str, Any], verdict: Verdict) -> Iterator[Comparison]:
    actual = verdict.word + (f" ({verdict.detail})" if verdict.detail else "")
    yield Comparison(place, step["expect"], actual, step["expect"] == verdict.word)
    for key, found in (
        ("in_pool", verdict.pool),
        ("blocked_by", verdict.blocked_by),
        ("reject_at", verdict.rejected_at),
    ):
        if key in step:
            yield _compare(f"{place} {key}", step[key], found)


def _check(place: str, step: dict[str, Any], desk: AdmissionDesk) -> Iterator[Comparison]:
    for what, expected in step.items():
        if what in ("do", "note"):
            continue
        for key, value in expected.items():
            yield _compare(f"{place} {what} {key}", value, desk.seen(what, key))


def move(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """A case of moves: steps, or a request that is only described."""
    if "steps" in case:
        return steps(case, engine)
    if "expect_by_state" in case:
        return [
            _compare(state, expected, "accept" if may_change_parameters(state) else "reject")
            for state, expected in case["expect_by_state"].items()
        ]
    if "moves" in case:
        return _slot_indexes(case)
    if "request" not in case:
        raise Problem("neither steps nor a request nor states")
    return _request(case)


#: Operations that stand in the pools before the case begins.
_STANDING: Final = {"first": 2, "second": 5}


def _slot_indexes(case: dict[str, Any]) -> list[Comparison]:
    """The slot index after each move of one operation."""
    engine = AdmissionEngine()
    _lay_limits(engine, TREE, set(_STANDING), {})
    for pool, count in _STANDING.items():
        for number in range(count):
            _start_in(engine, pool, f"{pool} {number}")
    found = []
    for words in case["moves"]:
        verb, pool = words.split()[0], words.split()[-1]
        if verb == "start":
            _start_in(engine, pool, "a")
        else:
            engine.on_update(wire.UpdateOperation(_id("a"), pool=PoolName(pool)), "root", NOW)
        found.append(engine.state.operations[_id("a")].placements[TREE].slot_index)
    only_keys(case["expect"], {"slot_index"}, "expect")
    return [_compare("slot_index", case["expect"]["slot_index"], found)]


def _start_in(engine: AdmissionEngine, pool: str, name: str) -> None:
    spec = OperationSpec(PoolName(pool), ["true"], resources=Resources(user_slots=1, cpu=100))
    engine.on_start(wire.StartOperation(_id(name), spec), "root", NOW)


def _request(case: dict[str, Any]) -> list[Comparison]:
    """An update of an operation that runs in pool `p` of each of its trees with weight 1; in `first` if it moves to `p`."""
    request = case["request"]
    only_keys(request, {"weight", "pool", "scheduling_options_per_pool_tree"}, "request")
    per_tree = {TreeName(tree): said for tree, said in request.get("scheduling_options_per_pool_tree", {}).items()}
    trees = [TreeName(tree) for tree in case.get("trees", [TREE])]
    engine = AdmissionEngine()
    first = "first" if request.get("pool") == "p" else "p"
    names = {first, request.get("pool", "p"), *(said.get("pool", "p") for said in per_tree.values())}
    for tree in {*trees, *per_tree}:
        _lay_limits(engine, tree, names, {})
    spec = OperationSpec(PoolName(first), ["true"], resources=Resources(user_slots=1, cpu=100), pool_trees=trees)
    engine.on_start(wire.StartOperation(_id("a"), spec), "root", NOW)
    for tree in trees:
        _lay_limits(engine, tree, names, case.get("pool_limits", {}))
    said = {tree: wire.PerTree(PoolName(one.get("pool", "")), one.get("weight")) for tree, one in per_tree.items()}
    pool = PoolName(request["pool"]) if "pool" in request else None
    update = wire.UpdateOperation(_id("a"), request.get("weight"), pool, said)
    answer = engine.on_update(update, "root", NOW).answer
    operation = engine.state.operations[_id("a")]
    actual: dict[str, Any] = {
        "result": "accept" if isinstance(answer, wire.OperationView) else "reject",
        "weight": {},
        "pool_changed": {},
    }
    for tree, placement in operation.placements.items():
        own = operation.spec.scheduling_options_per_pool_tree.get(tree, wire.PerTree())
        actual[tree] = {"pool": placement.pool, "weight": own.weight or operation.spec.weight}
        actual["weight"][tree] = actual[tree]["weight"]
        actual["pool_changed"][tree] = placement.pool != first
    comparisons = []
    for key, expected in case["expect"].items():
        if key not in actual:
            raise Problem(f"nothing to compare with {key}")
        found = {each: actual[key].get(each) for each in expected} if isinstance(expected, dict) else actual[key]
        comparisons.append(_compare(key, expected, found))
    return comparisons


def _lay_limits(engine: AdmissionEngine, tree: TreeName, pools: set[str], limits: dict[str, Any]) -> None:
    settings: PoolConfig = POOL_ATTRIBUTES.changed(PoolConfig(), limits).value
    configured = [Pool(PoolName(name), ROOT_POOL, settings) for name in sorted(pools)]
    engine.on_configuration(tree, rules_of(Tree(tree, configured)), NOW)


def multi_tree(case: dict[str, Any], _engine: Engine) -> list[Comparison]:
    """A start in several trees, some of which are full."""
    trees = {name: given for name, given in case["trees"].items() if not name.startswith("@")}
    only_keys(case["trees"], {*trees, "@erase_flag"}, "trees")
    engine = AdmissionEngine()
    for name, given in trees.items():
        only_keys(given, {"full", "running_full", "tentative"}, name)
        limits = {"max_operation_count": 0, "max_running_operation_count": 0} if given.get("full") else {}
        if given.get("running_full"):
            limits = {"max_running_operation_count": 0}
        pool = Pool(PoolName("p"), ROOT_POOL, POOL_ATTRIBUTES.changed(PoolConfig(), limits).value)
        engine.on_configuration(TreeName(name), rules_of(Tree(TreeName(name), [pool])), NOW)
    spec = OperationSpec(
        pool=PoolName("p"),
        argv=["true"],
        resources=Resources(user_slots=1, cpu=100),
        type="map",
        pool_trees=[TreeName(name) for name, given in trees.items() if not given.get("tentative")],
        tentative_pool_trees=[TreeName(name) for name, given in trees.items() if given.get("tentative")],
        erase_trees_with_pool_limit_violations=case["trees"].get("@erase_flag", False),
    )
    answer = engine.on_start(wire.StartOperation(_id("a"), spec), "root", NOW).answer
    actual: dict[str, Any] = {"result": "reject"}
    if isinstance(answer, wire.StartAnswer):
        placements = engine.state.operations[_id("a")].placements
        actual = {
            "result": "accept",
            "state": answer.state.value,
            "trees": list(placements),
            "scheduled_in": [tree for tree, placement in placements.items() if placement.blocked_by is None],
            "erased": list(answer.erased_trees),
        }
    elif isinstance(answer, OverLimit):
        actual |= {"code": 202, "inner_error_count": len(answer.broken)}
    only_keys(
        case["expect"], {"result", "state", "trees", "scheduled_in", "erased", "code", "inner_error_count"}, "expect"
    )
    return [_compare(key, value, actual.get(key)) for key, value in case["expect"].items()]


def tree_removal(tree: TreeName, operations: dict[str, list[str]], expect: dict[str, str]) -> list[Comparison]:
    """A tree is removed whose allocator has given out a job of each operation."""
    engine = AdmissionEngine()
    for name in {*chain(*operations.values())}:
        engine.on_configuration(TreeName(name), rules_of(Tree(TreeName(name))), NOW)
    for name, trees in operations.items():
        spec = OperationSpec(PoolName("p"), ["true"], 9, Resources(user_slots=1, cpu=100), pool_trees=trees)  # type: ignore[arg-type]
        engine.on_start(wire.StartOperation(_id(name), spec), "root", NOW)
        engine.on_draw(ledger.DrawBlock(tree, 1, _id(name), below=9, more=1), NOW)
    engine.on_configuration(tree, None, NOW)
    # That allocator takes everything back, and tells so.
    engine.on_released(ledger.Released(tree, 1, [_id(name) for name in operations]), NOW)
    found = []
    for name in operations:
        view = queries.view(engine.state, engine.state.operations[_id(name)])
        said = view.state.value
        if view.state is OperationState.RUNNING:
            (erased,), left = view.erased_trees, [each.tree for each in view.placements]
            said = f"continues in {', '.join(left)}, {erased} listed as erased"
        found.append(_compare(name, expect[name], said))
    return found


def refused(answer: msgspec.Struct) -> Verdict:
    """The verdict that a refusal is."""
    text = answer.text()  # type: ignore[attr-defined]
    at = ""
    match answer:
        case OverLimit():
            at = answer.broken[0].pool
        case WrongState(what="pool"):
            at = answer.name
    return Verdict("reject", rejected_at=at, detail=text)


def _id(name: str) -> OperationId:
    """Any name can stand in a case, but not in an id."""
    return OperationId(f"op-{name.encode().hex()}-op")


def _name(operation: OperationId) -> str:
    return bytes.fromhex(operation.split("-")[1]).decode()


def _compare(what: str, expected: Any, actual: Any) -> Comparison:
    return Comparison(what, str(expected), str(actual), expected == actual)
