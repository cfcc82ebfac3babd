"""The effects that the engine of fair_share asks its shell to perform.

After every effect except `UpdateSooner`, `OfferSample` and `StepDown` the shell calls the engine to report the result.
"""

from __future__ import annotations

import msgspec

from headrace.wire.integral import Advance
from headrace.wire.snapshots import ShareFrame, ShareItem
from headrace.wire.version import Term
from headrace_fair_share.configuration.change_decisions import Change
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.update.update_facts import UpdateFacts


class UpdateSooner(msgspec.Struct, frozen=True):
    """Call `seconds_until_update` again: something changed, and the next update may be due sooner than the engine said."""


class SendAdvance(msgspec.Struct, frozen=True):
    """Send the advance to integral, then call `on_advance_answer`, with None after the timeout."""

    advance: Advance
    timeout_s: float


class Compute(msgspec.Struct, frozen=True):
    """Compute an update, then call `on_updated` or `on_update_failed`."""

    cut: UpdateFacts
    #: True: compute from scratch, without results kept from previous updates.
    afresh: bool
    #: True: compute on the event loop, because the update ends before a thread would have started. False: compute in a worker thread.
    is_brief: bool = False


class OfferSample(msgspec.Struct, frozen=True):
    """The history may take a sample of the new results."""


class Publish(msgspec.Struct, frozen=True):
    """Publish the shares, then call `on_published`."""

    frame: ShareFrame
    changed: list[ShareItem]
    removed: list[str]


class KeepBrokenTree(msgspec.Struct, frozen=True):
    """Write a tree to a file for debugging, because the algorithm failed on it or its shares were wrong."""

    tree: TreeInput
    fault: Exception


class StepDown(msgspec.Struct, frozen=True):
    """Check whether another process leads with the given term. If so, end this process."""

    term: Term
    told_by: str


class WriteTree(msgspec.Struct, frozen=True):
    """Write a decided change to the bucket of pools, possibly together with other changes, then call `on_tree_written`."""

    change: Change


Effect = UpdateSooner | SendAdvance | Compute | OfferSample | Publish | KeepBrokenTree | StepDown | WriteTree
