"""The effects that the engine of fair share asks its shell to perform.

Every effect but `UpdateSooner`, `OfferSample` and `StepDown` ends with a message to the engine that tells what became of it.
"""

from __future__ import annotations

import msgspec

from headrace.wire.integral import Advance
from headrace.wire.snapshots import ShareFrame, ShareItem
from headrace.wire.version import Term
from headrace_fair_share.configuration.tree_configuration import Change
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.update.cut import Cut


class UpdateSooner(msgspec.Struct, frozen=True):
    """The next update may be due sooner than was said: something changed."""


class SendAdvance(msgspec.Struct, frozen=True):
    """Send the advance to integral, then call `on_advance_answer`, with None after the timeout."""

    advance: Advance
    timeout_s: float


class Compute(msgspec.Struct, frozen=True):
    """Compute an update, then call `on_updated` or `on_update_failed`."""

    cut: Cut
    #: True: nothing that was kept of the updates before is to be used.
    afresh: bool
    #: True: on the loop, since it is over before a thread would have begun. Else beside it.
    is_brief: bool = False


class OfferSample(msgspec.Struct, frozen=True):
    """The history may take a sample of the new results."""


class Publish(msgspec.Struct, frozen=True):
    """Publish the shares, then call `on_published`."""

    frame: ShareFrame
    changed: list[ShareItem]
    removed: list[str]


class KeepBrokenTree(msgspec.Struct, frozen=True):
    """Write a tree on which the algorithm broke to a file, for those who mend it."""

    tree: TreeInput
    fault: Exception


class StepDown(msgspec.Struct, frozen=True):
    """Another process may lead with that term. If it does, this one ends."""

    term: Term
    told_by: str


class WriteTree(msgspec.Struct, frozen=True):
    """Write a decided change to the bucket of pools, then call `on_tree_written`."""

    change: Change


Effect = UpdateSooner | SendAdvance | Compute | OfferSample | Publish | KeepBrokenTree | StepDown | WriteTree
