"""Counts in messages."""

from __future__ import annotations

import pytest

from headrace.counted import counted
from headrace.wire.refusals import BrokenRules, Busy


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [(0, "node", "0 nodes"), (1, "more level", "1 more level"), (2, "job", "2 jobs"), (2, "process", "2 processes")],
)
def test_a_noun_follows_its_count(count: int, noun: str, expected: str) -> None:
    assert counted(count, noun) == expected


def test_refusals_count_one_as_one() -> None:
    assert BrokenRules(["this one"]).text() == "1 rule is broken; nothing was changed\nthis one"
    assert BrokenRules(["a", "b"]).text().startswith("2 rules are broken")
    assert Busy(1, 30).text().startswith("busy: 1 waiting request, the oldest for 30 ms")
