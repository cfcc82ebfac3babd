"""Cases of the configuration of pools: what may be configured, what may be given from pool to pool, what becomes of it.

They are decided by the configuration of the fair-share service; a `ConfigCase` can as well be asked over the bus.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from headrace.bus import KeyValue
from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName, TreeName
from headrace.pools import POOL_ATTRIBUTES, Person, Pool, PoolConfig, PoolTree, Tree, TreeOptions, write_tree
from headrace.pools.tree_conflicts import judge_trees
from headrace.resources import Resources
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationSpec, StartOperation
from headrace.wire.pool_changes import (
    ChangePools,
    Create,
    Move,
    PoolChange,
    PoolPlan,
    Remove,
    Set,
    SetOptions,
    Transfer,
)
from headrace.wire.refusals import BadRequest, BrokenRules, Exists, NotAllowed, NotFound, Refusal
from headrace.wire.trees import MovePoolToTree
from headrace_admission.decisions.target_pool import default_parent
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.rules import rules_of
from headrace_admission.state.tree_book import TreeBook
from headrace_fair_share.configuration.between_trees import Ask, move_to_tree
from headrace_fair_share.configuration.change_decisions import Change, StoredTree, TreeConfiguration
from headrace_fair_share.configuration.draft import Draft
from headrace_fair_share.configuration.node_filters import NodeFilters
from headrace_fair_share.configuration.other_trees import OtherTrees
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.pool_inputs import pool_input
from headrace_fair_share.hdrf.model import ErrorKind, OperationInput, PoolInput, TreeInput
from tests.conformance.engines import Engine
from tests.conformance.integral_trees import CPU, all_compared, tree_of
from tests.conformance.pools_admission import tree_removal
from tests.conformance.reporting import Comparison, Problem, only_keys
from tests.conformance.watched import plain
from tests.support.clocks import NOW, HandClock
from tests.support.moody_bucket import MoodyBucket

__all__ = ["USER", "ConfigCase", "config", "fifo_order", "scheduler_config", "transfer"]

TREE: Final = TreeName("default")
#: Guarantees above this are told of.
TOTAL: Final = Resources(cpu=100_000)
USER: Final = "ann"
_OVERCOMMITTED: Final = (ErrorKind.OVERCOMMIT_FLOW, ErrorKind.OVERCOMMIT_BURST)
_SUPERUSER: Final = Person("root", administrator=True)
_BOUNDS: Final = {
    "pool_name_regex_for_users": "pool_name_pattern_for_users",
    "pool_name_regex_for_administrators": "pool_name_pattern_for_administrators",
    "max_scheduler_pool_subtree_size": "largest_subtree",
    "max_scheduler_pool_depth": "most_levels",
}
#: Reasons that are told by the kind of the refusal, or by its rule under another name.
_RULES: Final = {
    "integral_under_integral_or_missing_at_parent": {"integral_under_integral", "guarantee_missing_at_parent"},
    "integral_under_integral": {"integral_under_integral"},
    "relaxed_with_burst": {"burst_on_relaxed"},
    "permission": {"permission"},
}
#: Reasons of values that cannot be read: the refusal names the attribute, and says something like this.
_VALUES: Final = {
    "type": "",
    "range": "",
    "empty": "not empty",
    "too_many_profiling_tags": "at most 200",
    "alias_clash": "the same option",
    "not_a_pool": "an attribute of pools",
}


@dataclass
class ConfigCase:
    """A case as changes that a client can ask for: first what exists, by an administrator, then the change by `user`."""

    existing: list[PoolChange]
    changes: list[PoolChange]
    #: None: an administrator.
    user: str | None
    bounds: dict[str, Any] = field(default_factory=dict)
    #: Another tree that a pool goes to.
    to_tree: str = ""

    @staticmethod
    def of(case: dict[str, Any]) -> ConfigCase:
        """Reads a case. Raises `Problem`."""
        existing, action = case.get("existing", {}), case["action"]
        changes: list[PoolChange] = _in_order(existing)
        user, access = _user(case.get("as_user"), action)
        if access:
            changes.append(access)
        bounds = {_BOUNDS[key]: value for key, value in case.get("cluster_config", {}).items()}
        to_tree = ""
        if "move_to_tree" in action and action.get("how") == "path":
            to_tree = str(action["move_to_tree"])
        if "create_in_other_tree" in action and action.get("exists_in_first_tree"):
            changes.append(_create(action["create_in_other_tree"], ROOT_POOL, {}))
            to_tree = "other"
        return ConfigCase(changes, _asked(action, existing), user, bounds, to_tree)


class _Desk:
    """A tree in the hands of the service."""

    def __init__(self, tree: TreeName, bounds: TreeBounds) -> None:
        self.configuration = TreeConfiguration(tree, bounds)
        self.configuration.on_stored(StoredTree(1, Tree(tree=tree)))

    def ask(self, changes: list[PoolChange], person: Person) -> PoolPlan | Refusal:
        """Asks for changes; what is granted is written."""
        return self._asked(ChangePools(changes, self.configuration.pools.name), person)

    def asker(self, person: Person) -> Ask:
        """Asks for somebody."""

        async def ask(request: ChangePools) -> PoolPlan | Refusal:
            return self._asked(request, person)

        return ask

    def _asked(self, request: ChangePools, person: Person) -> PoolPlan | Refusal:
        decision = self.configuration.decide(request, {}, person, TOTAL)
        if not isinstance(decision, Change):
            return decision
        if decision.plan.dry_run:
            return decision.plan
        (plan,) = self.configuration.on_written([decision], self.configuration.revision + 1)
        return plan

    def problems(self, changes: list[PoolChange], person: Person, bounds: TreeBounds) -> list[Refusal]:
        """Everything that speaks against changes, each with its rule."""
        draft = Draft(self.configuration.pools, bounds, person)
        for change in changes:
            draft.make(change)
        draft.check()
        return draft.problems


def config(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """What may be configured."""
    asked = ConfigCase.of(case)
    bounds = TreeBounds(**asked.bounds)
    desk = _Desk(TREE, bounds)
    made = desk.ask(asked.existing, _SUPERUSER)
    if not isinstance(made, PoolPlan):
        raise Problem(f"what exists is refused: {made.text()}")
    before = desk.configuration.pools.tree
    person = _SUPERUSER if asked.user is None else Person(asked.user)
    if asked.to_tree:
        return _between(desk, asked, person, case)
    problems = desk.problems(asked.changes, person, bounds)
    answer = desk.ask(asked.changes, person)
    found = [compared("verdict", case["expect"], "accept" if isinstance(answer, PoolPlan) else "reject")]
    if case["expect"] == "reject":
        found.append(compared("the tree", _plain(before), _plain(desk.configuration.pools.tree)))
        found.append(_reason(case["reason"], problems, case["action"]))
    if "alert" in case and isinstance(answer, PoolPlan):
        found.append(_alert(case["alert"], answer.warnings))
    return found + _after(case, desk.configuration.pools)


def transfer(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """What may be given from pool to pool."""
    desk = _Desk(TREE, TreeBounds())
    existing: dict[str, dict[str, Any]] = {}
    for key, figures in case["pools"].items():
        name, _, parent = key.partition("<")
        existing[name] = _attributes(figures) | ({"parent": parent} if parent else {})
    made = desk.ask(_in_order(existing), _SUPERUSER)
    if not isinstance(made, PoolPlan):
        raise Problem(f"what exists is refused: {made.text()}")
    before = _plain(desk.configuration.pools.tree)
    request, expect = case["request"], dict(case["expect"])
    only_keys(request, {"src", "dst", "delta"}, "request")
    answer = desk.ask([_transfer(request)], _SUPERUSER)
    verdict = "accept" if isinstance(answer, PoolPlan) else "reject"
    found = [compared("verdict", expect.pop("result"), verdict)]
    if expect.pop("unchanged", False):
        found.append(compared("the tree", before, _plain(desk.configuration.pools.tree)))
    for name, figures in expect.items():
        pool = desk.configuration.pools.pools[PoolName(name)]
        found.append(compared(name, figures, _figures(pool.settings)))
    return found


def scheduler_config(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """What becomes of a configuration that is stored."""
    given, expect = case["given"], case["expect"]
    match given:
        case {"pool": attributes, "presets": presets}:
            only_keys(given, {"pool", "presets"}, "given")
            return _stored({"pool_config_presets": presets}, {"p": attributes}, expect)
        case {"tree": options}:
            only_keys(given, {"tree", "pools"}, "given")
            return _stored(options, given.get("pools", {}), expect)
        case {"default_tree": _} | {"node_tags": _}:
            only_keys(given, {"default_tree", "node_tags", "trees"}, "given")
            return _judged(given, expect)
        case {"pool": attributes, "has_ephemeral_subpools": True}:
            only_keys(given, {"pool", "has_ephemeral_subpools"}, "given")
            return _held_back(attributes, expect)
        case {"remove_tree": tree, "ops": operations}:
            only_keys(given, {"remove_tree", "ops"}, "given")
            return tree_removal(TreeName(tree), operations, expect)
        case {"strong": strong}:
            only_keys(given, {"strong", "burst_pool", "total_cpu", "accrual_before_first_update_seconds"}, "given")
            return _scaled(given, strong, expect, engine)
        case _ if all(isinstance(value, dict) for value in given.values()):
            return _promised(given, expect, engine)
        case _:
            raise Problem(f"unknown given: {given}")


def fifo_order(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """The rank of operations in a fifo pool."""
    attributes = {"mode": "fifo", "fifo_sort_parameters": case["fifo_sort_parameters"]}
    pools = PoolTree(_tree({}, {"p": attributes}))
    operations = [
        OperationInput(
            name=OperationId(each["op"]),
            pool=0,
            weight=each["weight"],
            start_time_ms=each["start_time"],
            pending_job_count=each["pending_job_count"],
            demand=Resources(cpu=100),
        )
        for each in case["operations"]
    ]
    given = TreeInput(total=TOTAL, pools=_inputs(pools), operations=operations)
    shares = engine.update(given).operations
    order = sorted(shares, key=lambda name: -1 if (rank := shares[name].fifo_index) is None else rank)
    return [compared("order", case["expect_order"], order)]


# --- reading ------------------------------------------------------------------------------------------------------------


def _in_order(existing: dict[str, dict[str, Any]]) -> list[PoolChange]:
    """Creations, parents first."""
    changes: list[PoolChange] = []
    waiting = dict(existing)
    while waiting:
        ready = [name for name, attributes in waiting.items() if attributes.get("parent") not in waiting]
        if not ready:
            raise Problem("pools that stand in each other")
        for name in ready:
            attributes = {key: value for key, value in waiting.pop(name).items() if key != "parent"}
            changes.append(_create(name, existing[name].get("parent", ROOT_POOL), attributes))
    return changes


def _user(as_user: str | None, action: dict[str, Any]) -> tuple[str | None, PoolChange | None]:
    """Who asks, and the rights that are given to them beforehand."""
    match as_user:
        case None:
            return None, None
        case "user" | "writer":
            return USER, _options({"access": {"write": [USER]}})
        case "administrator":
            return USER, _options({"access": {"administer": [USER]}})
        case _:
            right, _, pool = as_user.partition(" on ")
            if right != "modify_children" or not pool:
                raise Problem(f"unknown as_user: {as_user}")
            return USER, _set(pool, {"access": {"write": [USER]}})


def _asked(action: dict[str, Any], existing: dict[str, Any]) -> list[PoolChange]:
    match action:
        case {"create": name, "parent": parent, "attrs": attributes}:
            return [_create(name, parent, attributes)]
        case {"set": name, "attrs": attributes}:
            return [_set(name, attributes)]
        case {"set": name, "attrs_note": "allowed_profiling_tags with 201 distinct entries"}:
            return [_set(name, {"allowed_profiling_tags": [f"tag-{number}" for number in range(201)]})]
        case {"remove_attr": attribute, "pool": name}:
            return [_set(name, {attribute: None})]
        case {"set_path": path, "pool": name, "value": value}:
            return [_set(name, {path.removeprefix("@"): value})]
        case {"move": name, "new_parent": parent}:
            return [Move(PoolName(name), PoolName(parent), PoolName(action.get("new_name", "")))]
        case {"move_to_tree": _, "how": "attribute"}:
            return [Move(PoolName(next(iter(existing))), PoolName("a-pool-of-the-other-tree"))]
        case {"move_to_tree": _, "how": "path"}:
            return [Move(PoolName(next(iter(existing))))]
        case {"remove": name}:
            return [Remove(PoolName(name), recursive=True)]
        case {"create_chain": levels}:
            return [_create(f"p{at}", f"p{at - 1}" if at else ROOT_POOL, {}) for at in range(levels)]
        case {"set_tree": options} | {"set_on_tree_object": options}:
            return [_options(options)]
        case {"create_in_other_tree": name}:
            return [_create(name, ROOT_POOL, {})]
        case _:
            raise Problem(f"unknown action: {action}")


def _create(name: str, parent: str, attributes: dict[str, Any]) -> Create:
    return Create(PoolName(name), PoolName(parent), msgspec.json.encode(plain(attributes)))


def _set(name: str, attributes: dict[str, Any]) -> Set:
    return Set(PoolName(name), msgspec.json.encode(plain(attributes)))


def _options(options: dict[str, Any]) -> SetOptions:
    return SetOptions(msgspec.json.encode(plain(options)))


def _attributes(figures: dict[str, Any]) -> dict[str, Any]:
    """A pool by the short names of the group `transfer`; null is not set."""
    only_keys(figures, {"strong", "flow", "burst", "max_running", "max_total"}, "pool")
    named = {
        "strong_guarantee_resources/cpu": figures["strong"],
        "integral_guarantees/resource_flow/cpu": figures["flow"],
        "integral_guarantees/burst_guarantee_resources/cpu": figures["burst"],
        "max_running_operation_count": figures["max_running"],
        "max_operation_count": figures["max_total"],
    }
    return {name: figure for name, figure in named.items() if figure is not None}


def _transfer(request: dict[str, Any]) -> Transfer:
    delta = request["delta"]
    only_keys(delta, {"strong", "flow", "burst", "max_running", "max_total"}, "delta")
    named = {
        "strong_guarantee_resources/cpu": delta["strong"],
        "resource_flow/cpu": delta["flow"],
        "burst_guarantee_resources/cpu": delta["burst"],
        "max_running_operation_count": delta["max_running"],
        "max_operation_count": delta["max_total"],
    }
    present = {name: figure for name, figure in named.items() if figure is not None}
    return Transfer(PoolName(request["src"]), PoolName(request["dst"]), msgspec.json.encode(present))


def _tree(options: dict[str, Any], pools: dict[str, dict[str, Any]]) -> Tree:
    """A stored tree; what cannot be read as a request would have been refused, so it is put there as it is."""
    desk = _Desk(TREE, TreeBounds())
    changes = [_options(options), *_in_order(pools)]
    draft = Draft(desk.configuration.pools, TreeBounds(), _SUPERUSER)
    for change in changes:
        draft.make(change)
    return draft.tree.tree


def _inputs(pools: PoolTree) -> list[PoolInput]:
    places = {ROOT_POOL: -1, **{name: at for at, name in enumerate(pools.preorder)}}
    return [pool_input(pools.pools[name], places[pools.pools[name].parent], pools) for name in pools.preorder]


# --- judging ------------------------------------------------------------------------------------------------------------


def _between(desk: _Desk, asked: ConfigCase, person: Person, case: dict[str, Any]) -> list[Comparison]:
    """A pool that is made in, or goes to, another tree."""
    other = _Desk(TreeName(asked.to_tree), TreeBounds())
    (change,) = asked.changes
    if isinstance(change, Create):
        answer: PoolPlan | Refusal = other.ask([change], person)
        return [compared("verdict", case["expect"], "accept" if isinstance(answer, PoolPlan) else "reject")]
    assert isinstance(change, Move)
    settings = desk.configuration.pools.pools[change.name].settings

    async def moved() -> PoolPlan | Refusal:
        request = MovePoolToTree(change.name, other.configuration.pools.name, ROOT_POOL, tree=TREE)
        return await move_to_tree(request, desk.configuration.pools, desk.asker(person), other.asker(person))

    accepted = isinstance(anyio.run(moved), PoolPlan)
    found = [compared("verdict", case["expect"], "accept" if accepted else "reject")]
    found.append(compared("left behind", [], [str(name) for name in desk.configuration.pools.preorder]))
    arrived = other.configuration.pools.pools.get(change.name, Pool(change.name, ROOT_POOL, PoolConfig(weight=7.0)))
    return [*found, compared("settings", settings, arrived.settings)]


def _reason(reason: str, problems: list[Refusal], action: dict[str, Any]) -> Comparison:
    told = "; ".join(problem.text() for problem in problems)
    return Comparison("reason", reason, told, any(_tells(reason, problem, action) for problem in problems))


def _tells(reason: str, problem: Refusal, action: dict[str, Any]) -> bool:
    match problem:
        case Exists():
            return reason == "duplicate_name"
        case NotFound():
            return reason == "unknown_parent"
        case NotAllowed():
            return reason == "permission"
        case BrokenRules():
            return False
        case BadRequest() if problem.rule:
            return problem.rule in _RULES.get(reason, {reason})
        case BadRequest() if reason in _VALUES:
            (attribute, *_) = (
                action.get("attrs")
                or action.get("set_tree")
                or action.get("set_on_tree_object")
                or {"allowed_profiling_tags": None}
            )
            return attribute in problem.place and _VALUES[reason] in problem.expected
        case _:
            return False


def _alert(alert: str, warnings: list[str]) -> Comparison:
    words = {"guarantees_overcommit": "the cluster has", "unrecognized_tree_options": "is not known here"}
    if alert not in words:
        raise Problem(f"unknown alert: {alert}")
    return Comparison("alert", alert, "; ".join(warnings), any(words[alert] in warning for warning in warnings))


def _after(case: dict[str, Any], pools: PoolTree) -> list[Comparison]:
    found: list[Comparison] = []
    action = case["action"]
    if "after" in case:
        pool = pools.pools[PoolName(action["set"] if "set" in action else action["pool"])]
        written = POOL_ATTRIBUTES.written(pool.settings)
        found.extend(compared(name, value, written.get(name)) for name, value in case["after"].items())
    if "after_exists" in case:
        found.append(compared("exists", case["after_exists"], action["create"] in pools.pools))
    if case["expect"] == "accept" and "attrs" in action:
        name = PoolName(action.get("create") or action["set"])
        wanted = POOL_ATTRIBUTES.changed(PoolConfig(), action["attrs"]).value
        written = POOL_ATTRIBUTES.written(pools.pools[name].settings)
        for key, value in POOL_ATTRIBUTES.written(wanted).items():
            found.append(compared(key, value, written.get(key)))
    return found


def _stored(options: dict[str, Any], pools: dict[str, dict[str, Any]], expect: dict[str, Any]) -> list[Comparison]:
    only_keys(expect, {"update", "alert", "fallback_parent", "effective"}, "expect")
    desk = _Desk(TREE, TreeBounds())
    desk.ask([_create("earlier", ROOT_POOL, {})], _SUPERUSER)
    desk.configuration.on_stored(StoredTree(9, _tree(options, pools)))
    if "effective" in expect:
        in_force = POOL_ATTRIBUTES.written(desk.configuration.pools.settings(PoolName("p")))
        wanted = POOL_ATTRIBUTES.written(POOL_ATTRIBUTES.changed(PoolConfig(), expect["effective"]).value)
        return [compared(name, wanted[name], in_force.get(name)) for name in expect["effective"]]
    applied = set(desk.configuration.pools.pools) == set(pools)
    kept = list(desk.configuration.pools.pools) == ["earlier"]
    found = [compared("update", expect["update"], "applied" if applied else "skipped_whole_tree" if kept else "partly")]
    alerts = desk.configuration.alerts()
    if expect["alert"] is True:
        found.append(compared("alert", True, bool(alerts)))
    elif expect["alert"] == "invalid_default_parent_pool":
        told = any("default_parent_pool" in alert for alert in alerts)
        found.append(Comparison("alert", expect["alert"], "; ".join(alerts), told))
    else:
        raise Problem(f"unknown alert: {expect['alert']}")
    if "fallback_parent" in expect:
        # Admission makes ephemeral pools, by the rules that it reads of the same tree.
        rules = TreeBook(rules_of(desk.configuration.pools.tree))
        parent = default_parent(rules, PoolName("nobody-made-it"), Person(USER))
        found.append(compared("fallback_parent", expect["fallback_parent"], parent))
    return found


def _held_back(attributes: dict[str, Any], expect: dict[str, Any]) -> list[Comparison]:
    """Pool `p` changes, and another one with it, while an ephemeral pool lives in `p`; both services hear of it."""
    only_keys(expect, {"update", "alert"}, "expect")
    hub = _tree({}, {"p": {"create_ephemeral_subpools": True}})
    changed = _tree({}, {"p": attributes, "other": {}})
    admission, fair_share = AdmissionEngine(), FairShareEngine(TREE, 1, EngineOptions())
    admission.on_configuration(TREE, rules_of(hub), NOW)
    fair_share.on_stored_tree(StoredTree(1, hub), NOW)
    spec = OperationSpec(PoolName("p"), ["true"], resources=Resources(user_slots=1, cpu=100))
    events = admission.on_start(StartOperation(OperationId("operation-1"), spec), USER, NOW).effects
    fair_share.on_operations([], NOW)
    fair_share.on_events(events, NOW)
    admission.on_configuration(TREE, rules_of(changed), NOW)
    fair_share.on_stored_tree(StoredTree(2, changed), NOW)
    seen: dict[str, tuple[Collection[PoolName], Any]] = {
        "admission": (admission.state.books[TREE].rules.pools, admission.state.configuration.held_back.get(TREE)),
        "fair share": (fair_share.configuration.in_force.pools, fair_share.configuration.alerts()),
    }
    found = []
    for service, (pools, alert) in seen.items():
        update = "applied" if PoolName("other") in pools else "skipped_whole_tree"
        found.append(compared(f"update of {service}", expect["update"], update))
        found.append(compared(f"alert of {service}", expect["alert"], bool(alert)))
    return found


def _judged(given: dict[str, Any], expect: dict[str, Any]) -> list[Comparison]:
    """A node and the trees by their node filters; unless the case names trees, one for nodes of another tag."""
    only_keys(expect, {"update", "alert"}, "expect")
    filters = given.get("trees", {TREE: "internal" if "node_tags" in given else ""})
    nodes = {"n": given["node_tags"]} if "node_tags" in given else {}
    default = given.get("default_tree", next(iter(filters)))
    refusals = anyio.run(_filtered, filters, nodes, default)
    found = [compared("update", expect["update"], "all_trees_update_refused" if refusals else "applied")]
    if expect["alert"] is True:
        return [*found, compared("alert", True, bool(refusals and refusals[0].text()))]
    trees: dict[str, TreeOptions] = {tree: TreeOptions(node_filter=tags) for tree, tags in filters.items()}
    judged = judge_trees(trees, default, nodes)
    return [*found, compared("alert", [expect["alert"]], [str(trouble) for trouble in judged.troubles])]


async def _filtered(filters: dict[str, str], nodes: dict[str, list[str]], default: str) -> list[Refusal]:
    """Sets the filters of trees that had none, then something of the default tree. Lists what is refused."""
    trees, enrolled = MoodyBucket(), MoodyBucket()
    for tree in filters:
        trees.write(tree, write_tree(Tree(TreeName(tree))))
    for node, tags in nodes.items():
        enrolled.write(node, msgspec.json.encode(NodeRecord(NodeName(node), tags=tags)))

    async def nodes_bucket() -> KeyValue:
        return enrolled

    judge = NodeFilters(trees, nodes_bucket).refusal
    service = OtherTrees(trees, TreeName("served-elsewhere"), TreeBounds(), HandClock(), judge)
    asked = [ChangePools([_options({"node_filter": tags})], TreeName(tree)) for tree, tags in filters.items()]
    asked.append(ChangePools([_create("p", ROOT_POOL, {})], TreeName(default)))
    answers = [await service.change(request, _SUPERUSER) for request in asked]
    return [answer for answer in answers if not isinstance(answer, PoolPlan)]


def _scaled(
    given: dict[str, Any], strong: dict[str, float], expect: dict[str, Any], engine: Engine
) -> list[Comparison]:
    """Guarantees above the cluster, after some time of saving: an alert, and shares that fit."""
    only_keys(expect, {"alert", "strong_share", "integral_share"}, "expect")
    pools: dict[str, dict[str, Any]] = {name: {"strong": cores} for name, cores in strong.items()}
    if "burst_pool" in given:
        pools["burst"] = {"type": "burst", "demand": given["total_cpu"], **given["burst_pool"]}
    saved_us = round(given.get("accrual_before_first_update_seconds", 0) * 1e6)
    result = engine.update(tree_of(given["total_cpu"], pools), dt_us=saved_us or None)
    told = [error.kind for error in result.errors]
    shares = {name: shares.strong_guarantee_share[CPU] for name, shares in result.pools.items()}
    integral = {name: shares.integral_guarantee_share[CPU] for name, shares in result.pools.items()}
    return [
        Comparison("alert", expect["alert"], ", ".join(told), any(kind in _OVERCOMMITTED for kind in told)),
        *all_compared(expect["strong_share"], shares, "strong_share"),
        *all_compared(expect.get("integral_share", {}), integral, "integral_share"),
    ]


def _promised(pools: dict[str, dict[str, Any]], expect: dict[str, Any], engine: Engine) -> list[Comparison]:
    only_keys(expect, {"alert", "pools"}, "expect")
    if expect["alert"] != "nested_promised_guarantee_pools":
        raise Problem(f"unknown alert: {expect['alert']}")
    result = engine.update(TreeInput(total=TOTAL, pools=_inputs(PoolTree(_tree({}, pools)))))
    told = [error for error in result.errors if error.kind is ErrorKind.NESTED_PROMISED_GUARANTEE]
    return [compared("pools", expect["pools"], [pool for error in told for pool in error.pools])]


def _figures(settings: PoolConfig) -> dict[str, Any]:
    def cores(amount: int | None) -> float | None:
        return None if amount is None else amount / 100

    integral = settings.integral_guarantees
    return {
        "strong": cores(settings.strong_guarantee_resources.cpu),
        "flow": cores(integral.resource_flow.cpu),
        "burst": cores(integral.burst_guarantee_resources.cpu),
        "max_running": settings.max_running_operation_count,
        "max_total": settings.max_operation_count,
    }


def _plain(tree: Tree) -> str:
    return msgspec.json.encode(tree).decode()


def compared(what: str, expected: object, actual: object) -> Comparison:
    return Comparison(what, str(expected), str(actual), expected == actual)
