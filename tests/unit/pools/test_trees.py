"""Formulas over tags of nodes, and trees together."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace.pools import TreeOptions
from headrace.pools.node_filter import matches
from headrace.pools.tree_conflicts import TreeTrouble, judge_trees


@pytest.mark.parametrize(
    ("formula", "tags", "true"),
    [
        ("", [], True),
        ("  ", ["a"], True),
        ("a", ["a"], True),
        ("a", ["b"], False),
        ("!a", [], True),
        ("!!a", ["a"], True),
        ("a & b", ["a"], False),
        ("a & b", ["a", "b"], True),
        ("a | b & c", ["a"], True),
        ("(a | b) & c", ["a"], False),
        ("(a|b)&!c", ["b"], True),
        ("rack/12 & gpu:a100", ["rack/12", "gpu:a100"], True),
    ],
)
def test_a_formula_is_true_of_nodes_by_their_tags(formula: str, tags: list[str], true: bool) -> None:
    assert matches(formula, tags) is true


@pytest.mark.parametrize("formula", ["&", "a &", "a b", "(a", "a)", "!", "a | | b", "a && b", "a, b", "(" * 60 + "a"])
def test_what_is_no_formula_is_refused(formula: str) -> None:
    with pytest.raises(BadInput):
        matches(formula, [])


def test_every_node_belongs_to_one_tree() -> None:
    trees = {"default": TreeOptions(node_filter="!gpu"), "gpu": TreeOptions(node_filter="gpu")}

    judged = judge_trees(trees, "default", {"n1": [], "n2": ["gpu"]})

    assert (judged.refused, judged.troubles) == (False, [])


def test_a_node_in_two_trees_keeps_all_of_them_from_being_used() -> None:
    judged = judge_trees({"a": TreeOptions(), "b": TreeOptions(node_filter="x")}, "a", {"n1": ["x"], "n2": []})

    assert judged.refused
    assert judged.troubles == [TreeTrouble.NODE_IN_TWO_TREES]
    assert "n1 (a and b)" in judged.alerts[0]


def test_a_node_in_no_tree_is_told_of() -> None:
    judged = judge_trees({"a": TreeOptions(node_filter="x")}, "a", {f"n{number}": [] for number in range(7)})

    assert not judged.refused
    assert judged.troubles == [TreeTrouble.NODES_WITHOUT_TREE]
    assert judged.alerts[0].endswith("n0, n1, n2, n3, n4 and 2 more")


def test_a_default_tree_that_is_not_there_is_told_with_the_nearest_name() -> None:
    judged = judge_trees({"default": TreeOptions()}, "defualt", {})

    assert judged.refused
    assert judged.alerts == ["the default tree defualt does not exist; did you mean default?"]
