"""Pools without an operation that is looked at, which updates in plenty pass over too. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from headrace.ids import PoolName
from headrace.pools.amounts import PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import PoolInput
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.input import UpdateInput


class _Stand(NamedTuple):
    """All that the item of a pool follows from below which nothing is held or asked for."""

    rank: int
    parent: PoolName
    input: PoolInput
    options: EffectiveOptions
    limits: PartialResources
    most: Resources | None
    is_ephemeral: bool

    def is_as(self, before: _Stand | None) -> bool:
        """True if it is made of the same objects."""
        return before is not None and all(one is other or one == other for one, other in zip(self, before, strict=True))


class Looks(NamedTuple):
    """The elements that an update looks at, and those that it need not."""

    #: Places in their order, the root's among them.
    places: Sequence[int]
    #: Keys of the pools that stay what they are.
    idle: Sequence[str]


class IdlePools:
    """The pools of which the update before has shown that nothing is to be worked out."""

    def __init__(self) -> None:
        self._of: dict[PoolName, _Stand] = {}

    def looks(self, given: UpdateInput, clocks: Clocks, changed: Iterable[PoolName]) -> Looks:
        """Finds out what is to be looked at. Operations that rested in pools that `changed` rest no more."""
        elements, pools = given.elements, given.elements.pools
        busy = self._busy(elements, {*changed})
        running = {clocks.keys[place] for place in clocks.running.tolist()}
        before, self._of = self._of, {}
        places, idle = [0], []
        for place in range(1, pools):
            name, key = PoolName(elements.names[place]), elements.keys[place]
            if busy[place] or key in running:
                places.append(place)
                continue
            stand = _Stand(
                elements.ranks[place],
                elements.parents[place],
                given.tree.pools[place - 1],
                elements.options[place],
                elements.limits[place],
                given.most[place],
                elements.is_ephemeral(place),
            )
            self._of[name] = stand
            if stand.is_as(before.get(name)):
                idle.append(key)
            else:
                places.append(place)
        return Looks([*places, *range(pools, len(elements.names))], idle)

    @staticmethod
    def _busy(elements: Elements, changed: Set[PoolName]) -> list[bool]:
        """True for pools below which operations are among the elements or changed."""
        busy = [True] + [False] * (elements.pools - 1)
        began = [place for place, name in enumerate(elements.names[: elements.pools]) if name in changed]
        for place in (*elements.above[elements.pools :], *began):
            while not busy[place]:
                busy[place] = True
                place = elements.above[place]
        return busy
