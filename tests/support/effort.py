"""The effort of tests: which of them run, and how many random cases each tries. Each test says two numbers, of few cases and of all.

    make test        few cases; each part of the project, in a few minutes
    make test-long   a tenth of all cases, and the slow tests; the gate runs both
    make test-all    all cases, and the slow tests

The slow tests are those of kills, floods and damaged messages, of the largest messages, and of the less frequent commands.

Tests of Hypothesis and those marked `both` run in all of them; those marked `long` only in the last two, all others only in `make test`.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

__all__ = ["CASES", "LONG", "few_or_many", "seeds"]

_EFFORT: Final = os.environ.get("TEST_EFFORT", "few")
if _EFFORT not in ("few", "long", "all"):
    raise ValueError(f"TEST_EFFORT is {_EFFORT!r}; accepted are few, long and all")
LONG: Final = _EFFORT != "few"


def few_or_many(few: int, all_cases: int) -> int:
    """The number of random cases at today's effort."""
    parts = {"few": few, "long": max(few, all_cases // 10), "all": max(few, all_cases)}
    return parts[_EFFORT]


#: Cases of a test that says no number.
CASES: Final = few_or_many(15, 200)


def seeds(few: int, all_seeds: int) -> list[Any]:
    """Parameters of a test: `make test` takes the first few seeds, the others those that come after them."""
    if not LONG:
        return list(range(few))
    return [pytest.param(seed, marks=pytest.mark.long) for seed in range(few, few_or_many(few + 1, all_seeds))]
