"""Settings from which nothing follows are told whenever they are set, and in every list, of trees as well as of pools."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.ids import PoolName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Person, PoolTree
from headrace.resources import ZERO
from headrace.wire.pool_changes import ChangePools, PoolChange, PoolPlan, Set, SetOptions
from headrace_fair_share.configuration.change_decisions import Change, TreeConfiguration
from headrace_fair_share.configuration.draft import Draft
from headrace_fair_share.configuration.idle_settings import _RULES, Idle, idle_settings, in_words
from headrace_fair_share.configuration.rules import TreeBounds
from tests.support.effort import few_or_many
from tests.support.fair_share import stored
from tests.support.pool_attributes import changes_of
from tests.support.pool_trees import create, move, remove, set_, set_options
from tests.support.small_trees import TREE, a_tree
from tests.unit.options import test_pool_options, test_tree_options

ANYBODY = Person("root", administrator=True)
POLICIES = ("ytsaurus", "yarn", "yarn_legacy")
UNDER_YARN = "in force only under preemption_policy yarn and yarn_legacy"
UNDER_YTSAURUS = "in force only under preemption_policy ytsaurus"


def configured(pool: dict[str, Any], options: dict[str, Any]) -> TreeConfiguration:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree({"a": pool}, options), 1))
    return configuration


def decided(configuration: TreeConfiguration, pool: dict[str, Any], options: dict[str, Any]) -> Any:
    changes: list[PoolChange] = [
        SetOptions(msgspec.json.encode(options)),
        Set(PoolName("a"), msgspec.json.encode(pool)),
    ]
    return configuration.decide(ChangePools(changes), {}, ANYBODY, ZERO)


@settings(max_examples=few_or_many(50, 3_000), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(POLICIES), changes_of(TREE_ATTRIBUTES), changes_of(POOL_ATTRIBUTES), changes_of(TREE_ATTRIBUTES))
def test_whatever_is_set_without_effect_is_told_each_time_and_in_every_list(
    policy: str, options: dict[str, Any], pool: dict[str, Any], later: dict[str, Any]
) -> None:
    configuration = configured({}, {})
    first = decided(configuration, pool, {"preemption_policy": policy} | options)
    if not isinstance(first, Change):
        return
    words = set(in_words(idle_settings(PoolTree(first.tree))))
    configuration.on_written([first], 2)
    again = decided(configuration, pool, {"preemption_policy": policy} | options)

    assert words <= {*first.plan.warnings}
    assert words <= {*again.plan.warnings}
    assert words <= {*configuration.alerts()}
    other = decided(configuration, {}, later)
    if isinstance(other, Change):
        before, after = ({*idle_settings(PoolTree(tree))} for tree in (first.tree, other.tree))
        told = " ".join(other.plan.warnings)
        assert all(each.name in told for each in after - before), "what acts no more is told too"


NAMES = st.sampled_from([*"abcd"])
IDLE = st.dictionaries(
    st.sampled_from(["allow_preemption_from", "enable_detailed_logs", "enable_aggressive_starvation"]),
    st.booleans(),
)
CHANGES = st.one_of(
    st.builds(set_, NAMES, IDLE),
    st.builds(lambda name, settings: create(name, **settings), NAMES, IDLE),
    st.builds(lambda name, new_name: move(name, new_name=new_name), NAMES, NAMES),
    st.builds(remove, NAMES),
    st.builds(lambda policy: set_options(preemption_policy=policy), st.sampled_from(POLICIES)),
)


@settings(max_examples=few_or_many(50, 3_000), deadline=None)
@given(st.dictionaries(NAMES, IDLE), st.lists(CHANGES, min_size=1, max_size=4))
def test_what_is_told_of_the_pools_that_were_touched_is_all_that_is_to_be_told(
    pools: dict[str, dict[str, Any]], changes: list[PoolChange]
) -> None:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree(pools, {}), 1))
    draft = Draft(configuration.pools, TreeBounds(), ANYBODY)
    for change in changes:
        draft.make(change)

    before = {*idle_settings(draft.before)}
    idle = [each for each in idle_settings(draft.tree) if each not in before or draft.names(each.pool, each.attribute)]

    decision = configuration.decide(ChangePools(changes, dry_run=True), {}, ANYBODY, ZERO)

    plan = decision.plan if isinstance(decision, Change) else decision
    assert isinstance(plan, PoolPlan)
    assert [words for words in plan.warnings if "in force only" in words or "not supported" in words] == in_words(idle)


@pytest.mark.parametrize(
    ("pool", "options", "words"),
    [
        ({"allow_preemption_from": False}, {}, f"allow_preemption_from of a: {UNDER_YARN}"),
        ({}, {"yarn": {"enabled": True, "wait_before_kill": 5}}, f"yarn/enabled, yarn/wait_before_kill: {UNDER_YARN}"),
        (
            {},
            {"preemption_policy": "yarn", "yarn/enabled": True, "yarn/drf_needy_quirk": True},
            "yarn/drf_needy_quirk: in force only under preemption_policy yarn_legacy",
        ),
        (
            {},
            {"preemption_policy": "yarn_legacy", "yarn/enabled": True, "yarn/heartbeat_allowance": 5},
            "yarn/heartbeat_allowance: in force only under preemption_policy yarn",
        ),
        (
            {"allow_aggressive_preemption": False},
            {"preemption_policy": "yarn", "yarn/enabled": True},
            f"allow_aggressive_preemption of a: {UNDER_YTSAURUS}",
        ),
        (
            {},
            {"preemption_policy": "yarn", "yarn/enabled": True, "victim_rules": "legacy"},
            f"victim_rules: {UNDER_YTSAURUS}",
        ),
        (
            {"preemption_exempt_time": "1m"},
            {"preemption_policy": "yarn", "yarn/enabled": True},
            f"preemption_exempt_time of a: {UNDER_YTSAURUS}",
        ),
        (
            {"allow_regular_allocations_on_ssd_nodes": False},
            {},
            "allow_regular_allocations_on_ssd_nodes of a: "
            "in force only once ssd_priority_preemption/enable is true for the tree",
        ),
    ],
)
def test_a_setting_that_acts_under_other_options_alone_is_told_with_them(
    pool: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    assert configured(pool, options).alerts() == [words]


def test_a_change_of_the_policy_tells_which_settings_act_no_more() -> None:
    configuration = configured({"enable_aggressive_starvation": True}, {"yarn/enabled": True, "victim_rules": "legacy"})

    change = decided(configuration, {}, {"preemption_policy": "yarn"})

    assert change.plan.warnings == [
        f"victim_rules: {UNDER_YTSAURUS}",
        f"enable_aggressive_starvation of a: {UNDER_YTSAURUS}",
    ]


def test_every_rule_names_attributes_that_there_are() -> None:
    for rule in _RULES:
        for name in rule.of_tree:
            head, _, rest = name.partition("/")
            kind = TREE_ATTRIBUTES.attributes[head].kind
            assert not rest or rest in kind.schema.attributes  # type: ignore[attr-defined]
        assert {*rule.of_pools} <= POOL_ATTRIBUTES.attributes.keys()


@pytest.mark.parametrize(
    "name",
    [
        "enable_aggressive_starvation",
        "fair_share_aggressive_starvation_timeout",
        "scheduling_preemption_priority_scope",
    ],
)
def test_what_is_said_to_act_under_ytsaurus_alone_changes_no_figure_of_fair_share_under_yarn(name: str) -> None:
    """The others act in preemptive stages, in which nobody takes part whom fair_share gives no priority."""
    value, figure = test_tree_options.CASES[name]
    yarn = {"preemption_policy": "yarn", "yarn": {"enabled": True}}

    assert figure(yarn | {name: value}) == figure(yarn)


@pytest.mark.parametrize("name", ["allow_preemption_from"])
def test_what_is_said_to_act_under_yarn_alone_is_set_without_effect_by_default(name: str) -> None:
    value, _ = test_pool_options.CASES[name]

    assert idle_settings(PoolTree(a_tree({"a": {name: value}}, {}))) == [Idle(PoolName("a"), name, UNDER_YARN)]
