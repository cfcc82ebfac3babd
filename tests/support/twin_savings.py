"""One process with everything in it: the plain twin lets the savings pass, the algorithm works out what is granted of them."""

from __future__ import annotations

import msgspec

from headrace.pools import IntegralType
from headrace_fair_share.hdrf.model import IntegralState, TreeInput, VolumeAmounts
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from tests.reference.elements import grow
from tests.reference.values import as_share
from tests.reference.volumes import advance, hand_out_free_volume
from tests.support.update_result import integral_states

__all__ = ["SingleProcess", "passed"]


def passed(tree: TreeInput, dt_us: int) -> dict[str, VolumeAmounts]:
    """The volumes of a tree after a time, by the twin."""
    grown = grow(tree)
    if any(tree.total.as_tuple()):
        for pool in grown.root.walk():
            if pool.is_integral:
                advance(grown, pool, dt_us / 1e6)
        hand_out_free_volume(grown)
    return {pool.name: as_share(pool.volume) for pool in grown.pools if pool.is_integral}


class SingleProcess:
    """Savings of one tree, and grants of its last update."""

    def __init__(self) -> None:
        self.states: dict[str, IntegralState] = {}
        self._engine = TreeUpdater()

    def begin(self) -> None:
        """A life begins: savings were kept, what was granted is forgotten."""
        self.states = {name: IntegralState(state.volume) for name, state in self.states.items()}
        self._engine = TreeUpdater()

    def pass_time(self, tree: TreeInput, dt_us: int) -> None:
        """Time passes on a tree, of which only the savings are not taken."""
        own = [pool.name for pool in tree.pools if pool.integral is not IntegralType.NONE]
        kept = {name: self.states.get(name, IntegralState()) for name in own}
        volumes = passed(msgspec.structs.replace(tree, integral=kept), dt_us)
        self.states = {name: IntegralState(volumes[name], kept[name].last_share_ratio) for name in own}

    def grant(self, tree: TreeInput) -> None:
        """Works out what is granted."""
        self.states = integral_states(self._engine.update(msgspec.structs.replace(tree, integral=self.states)))
