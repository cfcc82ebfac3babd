"""The pools above an operation on the page of `headrace op explain`: their limits, and which operations hold their slots."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.wire.operations import FINAL_STATES, OperationExplanation, OperationState
from headrace.wire.placements import PoolLevel
from headrace_cli.show.tables import table
from headrace_cli.show.waiting_reasons import pool_words, waiting_words

#: Most holders of running slots shown for a pool. The JSON answer has more of them.
_MOST_SHOWN = 5


def level_lines(told: OperationExplanation, now_ms: int) -> list[Table | Text | str]:
    """Return a table of all pools from the root down, and the operations that hold the running slots of full pools."""
    parts: list[Table | Text | str] = ["", _levels(told.levels)] if told.levels else []
    if told.levels_left_out:
        parts.append(Text(f"and {told.levels_left_out} more levels"))
    holders = [line for level in told.levels for line in _holders(level, now_ms)]
    return [*parts, "", *holders] if holders else parts


def sentence(told: OperationExplanation) -> str:
    """Return one sentence with the operation's state, and why it has or lacks a running slot."""
    view = told.view
    begins = f"operation {view.operation} is {view.state.value}" + (", suspended" if view.suspended else "")
    if view.state in FINAL_STATES:
        return begins + (f": {view.reason}" if view.reason else "")
    if view.state is OperationState.PENDING:
        full = [f"{pool_words(level.pool)} ({level.running_operation_count})" for level in told.levels if level.full]
        why = f"no running slot is free in {', '.join(full)}" if full else "the next scan gives it a slot"
        return f"{begins}: {why}; {waiting_words(view)}"
    if told.lightweight:
        return f"{begins}: it is lightweight, so running limits do not apply"
    where = ", ".join(each.pool for each in view.placements if each.blocked_by is None)
    return f"{begins}: it holds a running slot in {where}"


def _levels(levels: Sequence[PoolLevel]) -> Table:
    made = table("pool", "running", "limit", "lightweight", "all", "limit", "waiting", "", right=("running", "limit"))
    for level in levels:
        made.add_row(
            pool_words(level.pool) + (" (ephemeral)" if level.ephemeral else ""),
            str(level.running_operation_count),
            str(level.max_running_operation_count),
            str(level.lightweight_running_operation_count or "–"),
            str(level.operation_count),
            str(level.max_operation_count),
            str(level.waiting or "–"),
            Text("full", style="yellow") if level.full else "",
        )
    return made


def _holders(level: PoolLevel, now_ms: int) -> list[Text]:
    if not level.holders:
        return []
    lines = [Text(f"the slots of {pool_words(level.pool)} are held by", style="bold")]
    for each in level.holders[:_MOST_SHOWN]:
        age = format_duration(max(0, now_ms - each.started_at_ms))
        lines.append(Text(f"  {each.operation} of {each.user} in {each.pool}, for {age}"))
    more = len(level.holders) - _MOST_SHOWN + level.more_holders
    return [*lines, *([Text(f"  and {more} more")] if more > 0 else [])]
