"""Files of pools: what was written is read as the same, and what a file makes of a tree is what it says."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import POOL_ATTRIBUTES, PoolTree, TreeOptions
from headrace.pools.attributes.tree_attributes import TREE_ATTRIBUTES
from headrace.resources import Resources
from headrace.tree_file.pools import ConfiguredPool, TreeFile
from headrace.tree_file.problems import UnusableFile
from headrace.wire.pool_changes import Set, SetOptions
from headrace_cli.commands.pools.files import changes_between, described, exported
from headrace_fair_share.plan.description import described as plan_described
from tests.support.effort import few_or_many
from tests.support.pool_attributes import changes_of
from tests.support.pool_trees import a_tree, create, drafted

NAMES = ["a", "b", "no", "null", "1", "1e3", "true", "2020-01-01"]
CHANGES = changes_of(POOL_ATTRIBUTES)


@st.composite
def trees(draw: st.DrawFn) -> PoolTree:
    """Pools with any attributes; the rules of a tree as a whole do not matter here."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6))
    parents = [ROOT_POOL]
    changes = []
    for name in names:
        changes.append(create(name, draw(st.sampled_from(parents)), **draw(CHANGES)))
        parents.append(PoolName(name))
    return drafted(a_tree(), *changes).tree


def configured(tree: PoolTree) -> list[ConfiguredPool]:
    return [ConfiguredPool.of(name, tree.pools[name].parent, tree.pools[name].settings) for name in tree.preorder]


def as_file(tree: PoolTree, options: TreeOptions | None = None, *, as_json: bool = False) -> TreeFile:
    return described(exported(configured(tree), "default", options, as_json=as_json).encode(), "file")


@settings(max_examples=40)
@given(tree=trees(), as_json=st.booleans())
def test_always_what_was_exported_changes_nothing(tree: PoolTree, as_json: bool) -> None:
    read = as_file(tree, as_json=as_json)

    assert read.pools == configured(tree)
    assert changes_between(configured(tree), read) == []


@settings(max_examples=40)
@given(tree=trees())
def test_always_what_was_exported_makes_the_same_pools_of_nothing(tree: PoolTree) -> None:
    made = drafted(a_tree(), *changes_between([], as_file(tree))).tree

    assert made.pools == tree.pools


@settings(max_examples=few_or_many(10, 100))
@given(before=trees(), after=trees())
def test_always_a_file_makes_of_a_tree_what_it_says(before: PoolTree, after: PoolTree) -> None:
    draft = drafted(before, *changes_between(configured(before), as_file(after)))

    spelled = [problem for problem in draft.problems if "the same option" in problem.text()]
    if not spelled:
        assert draft.tree.pools == after.pools


@settings(max_examples=few_or_many(10, 100))
@given(before=trees(), after=trees())
def test_always_what_a_file_does_not_name_may_be_kept(before: PoolTree, after: PoolTree) -> None:
    draft = drafted(before, *changes_between(configured(before), as_file(after), keep=True))

    assert set(draft.tree.pools) == set(before.pools) | set(after.pools)


@given(options=changes_of(TREE_ATTRIBUTES), before=changes_of(TREE_ATTRIBUTES))
def test_always_options_become_those_of_the_file(options: dict[str, object], before: dict[str, object]) -> None:
    wanted = TREE_ATTRIBUTES.changed(TreeOptions(), options).value
    old = PoolTree(a_tree(before).tree)
    (change,) = changes_between([], as_file(a_tree(), wanted))
    draft = drafted(old, change)

    assert isinstance(change, SetOptions)
    if not any("the same option" in problem.text() for problem in draft.problems):
        assert draft.tree.options == wanted


