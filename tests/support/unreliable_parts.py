"""A connection that loses, delays, mixes and repeats the parts of a version, for tests of readers of snapshots."""

from __future__ import annotations

from typing import Generic, TypeVar

from hypothesis import strategies as st

__all__ = ["UnreliableParts"]

P = TypeVar("P")


class UnreliableParts(Generic[P]):
    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._late: list[P] = []

    def arrive(self, parts: list[P]) -> list[P]:
        """The parts that arrive when these parts of a version were sent, in the order of their arrival."""
        fate = self._data.draw(st.sampled_from(["all", "all", "all", "mixed", "lost", "late", "twice"]))
        if fate == "all":
            return parts + self._late
        if fate == "mixed":
            return self._data.draw(st.permutations(parts))
        if fate == "lost":
            lost = self._data.draw(st.integers(0, len(parts) - 1))
            return parts[:lost] + parts[lost + 1 :]
        if fate == "late":
            self._late += parts
            return []
        return parts * 2
