"""Starvation and preemption as people read them: what starves, and why each run was preempted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headrace.durations import exact_duration, format_duration
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import EPS, RESOURCE_NAMES, Resources, percent
from headrace.starvation import lowest_starving_ancestor
from headrace.wire.happenings import JobEnded, happenings_of
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.preemption import ObservedPreemption, PreemptionRecord
from headrace.wire.replay import ToldEntry
from headrace.wire.snapshots import (
    ElementKind,
    PreemptionPriority,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)

_GROUPS: Final = ("non-preemptible", "aggressively preemptible", "preemptible")


class Starving(msgspec.Struct, frozen=True):
    """A pool or an operation that starves."""

    kind: ElementKind
    name: str
    #: Name of the pool that contains the element.
    parent: str
    starvation_status: StarvationStatus
    starvation_reason: StarvationReason
    starving_since_ms: int
    below_fair_share_since_ms: int | None
    #: Usage divided by fair share, for the resource that `headrace.satisfaction.local_satisfaction` chooses.
    local_satisfaction_ratio: float
    #: Amounts that are due to a pool and everything below it, under a YARN policy; None: nothing is due.
    due_to_min_share: Resources | None
    due_to_fair_share: Resources | None
    #: Operations that may preempt because this element starves. For an operation: only this operation. For a pool: operations below it,
    #: except operations that may preempt because of an element further down.
    may_preempt: dict[str, PreemptionPriority]
    #: Allocations that the operations in `may_preempt` would have preempted in pools that only observe preemption, the newest first.
    would_take: list[ObservedPreemption] = []


def starving_in(answer: PoolList, observed: Sequence[ObservedPreemption] = ()) -> list[Starving]:
    """Return the starving elements, the longest starving first, each with the observed preemptions that would have served it."""
    items = {item.key: item for item in (*(pool.share for pool in answer.pools), *answer.operations)}
    may_preempt: dict[str, dict[str, PreemptionPriority]] = {}
    for item in answer.operations:
        if item.preemption_priority is not PreemptionPriority.NONE:
            cause = starving_cause(items, item)
            if cause is not None:
                may_preempt.setdefault(cause.key, {})[item.name] = item.preemption_priority
    starving = [item for item in items.values() if item.starvation_status is not StarvationStatus.NON_STARVING]
    return [
        Starving(
            kind=item.kind,
            name=item.name,
            parent=item.parent,
            starvation_status=item.starvation_status,
            starvation_reason=item.starvation_reason,
            starving_since_ms=item.starving_since_ms or 0,
            below_fair_share_since_ms=item.below_fair_share_since_ms,
            local_satisfaction_ratio=item.local_satisfaction_ratio,
            due_to_min_share=item.due_to_min_share,
            due_to_fair_share=item.due_to_fair_share,
            may_preempt=may_preempt.get(item.key, {}),
            would_take=[one for one in observed if one.record.beneficiary in may_preempt.get(item.key, {})],
        )
        for item in sorted(starving, key=lambda item: (item.starving_since_ms or 0, item.key))
    ]


def starving_cause(items: dict[str, ShareItem], item: ShareItem) -> ShareItem | None:
    """Return the element whose starvation gives an operation its preemption priority, or None."""
    aggressively = item.preemption_priority is PreemptionPriority.AGGRESSIVE
    return lowest_starving_ancestor(items, item, aggressively=aggressively)


def observes(pool: PoolView) -> bool:
    """True if the pool only observes preemption: nothing is preempted, and what would be preempted is recorded."""
    options = pool.share.options
    return options is not None and options.preemption is PreemptionSwitch.OBSERVE


def preemption_words(record: PreemptionRecord) -> str:
    """Return why an allocation was preempted, its operation's share before and after, and which threshold allowed it."""
    at = max(range(len(RESOURCE_NAMES)), key=lambda one: record.share_before[one])
    before, after, owed = (percent(each[at]) for each in (record.share_before, record.share_after, record.fair_share))
    shares = f"{RESOURCE_NAMES[at]} {before} → {after} of the cluster, owed {owed}"
    if record.share_before[at] <= EPS:
        shares = f"owed {owed}"
    group = _GROUPS[record.group]
    if record.threshold:
        group += f": above {record.threshold:g} × fair share"
    why = record.words if record.words.startswith("for ") else f"since {record.words}"
    words = f"preempted {why}; {shares}; {group}"
    if record.exempt_time_ms:
        ran = f"its job had run for {format_duration(record.ran_ms)}" if record.ran_ms else "its job had not begun"
        words += f"; {ran}, preemption_exempt_time {exact_duration(record.exempt_time_ms)}"
    return f"{words}; {format_duration(record.timeout_ms)} from the signal to the kill"


def preempted_runs(entry: ToldEntry) -> Iterator[JobEnded]:
    """Yield the runs in an entry of the log that ended after they were notified of their preemption."""
    for event in entry.events:
        for happening in happenings_of(event):
            if isinstance(happening, JobEnded) and happening.preemption is not None:
                yield happening
