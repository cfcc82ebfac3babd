"""The page of `headrace op explain`: why jobs wait in each tree, limits of the pools above, and holders of their running slots. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rich.table import Table
from rich.text import Text

from headrace.counted import counted
from headrace.durations import format_duration
from headrace.errors import in_one_line
from headrace.ids import ROOT_POOL, TreeName
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import Resources, format_amount, percent
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace.wire.explanations import Ahead, PoolRoom, ProtectedAllocations, Tries, Try, WaitingExplained
from headrace.wire.operations import FINAL_STATES, OperationExplanation, OperationState
from headrace.wire.placements import PoolLevel
from headrace.wire.pools import StarvationOutlook
from headrace.wire.snapshots import ElementKind, PreemptionPriority, SchedulingStatus, ShareFrame, ShareItem
from headrace_cli.commands.operations.tables import memory_words, retry_words, waiting_words
from headrace_cli.commands.operations.time_limits import time_limit_rows
from headrace_cli.commands.operations.upstream_words import awaited_words, ends_words, following_words
from headrace_cli.show.amounts import amounts, component, pool_words
from headrace_cli.show.starvation import starvation_facts
from headrace_cli.show.tables import facts_table, table

Row = tuple[str, str | Text]
_SLOTS: Final = ("user_slots",)


class ExplainedInTree(NamedTuple):
    """An operation in one tree, as far as the tree's allocator and fair_share answered."""

    waiting: WaitingExplained | None
    share: ShareItem | None
    frame: ShareFrame
    #: Forecasts of starvation of the operation and of the pools above it.
    outlooks: Sequence[StarvationOutlook] = ()


def explanation(
    told: OperationExplanation, in_trees: Mapping[TreeName, ExplainedInTree], now_ms: int
) -> list[Table | Text | str]:
    """Return the page: the state in a sentence, the reasons in each tree, and the pools above if the operation is
    pending or a pool is full.
    """
    view = told.view
    parts: list[Table | Text | str] = [Text(sentence(told)), *(Text(words, style="yellow") for words in told.pauses)]
    parts += [
        Text(f"pool {each.pool} of tree {each.tree} was chosen by the placement rule `{each.rule}`")
        for each in view.placements
        if each.rule
    ]
    if view.state in FINAL_STATES:
        ago = format_duration(max(0, now_ms - view.ended_at_ms))
        done = f"{view.completed_jobs} of {view.spec.job_count} jobs done, over for {ago}"
        return [*parts, f"{done}; what happened: headrace op history {view.operation}"]
    parts += [Text(f"{label or 'and'}: {words}") for label, words in time_limit_rows(view, None, now_ms)]
    if told_memory := memory_words(view):
        parts.append(Text(f"out of memory: {told_memory}", style="yellow"))
    if view.pausing_jobs:
        parts.append(Text(f"to be retried: {retry_words(view, now_ms)} (run --retry-backoff)"))
    pending = view.state is OperationState.PENDING
    for tree, each in in_trees.items():
        facts = facts_table()
        for label, words in _rows_of_pending(told) if pending else _rows(each, told):
            facts.add_row(label, words)
        parts += ["", *([Text(f"in tree {tree}", style="bold")] if len(in_trees) > 1 else []), facts]
    if view.state is OperationState.PENDING or any(level.full for level in told.levels):
        parts += level_lines(told, now_ms)
    return parts


def _rows_of_pending(told: OperationExplanation) -> Iterator[Row]:
    """Yield the rows of a pending operation. Without a running slot it has no share, and no allocator considers its jobs."""
    yield from _numbered("waits because", [awaited_words(each) for each in told.upstream])
    if more := max(0, len(told.view.awaits) - len(told.upstream)):
        yield "", f"and {counted(more, 'more operation')}"
    if told.upstream and not told.view.waiting:
        return
    full = [level for level in told.levels if level.full]
    for level in full:
        set_it = "tree set" if level.pool == ROOT_POOL else f"pool set {level.pool}"
        cure = f"the end of an operation that holds a slot, or `headrace {set_it} max_running_operation_count=…`"
        counts = f"{level.running_operation_count} of {level.max_running_operation_count}"
        reason = f"{pool_words(level.pool)} runs as many operations as its limit allows: {counts}"
        yield from _numbered("waits because" if level is full[0] else "", [(reason, f"→ {cure}")])


