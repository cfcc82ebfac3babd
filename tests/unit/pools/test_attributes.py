"""The tables of attributes: complete, read back as written, and clear about what cannot be used."""

from __future__ import annotations

import contextlib
import enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pools import (
    POOL_ATTRIBUTES,
    PRESET_ATTRIBUTES,
    TREE_ATTRIBUTES,
    Defects,
    PartialResources,
    PoolConfig,
    Record,
    Schema,
    TreeOptions,
)
from headrace.pools.attributes.kinds import Choice
from tests.support.pool_attributes import changes_of

#: Names of fields that hold no attribute of their own.
BOOKKEEPING = {"spelled", "unrecognized"}


@pytest.mark.parametrize("schema", [POOL_ATTRIBUTES, TREE_ATTRIBUTES], ids=["pools", "trees"])
def test_every_field_has_an_entry_in_the_table_and_every_entry_a_field(schema: Schema) -> None:
    assert set(schema.of.__struct_fields__) - BOOKKEEPING == set(schema.attributes)
    for attribute in schema.attributes.values():
        if isinstance(attribute.kind, Record):
            inner = attribute.kind.schema
            assert set(inner.of.__struct_fields__) == set(inner.attributes), attribute.name


@pytest.mark.parametrize("schema", [POOL_ATTRIBUTES, TREE_ATTRIBUTES], ids=["pools", "trees"])
def test_no_name_stands_for_two_attributes_and_each_says_its_default(schema: Schema) -> None:
    names = [name for attribute in schema.attributes.values() for name in attribute.names]

    assert len(names) == len(set(names))
    for attribute in schema.attributes.values():
        default = schema.default(attribute.name)
        said = attribute.default or (default is not None and default != "")
        assert said, f"{attribute.name} has no default in words"
        assert attribute.help
        assert attribute.group


@pytest.mark.parametrize("schema", [POOL_ATTRIBUTES, TREE_ATTRIBUTES], ids=["pools", "trees"])
@given(data=st.data())
def test_always_what_is_written_back_reads_as_the_same(schema: Schema, data: st.DataObject) -> None:
    changes = data.draw(changes_of(schema))

    settings = schema.changed(schema.of(), changes).value
    written = schema.written(settings)

    assert settings == schema.changed(schema.of(), written).value
    stored = msgspec.json.decode(msgspec.json.encode(settings), type=schema.of)
    assert settings == stored
    assert schema.written(stored) == msgspec.json.decode(msgspec.json.encode(written))


@pytest.mark.parametrize("schema", [POOL_ATTRIBUTES, TREE_ATTRIBUTES], ids=["pools", "trees"])
@given(data=st.data())
def test_never_does_anything_written_raise_but_defects(schema: Schema, data: st.DataObject) -> None:
    odd = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
        max_leaves=6,
    )
    head = st.sampled_from([*schema.names, "", "x"])
    keys = st.one_of(head, st.builds("{}/{}".format, head, st.sampled_from(["cpu", "resource_flow/cpu", "", "a.b"])))
    changes = data.draw(st.one_of(odd, st.dictionaries(keys, odd, max_size=4)))

    with contextlib.suppress(Defects):
        schema.written(schema.changed(schema.of(), changes).value)


def test_null_takes_an_attribute_back_to_its_default() -> None:
    before = PoolConfig(weight=2.0, max_operation_count=5, resource_limits=PartialResources(cpu=100))
    nothing = {"weight": None, "max_operation_count": None, "resource_limits": None}

    assert POOL_ATTRIBUTES.changed(before, nothing).value == PoolConfig()


def test_an_explicit_zero_is_not_the_same_as_nothing_said() -> None:
    zero = changed({"strong_guarantee_resources": {"cpu": 0}})

    assert zero.strong_guarantee_resources == PartialResources(cpu=0)
    assert zero != PoolConfig()
    assert POOL_ATTRIBUTES.written(zero) == {"strong_guarantee_resources": {"cpu": 0}}


