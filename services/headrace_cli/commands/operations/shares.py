"""The share of an operation, and when it will starve, as fair_share tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.client import Client, Refused, Unanswered
from headrace.wire.operations import FINAL_STATES, OperationView
from headrace.wire.placements import TreePlacement
from headrace.wire.pools import StarvationOutlook
from headrace.wire.snapshots import ShareFrame, ShareItem


class ToldShare(NamedTuple):
    """An operation in one tree, as fair_share tells of it."""

    #: None if it is over, or if fair_share does not tell of it.
    share: ShareItem | None = None
    frame: ShareFrame = ShareFrame()
    #: Of it and of the pools above it.
    outlooks: Sequence[StarvationOutlook] = ()


async def share_of(client: Client, view: OperationView, placement: TreePlacement) -> ToldShare:
    """Asks for the share of an operation."""
    if view.state in FINAL_STATES:
        return ToldShare()
    pools = client.pools.of(placement.tree)
    try:
        answer = await pools.list(placement.pool, operations=True, outlook_of=view.operation)
    except (Unanswered, Refused):
        return ToldShare()
    share = next((item for item in answer.operations if item.name == view.operation), None)
    return ToldShare(share, answer.frame, answer.outlooks)
