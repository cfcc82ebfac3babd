"""Ends of jobs that admission has not recorded yet. Heartbeats report an end until the allocator says that it is recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from headrace.wire.heartbeat import MOST_ENDS_PER_HEARTBEAT, JobEnd, JobKey

_encoder = msgspec.msgpack.Encoder()


class _KeptEnd(NamedTuple):
    end: JobEnd
    size_bytes: int
    owner: str


class UnrecordedEnds(dict[JobKey, _KeptEnd]):
    """The unrecorded ends of one node, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        #: The unrecorded ends, oldest first, grouped by the owner of the ended job's operation.
        self._by_owner: dict[str, dict[JobKey, _KeptEnd]] = {}

    def keep(self, end: JobEnd, owner: str) -> None:
        """Keep the end of a job until `strike` drops it. `owner` is the owner of the job's operation; empty: not known."""
        kept = _KeptEnd(end, len(_encoder.encode(end)), owner)
        self[end.key] = self._by_owner.setdefault(owner, {})[end.key] = kept

    def strike(self, key: JobKey) -> bool:
        """Drop an end that admission has recorded. Return False if the end is not kept here."""
        kept = self.pop(key, None)
        if kept is None:
            return False
        of_owner = self._by_owner[kept.owner]
        del of_owner[key]
        if not of_owner:
            del self._by_owner[kept.owner]
        return True

    def within(self, size_bytes: int) -> list[JobEnd]:
        """Return the oldest ends of each owner in turn, as many as fit into `size_bytes` and into one heartbeat.

        So thousands of short jobs of one person do not delay the end of another person's job.
        """
        ends: list[JobEnd] = []
        for kept in _in_turn(self._by_owner.values()):
            size_bytes -= kept.size_bytes
            if size_bytes < 0 or len(ends) == MOST_ENDS_PER_HEARTBEAT:
                break
            ends.append(kept.end)
        return ends


def _in_turn(queues: Iterable[dict[JobKey, _KeptEnd]]) -> Iterator[_KeptEnd]:
    """Yield the first end of each queue, then the second end of each queue, and so on until all ends are yielded."""
    rest = deque(iter(queue.values()) for queue in queues)
    while rest:
        queue = rest.popleft()
        for kept in queue:
            yield kept
            rest.append(queue)
            break
