"""Predicts when an element and the pools above it will starve, from the clocks of the last update. Pure.

The prediction is computed on request only, because updates and snapshots are frequent and would become slower by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.ids import OperationId
from headrace.pools import PreemptionPolicy
from headrace.pools.effective_options import EffectiveOptions, of_operation
from headrace.wire.pools import StarvationOutlook
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.facts.operations import demand_of
from headrace_fair_share.hdrf.arrays import Ints
from headrace_fair_share.starvation.clocks import NO_TIME, Clocks, Coming, coming
from headrace_fair_share.starvation.rules import effective_timeouts
from headrace_fair_share.update.elements import or_never, pool_key


class _Way(NamedTuple):
    """The elements from the root down to the requested element."""

    items: Sequence[ShareItem]
    options: Sequence[EffectiveOptions]
    #: Slots that the pending jobs need, if the last element is an operation.
    needed_slots: Sequence[int]


def outlooks_of(engine: FairShareEngine, key: str) -> list[StarvationOutlook]:
    """Return the outlook of an element, then of the pools above it. Elements without a running clock are left out."""
    way = _way_to(engine, key)
    keys = [item.key for item in way.items]
    clocks = engine.clocks.of(keys, {key: place for place, key in enumerate(keys)})
    to_come = _to_come(engine, way, clocks)
    return [_outlook(engine, way.items[place], clocks, to_come, place) for place in reversed(clocks.running.tolist())]


def _way_to(engine: FairShareEngine, key: str) -> _Way:
    """Return the path to an element.

    For an operation without pending jobs, the path ends at its pool, because the next update resets the operation's clocks.
    """
    items: list[ShareItem] = []
    options: list[EffectiveOptions] = []
    item = engine.items.get(key)
    operation = item if item is not None and item.kind is ElementKind.OPERATION else None
    if operation is not None:
        item = engine.items.get(pool_key(operation.parent))
    while item is not None:
        assert item.options is not None, "every pool reports its options"
        items.append(item)
        options.append(item.options)
        item = engine.items.get(pool_key(item.parent))
    items.reverse()
    options.reverse()
    known = engine.operations.by_id.get(OperationId(operation.name)) if operation is not None else None
    if operation is None or known is None:
        return _Way(items, options, [])
    usage = engine.usage.items.get(known.operation)
    demand = demand_of(known, usage, was_named=known.operation in engine.usage.named)
    if not demand.is_pending:
        return _Way(items, options, [])
    tree = engine.configuration.in_force.options
    own = options[-1] if known.wishes is None else of_operation(options[-1], known.wishes, tree)
    return _Way([*items, operation], [*options, own], [demand.needed_slots])


def _to_come(engine: FairShareEngine, way: _Way, clocks: Clocks) -> Coming | None:
    """Predict from the clocks when elements will starve. None if no prediction is possible."""
    tree = engine.configuration.in_force.options
    if not engine.time.goes_on or tree.preemption_policy is not PreemptionPolicy.YTSAURUS:
        return None
    timeouts = effective_timeouts(
        np.array([each.fair_share_starvation_timeout_ms for each in way.options], np.float64),
        np.array([each.enable_aggressive_starvation for each in way.options], np.bool_),
        np.array([or_never(each.min_share_preemption_timeout_ms) for each in way.options], np.float64),
        way.needed_slots,
        tree,
    )
    return coming(clocks, timeouts)


def _outlook(
    engine: FairShareEngine, item: ShareItem, clocks: Clocks, to_come: Coming | None, place: int
) -> StarvationOutlook:
    def unix_ms(times_ms: Ints) -> int | None:
        time_ms = int(times_ms[place])
        return None if time_ms == NO_TIME else max(0, time_ms + engine.time.offset_ms)

    pools_starve = engine.configuration.in_force.options.enable_pool_starvation
    comes = to_come if pools_starve or item.kind is ElementKind.OPERATION else None
    return StarvationOutlook(
        kind=item.kind,
        name=item.name,
        starvation_status=item.starvation_status,
        starvation_reason=item.starvation_reason,
        starving_since_ms=item.starving_since_ms,
        below_fair_share_since_ms=item.below_fair_share_since_ms,
        below_strong_guarantee_since_ms=unix_ms(clocks.short_since),
        starves_for_fair_share_at_ms=unix_ms(comes.starving) if comes is not None else None,
        starves_for_strong_guarantee_at_ms=unix_ms(comes.short) if comes is not None else None,
        starves_aggressively_at_ms=unix_ms(comes.aggressive) if comes is not None else None,
    )
