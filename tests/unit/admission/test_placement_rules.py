"""Placement rules of a tree: how they are written, which pool each chooses, and what a person is told who gets another or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import TREE_ATTRIBUTES, Defects, TreeOptions
from headrace.pools.placement_rules import PlacementRule, RuleName, misplaced, parse_rule
from headrace.wire import operations as wire
from headrace.wire.placements import EphemeralPool
from headrace.wire.refusals import BadRequest, LimitBroken, NotAllowed, NotFound, OverLimit
from headrace_admission.decisions.pool_by_rules import Chosen, Rejected, StartFacts, pool_by_rules
from headrace_admission.state.rules import GlobalRules, PoolRules, rules_of
from tests.unit.admission.desk import TREE, Desk, oid

POOLS = {
    "research": {},
    "hub": {"create_ephemeral_subpools": True},
    "boris": {"parent": "hub"},
    "guests": {},
}


def placed(*rules: str, pool: str = "", user: str = "anna", **spec: Any) -> tuple[str, str]:
    """The pool and the rule that chose it, for the first operation of a tree."""
    desk = Desk(POOLS, placement_rules=list(rules))
    answer = desk.start("a", pool, user, **spec)
    assert isinstance(answer, wire.StartAnswer), answer
    (placement,) = desk.state.operations[oid("a")].placements.values()
    assert (placement.pool, placement.rule) == (answer.pool, answer.rule)
    return answer.pool, answer.rule


@pytest.mark.parametrize(
    ("rules", "asked", "user", "pool", "rule"),
    [
        (["specified", "user"], "research", "anna", "research", ""),
        (["specified", "user"], "new", "anna", "new", ""),
        (["specified", "user"], "", "anna", "anna", "user"),
        (["specified", "user"], "hub", "anna", "hub$anna", ""),
        (["specified existing", "default guests"], "new", "anna", "guests", "default guests"),
        (["specified existing", "default guests"], "research", "anna", "research", ""),
        (["user existing", "default"], "research", "anna", "default", "default"),
        (["user existing", "default"], "", "boris", "boris", "user existing"),
        (["nested_user default hub", "reject"], "", "anna", "hub$anna", "nested_user default hub"),
        (["nested_user default hub", "reject"], "", "boris", "boris", "nested_user default hub"),
        # No user has a pool of their own in one that makes none.
        (["nested_user default research", "default guests"], "", "anna", "guests", "default guests"),
        (["nested_user existing default hub", "default guests"], "", "anna", "guests", "default guests"),
        (["nested_user existing default hub", "default guests"], "", "boris", "boris", "nested_user existing default hub"),
        (["nested_user specified", "default guests"], "new", "anna", "new$anna", "nested_user specified"),
        (["nested_user specified", "default guests"], "", "anna", "guests", "default guests"),
        (["default guests"], "research", "anna", "guests", "default guests"),
        # A rule that may pass an operation on cannot end a list.
        (["default new existing", "default guests"], "", "anna", "guests", "default guests"),
        (["default guests existing", "reject"], "", "anna", "guests", "default guests existing"),
        (["nested_user default hub"], "", "anna", "hub$anna", "nested_user default hub"),
    ],
)  # fmt: skip
def test_the_first_rule_that_does_not_pass_on_chooses(
    rules: list[str], asked: str, user: str, pool: str, rule: str
) -> None:
    assert placed(*rules, pool=asked, user=user) == (pool, rule)


@pytest.mark.parametrize(
    ("rule", "groups", "pool"),
    [
        ("primary_group", ["research", "guests"], "research"),
        ("primary_group", ["new.one"], "new_dot_one"),
        ("secondary_group", ["research", "new", "guests", "hub"], "guests"),
        ("secondary_group", ["research"], None),
        ("secondary_group", [], None),
        ("nested_user primary_group", ["hub"], "boris"),
    ],
)
def test_groups_choose_where_somebody_tells_them(rule: str, groups: list[str], pool: str | None) -> None:
    pools = rules_of(Desk(POOLS).trees[TREE]).pools
    found = pool_by_rules([parse_rule(rule, "")], StartFacts("", "boris", groups), pools)

    assert (found.pool if isinstance(found, Chosen) else found) == (pool or Rejected(None))


def test_a_pool_of_the_users_name_somewhere_else_is_not_their_own() -> None:
    rules = ["nested_user default hub", "reject"]
    desk = Desk(POOLS | {"boris": {"parent": "guests"}, "hub-boris": {"parent": "hub"}}, placement_rules=rules)

    assert desk.start("a", user="boris").pool == "hub-boris"


@pytest.mark.parametrize(
    ("rules", "asked", "refusal"),
    [
        (
            ["specified existing", "reject"],
            "",
            BadRequest.because(
                "pool",
                "no placement rule chooses a pool for this operation. "
                "The placement rules of tree default are specified existing, reject",
            ),
        ),
        (["specified existing", "reject"], "reserch", NotFound("pool", "reserch", near=["research"])),
        (
            ["user existing", "reject"],
            "research",
            BadRequest.because(
                "pool",
                "no placement rule accepts pool research. The placement rules of tree default are user existing, reject",
            ),
        ),
        (
            ["specified existing", "primary_group"],
            "reserch",
            BadRequest.because(
                "pool",
                "the placement rule `primary_group` needs a group, but anna is in no group. Name a pool that an earlier rule accepts. "
                "The placement rules of tree default are specified existing, primary_group",
            ),
        ),
        (
            ["nested_user default research"],
            "",
            BadRequest.because(
                "pool",
                "no placement rule chooses a pool for this operation. "
                "The placement rules of tree default are nested_user default research",
            ),
        ),
    ],
)
def test_whoever_is_placed_nowhere_is_told_by_which_rules(rules: list[str], asked: str, refusal: object) -> None:
    desk = Desk(POOLS, placement_rules=rules)

    assert desk.start("a", asked) == refusal
    assert desk.events == []


def test_whoever_wants_a_pool_that_exists_is_not_placed_in_another() -> None:
    desk = Desk(POOLS, placement_rules=["specified existing", "default guests"])

    assert desk.start("a", "reserch", require_specified_pools_existence=True) == NotFound(
        "pool", "reserch", near=["research"]
    )
    assert desk.start("b", require_specified_pools_existence=True).pool == "guests"


def test_a_pool_of_a_user_below_one_that_nobody_made_brings_both() -> None:
    desk = Desk(
        {"parent": {"ephemeral_subpool_config": {"max_running_operation_count": 1}}},
        placement_rules=["nested_user specified", "reject"],
        default_parent_pool="parent",
    )
    desk.started("a", "b", pool="new")

    ephemeral = desk.state.books[TREE].ephemeral.by_name
    assert ephemeral == {
        "new": EphemeralPool(PoolName("new"), PoolName("parent"), "anna", max_running_operation_count=1),
        "new$anna": EphemeralPool(PoolName("new$anna"), PoolName("new"), of_hub=True),
    }
    assert desk.queue("new") == ["b"]
    assert desk.replayed().state.books[TREE].ephemeral.by_name == ephemeral
    for name in ("a", "b"):
        desk.finish(name)
        desk.released(name)
    assert desk.state.books[TREE].ephemeral.by_name == {}


def test_limits_and_rights_of_the_pool_above_both_hold() -> None:
    rules: dict[str, Any] = {
        "placement_rules": ["nested_user specified", "reject"],
        "default_parent_pool": "parent",
    }
    full = Desk({"parent": {"max_operation_count": 0, "max_running_operation_count": 0}}, **rules)
    assert full.start("a", "new") == OverLimit([LimitBroken("max_operation_count", 0, 0, "parent", "default")])
    many = Desk({"parent": {}}, **rules)
    many.started("a", pool="new")
    assert many.start("b", "newer") == OverLimit(
        [LimitBroken("max_ephemeral_pools_per_user", 1, 1, "newer", "default", user="anna", holders=["new"])]
    )
    everywhere = GlobalRules(administrators=frozenset({"root"}))
    closed = Desk({"parent": {"access": {"use": ["boris"]}}}, everywhere=everywhere, access={"use": ["cleo"]}, **rules)
    assert isinstance(closed.start("a", "new"), NotAllowed)
    assert isinstance(closed.start("a", "new", user="boris"), wire.StartAnswer)


def test_no_pool_of_a_user_comes_below_a_fifo_one() -> None:
    parent = {"ephemeral_subpool_config": {"mode": "fifo"}}
    desk = Desk({"parent": parent}, placement_rules=["nested_user specified", "reject"], default_parent_pool="parent")
    desk.started("a", "b", pool="new")

    assert list(desk.state.books[TREE].ephemeral.by_name) == ["new"]


def test_the_rule_is_known_as_long_as_the_operation_stays_in_the_pool() -> None:
    desk = Desk(POOLS | {"guests": {"max_running_operation_count": 1}}, placement_rules=["default guests"])
    desk.started("a", "b")
    assert desk.waiting() == ["b"]
    desk.finish("a")
    desk.released("a")

    def rule() -> str:
        return desk.state.operations[oid("b")].placements[TREE].rule

    assert (desk.running(), rule()) == (["b"], "default guests")
    assert desk.replayed().state.operations[oid("b")].placements[TREE].rule == "default guests"
    desk.move("b", "research")
    assert rule() == ""
    desk.move("b", "guests")
    assert rule() == ""


def test_a_root_that_is_asked_for_is_refused() -> None:
    answer = Desk(POOLS).start("a", ROOT_POOL)

    assert isinstance(answer, BadRequest)
    assert "no operation runs in the root" in answer.expected


@pytest.mark.parametrize(
    ("value", "place", "expected"),
    [
        (["specifed", "reject"], "placement_rules[0]", "did you mean specified?"),
        (["nested_users default", "reject"], "placement_rules[0]", "did you mean nested_user?"),
        (["nested_user", "reject"], "placement_rules[0]", "nested_user and a rule: one of specified, user, "),
        (["user created", "reject"], "placement_rules[0]", "existing after user"),
        (["user existing please", "reject"], "placement_rules[0]", "existing after user"),
        (["reject existing"], "placement_rules[0]", "nothing after reject"),
        (["secondary_group existing", "reject"], "placement_rules[0]", "nothing after secondary_group"),
        (["user", "default a b"], "placement_rules[1]", "the name of a pool, then existing after default"),
        (["default a/b"], "placement_rules[0]", "the name of a pool after default: 1 to 100 characters"),
        (["reject", "user"], "placement_rules[1]", "reject ends the list"),
        (
            ["user existing"],
            "placement_rules[0]",
            "default without existing, or reject, as the last rule: the list ends with user existing",
        ),
        (
            ["secondary_group", "default guests existing"],
            "placement_rules[1]",
            "the list ends with default guests existing",
        ),
        (["nested_user user existing"], "placement_rules[0]", "default without existing, or reject, as the last rule"),
        (["nested_user existing user"], "placement_rules[0]", "default without existing, or reject, as the last rule"),
        (["nested_user specified"], "placement_rules[0]", "default without existing, or reject, as the last rule"),
        ([], "placement_rules", "at least one rule"),
        ("specified", "placement_rules", "a list of at most 100 placement rules"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_their_place(value: object, place: str, expected: str) -> None:
    with pytest.raises(Defects) as caught:
        TREE_ATTRIBUTES.changed(TreeOptions(), {"placement_rules": value})

    (problem,) = caught.value.problems
    assert problem.place == place
    assert problem.expected.startswith(expected) or expected in problem.expected


NAMES = st.sampled_from(["a", "b", "default", "u"])
RULES = st.builds(
    lambda name, pool, existing, nested, nested_existing: PlacementRule(
        name,
        PoolName(pool) if name is RuleName.DEFAULT else PoolName("default"),
        existing and name not in (RuleName.REJECT, RuleName.SECONDARY_GROUP),
        nested,
        nested and nested_existing,
    ),
    st.sampled_from(RuleName),
    NAMES,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
TREES = st.dictionaries(
    NAMES,
    st.builds(
        lambda parent, hub: PoolRules(parent=PoolName(parent), create_ephemeral_subpools=hub),
        NAMES | st.just(ROOT_POOL),
        st.booleans(),
    ),
)
ASKING = st.builds(
    StartFacts, st.just("") | NAMES, st.sampled_from(["u", "b"]), st.none() | st.lists(NAMES, max_size=3)
)


@given(RULES)
def test_a_rule_is_read_as_it_is_written(rule: PlacementRule) -> None:
    assert parse_rule(rule.text(), "") == rule


@given(st.text(alphabet="nested_user xistgpcfaljo", max_size=40))
def test_what_is_read_as_a_rule_is_written_with_its_words(text: str) -> None:
    try:
        rule = parse_rule(text, "")
    except BadInput:
        return
    assert rule.text() in (" ".join(text.split()), " ".join(text.split()).replace("default default", "default"))


@given(st.lists(RULES, min_size=1, max_size=5), ASKING, TREES)
def test_all_rules_before_the_one_that_decides_pass_on(
    rules: list[PlacementRule], asking: StartFacts, pools: dict[PoolName, PoolRules]
) -> None:
    found = pool_by_rules(rules, asking, pools)

    if found.rule is None:
        assert all(pool_by_rules([rule], asking, pools) == Rejected(None) for rule in rules)
        return
    at = next(at for at, rule in enumerate(rules) if pool_by_rules([rule], asking, pools) != Rejected(None))
    assert rules[at] == found.rule
    assert found == pool_by_rules([found.rule], asking, pools)
    if isinstance(found, Chosen) and found.rule.existing:
        assert found.pool in pools
    if isinstance(found, Chosen) and found.of_user:
        assert found.rule.nested_user
        assert not found.rule.nested_existing
        assert found.pool not in pools or pools[found.pool].create_ephemeral_subpools


@given(st.lists(RULES, min_size=1, max_size=5), ASKING, TREES)
def test_a_list_that_may_be_set_leaves_nobody_without_a_decision(
    rules: list[PlacementRule], asking: StartFacts, pools: dict[PoolName, PoolRules]
) -> None:
    if misplaced(rules):
        return
    found = pool_by_rules(rules, asking, pools)

    # The last rule may place users below a pool that makes none for them.
    assert found.rule is not None or rules[-1].nested_user
