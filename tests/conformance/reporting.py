"""What the runner says of a case: its status, and the figures expected and found."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

__all__ = ["Comparison", "Outcome", "Problem", "Status", "Unsupported", "only", "only_keys"]


class Status(enum.StrEnum):
    """How a case came out."""

    PASSED = "passed"
    FAILED = "failed"
    #: Of a kind that the runner cannot judge yet.
    UNSUPPORTED = "unsupported"


class Problem(Exception):
    """The case cannot be read: an error of the runner or of the file, never passed over."""


class Unsupported(Exception):
    """The case asks for what cannot be judged this way; it is told as skipped."""


class Comparison(msgspec.Struct, frozen=True):
    """One figure that a case names."""

    what: str
    expected: str
    actual: str
    agrees: bool
    #: Bit equality, where it would be good to have: None where nobody asks for it.
    exact: bool | None = None


class Outcome(msgspec.Struct, frozen=True):
    """A case that has been run."""

    suite: str
    name: str
    status: Status
    comparisons: list[Comparison] = []
    detail: str = ""
    #: The case could not be read.
    broken: bool = False

    @staticmethod
    def of(suite: str, name: str, comparisons: list[Comparison]) -> Outcome:
        wrong = [each for each in comparisons if not each.agrees]
        status = Status.FAILED if wrong else Status.PASSED
        detail = "; ".join(f"{each.what}: expected {each.expected}, got {each.actual}" for each in wrong)
        return Outcome(suite, name, status, comparisons, detail)


def only_keys(given: dict[str, Any], known: Collection[str], place: str) -> None:
    """Raises `Problem` for a key that nobody reads."""
    only(given.keys(), known, place)


def only(names: Iterable[str], known: Collection[str], place: str) -> list[str]:
    """The names. Raises `Problem` for one that is not known."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise Problem(f"unknown key in {place}: {', '.join(unknown)}")
    return list(names)