def test_parts_of_a_value_are_set_by_paths_of_either_kind() -> None:
    by_slashes = changed({"integral_guarantees/resource_flow/cpu": 100, "integral_guarantees/guarantee_type": "burst"})
    by_dots = changed({"integral_guarantees.resource_flow.cpu": "100", "integral_guarantees.guarantee_type": "burst"})
    whole = changed({"integral_guarantees": {"guarantee_type": "burst", "resource_flow": {"cpu": 100}}})

    assert by_slashes == by_dots == whole
    assert changed({"integral_guarantees/resource_flow/cpu": None}, whole) == changed(
        {"integral_guarantees": {"guarantee_type": "burst"}}
    )


def test_a_value_that_is_set_replaces_the_one_before_as_a_whole() -> None:
    before = changed({"integral_guarantees": {"guarantee_type": "burst", "resource_flow": {"cpu": 100}}})
    after = changed({"integral_guarantees": {"guarantee_type": "relaxed"}}, before)

    assert after == changed({"integral_guarantees": {"guarantee_type": "relaxed"}})


@pytest.mark.parametrize(
    ("schema", "alias", "name", "value"),
    [
        (POOL_ATTRIBUTES, "integral-guarantees", "integral_guarantees", {"guarantee_type": "burst"}),
        (POOL_ATTRIBUTES, "min_share_resources", "strong_guarantee_resources", {"cpu": 1}),
        (POOL_ATTRIBUTES, "fair_share_preemption_timeout", "fair_share_starvation_timeout", "5s"),
        (POOL_ATTRIBUTES, "allow_aggressive_starvation_preemption", "allow_aggressive_preemption", False),
        (POOL_ATTRIBUTES, "scheduling_tag", "scheduling_tag_filter", "ssd & !old"),
        (TREE_ATTRIBUTES, "fair_share_preemption_timeout", "fair_share_starvation_timeout", "5s"),
        (TREE_ATTRIBUTES, "job_interrupt_timeout", "allocation_preemption_timeout", 3000),
        (TREE_ATTRIBUTES, "prioritized_regular_scheduling", "batch_operation_scheduling", {"batch_size": 5}),
    ],
)
def test_names_that_readers_bring_mean_the_same(schema: Schema, alias: str, name: str, value: object) -> None:
    by_alias = schema.changed(schema.of(), {alias: value}).value
    by_name = schema.changed(schema.of(), {name: value}).value

    assert getattr(by_alias, name) == getattr(by_name, name) != schema.default(name)


def test_two_spellings_of_one_option_are_refused_together_and_one_after_the_other() -> None:
    once = changed({"fair_share_starvation_timeout": 5000})
    again = changed({"fair_share_preemption_timeout": 5000})

    assert "are names of the same option" in refused(
        {"fair_share_starvation_timeout": 1, "fair_share_preemption_timeout": 2}
    )
    assert "fair_share_starvation_timeout" in refused({"fair_share_preemption_timeout": 1}, once)
    assert "fair_share_preemption_timeout" in refused({"fair_share_starvation_timeout": 1}, again)
    assert changed({"fair_share_preemption_timeout": 9}, again).fair_share_starvation_timeout == 9
    assert changed({"fair_share_starvation_timeout": None}, again) == PoolConfig()


def test_an_old_name_replaces_what_stands_under_the_new_one() -> None:
    before = changed({"strong_guarantee_resources": {"cpu": 1}})

    assert changed({"min_share_resources": {"cpu": 2}}, before) == changed({"strong_guarantee_resources": {"cpu": 2}})
    assert "are names of the same option" in refused(
        {"min_share_resources": {"cpu": 2}, "strong_guarantee_resources": {"cpu": 1}}
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_operation_count": 5}, "did you mean max_operation_count?"),
        ({"running_operation_count": 5}, "did you mean max_running_operation_count?"),
        ({"parent": "vip"}, "did you mean `headrace pool move`?"),
        ({"parent/x": None}, "did you mean `headrace pool move`?"),
        ({"pools": {"new": {"weight": 9}}}, "did you mean `headrace pool create`?"),
        ({"pools/new/weight": 9}, "did you mean `headrace pool create`?"),
        ({"name": "vip"}, "did you mean `headrace pool rename`?"),
        ({"weight": 0}, "a positive number that is not tiny, up to 67108864"),
        ({"max_operation_count": True}, "a whole number, 0 or more"),
        ({"max_operation_count": -1}, "a whole number, 0 or more"),
        ({"max_operation_count": 1.5}, "a whole number, 0 or more"),
        ({"mode": "trash"}, "fair_share or fifo"),
        ({"fifo_sort_parameters": []}, "not empty"),
        ({"fifo_sort_parameters": ["weight", "weight"]}, "each value once"),
        ({"integral_guarantees/relaxed_share_multiplier_limit": 11}, "a number from 1 to 10"),
        ({"strong_guarantee_resources": {"cpus": 1}}, "did you mean cpu?"),
        ({"strong_guarantee_resources/cpus": 1}, "did you mean cpu?"),
        ({"allowed_profiling_tags": [str(tag) for tag in range(201)]}, "at most 200"),
        ({"fair_share_starvation_tolerance": 1.1}, "a number from 0 to 1"),
        ({"fair_share_starvation_timeout": "soon"}, "a length of time with a unit, such as 30s"),
        ({"weight/cpu": 1}, "this attribute has no parts"),
    ],
)
def test_what_cannot_be_used_is_told_with_what_would_do(changes: dict[str, object], words: str) -> None:
    assert words in refused(changes)


