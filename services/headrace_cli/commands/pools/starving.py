"""The table of `headrace pool starving`: since when, for which share, and which operations may preempt for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import Resources
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.preemption import ObservedPreemption
from headrace.wire.snapshots import (
    ElementKind,
    PreemptionPriority,
    StarvationReason,
    StarvationStatus,
)
from headrace_cli.show.amounts import amounts
from headrace_cli.show.starvation import STARVATION_REASONS, starving_cause
from headrace_cli.show.tables import table

#: Upper bound of the operations that are named in one line of the table.
_MOST_NAMED: Final = 3


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
    #: Usage divided by fair share, for the resource that decides the ratio.
    local_satisfaction_ratio: float
    #: Amounts due under a YARN policy, for a pool with everything below it; None: nothing is due.
    due_to_min_share: Resources | None
    due_to_fair_share: Resources | None
    #: Operations that may preempt because this element starves. For an operation: only this operation. For a pool: operations below it,
    #: except operations that may preempt because of an element further down.
    may_preempt: dict[str, PreemptionPriority]
    #: Allocations that the operations in `may_preempt` would have preempted in pools that only observe preemption, the newest first.
    would_take: list[ObservedPreemption] = []


def starving_in(answer: PoolList, observed: Sequence[ObservedPreemption] = ()) -> list[Starving]:
    """Return what starves, the longest starving first, with the observed preemptions that would have served each element."""
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


def starving_table(starving: Sequence[Starving], now_ms: int) -> Table:
    """Return a table with one line for each starving element. `now_ms` is the Unix time of the shares, in milliseconds."""
    some_due = any(each.due_to_min_share or each.due_to_fair_share for each in starving)
    made = table(
        "starving",
        "in pool",
        "since",
        "for its",
        "of fair share",
        *(("due to guarantee", "due to fair share") if some_due else ("may preempt",)),
        right=("since", "of fair share"),
    )
    for each in starving:
        made.add_row(
            Text(each.name, style="bold" if each.kind is ElementKind.POOL else ""),
            each.parent,
            *starvation_cells(each, now_ms),
            *((_due(each.due_to_min_share), _due(each.due_to_fair_share)) if some_due else (_may_preempt(each),)),
        )
    return made


def starvation_cells(each: Starving, now_ms: int) -> tuple[str, str, str]:
    """Return since when the element starves, for which share, and its satisfaction as a percentage."""
    aggressive = each.starvation_status is StarvationStatus.AGGRESSIVELY_STARVING
    ratio = each.local_satisfaction_ratio
    return (
        format_duration(max(0, now_ms - each.starving_since_ms)) + (" !" if aggressive else ""),
        STARVATION_REASONS[each.starvation_reason],
        f"{ratio:.0%}" if ratio < 1.0 else "all",
    )


def _due(amount: Resources | None) -> str:
    return "–" if amount is None else amounts(amount, leave_out=("user_slots",))


def _may_preempt(each: Starving) -> Text:
    return _named(each.may_preempt) + (f"; would preempt {len(each.would_take)}" if each.would_take else "")


def _named(operations: dict[str, PreemptionPriority]) -> Text:
    more = len(operations) - _MOST_NAMED
    words = ", ".join(list(operations)[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return Text(words or "–")


def observes(pool: PoolView) -> bool:
    """True if the pool only observes preemption: nothing is preempted, and what would be preempted is recorded."""
    options = pool.share.options
    return options is not None and options.preemption is PreemptionSwitch.OBSERVE