def _rows(here: ExplainedInTree, told: OperationExplanation) -> Iterator[Row]:
    waiting, share = here.waiting, here.share
    if told.upstream:
        words = following_words(told.view.awaiting_jobs, told.upstream[0].operation)
        yield from _numbered("follows", [(words,), *(awaited_words(each) for each in told.upstream)])
    if waiting is not None:
        doubt = f", {waiting.in_doubt_jobs} unconfirmed" if waiting.in_doubt_jobs else ""
        each = amounts(waiting.needed, leave_out=_SLOTS)
        needs = "each needs at least" if told.view.spec.tasks else "each needs"
        yield "jobs", f"{waiting.running_jobs} running, {waiting.pending_jobs} pending{doubt}; {needs} {each}"
    if share is not None:
        yield from _share_rows(share, here)
    if waiting is None:
        yield (
            "waits because",
            "not known: the allocator of this tree is silent, or has not heard of the operation yet",
        )
        return
    yield "nodes", _nodes(waiting)
    yield from _numbered("waits because", [(cause.words, f"→ {cause.cure}") for cause in waiting.causes])
    if not waiting.causes and waiting.pending_jobs:
        yield "waits because", "nothing blocks it: the next node with free resources gets a job"
    if not waiting.causes and not waiting.pending_jobs:
        if not told.upstream:
            yield "waits", "none of its jobs waits"
        return
    yield from _pace(waiting)
    yield from _numbered(
        "comes after",
        [(_level(level.own, level.ahead, level.first, level.pool),) for level in waiting.levels if level.ahead],
    )
    yield from _numbered("limits", [(_limit(limit),) for limit in waiting.limits])
    if any(cause.kind == "starts_paused" for cause in waiting.causes):
        yield "preemption", "time does not count for starvation while starts are paused, so nothing is preempted"
        return
    yield from _numbered("preemption", _tries(waiting.tries, share))


