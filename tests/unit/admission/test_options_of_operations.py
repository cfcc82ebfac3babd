"""Options of an operation that admission refuses, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.operations import StartAnswer
from headrace.wire.refusals import BadRequest
from headrace_admission.decisions.starts import LONGEST_COMMAND
from tests.unit.admission.desk import Desk


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("max_unpreemptible_allocation_count", 2, "0, or no value"),
        ("allocation_preemption_timeout_ms", 3_600_001, "at most 3600000, an hour in milliseconds"),
        ("allocation_graceful_preemption_timeout_ms", 10**12, "at most 3600000, an hour in milliseconds"),
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


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_unpreemptible_allocation_count", 0),
        ("interruption_timeout_ms", 3_600_000),
        ("allocation_preemption_timeout_ms", 3_600_000),
        ("allocation_graceful_preemption_timeout_ms", 0),
    ],
)
def test_an_option_at_its_bound_is_accepted(option: str, value: Any) -> None:
    answer = Desk({"a": {}}).start("one", pool="a", **{option: value})

    assert isinstance(answer, StartAnswer)


@pytest.mark.parametrize("lines", [["x" * 100], ["", "é" * 100]])
@pytest.mark.parametrize("more", [0, 1])
def test_a_command_with_lines_in_its_places_is_bounded(lines: list[str], more: int) -> None:
    """The same bytes with `{}` in place of other characters once made an agent take gigabytes."""
    places = "{}" * 1_000
    rest = "x" * (LONGEST_COMMAND - 1_000 * 102 - 4 + more)
    answer = Desk({"a": {}}).start("one", pool="a", argv=["echo", places, rest], lines=lines, job_count=len(lines))

    assert isinstance(answer, BadRequest if more else StartAnswer)
    if more:
        assert answer.place == "spec.argv"
