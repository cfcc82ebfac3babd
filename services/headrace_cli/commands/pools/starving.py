"""The table of `headrace pool starving`: since when elements starve, for which share, and which operations may preempt for them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.client.preemptions import Starving
from headrace.durations import format_duration
from headrace.resources import Resources
from headrace.wire.snapshots import (
    ElementKind,
    PreemptionPriority,
    StarvationStatus,
)
from headrace_cli.show.amounts import amounts
from headrace_cli.show.starvation import STARVATION_REASONS
from headrace_cli.show.tables import table

#: Upper bound of the operations that are named in one line of the table.
_MOST_NAMED: Final = 3


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
