"""What people write on a pool, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.pools import PartialResources
from headrace.wire.pools import IntegralGuarantees, IntegralType, PoolSettings
from headrace.wire.refusals import BadRequest
from headrace_fair_share.pools import with_changes

BEFORE = PoolSettings(
    weight=2.0,
    strong_guarantee_resources=PartialResources(cpu=100),
    integral_guarantees=IntegralGuarantees(guarantee_type=IntegralType.BURST, resource_flow=PartialResources(cpu=50)),
)


def changed(changes: Any, before: PoolSettings = BEFORE) -> PoolSettings | BadRequest:
    return with_changes(before, json.dumps(changes).encode())


def test_only_the_keys_that_are_given_change() -> None:
    assert changed({}) == BEFORE
    assert changed({"weight": 3}) == PoolSettings(3.0, BEFORE.strong_guarantee_resources, BEFORE.integral_guarantees)


def test_null_takes_a_key_back_to_its_default() -> None:
    after = changed({"weight": None, "strong_guarantee_resources": None, "integral_guarantees": None})

    assert after == PoolSettings()


def test_figures_are_read_as_people_write_them() -> None:
    after = changed({"weight": "2.5", "strong_guarantee_resources": {"cpu": "100", "memory": "4G", "user_slots": 7}})

    assert isinstance(after, PoolSettings)
    assert after.weight == 2.5
    assert after.strong_guarantee_resources == PartialResources(user_slots=7, cpu=10_000, memory=4 * 2**30)


def test_a_resource_that_is_left_out_is_not_guaranteed() -> None:
    after = changed({"strong_guarantee_resources": {"memory": "1G", "gpu": None}})

    assert isinstance(after, PoolSettings)
    assert after.strong_guarantee_resources == PartialResources(memory=2**30)


def test_parts_of_integral_guarantees_are_changed_by_paths() -> None:
    after = changed(
        {"integral_guarantees/burst_guarantee_resources": {"cpu": 2}, "integral_guarantees.guarantee_type": None}
    )

    assert isinstance(after, PoolSettings)
    assert after.integral_guarantees == IntegralGuarantees(
        guarantee_type=IntegralType.NONE,
        resource_flow=PartialResources(cpu=50),
        burst_guarantee_resources=PartialResources(cpu=200),
    )


@pytest.mark.parametrize(
    ("changes", "place", "expected"),
    [
        ({"wieght": 2}, "settings.wieght", "did you mean weight?"),
        ({"zzz": 2}, "settings.zzz", "one of mode, weight, strong_guarantee_resources"),
        ({"strong_guarantee_resources": {"cpus": 2}}, "settings.strong_guarantee_resources.cpus", "did you mean cpu?"),
        ({"strong_guarantee_resources": {"cpu": -1}}, "settings.strong_guarantee_resources.cpu", "a number of cores"),
        ({"strong_guarantee_resources": {"cpu": True}}, "settings.strong_guarantee_resources.cpu", "a figure"),
        ({"strong_guarantee_resources": {"cpu": [1]}}, "settings.strong_guarantee_resources.cpu", "a figure"),
        ({"strong_guarantee_resources": 5}, "settings.strong_guarantee_resources", "amounts by resource such as"),
        ({"strong_guarantee_resources": {"memory": "9" * 5000}}, "settings.strong_guarantee_resources.memory", "bytes"),
        ({"weight": 0}, "settings.weight", "a number from 1.490116119e-08 to 67108864"),
        ({"weight": "heavy"}, "settings.weight", "a number from"),
        ({"weight": "nan"}, "settings.weight", "a number from"),
        ({"weight": True}, "settings.weight", "a number from"),
        ({"weight": [1]}, "settings.weight", "a number from"),
        (
            {"integral_guarantees": {"guarantee_type": "bursty"}},
            "settings.integral_guarantees.guarantee_type",
            "none or burst or relaxed",
        ),
        ({"integral_guarantees": {"flow": 1}}, "settings.integral_guarantees.flow", "did you mean resource_flow?"),
        ([], "settings", "a map of attributes"),
        (7, "settings", "a map of attributes"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(changes: Any, place: str, expected: str) -> None:
    answer = changed(changes)

    assert isinstance(answer, BadRequest)
    assert answer.place == place
    assert expected in answer.expected
    assert len(answer.value) <= 100


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b'{"weight": 1e999}', b"[" * 100_000, b'{"weight": 1} x'])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    assert isinstance(with_changes(BEFORE, text), BadRequest)


def test_the_weight_goes_from_two_to_the_minus_26_to_two_to_the_26() -> None:
    assert isinstance(changed({"weight": 2.0**-26}), PoolSettings)
    assert isinstance(changed({"weight": 2.0**26}), PoolSettings)
    assert isinstance(changed({"weight": 2.0**26 + 1}), BadRequest)
