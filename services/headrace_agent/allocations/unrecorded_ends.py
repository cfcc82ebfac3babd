"""Ends of jobs that admission has not recorded yet. Heartbeats report an end until the allocator says that it is recorded."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.wire.heartbeat import MOST_ENDS_PER_HEARTBEAT, JobEnd, JobKey

_encoder = msgspec.msgpack.Encoder()


class _KeptEnd(NamedTuple):
    end: JobEnd
    size_bytes: int


class UnrecordedEnds(dict[JobKey, _KeptEnd]):
    """The unrecorded ends of one node, oldest first."""

    def keep(self, end: JobEnd) -> None:
        """Keep the end of a job until `strike`."""
        self[end.key] = _KeptEnd(end, len(_encoder.encode(end)))

    def strike(self, key: JobKey) -> bool:
        """Drop an end that admission has recorded. Return False if the end is not kept here."""
        return self.pop(key, None) is not None

    def within(self, size_bytes: int) -> list[JobEnd]:
        """Return the oldest ends that fit into `size_bytes` and into one heartbeat."""
        ends: list[JobEnd] = []
        for kept in self.values():
            size_bytes -= kept.size_bytes
            if size_bytes < 0 or len(ends) == MOST_ENDS_PER_HEARTBEAT:
                break
            ends.append(kept.end)
        return ends
