"""The command `headrace run --dry-run`, and the warning that a started operation can never run."""

from __future__ import annotations

from typing import Final

import anyio
import msgspec

from headrace.client import Client, Refused, Unanswered
from headrace.ids import TreeName
from headrace.wire.explanations import Cause
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import StartAnswer
from headrace.wire.start_plans import OperationFit, PlannedPlace
from headrace.wire.what_if import SupposedOperation, WhatIfAnswer
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

#: Kind of a cause: each of the jobs is larger than every node.
_TOO_LARGE: Final = "larger_than_every_node"
#: Kind of a cause: all jobs of the gang together are too large.
_GANG: Final = "gang_never_fits"
#: Kinds of causes that persist when other jobs or operations end.
_FOR_EVER: Final = frozenset({_GANG, "no_node_matches", _TOO_LARGE})
#: Kinds of causes that name a limit. Such a cause also persists if the limit is below what a single job needs.
_LIMITS: Final = frozenset({"pool_limit_reached", "operation_limit_reached"})
#: Kinds of causes from an allocator that has just started and does not know all nodes and limits yet.
_NOT_KNOWN_YET: Final = frozenset({"limits_unknown", "still_recovering"})
#: Seconds to wait for the allocator's verdict on a new operation. After that, the start is reported without the verdict.
_MOST_WAIT_S: Final = 1.0
_POLL_S: Final = 0.05


async def try_start(screen: Screen, client: Client, spec: OperationSpec, operation: str) -> int:
    """Print what a start would do and return the exit status. Raises what `Client.start` raises."""
    from headrace_cli.commands.operations.dry_run_page import PlannedInTree, show_planned_start

    told = await client.starts.plan(spec, operation=operation)
    is_held_back = bool(told.awaits or told.upstream_failure or told.awaiting_jobs == spec.job_count)
    in_trees = {}
    for each in told.places:
        fit = await _fit(client, spec, each)
        never_runs = any(not _leaves_other_jobs(cause, spec) for cause in _for_ever(fit)) or is_held_back
        in_trees[each.tree] = PlannedInTree(fit, await _shares(client, spec, each, never_runs=never_runs))
    show_planned_start(screen, spec, told, in_trees)
    return Exit.DONE


async def warn_of_what_never_runs(
    screen: Screen, client: Client, spec: OperationSpec, answer: StartAnswer | None
) -> None:
    """Warn if a started operation cannot run any job with the present nodes and limits."""
    if answer is None or len(spec.pool_trees) > 1:
        return
    tree = spec.pool_trees[0] if spec.pool_trees else client.trees.own
    place, fit = PlannedPlace(TreeName(tree), answer.parent or answer.pool), None
    with anyio.move_on_after(_MOST_WAIT_S):
        while True:
            fit = await _fit(client, spec, place)
            if fit is None or _is_known(fit):
                break
            await anyio.sleep(_POLL_S)
    for cause in _for_ever(fit):
        screen.say(f"warning: {cause.words}; {cause.cure}", style="yellow")
    if spec.has_gang and (fit is None or not _is_known(fit)):
        whose = "operation" if spec.is_gang else "gang"
        screen.say(
            f"it is not known yet whether all jobs of the {whose} fit at once. To see it: headrace op explain {answer.operation}"
        )


def _for_ever(fit: OperationFit | None) -> list[Cause]:
    """Return the known causes for which no job can ever run."""
    if fit is None or not _is_known(fit):
        return []
    return [cause for cause in fit.causes if cause.kind in _FOR_EVER or _is_below_one_job(cause)]


def _leaves_other_jobs(cause: Cause, spec: OperationSpec) -> bool:
    """True if the cause concerns only the gang, and the operation has other jobs beside it."""
    return cause.kind == _GANG and spec.gang_job_count < spec.job_count


def _is_below_one_job(cause: Cause) -> bool:
    """True if the cause is a limit that is below a single job."""
    exceeded = cause.figures.get("exceeded", []) if cause.kind in _LIMITS else []
    return any(each.get("needed", 0) > each["limit"] for each in exceeded)


def _is_known(fit: OperationFit) -> bool:
    """True if the allocator knows all nodes and limits."""
    return _NOT_KNOWN_YET.isdisjoint(cause.kind for cause in fit.causes)


async def without_what_never_runs(
    screen: Screen, client: Client, supposed: list[SupposedOperation]
) -> list[SupposedOperation]:
    """Warn about supposed operations whose jobs are larger than every node. Their fair share is zero.

    Returns all operations. Operations whose jobs are too large are marked as waiting.
    """
    found = []
    for number, each in enumerate(supposed, 1):
        fit = await _fit(client, each.spec, PlannedPlace(client.trees.own, each.spec.pool))
        too_large = [cause for cause in _for_ever(fit) if cause.kind == _TOO_LARGE]
        for cause in too_large:
            screen.say(f"supposed-{number} would be owed nothing: {cause.words}", style="yellow")
        found.append(msgspec.structs.replace(each, waits=True) if too_large else each)
    return found


async def _fit(client: Client, spec: OperationSpec, place: PlannedPlace) -> OperationFit | None:
    """Return how the operation's jobs fit on the nodes, or None if the allocator does not answer."""
    try:
        return await client.starts.fit(spec, place.tree, place.nearest_existing)
    except (Refused, Unanswered):
        return None


async def _shares(client: Client, spec: OperationSpec, place: PlannedPlace, *, never_runs: bool) -> WhatIfAnswer | None:
    """Return the shares that would result if the operation started; None if fair_share does not answer."""
    try:
        return await client.starts.shares(spec, place, never_runs=never_runs)
    except (Refused, Unanswered):
        return None
