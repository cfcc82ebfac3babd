"""The ways to compute the shares of a tree; the tree's preemption policy selects one."""

from __future__ import annotations

from typing import Protocol

from headrace_fair_share.hdrf.model import Sharing, TreeInput
from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.yarn.share_updates import YarnShareUpdater


class ShareUpdater(Protocol):
    """Updates one tree repeatedly. Implementations may keep data from one update to the next."""

    def update(self, tree: TreeInput) -> TreeShares:
        """Compute the shares of all elements. Raises `BrokenInvariant`."""
        ...


def share_updater(sharing: Sharing) -> ShareUpdater:
    """Return a new updater for trees that use this kind of sharing."""
    return YarnShareUpdater() if sharing is Sharing.YARN else TreeUpdater()
