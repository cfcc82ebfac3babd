"""The page of `headrace run --dry-run`: what a start would do.

It shows the pool, whether the operation would wait, which nodes could run its jobs, and the shares before and after.
Pure, except for `show_planned_start`, which prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from headrace.counted import counted
from headrace.durations import exact_duration
from headrace.ids import TreeName
from headrace.resources import format_amount
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.plain_values import plain
from headrace.wire.start_plans import OperationFit, PlannedPlace, StartPlanned
from headrace.wire.what_if import WhatIfAnswer
from headrace_cli.commands.operations.upstream_words import ends_words, following_words
from headrace_cli.commands.plans.what_if import what_if_lines
from headrace_cli.show.amounts import amounts, pool_words
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import facts_table

_SLOTS: Final = ("user_slots",)


class PlannedInTree(msgspec.Struct, frozen=True):
    """A planned start in one tree, as far as the tree's allocator and fair_share answered."""

    fit: OperationFit | None
    shares: WhatIfAnswer | None


def show_planned_start(
    screen: Screen, spec: OperationSpec, told: StartPlanned, in_trees: dict[TreeName, PlannedInTree]
) -> None:
    """Print what a start would do."""
    if screen.json:
        screen.show({"dry_run": True, **_fields(told), "trees": plain(in_trees)}, Text())
        return
    if told.repeated:
        screen.print("an operation with this id exists already: nothing new would be started")
    if spec.files is not None:
        size, count = format_amount("memory", spec.files.size_bytes), spec.files.file_count
        screen.say(f"{'1 file' if count == 1 else f'{count} files'} would be sent, {size} packed")
    if told.upstream_failure:
        screen.say(f"the operation would fail at once: {told.upstream_failure}", style="red")
    for place in told.places:
        here = in_trees[place.tree]
        title = [Text(f"in tree {place.tree}", style="bold")] if len(told.places) > 1 else []
        screen.print(*title, _facts(spec, told, place, here.fit), "")
        if here.shares is not None:
            screen.print(*what_if_lines(here.shares, screen.width), "")
            for note in here.shares.notes:
                screen.say(f"note: {note}")
    limits = (("each run of a job", told.time_limit_ms), ("the operation", told.operation_time_limit_ms))
    for what, limit_ms in limits:
        if limit_ms is not None:
            screen.say(f"the time limit of {what} would be {exact_duration(limit_ms)}")
    if told.near and "$" not in told.places[0].pool:
        screen.say(f"pool {told.places[0].pool!r} is not configured; did you mean {' or '.join(told.near[:3])}?")
    for tree in told.erased_trees:
        screen.say(f"tree {tree} would be left out, because a limit is reached there")
    for warning in told.warnings:
        screen.say(f"warning: {warning}", style="yellow")
    screen.say("dry run: nothing was recorded")


def _fields(told: StartPlanned) -> dict[str, object]:
    fields = plain(told)
    assert isinstance(fields, dict)
    return fields


def _facts(spec: OperationSpec, told: StartPlanned, place: PlannedPlace, fit: OperationFit | None) -> Table:
    facts = facts_table()
    for label, words in (*_place_rows(spec, told, place), *_fit_rows(spec, fit)):
        facts.add_row(label, Text(words))
    return facts


def _place_rows(spec: OperationSpec, told: StartPlanned, place: PlannedPlace) -> Iterator[tuple[str, str]]:
    made = (
        f" (ephemeral, below {pool_words(place.made[-1].parent)}, exists as long as its operations)"
        if place.made
        else ""
    )
    rule = f", by the placement rule `{place.rule}`" if place.rule else ""
    yield "pool", f"{place.pool}{made}{rule}"
    waiting = place.waiting
    if told.awaits:
        yield "waits for", f"{ends_words(told.awaits)}; it would hold no running slot until then"
        return
    if told.awaiting_jobs:
        yield "follows", following_words(told.awaiting_jobs, spec.after_each or "")
    if told.upstream_failure or told.awaiting_jobs == spec.job_count:
        return
    if waiting is None:
        yield "at once", "it would run: no limit on running operations is reached"
        return
    counts = f"{waiting.running} of {waiting.limit} operations run in {pool_words(waiting.blocked_by)}"
    yield "waits for", f"{counts} (max_running_operation_count), and it would wait as number {waiting.place}"


def _fit_rows(spec: OperationSpec, fit: OperationFit | None) -> Iterator[tuple[str, str]]:
    for task in spec.tasks:
        yield f"task {task.name}", f"{task.job_count} of {amounts(task.resources, leave_out=_SLOTS)} each"
    if spec.tasks and spec.has_gang:
        names = ", ".join(task.name for task in spec.tasks if task.is_gang)
        yield "gang", f"all jobs of {names or 'all tasks'} at once or none"
    if not spec.tasks:
        each = f"{spec.job_count} of {amounts(spec.resources, leave_out=_SLOTS)} each"
        yield "jobs", f"{each}, a gang: all at once or none" if spec.is_gang and spec.job_count > 1 else each
    if fit is None:
        yield "nodes", "not known: the allocator of this tree has reported no nodes yet"
        return
    nodes = fit.nodes
    match = f", {nodes.matching} match its tags" if nodes.matching < nodes.accepting else ""
    match += f", no container runtime on {counted(nodes.without_runtime, 'node')}" if nodes.without_runtime else ""
    yield (
        "nodes",
        f"{nodes.accepting} take jobs{match}, {nodes.large_enough} could ever run a job, {nodes.with_room} have free resources for it now",
    )
    if fit.jobs_at_once is not None:
        yield "at most", f"{fit.jobs_at_once} of its jobs at once, if nothing else ran"
    label = "would wait because"
    for cause in fit.causes:
        yield label, cause.words
        yield "", f"→ {cause.cure}"
        label = ""
