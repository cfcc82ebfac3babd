"""The stages of a heartbeat in which an allocation may start."""

from __future__ import annotations

import enum


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