def test_a_stored_attribute_cannot_move_a_pool_or_make_a_pool_in_an_import_of_an_export() -> None:
    """Everybody who may write to a pool could store such an attribute, and an import of an administrator obeyed it."""
    tree = drafted(a_tree(), create("vip", ROOT_POOL), create("own", ROOT_POOL), create("child", PoolName("own"))).tree
    stored = {"parent": "vip", "pools": {"new": {"weight": 9}}, "other": 1}
    settings = msgspec.structs.replace(tree.pools[PoolName("own")].settings, unrecognized=stored)
    pools = [
        ConfiguredPool.of(each.name, each.parent, settings) if each.name == "own" else each for each in configured(tree)
    ]
    read = described(exported(pools, "default", None, as_json=False).encode(), "file")

    assert [(pool.name, pool.parent) for pool in read.pools] == [(pool.name, pool.parent) for pool in pools]
    assert read.pools[1].attributes == {"other": 1}
    (unset,) = changes_between(pools, read)
    assert isinstance(unset, Set)
    assert not POOL_ATTRIBUTES.changed(settings, msgspec.json.decode(unset.attributes)).value.unrecognized.keys() - {
        "other"
    }


def test_pools_may_stand_in_each_other_or_name_their_parents_in_maps_or_lists_in_any_order() -> None:
    nested = described(b"pools: {a: {pools: {b: {weight: 2}}}}", "f")
    named = described(b'{"pools": {"b": {"parent": "a", "weight": 2}, "a": null}}', "f")
    listed = described(b"pools: [{name: b, parent: a, weight: 2}, {name: a}]", "f")

    assert nested == named == listed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pools:\n  a: {}\n  b: {pools: {a: {}}}", ["f:3: pools.b.pools.a: pool a", "line 2", "each name once in the tree"]),
        ("pools: {a: {pools: {b: {parent: c}}}}", ["f:1: pools.a.pools.b.parent: c", "expected a, the pool that it is nested in"]),
        ("pools: {a: 7}", ["pools.a: 7", "a map of attributes"]),
        ("pools: [a]", ["pools[0]: no name"]),
        ("pools: 7", ["pools: 7", "a map by name, or a list"]),
        ("pools: {a b: {}}", ["'a b' is not a name of a pool"]),
        ("options: [1]", ["options: a list", "a map of options"]),
        ("pool: {}", ["pool: unknown key; did you mean pools?"]),
        ("total: {cpu: 1}\npools: {}\noperations: {}", ["f:1: total: unknown key", "f:3: operations: unknown key"]),
        ("[]", ["a map with pools"]),
        ("pools: {a: {}, a: {}}", ["f:1: a:", "each key once"]),
        ("pools: {a: ", ["YAML or JSON"]),
        ("pools: {a: {abc: " + "{a: " * 60 + "1" + "}" * 62, ["nested too deep"]),
        ("options: {abc: " + "{a: " * 60 + "1" + "}" * 61, ["nested too deep"]),
        ("[" * 3000, ["nested too deep"]),
        ("pools: {a: {abc: {d: 18446744073709551616}}}", ["pools.a.abc.d: a whole number of 65 bits", "2**64 - 1"]),
        ("pools: {[1]: {}}", ["a key that is a text"]),
        ("pools: !!python/object:os.system {}", ["values without tags"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_told_with_its_place(text: str, words: list[str]) -> None:
    with pytest.raises(UnusableFile) as caught:
        described(text.encode(), "f")

    for each in words:
        assert each in str(caught.value)


@given(st.text(max_size=40))
def test_never_does_a_text_raise_anything_else(text: str) -> None:
    try:
        read = described(text.encode(), "f")
    except UnusableFile:
        return
    json.dumps([pool.attributes for pool in read.pools])


@settings(max_examples=40)
@given(tree=trees(), as_json=st.booleans())
def test_always_a_plan_reads_what_was_exported(tree: PoolTree, as_json: bool) -> None:
    text = exported(configured(tree), "default", tree.options, as_json=as_json)
    try:
        planned = plan_described(text.encode(), "f", Resources(cpu=10**9, memory=10**15)).tree
    except UnusableFile as unusable:
        # A tree that breaks rules has not been exported.
        broken = (
            "in fifo pool",
            "but its guarantee_type is relaxed",
            "Only one of them may have an integral guarantee",
            "too large a",
        )
        assume(not any(words in str(unusable) for words in broken))
        raise

    assert planned.preorder == tree.preorder
    for name in tree.preorder:
        assert POOL_ATTRIBUTES.written(planned.pools[name].settings) == POOL_ATTRIBUTES.written(
            tree.pools[name].settings
        )
