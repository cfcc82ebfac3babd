"""Placements of an operation in the trees: its pool, and whether it runs or waits behind which limit.

Admission decides these and records them. The order of the queues is the order of the tickets, so that it outlives a restart.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.wire.version import Counter


class TreePlacement(msgspec.Struct, frozen=True):
    """An operation in one tree."""

    tree: TreeName
    pool: PoolName
    #: Grows with every word about a placement; among those who wait behind the same limit the lowest is first.
    ticket: Counter
    #: The pool in whose queue it waits for a running slot; null: it holds a slot.
    blocked_by: PoolName | None = None
    #: The lowest number that no other operation of its pool had when it came there; null where that is not worked out yet.
    slot_index: Counter | None = None
    #: The placement rule that chose the pool; empty where the person did.
    rule: Annotated[str, msgspec.Meta(max_length=200)] = ""


class EphemeralPool(msgspec.Struct, frozen=True):
    """A pool that nobody configured. It lives as long as there are operations in it or below it."""

    name: PoolName
    parent: PoolName
    #: Whose number of ephemeral pools it counts for; empty for a hub's pool and for one that was configured once.
    user: str = ""
    #: Made by its parent, a hub, for one user.
    of_hub: bool = False
    mode: str = "fair_share"
    #: Null: the tree's figure for a pool.
    max_operation_count: Counter | None = None
    max_running_operation_count: Counter | None = None
    #: Amounts by resource, as in a configured pool; what is left out is not limited.
    resource_limits: dict[str, int] = {}


class WaitingFor(msgspec.Struct, frozen=True):
    """The limit that a pending operation waits for in one tree."""

    tree: TreeName
    blocked_by: PoolName
    #: `max_running_operation_count` of that pool, and how many operations it counts there.
    limit: Counter
    running: Counter
    #: 1 is next; 0 where it was not counted.
    place: Counter = 0
    #: How many wait in that queue.
    waiting: Counter = 0


class PoolHolder(msgspec.Struct, frozen=True):
    """An operation that holds a running slot of a pool."""

    operation: OperationId
    user: str
    pool: PoolName
    started_at_ms: Counter


class PoolLevel(msgspec.Struct, frozen=True):
    """One pool on the way from the root down to an operation, with the counts that its limits compare."""

    tree: TreeName
    pool: PoolName
    max_running_operation_count: Counter
    running_operation_count: Counter
    lightweight_running_operation_count: Counter
    max_operation_count: Counter
    operation_count: Counter
    #: True: no running slot is free here, so that this level holds the operation back.
    full: bool
    #: Operations in this pool's queue, and the first of them in its order.
    waiting: Counter = 0
    first_waiting: list[OperationId] = []
    parent: PoolName = PoolName("")
    #: It lives by its operations.
    ephemeral: bool = False
    #: The longest running first; of a full level only.
    holders: list[PoolHolder] = []
    #: Holders that are not listed.
    more_holders: Counter = 0