def test_all_that_cannot_be_used_is_told_at_once() -> None:
    bad = {"weight": 0, "integral_guarantees": {"guarantee_type": "x", "resource_flow": {"cpus": 1, "gpus": 1}}}

    with pytest.raises(Defects) as caught:
        POOL_ATTRIBUTES.changed(PoolConfig(), bad, "settings")
    assert [problem.place for problem in caught.value.problems] == [
        "settings.weight",
        "settings.integral_guarantees.guarantee_type",
        "settings.integral_guarantees.resource_flow.cpus",
        "settings.integral_guarantees.resource_flow.gpus",
    ]


def test_what_nobody_knows_is_kept_and_told() -> None:
    kept = POOL_ATTRIBUTES.changed(PoolConfig(), {"some_unknown_attribute": 10, "other/deep": "x"})

    assert kept.unknown == ("some_unknown_attribute", "other")
    assert kept.value.unrecognized == {"some_unknown_attribute": 10, "other": {"deep": "x"}}
    assert POOL_ATTRIBUTES.changed(kept.value, {"some_unknown_attribute": None, "other": None}).value == PoolConfig()


def test_what_may_stand_in_a_preset_can_be_told_from_what_is_not_set() -> None:
    for name in PRESET_ATTRIBUTES.attributes:
        assert PRESET_ATTRIBUTES.default(name) is None, name


def test_all_words_of_a_choice_are_words_of_the_wire() -> None:
    for schema in (POOL_ATTRIBUTES, TREE_ATTRIBUTES):
        for attribute in schema.attributes.values():
            if isinstance(attribute.kind, Choice):
                default = schema.default(attribute.name)
                assert default is None or isinstance(default, enum.StrEnum)


def changed(changes: dict[str, Any], before: PoolConfig | None = None) -> PoolConfig:
    after = POOL_ATTRIBUTES.changed(before or PoolConfig(), changes).value
    assert isinstance(after, PoolConfig)
    return after


def refused(changes: dict[str, Any], before: PoolConfig | None = None) -> str:
    with pytest.raises(Defects) as caught:
        POOL_ATTRIBUTES.changed(before or PoolConfig(), changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"cost_center": 2**64}, "cost_center"),
        ({"cost_center/of/team": -(2**63) - 1}, "cost_center.of.team"),
        ({"metering_tags": {"a": [{"b": 2**70}]}}, "metering_tags.a[0].b"),
    ],
)
def test_a_number_that_no_message_can_carry_is_refused_where_it_stands(changes: dict[str, Any], place: str) -> None:
    assert refused(changes).startswith(f"{place}: a whole number of ")
    assert changed({"cost_center": 2**64 - 1, "metering_tags": {"a": -(2**63)}}).unrecognized == {
        "cost_center": 2**64 - 1
    }


def test_the_defaults_of_a_tree_are_within_their_own_ranges() -> None:
    everything = {
        name: attribute.kind.write(TREE_ATTRIBUTES.default(name))
        for name, attribute in TREE_ATTRIBUTES.attributes.items()
        if TREE_ATTRIBUTES.default(name) not in (None, "")
    }

    assert TREE_ATTRIBUTES.changed(TreeOptions(), everything).value == TreeOptions()
