"""Settings of the allocator."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.runtime.settings import CommonSettings
from headrace_allocator.facts.nodes import Timing


class AllocatorSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of the allocator, which decides on every node's heartbeat what starts on the node."""

    #: Time without a heartbeat after which a node is offline and its resources leave the total.
    node_heartbeat_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 60_000
    #: Time without a heartbeat after which the jobs of a node are requeued. The node's runner has ended them 10 s before.
    node_lease_ms: int = 600_000
    #: Shortest time between two heartbeats of a node that has nothing to report.
    shortest_pace_ms: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    #: Upper bound of the scheduled heartbeats per second of all nodes together: the more nodes, the longer is the time between two
    #: heartbeats of a node. This time never exceeds a quarter of `node_heartbeat_timeout_ms`, so very many nodes send more heartbeats than
    #: this bound. `headrace service list` then says so.
    heartbeats_per_s: Annotated[int, msgspec.Meta(ge=1)] = 2_000
    #: Age of the shares above which nothing is preempted. While fair_share is away, jobs still start.
    shares_count_for_ms: int = 10_000
    #: Upper bound of the allocations that start on one heartbeat; if it is not set, as many as fit.
    max_started_allocations_per_heartbeat: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: Time for which more resources of a node may be in use than it has. After that, allocations that do not fit are taken back.
    allowed_node_resources_overcommit_duration_ms: Annotated[int, msgspec.Meta(ge=0)] = 15_000
    #: If true, everything on a node that reports no user slots is ended at once; if false, its jobs may run to their end.
    enable_allocation_abort_on_zero_user_slots: bool = True
    #: Time for which resources are held for a gang that does not have enough for all its jobs yet. After that, other operations get them
    #: for a while.
    gang_hold_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    #: Shortest time between two publications of usage that changes.
    usage_interval_ms: int = 20
    #: Longest time between two publications of usage, even if it does not change.
    usage_period_ms: int = 800

    def timing(self, *, longest_lease_ms: int) -> Timing:
        """Return the times and switches by which nodes are judged. `longest_lease_ms` is the longest lease that a node may know."""
        return Timing(
            node_heartbeat_timeout_s=self.node_heartbeat_timeout_ms / 1000,
            node_lease_s=self.node_lease_ms / 1000,
            longest_lease_s=longest_lease_ms / 1000,
            shares_count_for_s=self.shares_count_for_ms / 1000,
            gang_hold_s=self.gang_hold_ms / 1000,
            shortest_pace_ms=self.shortest_pace_ms,
            heartbeats_per_s=self.heartbeats_per_s,
            most_starts=self.max_started_allocations_per_heartbeat,
            abort_on_zero_user_slots=self.enable_allocation_abort_on_zero_user_slots,
            allowed_overcommit_s=self.allowed_node_resources_overcommit_duration_ms / 1000,
        )
