"""Starvation in words: since when, for which share, and which operations may preempt for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.resources import Resources
from headrace.starvation import lowest_starving_ancestor
from headrace.wire.pools import PoolList, StarvationOutlook
from headrace.wire.preemption import ObservedPreemption
from headrace.wire.snapshots import (
    ElementKind,
    PreemptionPriority,
    SchedulingStatus,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)
from headrace_cli.show.amounts import amounts
from headrace_cli.show.elements.moments import moment_words
from headrace_cli.show.tables import table

#: Most operations that are named in one line of the table.
_MOST_NAMED: Final = 3
_REASONS: Final = {StarvationReason.FAIR_SHARE: "fair share", StarvationReason.MIN_SHARE: "strong guarantee"}


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
    #: Operations that may preempt because this element starves: the operation itself, or operations below the pool that
    #: have no nearer cause.
    may_preempt: dict[str, PreemptionPriority]
    #: Allocations that these operations would have preempted in pools that only observe preemption, the newest first.
    would_take: list[ObservedPreemption] = []


def starving_in(answer: PoolList, observed: Sequence[ObservedPreemption] = ()) -> list[Starving]:
    """Return what starves, the longest starving first, with the observed preemptions that would have served each element."""
    items = {item.key: item for item in (*(pool.share for pool in answer.pools), *answer.operations)}
    may_preempt: dict[str, dict[str, PreemptionPriority]] = {}
    for item in answer.operations:
        if item.preemption_priority is not PreemptionPriority.NONE:
            cause = _cause(items, item)
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
    """Return a table with one line for each starving element. `now_ms` is the time of its shares."""
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
        _REASONS[each.starvation_reason],
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


def starvation_facts(share: ShareItem, outlooks: Sequence[StarvationOutlook], now_ms: int) -> list[tuple[str, str]]:
    """Return facts about an element that is below its share, and about the pools above it.

    `outlooks` are the known forecasts of starvation of the element and of these pools.
    """
    own = next((each for each in outlooks if each.key == share.key), None)
    facts: list[tuple[str, str]] = []
    if share.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE and share.below_fair_share_since_ms is not None:
        to_come = _for_fair_share(own, now_ms) if own is not None else ""
        facts.append(("below fair share", f"for {_passed(share.below_fair_share_since_ms, now_ms)}{to_come}"))
    if own is not None and own.below_strong_guarantee_since_ms is not None:
        words = f"for {_passed(own.below_strong_guarantee_since_ms, now_ms)}{_for_strong_guarantee(own, now_ms)}"
        facts.append(("below guarantee", words))
    if share.starvation_status is not StarvationStatus.NON_STARVING and share.starving_since_ms is not None:
        words = f"for {_passed(share.starving_since_ms, now_ms)}, for its {_REASONS[share.starvation_reason]}"
        facts.append(("starves", words))
    if share.preemption_priority is not PreemptionPriority.NONE:
        cause = _cause({}, share)
        stage = "aggressive" if share.preemption_priority is PreemptionPriority.AGGRESSIVE else "normal"
        why = "it starves itself" if cause is not None else "a pool above it starves"
        facts.append(("may preempt", f"in the {stage} stage: {why}"))
    return facts + [(f"pool {each.name}", _pool_above(each, now_ms)) for each in outlooks if each is not own]


def _pool_above(pool: StarvationOutlook, now_ms: int) -> str:
    """Return for how long a pool above has been below which share, and when it starves."""
    parts = []
    if pool.below_fair_share_since_ms is not None:
        passed = _passed(pool.below_fair_share_since_ms, now_ms)
        parts.append(f"below its fair share for {passed}{_for_fair_share(pool, now_ms)}")
    if pool.below_strong_guarantee_since_ms is not None:
        passed = _passed(pool.below_strong_guarantee_since_ms, now_ms)
        parts.append(f"below its strong guarantee for {passed}{_for_strong_guarantee(pool, now_ms)}")
    if pool.starvation_status is not StarvationStatus.NON_STARVING and pool.starving_since_ms is not None:
        parts.append(
            f"starves for {_passed(pool.starving_since_ms, now_ms)}, for its {_REASONS[pool.starvation_reason]}"
        )
    return "; ".join(parts)


def _for_fair_share(outlook: StarvationOutlook, now_ms: int) -> str:
    starves_at_ms, aggressively_at_ms = outlook.starves_for_fair_share_at_ms, outlook.starves_aggressively_at_ms
    aggressively = "" if aggressively_at_ms is None else f"aggressively {_when(aggressively_at_ms, now_ms)}"
    if starves_at_ms is None or starves_at_ms == aggressively_at_ms:
        return f"; it starves {aggressively}" if aggressively else ""
    return f"; it starves {_when(starves_at_ms, now_ms)}" + (f", and {aggressively}" if aggressively else "")


def _for_strong_guarantee(outlook: StarvationOutlook, now_ms: int) -> str:
    at_ms = outlook.starves_for_strong_guarantee_at_ms
    return "" if at_ms is None else f"; it starves for the guarantee {_when(at_ms, now_ms)}"


def _when(at_ms: int, now_ms: int) -> str:
    """Return the remaining time and the time of day of an event. An event whose time has passed comes with the next update."""
    if at_ms <= now_ms:
        return "with the next update"
    return f"in {format_duration(at_ms - now_ms)}, at {moment_words(at_ms, now_ms)}"


def _cause(items: dict[str, ShareItem], item: ShareItem) -> ShareItem | None:
    """Return the element whose starvation gives an operation its preemption priority, or None."""
    aggressively = item.preemption_priority is PreemptionPriority.AGGRESSIVE
    return lowest_starving_ancestor(items, item, aggressively=aggressively)


def _passed(since_ms: int, now_ms: int) -> str:
    return format_duration(max(0, now_ms - since_ms))
