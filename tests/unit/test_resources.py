"""Amounts: what people write, what they read, and arithmetic that is exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.resources import (
    LARGEST_AMOUNT,
    LARGEST_SUM,
    RESOURCE_NAMES,
    ZERO,
    Resources,
    exact_amount,
    format_amount,
    parse_amount,
    parse_resources,
)
from headrace.wire.codec import BadMessage, decode, encode

amounts = st.builds(Resources, **dict.fromkeys(RESOURCE_NAMES, st.integers(0, 2**50)))


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "1", 100),
        ("cpu", "0.5", 50),
        ("cpu", "12.25", 1225),
        ("cpu", 0.1, 10),
        ("cpu", 3, 300),
        ("memory", "1000000B", 1_000_000),
        ("memory", "0", 0),
        ("memory", "512M", 512 * 2**20),
        ("memory", "2GiB", 2 * 2**30),
        ("memory", "2 GB", 2 * 10**9),
        ("memory", "1.5k", 1536),
        ("memory", "0.0001K", 0),
        ("gpu", "8", 8),
        ("user_slots", 7, 7),
        ("network", "0", 0),
    ],
)
def test_amounts_are_read_as_people_write_them(resource: str, text: str | int | float, expected: int) -> None:
    assert parse_amount(resource, text) == expected


@given(st.integers(0, LARGEST_AMOUNT))
def test_always_an_exact_amount_is_read_back_as_it_was(amount: int) -> None:
    for resource in ("memory", "cpu"):
        assert parse_amount(resource, exact_amount(resource, amount)) == amount
    # A program says bytes, without a unit.
    assert parse_amount("memory", amount) == amount


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("cpu", ""),
        ("cpu", "-1"),
        ("cpu", "1e3"),
        ("cpu", "0.001"),
        ("cpu", "1 core"),
        ("cpu", "nan"),
        ("cpu", "١"),
        ("cpu", "9" * 5_000),
        ("cpu", True),
        ("memory", "8"),
        ("memory", "1.5"),
        ("memory", "5X"),
        ("memory", "1.2.3G"),
        ("memory", "9999999T"),
        ("gpu", "0.5"),
        ("gpu", "1G"),
    ],
)
def test_what_is_no_amount_is_refused_with_its_place(resource: str, text: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_amount(resource, text, place=f"job.{resource}")

    assert refused.value.place == f"job.{resource}"


def test_an_unknown_resource_is_named() -> None:
    with pytest.raises(BadInput, match=r"pool\.disk.*one of user_slots, cpu, gpu, memory, network"):
        parse_resources({"cpu": 1, "disk": "1G"}, place="pool")


@pytest.mark.parametrize(
    ("resource", "amount", "expected"),
    [
        ("cpu", 100, "1"),
        ("cpu", 5, "0.05"),
        ("cpu", 150, "1.5"),
        ("cpu", 123_456_789, "1234567.89"),
        ("cpu", -150, "-1.5"),
        ("gpu", 8, "8"),
        ("memory", 0, "0 B"),
        ("memory", 1536, "1.5 KiB"),
        ("memory", 5 * 2**40, "5 TiB"),
        ("memory", 5 * 2**50, "5 PiB"),
    ],
)
def test_amounts_are_shown_as_people_read_them(resource: str, amount: int, expected: str) -> None:
    assert format_amount(resource, amount) == expected


@given(st.integers(0, LARGEST_AMOUNT))
def test_always_a_shown_number_of_cores_reads_back_as_the_same(amount: int) -> None:
    assert parse_amount("cpu", format_amount("cpu", amount)) == amount


@given(amounts, amounts)
def test_always_taking_away_undoes_adding(one: Resources, other: Resources) -> None:
    assert one + other - other == one
    assert (one + other).dominates(one)
    assert Resources.sum([one, other]) == other + one


@given(amounts, amounts, st.integers(1, 1_000))
def test_always_as_many_fit_as_can_stand_side_by_side(job: Resources, room: Resources, more: int) -> None:
    count = job.times_that_fit(room)

    if job == ZERO:
        assert count == 0
    else:
        assert all(j * count <= r for j, r in zip(job.as_tuple(), room.as_tuple(), strict=True))
        assert not all(j * (count + more) <= r for j, r in zip(job.as_tuple(), room.as_tuple(), strict=True))


def test_a_share_of_what_is_not_there_is_nothing() -> None:
    share = Resources(cpu=50, gpu=3).share_of(Resources(cpu=100))

    assert share == (0.0, 0.5, 0.0, 0.0, 0.0)


def test_sums_of_a_large_cluster_travel() -> None:
    """Ten thousand nodes of 512 GiB, and what a million jobs of 2 GiB want together."""
    total = Resources(memory=10_000 * 512 * 2**30)
    wanted = Resources(memory=2 * 2**30) * 1_000_000

    assert decode(encode(total), Resources) == total
    assert decode(encode(wanted), Resources) == wanted


def test_more_than_the_wire_carries_counts_as_that_much_and_is_refused_from_outside() -> None:
    wanted = Resources(memory=LARGEST_AMOUNT) * 1_000_000

    assert wanted == Resources(memory=LARGEST_SUM)
    assert (wanted + wanted - Resources(gpu=1)).within_wire() == Resources(memory=LARGEST_SUM)
    with pytest.raises(BadMessage):
        decode(encode(Resources(memory=LARGEST_SUM + 1)), Resources)
    with pytest.raises(BadMessage):
        decode(encode(Resources(gpu=-1)), Resources)
