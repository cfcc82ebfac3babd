"""What stands behind `key=` on a command line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.pools import POOL_ATTRIBUTES, Defects, PoolConfig
from headrace_cli.commands.pools.key_values import assignments, checked, read_written


def settings(*given: str, unset: tuple[str, ...] = ()) -> PoolConfig:
    changes = assignments(given, POOL_ATTRIBUTES, unset)
    read: PoolConfig = POOL_ATTRIBUTES.changed(PoolConfig(), changes).value
    return read


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("integral_guarantees/resource_flow={cpu=100}", "integral_guarantees.resource_flow.cpu=100"),
        ("integral_guarantees/resource_flow=cpu=100", 'integral_guarantees={"resource_flow": {"cpu": 100}}'),
        ("integral-guarantees/guarantee_type=burst", "integral_guarantees={guarantee_type=burst}"),
        ("fifo_sort_parameters=weight,start_time", "fifo_sort_parameters=[weight; start_time]"),
        ("resource_limits=cpu=4,memory=16G", "resource_limits={cpu: 4, memory: 16G}"),
        ("strong_guarantee_resources=none", "strong_guarantee_resources={}"),
        ("access/use=ann,bob", 'access={"use": ["ann", "bob"]}'),
        ("access/use=ann,group:a.b", "access={use=[ann; group:a.b]}"),
        ("access/use=[group:crew; ann]", 'access={"use": ["group:crew", "ann"]}'),
        ("abc={group:5}", 'abc={"group": 5}'),
        ('abc={id=1; name="a b"; on=%true}', 'abc={"id": 1, "name": "a b", "on": true}'),
        ("weight=", "weight="),
        ("allow_normal_preemption=true", "allow_normal_preemption=%true"),
        ("min_share_resources/cpu=1", "strong_guarantee_resources/cpu=1"),
    ],
)
def test_values_may_be_written_in_several_ways(one: str, other: str) -> None:
    assert settings(one) == settings(other)


def test_an_attribute_is_taken_back_by_nothing_behind_the_sign_or_by_unset() -> None:
    before = settings("weight=2", "max_operation_count=3")
    changes = assignments(["weight="], POOL_ATTRIBUTES, ["max_operation_count"])

    assert changes == {"weight": None, "max_operation_count": None}
    assert POOL_ATTRIBUTES.changed(before, changes).value == PoolConfig()


@pytest.mark.parametrize("key", ["resource_limits/cpu", "integral_guarantees.resource_flow.memory"])
def test_an_amount_is_taken_back_by_none_as_a_guarantee_is(key: str) -> None:
    assert assignments([f"{key}=none"], POOL_ATTRIBUTES) == {key: None}


def test_none_is_a_value_where_it_is_a_choice() -> None:
    key = "integral_guarantees/guarantee_type"
    assert assignments([f"{key}=none"], POOL_ATTRIBUTES) == {key: "none"}


@pytest.mark.parametrize("given", [["weight"], ["=2"], ["weight=1", "weight=2"], ["abc={a=1"], ["abc={a}"], ["abc=[1"]])
def test_what_cannot_be_read_is_refused(given: list[str]) -> None:
    with pytest.raises(BadInput):
        assignments(given, POOL_ATTRIBUTES)


def test_what_can_be_seen_to_be_wrong_is_told_without_asking_anybody() -> None:
    with pytest.raises(BadInput, match="did you mean max_operation_count"):
        checked(assignments(["total_operation_count=5"], POOL_ATTRIBUTES), POOL_ATTRIBUTES)
    with pytest.raises(Defects, match="2 values cannot be used"):
        checked(assignments(["weight=0", "wieght=1"], POOL_ATTRIBUTES), POOL_ATTRIBUTES)


@given(st.text('{}[]=:;,"\\ a1%#', max_size=12))
def test_never_does_a_text_raise_anything_but_bad_input(text: str) -> None:
    found: Any = None
    try:
        found = read_written("{" + text, None, "abc")
    except BadInput:
        pass
    else:
        assert isinstance(found, dict)
