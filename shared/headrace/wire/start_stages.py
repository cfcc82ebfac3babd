"""Starts of allocations: the stages of a heartbeat in which they may be, and the record of each.

The allocator writes the record into its order. The agent and its runner hand it back with the end of each job of the allocation. So
the log has it, whichever of them was restarted in between.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.resources import Share
from headrace.wire.version import Counter

#: Of one record, whatever it says.
LARGEST_START_BYTES: Final = 130


# A runner outlives its agent's upgrade, and refuses an order with a stage that it does not know: read unknown ones as none before
# another is added here.
class StartStage(enum.StrEnum):
    """The stage in which an allocation got its place, as section 8.2 of the specification of allocation names it."""

    #: In room that was free. The high priority is only where the tree has guarantee priority scheduling.
    REGULAR_HIGH_PRIORITY = "regular_high_priority"
    REGULAR_MEDIUM_PRIORITY = "regular_medium_priority"
    #: For an operation that starves, with what others have too much of, if it needs that.
    PREEMPTIVE_NORMAL = "preemptive_normal"
    PREEMPTIVE_AGGRESSIVE = "preemptive_aggressive"
    #: By a policy of YARN, in room that it had planned to take.
    YARN_PLAN = "yarn_plan"


class StartRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Proof of one start: its stage, the shares of its operation, and the places taken for it."""

    stage: StartStage
    #: What the operation used without this place, and what it was owed.
    share_before: Share
    fair_share: Share
    #: The number of places of others that were taken for it.
    places_taken: Counter = 0
