"""Ways to work out the shares of a tree, of which its preemption policy has one."""

from __future__ import annotations

from typing import Protocol

from headrace_fair_share.hdrf.model import Sharing, TreeInput
from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.yarn.share_updates import YarnShareUpdater


class ShareUpdater(Protocol):
    """Updates one tree again and again. What it keeps from update to update is its own affair."""

    def update(self, tree: TreeInput) -> TreeShares:
        """Works out the shares of all elements. Raises `BrokenInvariant`."""
        ...


def share_updater(sharing: Sharing) -> ShareUpdater:
    """A new updater of trees that share so."""
    return YarnShareUpdater() if sharing is Sharing.YARN else TreeUpdater()
