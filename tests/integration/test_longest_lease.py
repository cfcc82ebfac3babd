"""The record of the longest lease that a node may know of is written by one allocator at a time."""

from __future__ import annotations

import pytest

from headrace.ids import TreeName
from headrace.runtime.fenced_writes import KeyFenced
from headrace_allocator.links.successor_record import LongestLease
from tests.contract.both_worlds import World, on_both_worlds

TREE = TreeName("default")


@on_both_worlds
async def test_an_allocator_that_was_succeeded_changes_the_longest_lease_no_more(world: World) -> None:
    """Frozen, replaced and thawed it would say that no node knows the long lease, and jobs would run twice."""
    async with world.connect("allocator") as bus:
        first, second = (LongestLease(bus, TREE, term) for term in (1, 2))
        await first.claim(600_000)

        assert (await second.claim(60_000)).lease_ms == 600_000
        with pytest.raises(KeyFenced):
            await first.lower_to(30_000)
        with pytest.raises(KeyFenced):
            await first.claim(900_000)

        assert (await LongestLease(bus, TREE, 3).claim(60_000)).lease_ms == 600_000
