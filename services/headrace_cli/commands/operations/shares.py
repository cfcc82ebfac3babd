"""Request the share of an operation, and the forecast of its starvation, from fair_share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.client import Client, Refused, Unanswered
from headrace.wire.operations import FINAL_STATES, OperationView
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
