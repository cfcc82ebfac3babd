"""Idle pools: neither they nor pools below have operations that an update must compute. Updates of unsaturated trees skip them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from headrace.ids import PoolName
from headrace.pools.amounts import PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import PoolInput
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.elements import Elements


class _Stand(NamedTuple):
    """Everything on which the share item of an idle pool depends. Usage and demand are not included, because an idle pool has neither."""

    rank: int
    parent: PoolName
    input: PoolInput
    options: EffectiveOptions
    limits: PartialResources
    most: Resources | None
    is_ephemeral: bool

    def is_as(self, before: _Stand | None) -> bool:
        """Return True if all fields are the same as before."""
        return before is not None and all(one is other or one == other for one, other in zip(self, before, strict=True))


class Looks(NamedTuple):
    """The elements that an update computes, and the pools that it can skip."""

    #: Positions of the elements to compute in ascending order, the root included.
    places: Sequence[int]
    #: Keys of the idle pools, whose share items stay the same.
    idle: Sequence[str]


class IdlePools:
    """The pools that were idle in the previous update, so that their share items need no computation."""

    def __init__(self) -> None:
        self._of: dict[PoolName, _Stand] = {}

    def looks(self, given: UpdateInput, clocks: Clocks, changed: Iterable[PoolName]) -> Looks:
        """Return which elements to compute. `changed` are the pools that lost a resting operation since the previous update."""
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
        """Return for each pool whether it is busy: it or a pool below it was changed, or has operations among the elements."""
        busy = [True] + [False] * (elements.pools - 1)
        began = [place for place, name in enumerate(elements.names[: elements.pools]) if name in changed]
        for place in (*elements.above[elements.pools :], *began):
            while not busy[place]:
                busy[place] = True
                place = elements.above[place]
        return busy
