"""Every pool in its place: parents that there are, no cycles, no pools in fifo pools, not too deep; parents before children."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from headrace.ids import ROOT_POOL
from headrace_fair_share.configuration.rules import Bounds
from headrace_fair_share.hdrf.model import Mode
from headrace_fair_share.plan.figures import Desk, hint, text_of
from headrace_fair_share.plan.file import Value

_MOST_LEVELS = Bounds().most_levels

__all__ = ["RawPool", "placed"]

_MOST_SHOWN: Final = 8


@dataclass
class RawPool:
    """A pool as it stands in the file."""

    MOST_NESTED: ClassVar[int] = _MOST_LEVELS

    name: str
    line: int
    key: str
    #: The pool inside which it stands; None at the top.
    above: str | None
    settings: dict[str, object] = field(default_factory=dict)
    parent: str = ROOT_POOL
    #: Line of what names its parent.
    parent_line: int = 0

    def __post_init__(self) -> None:
        self.parent = self.above or ROOT_POOL
        self.parent_line = self.line

    def name_parent(self, desk: Desk, value: Value) -> None:
        """Takes what `parent` says; a pool inside another has no other parent."""
        name = text_of(desk, value, f"{self.key}.parent")
        if name is None:
            return
        if self.above is not None and name != self.above:
            desk.refuse(value, f"{self.key}.parent", f"{self.above}, inside which it stands, or nothing")
            return
        self.parent, self.parent_line = name, value.line


def placed(desk: Desk, pools: list[RawPool]) -> list[RawPool]:
    """The pools that have a place, parents before children and children in the order of the file."""
    by_name = {pool.name: pool for pool in pools}
    children: dict[str, list[RawPool]] = {}
    for pool in pools:
        children.setdefault(pool.parent, []).append(pool)
        if pool.parent != ROOT_POOL and pool.parent not in by_name:
            expected = hint(pool.parent, by_name)
            key = f"{pool.key}.parent"
            desk.say(pool.parent_line, key, f"there is no pool {pool.parent!r}", expected, pool.parent)
    order: list[RawPool] = []
    waiting = [(pool, 1) for pool in reversed(children.get(ROOT_POOL, []))]
    while waiting:
        pool, depth = waiting.pop()
        order.append(pool)
        _fits_there(desk, pool, by_name.get(pool.parent), depth)
        waiting.extend((child, depth + 1) for child in reversed(children.get(pool.name, [])))
    if len(order) < len(pools):
        _tell_cycles(desk, pools, by_name)
    return order


def _fits_there(desk: Desk, pool: RawPool, parent: RawPool | None, depth: int) -> None:
    if depth == _MOST_LEVELS + 1:
        desk.say(pool.line, pool.key, f"level {depth} of pools", f"at most {_MOST_LEVELS} levels")
    if parent is not None and parent.settings.get("mode") is Mode.FIFO:
        wrong = f"a pool in fifo pool {parent.name} (line {parent.line})"
        desk.say(pool.parent_line, pool.key, wrong, "operations only in a fifo pool")


def _tell_cycles(desk: Desk, pools: list[RawPool], by_name: dict[str, RawPool]) -> None:
    """Complains once of each cycle, at the first of its pools in the file."""
    told: set[str] = set()
    for pool in pools:
        path: dict[str, None] = {}
        name = pool.name
        while name in by_name and name not in path and name not in told:
            path[name] = None
            name = by_name[name].parent
        if name in path:
            names = list(path)
            cycle = names[names.index(name) :]
            first = min((by_name[each] for each in cycle), key=lambda each: each.line)
            at = cycle.index(first.name)
            words = [*cycle[at:], *cycle[:at], first.name]
            if len(words) > _MOST_SHOWN:
                words = [*words[: _MOST_SHOWN - 2], "…", words[-1]]
            wrong = f"its parents lead back to itself: {' in '.join(words)}"
            desk.say(first.parent_line, f"{first.key}.parent", wrong, f"parents that lead to {ROOT_POOL}")
        told.update(path)
