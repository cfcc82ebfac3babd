"""Settings of the allocator."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import msgspec

from headrace.runtime.settings import CommonSettings
from headrace_allocator.facts.nodes import Timing


class AllocatorSettings(CommonSettings, frozen=True, kw_only=True):
    """Decides on every node's heartbeat what starts there."""

    #: No heartbeat for this long: the node is offline and its room leaves the total.
    node_heartbeat_timeout_ms: int = 60_000
    #: No heartbeat for this long: its jobs are given to others. Its runner has ended them 10 s before.
    node_lease_ms: int = 600_000
    #: The shortest time between two heartbeats of a node that has nothing to tell.
    shortest_pace_ms: int = 1_000
    #: Nothing is preempted by shares that are older: while fair_share is away, jobs only start.
    shares_count_for_ms: int = 10_000
    #: The most allocations that start on one heartbeat; as many as fit where nothing is set.
    max_started_allocations_per_heartbeat: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: More of a node may be used than it has for so long. Then what does not fit is taken back.
    allowed_node_resources_overcommit_duration_ms: Annotated[int, msgspec.Meta(ge=0)] = 15_000
    #: A node that says that it has no user slots gives up at once what runs on it; if false, that may end by itself.
    enable_allocation_abort_on_zero_user_slots: bool = True
    #: So long room is held for a gang until all of its jobs have a place. Then others get it for a while.
    gang_hold_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    #: Usage is published at most this often when it changes, and at least once in `usage_period_ms`.
    usage_interval_ms: int = 20
    usage_period_ms: int = 800

    #: Where decisions are written that the check found wrong; empty: `headrace-cases` in the system's folder of temporary files.
    cases_folder: str = ""

    def cases_path(self) -> Path:
        """Returns the folder of decisions that were found wrong."""
        return Path(self.cases_folder or Path(tempfile.gettempdir()) / "headrace-cases")

    def timing(self, *, longest_lease_ms: int) -> Timing:
        """Lengths of time by which nodes are judged, the longest lease among them that a node may know of."""
        return Timing(
            node_heartbeat_timeout_s=self.node_heartbeat_timeout_ms / 1000,
            node_lease_s=self.node_lease_ms / 1000,
            longest_lease_s=longest_lease_ms / 1000,
            shares_count_for_s=self.shares_count_for_ms / 1000,
            gang_hold_s=self.gang_hold_ms / 1000,
            shortest_pace_ms=self.shortest_pace_ms,
            most_starts=self.max_started_allocations_per_heartbeat,
            abort_on_zero_user_slots=self.enable_allocation_abort_on_zero_user_slots,
            allowed_overcommit_s=self.allowed_node_resources_overcommit_duration_ms / 1000,
        )
