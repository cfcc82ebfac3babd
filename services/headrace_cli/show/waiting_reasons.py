"""The position of a pending operation in its queue, in words."""

from __future__ import annotations

from headrace.ids import ROOT_POOL
from headrace.wire.operations import OperationView
from headrace.wire.placements import WaitingFor


def waiting_words(view: OperationView) -> str:
    """Return the position in each tree, such as `position 3 of 12 at research (2 of 2 running)`."""
    several = len(view.placements) > 1
    return "; ".join(_one(each, named=several) for each in view.waiting)


def _one(waiting: WaitingFor, *, named: bool) -> str:
    tree = f"in tree {waiting.tree}: " if named else ""
    place = f"position {waiting.place} of {waiting.waiting} at " if waiting.place else "waits at "
    return f"{tree}{place}{pool_words(waiting.blocked_by)} ({waiting.running} of {waiting.limit} running)"


def pool_words(pool: str) -> str:
    """Return the name of a pool, or "the tree" for the root."""
    return "the tree" if pool == ROOT_POOL else pool
