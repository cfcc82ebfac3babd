"""Requests of `op list`, `op get` and `op explain`: for the share of an operation, and for the reasons why it runs no job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import anyio

from headrace.client import Client, Refused, Unanswered
from headrace.wire.operations import FINAL_STATES, OperationState, OperationView
from headrace.wire.placements import TreePlacement
from headrace.wire.pools import StarvationOutlook
from headrace.wire.snapshots import ShareFrame, ShareItem


class ToldShare(NamedTuple):
    """An operation's share in one tree, as fair_share reports it."""

    #: The operation's share; None if the operation is over or fair_share does not report it.
    share: ShareItem | None = None
    frame: ShareFrame = ShareFrame()
    #: Forecasts of starvation of the operation and of the pools above it.
    outlooks: Sequence[StarvationOutlook] = ()


async def share_of(client: Client, view: OperationView, placement: TreePlacement) -> ToldShare:
    """Return the share of an operation in one tree."""
    if view.state in FINAL_STATES:
        return ToldShare()
    pools = client.pools.of(placement.tree)
    try:
        answer = await pools.list(placement.pool, operations=True, outlook_of=view.operation)
    except (Unanswered, Refused):
        return ToldShare()
    share = next((item for item in answer.operations if item.name == view.operation), None)
    return ToldShare(share, answer.frame, answer.outlooks)


#: Upper bound of the operations in a list for which the reason why they run no job is requested. The list must appear quickly, and is
#: useful without the reasons too.
_MOST_IDLE: Final = 20
#: Seconds to wait for all reasons together.
_IDLE_TIME_S: Final = 0.5


async def reasons_of_idle(client: Client, views: Sequence[OperationView]) -> tuple[dict[str, str], bool]:
    """Return the reasons why operations run no job, by operation id, and True if all answers arrived in time.

    Reasons are requested only for operations in the state running, first for the operations of which no job has ended.
    """
    found: dict[str, str] = {}

    async def ask(view: OperationView) -> None:
        with suppress(Refused, Unanswered):
            places = await client.places(view.operation, [each.tree for each in view.placements])
            if places.reasons and not places.running_jobs:
                found[view.operation] = places.reasons[0]

    with anyio.move_on_after(_IDLE_TIME_S) as scope:
        async with anyio.create_task_group() as asking:
            for view in sorted(filter(_may_be_idle, views), key=_has_ended_jobs)[:_MOST_IDLE]:
                asking.start_soon(ask, view)
    return found, not scope.cancelled_caught


def _may_be_idle(view: OperationView) -> bool:
    return view.state is OperationState.RUNNING and not view.suspended


def _has_ended_jobs(view: OperationView) -> bool:
    return view.completed_jobs + view.failed_jobs + view.aborted_jobs + view.timed_out_jobs > 0
