"""Find out why operations that have a running slot run no job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio

from headrace.client import Client, Refused, Unanswered
from headrace.wire.operations import OperationState, OperationView

#: Most operations that are asked about. This bound and the time limit keep the list quick, which can be shown without the reasons.
_MOST: Final = 20
_TIME_S: Final = 0.5


async def reasons_of_idle(client: Client, views: Sequence[OperationView]) -> tuple[dict[str, str], bool]:
    """Return by operation id the reason why no job of the operation runs, and True if all answers arrived in time.

    Only running operations are asked about, first the operations without an ended job.
    """
    found: dict[str, str] = {}

    async def ask(view: OperationView) -> None:
        with suppress(Refused, Unanswered):
            places = await client.places(view.operation, [each.tree for each in view.placements])
            if places.reasons and not places.running_jobs:
                found[view.operation] = places.reasons[0]

    with anyio.move_on_after(_TIME_S) as scope:
        async with anyio.create_task_group() as asking:
            for view in sorted(filter(_may_be_idle, views), key=_has_ended_jobs)[:_MOST]:
                asking.start_soon(ask, view)
    return found, not scope.cancelled_caught


def _may_be_idle(view: OperationView) -> bool:
    return view.state is OperationState.RUNNING and not view.suspended


def _has_ended_jobs(view: OperationView) -> bool:
    return view.completed_jobs + view.failed_jobs + view.aborted_jobs > 0
