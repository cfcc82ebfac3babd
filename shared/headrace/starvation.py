"""The starving element for which an operation may preempt: the operation itself, or a pool above it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.wire.snapshots import ShareItem, StarvationStatus


def lowest_starving_ancestor(
    items: Mapping[str, ShareItem], item: ShareItem, *, aggressively: bool = False
) -> ShareItem | None:
    """Return `item` if it starves, else the nearest pool above it that starves, or None if no pool above it starves.

    With `aggressively` only aggressive starvation counts. The root never starves.
    """
    found: ShareItem | None = item
    while found is not None:
        status = found.starvation_status
        if status is StarvationStatus.AGGRESSIVELY_STARVING or (
            status is StarvationStatus.STARVING and not aggressively
        ):
            return found
        found = items.get(f"/{found.parent}")
    return None
