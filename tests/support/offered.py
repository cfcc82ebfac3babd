"""Who gets room on a node when the allocator hears the shares that fair_share computes for a small tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.ids import PoolName
from headrace.wire.heartbeat import Start
from tests.support.allocating import Desk, an_operation, cores
from tests.support.small_trees import TOTAL, Work, a_tree, shares

__all__ = ["first_starts", "offered"]


def offered(
    pools: Mapping[str, Mapping[str, Any]],
    work: Sequence[Work],
    options: Mapping[str, Any] | None = None,
    **spec: Any,
) -> list[str]:
    """Operations by the order of their first eight starts on one node, whose jobs take a core each."""
    return [start.operation for start in first_starts(pools, work, options, **spec)]


def first_starts(
    pools: Mapping[str, Mapping[str, Any]],
    work: Sequence[Work],
    options: Mapping[str, Any] | None = None,
    **spec: Any,
) -> list[Start]:
    """The starts themselves."""
    given = {"min_spare_allocation_resources_on_node": {"user_slots": 1}} | dict(options or {})
    desk = Desk({"n": cores(8, slots=90)})
    desk.options = a_tree(pools, given).options.for_allocation()
    operations = [an_operation(one.name, one.jobs) for one in work]
    desk.start(
        *(
            msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, pool=PoolName(one.pool), **spec))
            for each, one in zip(operations, work, strict=True)
        )
    )
    desk.tell(shares(pools, list(work), given).values(), total=TOTAL)
    return list(desk.beat("n")[0].start)
