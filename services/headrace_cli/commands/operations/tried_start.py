"""`headrace run --dry-run`, and what a gang is told that can never start."""

from __future__ import annotations

from typing import Final

from headrace.client import Client, Refused, Unanswered
from headrace.ids import TreeName
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import StartAnswer
from headrace.wire.start_plans import OperationFit, PlannedPlace
from headrace.wire.what_if import WhatIfAnswer
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

#: Reasons that end by nothing that ends.
_FOR_EVER: Final = "gang_never_fits"


async def try_start(screen: Screen, client: Client, spec: OperationSpec, operation: str) -> int:
    """Tells what would become of a start, and returns the exit status. Raises what `Client.start` raises."""
    from headrace_cli.show.elements.planned_start import InTree, show_planned_start

    told = await client.starts.plan(spec, operation=operation)
    in_trees = {
        each.tree: InTree(await _fit(client, spec, each), await _shares(client, spec, each)) for each in told.places
    }
    show_planned_start(screen, spec, told, in_trees)
    return Exit.DONE


async def warn_of_gang(screen: Screen, client: Client, spec: OperationSpec, answer: StartAnswer | None) -> None:
    """Warns of a gang that was started and can never start a job as things are."""
    if answer is None or not spec.is_gang or spec.job_count < 2:
        return
    tree = spec.pool_trees[0] if spec.pool_trees else client.trees.own
    fit = await _fit(client, spec, PlannedPlace(TreeName(tree), answer.parent or answer.pool))
    for cause in fit.causes if fit is not None else ():
        if cause.kind == _FOR_EVER:
            screen.say(f"warning: {cause.words}; {cause.cure}", style="yellow")


async def _fit(client: Client, spec: OperationSpec, place: PlannedPlace) -> OperationFit | None:
    """None where the allocator does not answer."""
    try:
        return await client.starts.fit(spec, place.tree, place.nearest_existing)
    except (Refused, Unanswered):
        return None


async def _shares(client: Client, spec: OperationSpec, place: PlannedPlace) -> WhatIfAnswer | None:
    """None where fair_share does not answer."""
    try:
        return await client.starts.shares(spec, place)
    except (Refused, Unanswered):
        return None
