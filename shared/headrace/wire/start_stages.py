"""Starts of allocations: the stages of a heartbeat that can start an allocation, and the record of each start.

The allocator writes the record into its order. The agent and its runner return the record with the end of each job of the allocation. So
the log gets the record even if the allocator, the agent or the runner was restarted in between.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.resources import Share
from headrace.wire.version import Counter

#: Upper bound of the size of one record, in bytes.
LARGEST_START_BYTES: Final = 130


# A runner keeps running while its agent is upgraded, and refuses an order with a stage that it does not know. Before you add a stage,
# change all readers so that they treat an unknown stage as no stage.
class StartStage(enum.StrEnum):
    """The stage that started an allocation, as section 8.2 of the specification of allocation names it."""

    #: For an operation of high priority, in free resources. High priority exists only if the tree has guarantee
    #: priority scheduling.
    REGULAR_HIGH_PRIORITY = "regular_high_priority"
    REGULAR_MEDIUM_PRIORITY = "regular_medium_priority"
    #: For a starving operation. If needed, resources are preempted from operations above their fair share.
    PREEMPTIVE_NORMAL = "preemptive_normal"
    PREEMPTIVE_AGGRESSIVE = "preemptive_aggressive"
    #: By a YARN policy, in resources that the policy had planned to preempt.
    YARN_PLAN = "yarn_plan"


class StartRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Proof of one start: the stage, the shares of the started operation, and the number of allocations preempted for the start."""

    stage: StartStage
    #: Usage of the operation without this allocation, as a share.
    share_before: Share
    #: Fair share of the operation.
    fair_share: Share
    #: Number of other operations' allocations preempted for this start.
    places_taken: Counter = 0
