"""Bounds of the resources of one job: a start or a move beyond them is refused, and jobs that can never fit let an operation fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ids import TreeName
from headrace.wire.operations import OperationState, OperationView, StartAnswer
from headrace.wire.refusals import BadRequest
from tests.support.clocks import at
from tests.support.effort import few_or_many
from tests.unit.admission.desk import TREE, Desk, oid

OTHER = TreeName("other")
CPU, MEMORY = "spec.resources.cpu", "spec.resources.memory"


def scans(desk: Desk, *at_s: float) -> None:
    for each in at_s:
        desk.record(desk.engine.on_scan(at(each)).effects)


@pytest.mark.parametrize(
    ("tree", "pools", "place", "expected"),
    [
        (
            {"max_job_resource_limits": {"cpu": 0.5}},
            {},
            CPU,
            "at most 0.5 for each job, max_job_resource_limits of tree default",
        ),
        (
            {},
            {"a": {"max_job_resource_limits": {"cpu": 0.5}}},
            CPU,
            "at most 0.5 for each job, max_job_resource_limits of pool a in tree default",
        ),
        (
            {},
            {"b": {"min_job_resource_limits": {"cpu": 2}}},
            CPU,
            "at least 2 for each job, min_job_resource_limits of pool b in tree default",
        ),
        (
            {},
            {"a": {"min_job_resource_limits": {"memory": "1M"}}, "b": {"max_job_resource_limits": {"cpu": 0.5}}},
            MEMORY,
            "at least 1 MiB for each job, min_job_resource_limits of pool a in tree default",
        ),
    ],
)
def test_a_start_beyond_a_bound_is_refused_with_the_value_and_the_highest_level(
    tree: dict[str, Any], pools: dict[str, Any], place: str, expected: str
) -> None:
    desk = Desk({"a": pools.get("a", {}), "b": {"parent": "a"} | pools.get("b", {})}, **tree)

    answer = desk.start("one", "b")

    assert answer == BadRequest(place, "1" if place == CPU else "0 B", expected)


def test_a_new_ephemeral_pool_and_a_pool_of_a_hub_have_the_bounds_of_the_pools_above() -> None:
    small = {"max_job_resource_limits": {"cpu": 0.5}}
    desk = Desk({"a": small | {"create_ephemeral_subpools": True}}, default_parent_pool="a")

    assert isinstance(desk.start("one", "a"), BadRequest)
    assert isinstance(desk.start("two", "guest"), BadRequest)


@pytest.mark.parametrize(
    ("trees", "kept"),
    [
        ({"pool_trees": [TREE, OTHER]}, None),
        ({"pool_trees": [OTHER], "tentative_pool_trees": [TREE]}, [OTHER]),
        ({"pool_trees": [TREE, OTHER], "erase_trees_with_pool_limit_violations": True}, [OTHER]),
        ({"pool_trees": [TREE], "erase_trees_with_pool_limit_violations": True}, None),
    ],
)
def test_a_tree_that_refuses_the_jobs_is_left_out_if_the_operation_allows_that(
    trees: dict[str, Any], kept: list[TreeName] | None
) -> None:
    desk = Desk({"a": {"max_job_resource_limits": {"cpu": 0.5}}})
    desk.configure({"a": {}}, OTHER)

    answer = desk.start("one", "a", **trees)

    if kept is None:
        assert isinstance(answer, BadRequest)
    else:
        assert isinstance(answer, StartAnswer)
        assert (answer.erased_trees, list(desk.state.operations[oid("one")].placements)) == ([TREE], kept)


def test_a_later_bound_ends_no_operation_and_keeps_others_out() -> None:
    desk = Desk({"a": {}, "b": {}, "c": {}})
    desk.started("one", "two", pool="a")
    desk.started("three", pool="b")
    desk.configure({"a": {"max_job_resource_limits": {"cpu": 0.5}}, "b": {}, "c": {}})
    scans(desk, 1_000, 2_000)

    assert desk.running() == ["one", "three", "two"]
    assert isinstance(desk.move("three", "a"), BadRequest)
    assert isinstance(desk.update("one", weight=2.0), OperationView)
    assert isinstance(desk.move("two", "c"), OperationView)


AMOUNT = st.sampled_from([None, 0, 1, 2, 3])
BOUNDS = st.fixed_dictionaries({"min": AMOUNT, "max": AMOUNT})


@settings(max_examples=few_or_many(50, 2_000), deadline=None)
@given(st.lists(BOUNDS, min_size=3, max_size=3))
def test_a_start_is_accepted_exactly_if_its_jobs_are_within_the_bounds_of_every_level(
    bounds: list[dict[str, int | None]],
) -> None:
    """Jobs have one core; each level may bound it from both sides, also in contradiction to itself."""
    levels: list[dict[str, Any]] = [
        {f"{side}_job_resource_limits": {"cpu": cores} for side, cores in level.items() if cores is not None}
        for level in bounds
    ]
    tree, above, own = levels
    desk = Desk({"a": above, "b": {"parent": "a"} | own}, **tree)

    is_within = all((level["min"] or 0) <= 1 <= (3 if level["max"] is None else level["max"]) for level in bounds)
    assert isinstance(desk.start("one", "b"), StartAnswer) == is_within


# --- limiting pools ----------------------------------------------------------------------------------------------------

SMALL = {"resource_limits": {"cpu": 0.5}}


def test_an_operation_fails_after_five_minutes_below_a_limit_that_is_smaller_than_its_jobs() -> None:
    desk = Desk({"a": SMALL, "b": {"parent": "a"}})
    desk.started("one", pool="b")
    scans(desk, 10, 309)
    assert desk.running() == ["one"]

    scans(desk, 310)

    operation = desk.state.operations[oid("one")]
    assert operation.state is OperationState.FAILING
    assert operation.reason == (
        "each job asks for cpu 1, and resource_limits of pool a in tree default are cpu 0.5 "
        "(for 5m or longer, and enable_limiting_ancestor_check is true)"
    )
    assert desk.replayed().state.operations[oid("one")].reason == operation.reason


@pytest.mark.parametrize("released", ["raised", "moved", "suspended"])
def test_the_time_begins_anew_once_the_jobs_fit_or_the_operation_is_suspended(released: str) -> None:
    desk = Desk({"a": SMALL, "b": {}})
    desk.started("one", pool="a")
    scans(desk, 10)
    if released == "raised":
        desk.configure({"a": {"resource_limits": {"cpu": 1}}, "b": {}})
    elif released == "moved":
        desk.move("one", "b")
    else:
        desk.suspend("one")
    scans(desk, 20)
    if released == "suspended":
        desk.resume("one")
    desk.configure({"a": SMALL, "b": SMALL})
    scans(desk, 310, 600)
    assert desk.running() == ["one"]

    scans(desk, 610)

    assert desk.running() == []


def test_the_limits_of_an_ephemeral_pool_count_too() -> None:
    hub = {"create_ephemeral_subpools": True, "ephemeral_subpool_config": SMALL}
    desk = Desk({"a": hub})
    desk.started("one", pool="a")
    scans(desk, 10, 310)

    assert "pool a$anna" in desk.state.operations[oid("one")].reason


def test_an_operation_of_several_trees_fails_only_if_it_fits_in_none() -> None:
    desk = Desk({"a": SMALL})
    desk.configure({"a": {}}, OTHER)
    desk.started("one", pool="a", pool_trees=[TREE, OTHER])
    scans(desk, 10, 310)
    assert desk.running() == ["one"]

    desk.configure({"a": SMALL}, OTHER, enable_limiting_ancestor_check=False)
    scans(desk, 320, 700)
    assert desk.running() == ["one"]
    desk.configure({"a": SMALL}, OTHER)
    scans(desk, 710, 1_010)

    assert desk.running() == []


def test_neither_a_waiting_operation_nor_a_tree_without_the_check_is_concerned() -> None:
    desk = Desk({"a": SMALL | {"max_running_operation_count": 0}})
    desk.started("one", pool="a")
    scans(desk, 10, 310)
    assert desk.waiting() == ["one"]

    desk.configure({"a": SMALL}, enable_limiting_ancestor_check=False)
    scans(desk, 320, 1_000)
    assert desk.running() == ["one"]


def test_a_process_that_took_over_counts_from_its_first_look() -> None:
    desk = Desk({"a": SMALL})
    desk.started("one", pool="a")
    scans(desk, 10)
    engine = desk.replayed()
    for each in (305, 604):
        assert engine.on_scan(at(each)).effects == []

    assert engine.on_scan(at(605)).effects
    assert engine.state.operations[oid("one")].state is OperationState.FAILING
