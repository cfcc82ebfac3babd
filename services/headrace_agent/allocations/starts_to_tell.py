"""Records of starts that a new allocator is told, since those of its own life are all that it knows.

Pure. A few go with each heartbeat, until one that had them is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from headrace.ids import AllocationId
from headrace.wire.heartbeat import MOST_STARTS_PER_HEARTBEAT
from headrace.wire.start_stages import StartRecord
from headrace_agent.allocations.allocation import Allocation


class StartsToTell:
    """The records that the allocator was not told yet, nothing for most of its life."""

    def __init__(self) -> None:
        self._waiting: dict[AllocationId, StartRecord] = {}
        #: Those of the newest heartbeat.
        self._told: dict[AllocationId, StartRecord] = {}

    def take(self) -> dict[AllocationId, StartRecord]:
        """The records for a heartbeat. The same go with the next one if it is lost."""
        self._told = dict(islice(self._waiting.items(), MOST_STARTS_PER_HEARTBEAT))
        return self._told

    def on_answer(self, held: Iterable[Allocation], *, is_new: bool) -> None:
        """The newest heartbeat was answered, by an allocator that is new here or not. One that does not know the node noted nothing."""
        if is_new:
            self._waiting = {one.id: one.start for one in held if one.start is not None}
            return
        for name in self._told:
            self._waiting.pop(name, None)
