"""Placements of an operation in its trees: the pool in each tree, and whether the operation runs there or which limit it waits for.

Admission decides and records placements. Queues are ordered by ticket, so their order survives a restart.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.wire.version import Counter

#: Value of `TreePlacement.blocked_by` while an operation waits for other operations to end; such an operation is in no queue.
UPSTREAM: Final = PoolName("")


class TreePlacement(msgspec.Struct, frozen=True):
    """The placement of an operation in one tree."""

    tree: TreeName
    pool: PoolName
    #: Number that grows with every recorded change of a placement. The operation with the lowest ticket is the first in its queue.
    ticket: Counter
    #: Pool in whose queue the operation waits for a running slot; empty (`UPSTREAM`): it waits for other operations to end; null: it
    #: holds a slot.
    blocked_by: PoolName | None = None
    #: Number of the operation in its pool: the lowest number that was free when the operation came to the pool; null if not computed yet.
    slot_index: Counter | None = None
    #: Placement rule that chose the pool; empty if the person named the pool.
    rule: Annotated[str, msgspec.Meta(max_length=200)] = ""


class EphemeralPool(msgspec.Struct, frozen=True):
    """A pool that was not configured. It exists while there are operations in it or below it."""

    name: PoolName
    parent: PoolName
    #: User whose limit on ephemeral pools counts this pool; empty for a pool that a hub made, and for a pool that was configured once.
    user: str = ""
    #: True if the parent, a hub, made the pool for one user.
    of_hub: bool = False
    mode: str = "fair_share"
    #: Largest number of operations in the pool; null: the tree's default for a pool.
    max_operation_count: Counter | None = None
    max_running_operation_count: Counter | None = None
    #: Amounts by resource, as in a configured pool; a resource that is left out is not limited.
    resource_limits: dict[str, int] = {}


class WaitingFor(msgspec.Struct, frozen=True):
    """The limit that a pending operation waits for in one tree."""

    tree: TreeName
    blocked_by: PoolName
    #: `max_running_operation_count` of the pool in `blocked_by`.
    limit: Counter
    #: Number of operations in the pool `blocked_by` that count against the limit.
    running: Counter
    #: Position in the queue, 1 is next; 0 if not counted.
    place: Counter = 0
    #: Number of operations in the queue of the pool `blocked_by`.
    waiting: Counter = 0


class PoolHolder(msgspec.Struct, frozen=True):
    """An operation that holds a running slot of a pool."""

    operation: OperationId
    user: str
    pool: PoolName
    started_at_ms: Counter


class PoolLevel(msgspec.Struct, frozen=True):
    """One pool on the way from the root down to an operation, with the counts that are compared with the pool's limits."""

    tree: TreeName
    pool: PoolName
    max_running_operation_count: Counter
    running_operation_count: Counter
    lightweight_running_operation_count: Counter
    max_operation_count: Counter
    operation_count: Counter
    #: True if no running slot of the pool is free, so that this level holds the operation back.
    full: bool
    #: Number of operations in this pool's queue.
    waiting: Counter = 0
    #: The first operations of the queue, in its order.
    first_waiting: list[OperationId] = []
    parent: PoolName = PoolName("")
    #: True if the pool is ephemeral.
    ephemeral: bool = False
    #: Operations that hold the slots of a full level, the longest running first.
    holders: list[PoolHolder] = []
    #: Number of holders that are not listed.
    more_holders: Counter = 0