def _pace(waiting: WaitingExplained) -> Iterator[Row]:
    """Yield when the last job will start if jobs keep ending at the present rate, and how often jobs were preempted.

    The start of the last job is the only time that can be predicted.
    """
    if waiting.mean_job_ms is not None and waiting.running_jobs and waiting.pending_jobs:
        left = format_duration(waiting.mean_job_ms * waiting.pending_jobs // waiting.running_jobs)
        each = format_duration(waiting.mean_job_ms)
        yield (
            "at this pace",
            f"its last job starts in about {left}: {counted(waiting.running_jobs, 'job')} at a time, lately for {each} each",
        )
    if waiting.preempted:
        times = "once" if waiting.preempted == 1 else f"{waiting.preempted} times"
        most = f", {waiting.preempted_most} times the same job" if waiting.preempted_most > 1 else ""
        yield (
            "preempted",
            f"its jobs were preempted {times} within the last hour{most}: headrace op history {waiting.operation}",
        )


def _numbered(label: str, entries: list[tuple[str, ...]]) -> Iterator[Row]:
    """Yield a row for each line of all entries, with the label beside the first line."""
    for line in (line for entry in entries for line in entry):
        yield label, Text(line)
        label = ""


def _share_rows(share: ShareItem, here: ExplainedInTree) -> Iterator[Row]:
    name = share.dominant_resource
    total = getattr(here.frame.total, name)
    has, owed, wants = (
        f"{format_amount(name, round(part * total))} ({percent(part)})"
        for part in (component(each, name) for each in (share.usage_share, share.fair_share.total, share.demand_share))
    )
    ratio = share.local_satisfaction_ratio
    satisfied = "" if ratio >= INFINITE_SATISFACTION else f": satisfaction {ratio:.2f}"
    yield "has", f"{name} {has} of {owed} that it is owed{satisfied}; it wants {wants}"
    yield from starvation_facts(share, here.outlooks, here.frame.at_ms)


def _nodes(waiting: WaitingExplained) -> str:
    nodes = waiting.nodes
    words = [f"{nodes.enrolled} enrolled", f"{nodes.accepting} take jobs"]
    words += [f"{nodes.matching} match its tags"] if nodes.matching < nodes.accepting else []
    words += [f"no container runtime on {counted(nodes.without_runtime, 'node')}"] if nodes.without_runtime else []
    return ", ".join(
        [
            *words,
            f"{nodes.large_enough} could run its job if they were empty",
            f"{nodes.with_room} have free resources for it now",
        ]
    )


def _level(own: Ahead, ahead: int, first: list[Ahead], pool: str) -> str:
    names = ", ".join(f"{one.name} ({_satisfaction(one)})" for one in first)
    more = f" and {ahead - len(first)} more" if ahead > len(first) else ""
    what = "it" if own.kind is ElementKind.OPERATION else f"its pool {own.name}"
    return f"in {pool_words(pool)}: {names}{more}; {what} has {_satisfaction(own)}"


def _satisfaction(one: Ahead) -> str:
    if one.satisfaction >= INFINITE_SATISFACTION:
        return "more than it is owed" if one.used or not one.resource else "nothing, and is owed nothing"
    part = f"{one.satisfaction:.2f} of its fair share"
    if not one.resource:
        return part
    return f"{part}, {one.resource} {format_amount(one.resource, one.used)} of {format_amount(one.resource, one.owed)}"


def _limit(room: PoolRoom) -> str:
    used, limit = format_amount(room.resource, room.used), format_amount(room.resource, room.limit)
    whose = pool_words(room.pool) if room.pool else "its own"
    return f"{whose}: {used} of {limit} {room.resource} in use" + (", which blocks it" if room.holds else "")


def _due(due: Resources, *, claims: bool) -> str:
    when = (
        "the next preemption pass serves it"
        if claims
        else "the last preemption pass served it, and a later pass will serve it again"
    )
    return f"under the tree's YARN policy it is due {amounts(due, leave_out=_SLOTS)}: {when}"


def _tries(tries: Tries, share: ShareItem | None) -> list[tuple[str, ...]]:
    if share is not None and (share.due_to_fair_share or share.due_to_min_share):
        due = Resources.sum(each for each in (share.due_to_fair_share, share.due_to_min_share) if each is not None)
        return [(_due(due, claims=share.claims),), *([(_kept(tries.kept),)] if tries.kept else [])]
    if tries.policy is PreemptionPolicy.YARN_LEGACY:
        return [("under yarn_legacy, allocations are preempted for starving pools: headrace pool starving",)]
    if tries.priority is PreemptionPriority.NONE:
        below = share is not None and share.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE
        why = "neither it nor a pool above it starves yet" if below else "it is not below its fair share"
        return [(f"it may not preempt: {why}",)]
    if not tries.nodes:
        return [("no node was checked yet: each node is checked at its next heartbeat, and again after a pause",)]
    figures = {
        "started one of its jobs": tries.started,
        "started a job of another operation": tries.started_others,
        "had too little to preempt": tries.short,
        "had other tags": tries.unmatched,
        "had enough, but a limit or its demand blocked it": tries.held_back,
    }
    counted = ", ".join(f"{count} {words}" for words, count in figures.items() if count)
    nodes = "1 node was" if tries.nodes == 1 else f"{tries.nodes} nodes were"
    return [(f"{nodes} checked: {counted}",), *((_try(one),) for one in tries.nearest)]


def _kept(kept: Sequence[ProtectedAllocations]) -> str:
    return f"protected: {', '.join(f'{one.places} ({one.words})' for one in kept)}"


def _try(one: Try) -> str:
    ago = format_duration(one.age_ms)
    may_go = "1 allocation" if one.candidates == 1 else f"{one.candidates} allocations"
    room = amounts(one.room, leave_out=_SLOTS)
    words = f"{one.node}, {ago} ago: with {may_go} preempted, the free resources are {room}"
    if one.exempt:
        more, left = counted(one.exempt, "more allocation"), format_duration(one.exempt_ms)
        words += f", and {more} can be preempted once preemption_exempt_time is over, the first in {left}"
    if one.started:
        return f"{words}; {one.started} started there"
    if one.kept:
        words += f"; {_kept(one.kept)}"
    short = amounts(one.short)
    return words if short == "–" else f"{words}; short of {short}"


#: Upper bound of the holders of running slots that are shown for a pool. The JSON answer has more of them.
_MOST_SHOWN = 5


def level_lines(told: OperationExplanation, now_ms: int) -> list[Table | Text | str]:
    """Return a table of all pools from the root down, and the operations that hold the running slots of full pools."""
    parts: list[Table | Text | str] = ["", _levels(told.levels)] if told.levels else []
    if told.levels_left_out:
        parts.append(Text(f"and {counted(told.levels_left_out, 'more level')}"))
    holders = [line for level in told.levels for line in _holders(level, now_ms)]
    return [*parts, "", *holders] if holders else parts


def sentence(told: OperationExplanation) -> str:
    """Return one sentence with the operation's state, and why it has or lacks a running slot."""
    view = told.view
    suspended = f", suspended by {view.suspended_for}" if view.suspended_for else ", suspended"
    begins = f"operation {view.operation} is {view.state.value}{suspended if view.suspended else ''}"
    if view.state in FINAL_STATES:
        return begins + (f": {in_one_line(view.reason)}" if view.reason else "")
    if view.state is OperationState.PENDING:
        if view.awaits:
            return f"{begins}: it waits for {ends_words(view.awaits)}, and holds no running slot until then"
        if told.upstream and not view.waiting:
            return f"{begins}: it holds no running slot until a job of {told.upstream[0].operation} completes"
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
