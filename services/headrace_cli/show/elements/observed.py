"""Preemptions in a pool, carried out or only observed, in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headrace.durations import format_duration
from headrace.pools.pool_config import PreemptionSwitch
from headrace.wire.pools import PoolView
from headrace.wire.preemption import ObservedPreemption, ObservedPreemptions

#: Most observed preemptions that are shown one by one.
_MOST_TOLD: Final = 5


def observes(pool: PoolView) -> bool:
    """True if the pool only observes preemption: nothing is preempted, and what would be preempted is recorded."""
    options = pool.share.options
    return options is not None and options.preemption is PreemptionSwitch.OBSERVE


def preemption_facts(pool: PoolView, told: ObservedPreemptions, now_ms: int) -> list[tuple[str, str]]:
    """Return facts of a pool: what was preempted in it, or would have been if it only observes preemption."""
    facts = []
    if told.taken:
        reasons, groups = Counter[str](), Counter[str]()
        for one in told.taken:
            reasons[one.reason.value] += one.count
            groups[one.group] += one.count
        words = "; ".join(
            ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in each.items()) for each in (reasons, groups)
        )
        facts.append(("preempted", f"{_places(reasons.total())} in this term of the allocator: {words}"))
    return [*facts, *_observed_facts(told.observed, now_ms)] if observes(pool) else facts


def _observed_facts(observed: Sequence[ObservedPreemption], now_ms: int) -> list[tuple[str, str]]:
    """Return facts of a pool that only observes preemption: what would have been preempted, the newest first."""
    facts = [("preemption", "is only observed: nothing is preempted, and nothing would have been so far")]
    if observed:
        facts = [("preemption", f"is only observed: nothing is preempted; last recorded: {_places(len(observed))}")]
    for one in observed[:_MOST_TOLD]:
        age = format_duration(max(0, now_ms - one.record.decided_at_ms))
        facts.append(
            ("would preempt", f"an allocation of {one.operation} on {one.node}, {age} ago: {one.record.words}")
        )
    return facts


def _places(count: int) -> str:
    return "1 allocation" if count == 1 else f"{count} allocations"
