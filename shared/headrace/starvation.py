"""The starvation above an element, for which its operations may preempt."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.wire.snapshots import ShareItem, StarvationStatus


def lowest_starving_ancestor(
    items: Mapping[str, ShareItem], item: ShareItem, *, aggressively: bool = False
) -> ShareItem | None:
    """Finds the element itself or the nearest pool above it that starves, `aggressively` if so asked. The root never does."""
    found: ShareItem | None = item
    while found is not None:
        status = found.starvation_status
        if status is StarvationStatus.AGGRESSIVELY_STARVING or (
            status is StarvationStatus.STARVING and not aggressively
        ):
            return found
        found = items.get(f"/{found.parent}")
    return None
