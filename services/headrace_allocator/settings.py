"""Settings of the allocator."""

from __future__ import annotations

from headrace.runtime.settings import CommonSettings

__all__ = ["AllocatorSettings"]


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
    #: Usage is published at most this often when it changes, and at least once in `usage_period_ms`.
    usage_interval_ms: int = 20
    usage_period_ms: int = 500
