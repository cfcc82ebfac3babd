"""Options of an operation that admission refuses, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.operations import StartAnswer
from headrace.wire.refusals import BadRequest
from tests.unit.admission.desk import Desk


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("max_unpreemptible_allocation_count", 2, "0, or no value"),
        ("trace", "rubbish", "a W3C Trace Context traceparent whose flags say that the trace is recorded"),
        (
            "scheduling_tag_filter",
            "ssd &",
            "a formula over tags such as ssd & (fast | !old); the error is before character 6",
        ),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_its_name(option: str, value: Any, expected: str) -> None:
    answer = Desk({"a": {}}).start("one", pool="a", **{option: value})

    assert answer == BadRequest(f"spec.{option}", str(value), expected)


def test_the_older_option_is_taken_where_it_says_0() -> None:
    answer = Desk({"a": {}}).start("one", pool="a", max_unpreemptible_allocation_count=0)

    assert isinstance(answer, StartAnswer)
