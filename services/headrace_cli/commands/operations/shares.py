"""The share of an operation and its options in force, as fair_share tells of them."""

from __future__ import annotations

from headrace.client import Client, Refused, Unanswered
from headrace.pools.effective_options import EffectiveOptions, of_operation
from headrace.wire.operations import FINAL_STATES, OperationView
from headrace.wire.placements import TreePlacement
from headrace.wire.snapshots import ShareFrame, ShareItem


async def share_of(
    client: Client, view: OperationView, placement: TreePlacement
) -> tuple[ShareItem | None, ShareItem | None, ShareFrame]:
    """Returns the shares of an operation and of its pool. They are None if it is over, or if fair_share does not tell of it."""
    if view.state in FINAL_STATES:
        return None, None, ShareFrame()
    try:
        answer = await client.pools.of(placement.tree).list(placement.pool, operations=True)
    except (Unanswered, Refused):
        return None, None, ShareFrame()
    share = next((item for item in answer.operations if item.name == view.operation), None)
    return share, next((pool.share for pool in answer.pools), None), answer.frame


def options_of(view: OperationView, pool: ShareItem | None, frame: ShareFrame) -> EffectiveOptions | None:
    """Returns the options in force for an operation, or None if those of its pool are not known."""
    above = None if pool is None else pool.options
    return None if above is None else of_operation(above, view.spec, frame.options)
