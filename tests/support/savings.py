"""Time that passes for the savings of a tree, as the services let it: one advance of integral before the update of the shares."""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.wire.codec import decode, encode
from headrace.wire.integral import Advance, Advanced, PoolVolume, Volume
from headrace.wire.version import NEVER, Version
from headrace_fair_share.facts.flows_to_integral import flows_of, with_grants
from headrace_fair_share.hdrf.model import IntegralState, TreeInput
from headrace_integral.engine import IntegralEngine, VolumesRecord
from tests.support.clocks import NOW

__all__ = ["after"]

TREE = TreeName("default")


def after(tree: TreeInput, dt_us: int | None) -> TreeInput:
    """The tree with the volumes that `dt_us` leave of those in it; None: there was no update before."""
    flows = flows_of(tree.pools, tree.total, distribute=tree.options.distribute_free_volume)
    if not flows:
        return tree
    before = [
        PoolVolume(PoolName(name), Volume(slots, int(cpu), gpu, memory, network), 0.0)
        for name, state in tree.integral.items()
        for slots, cpu, gpu, memory, network in [state.volume]
    ]
    charged = {PoolName(name): state.last_share_ratio for name, state in tree.integral.items()}
    begun = Version(1, 1)
    engine = IntegralEngine(TREE, 1, VolumesRecord(tree=TREE, version=begun, pools=before))
    request = Advance(
        tree=TREE,
        version=begun.next(),
        previous=NEVER if dt_us is None else begun,
        dt_us=dt_us or 0,
        total=tree.total,
        pools=with_grants(flows, charged),
        saturation_period_s=tree.options.saturation_period_s,
    )
    outcome = engine.on_advance(decode(encode(request), Advance), NOW)
    assert outcome.effects, outcome
    advanced = decode(encode(engine.on_saved(outcome.effects[0].record, NOW).answer), Advanced)
    assert engine.out_of_bounds == 0
    return msgspec.structs.replace(tree, integral={pool.pool: _state(pool, charged) for pool in advanced.pools})


def _state(pool: PoolVolume, charged: dict[PoolName, float]) -> IntegralState:
    volume = pool.volume
    parts = (volume.user_slots, float(volume.cpu), volume.gpu, volume.memory, volume.network)
    return IntegralState(parts, charged.get(pool.pool, 0.0))
