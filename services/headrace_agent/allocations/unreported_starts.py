"""Records of the starts of this node's allocations, which are sent to a new allocator: it knows only the starts that it decided itself.

Pure. Each heartbeat carries a few records. The same records are sent again with every heartbeat until one of these heartbeats is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from headrace.ids import AllocationId
from headrace.wire.heartbeat import MOST_STARTS_PER_HEARTBEAT
from headrace.wire.start_stages import StartRecord
from headrace_agent.allocations.allocation import Allocation


class UnsentStartRecords:
    """The start records that the allocator does not have yet; empty most of the time."""

    def __init__(self) -> None:
        self._waiting: dict[AllocationId, StartRecord] = {}
        #: Start records that the newest heartbeat carries.
        self._told: dict[AllocationId, StartRecord] = {}

    def for_heartbeat(self) -> dict[AllocationId, StartRecord]:
        """Return the records for a heartbeat. If the heartbeat is lost, the next heartbeat carries the same records."""
        self._told = dict(islice(self._waiting.items(), MOST_STARTS_PER_HEARTBEAT))
        return self._told

    def on_answer(self, held: Iterable[Allocation], *, is_new: bool) -> None:
        """Drop the records that the answered heartbeat carried. If `is_new`, begin again with the records of all allocations in `held`.

        `is_new` is True if the allocator that answered is new, or if it does not know the node and therefore recorded nothing.
        """
        if is_new:
            self._waiting = {one.id: one.start for one in held if one.start is not None}
            return
        for name in self._told:
            self._waiting.pop(name, None)
