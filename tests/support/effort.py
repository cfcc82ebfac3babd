"""The effort of tests: `make test` tries few random cases, `make test-long` many; each test says both numbers.

Tests of Hypothesis and those marked `both` run in both; one marked `long` runs in `make test-long` only, all others in `make test`.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

__all__ = ["LONG", "few_or_many", "seeds"]

LONG: Final = os.environ.get("TEST_EFFORT") == "long"


def few_or_many(few: int, many: int) -> int:
    """The number of random cases at today's effort."""
    return many if LONG else few


def seeds(few: int, many: int) -> list[Any]:
    """Parameters of a test: `make test` takes the first few seeds, `make test-long` all others."""
    return [pytest.param(seed, marks=pytest.mark.long) for seed in range(few, many)] if LONG else list(range(few))
