"""What a full node is told to give up when an operation starves that is owed half of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.wire.heartbeat import TakeBack
from tests.support.allocating import an_operation
from tests.support.small_trees import a_tree
from tests.unit.allocator.test_preemption import FOUR, Host, a_share

__all__ = ["taken_back"]


def taken_back(options: Mapping[str, Any] | None = None, **spec: Any) -> list[TakeBack]:
    """The orders, under options of the tree and of the operation that has the whole node."""
    host = Host(an_operation("poor"))
    rich = host.operation("rich")
    rich.set_spec(msgspec.structs.replace(rich.spec, **spec))
    given = {"min_spare_allocation_resources_on_node": {"user_slots": 1}} | dict(options or {})
    host.options = a_tree({}, given).options.for_allocation()
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    return host.next_beat().take_back
