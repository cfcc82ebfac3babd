"""Decoding heartbeats without decoding again what a node has reported before.

A heartbeat carries the whole report of its node, and most allocations in it did not change. An allocation report with the same bytes as
in the node's previous heartbeat becomes the same object. The list of all allocation reports is the same object while none of them
changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Final

import msgspec

from headrace.runtime.endpoints import Caller
from headrace.wire.codec import BadMessage, decode
from headrace.wire.heartbeat import MOST_REPORTS, AllocationReport, Heartbeat

#: Upper bound of the bytes kept for all nodes together. 10,000 nodes with 20 allocations each need 15 MB. The decoded objects take ten
#: times as much, but the facts of the allocator refer to them in any case.
_MOST_KEPT_BYTES: Final = 512 * 1024 * 1024
#: Largest number of successive reports of the previous heartbeat that are passed over in the search for a report with the same bytes,
#: because their allocations may be gone. If more allocations are gone, the reports after them are decoded again.
_MOST_GONE: Final = 4
_NO_REPORTS: Final = msgspec.Raw(b"\x90")
_Reports: Any = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_REPORTS)]


class _UnreadHeartbeat(Heartbeat, frozen=True):
    """A heartbeat whose allocation reports are still bytes."""

    allocations: msgspec.Raw = msgspec.field(default_factory=lambda: _NO_REPORTS)  # type: ignore[assignment]


class _Picture:
    """The newest report of one node, as bytes and decoded."""

    __slots__ = ("data", "parts", "reports")

    def __init__(self, data: bytes, reports: list[AllocationReport], parts: list[msgspec.Raw]) -> None:
        self.data = data
        self.reports = reports
        #: The bytes of each allocation report, within `data`.
        self.parts = parts


_NO_PICTURE: Final = _Picture(b"", [], [])


class PictureReader:
    """Decodes heartbeats, and keeps the newest report of each node in `nodes`, which are the enrolled nodes as they are at the time.

    Half of `most_bytes` is divided equally between the nodes, and every node may use the other half as long as bytes are free. A report
    that is not kept is decoded in full each time. No report is dropped for the report of another node. If the reports heard least
    recently were dropped, a bound that is a little too low would keep no report at all until the next heartbeat of its node, because nodes
    send in turn.
    """

    def __init__(self, nodes: Collection[str], most_bytes: int = _MOST_KEPT_BYTES) -> None:
        self._nodes = nodes
        self._most_bytes = most_bytes
        self._pictures: dict[str, _Picture] = {}
        #: Bytes of all kept node reports.
        self.kept_bytes = 0

    def read(self, data: bytes, caller: Caller) -> Heartbeat:
        """Decode a heartbeat, with the same result as `decode`. Raises `BadMessage`."""
        heartbeat = decode(data, _UnreadHeartbeat)
        known = self._pictures.get(caller.name, _NO_PICTURE)
        picture = bytes(heartbeat.allocations)
        if picture != known.data:
            known = _read(picture, known)
            self._keep(caller.name, known)
        # Changing the heartbeat is safe: it was just decoded, and nothing else refers to it yet.
        msgspec.structs.force_setattr(heartbeat, "allocations", known.reports)
        return heartbeat

    def forget(self, node: str) -> None:
        """Drop the report of a node that is no longer enrolled."""
        dropped = self._pictures.pop(node, _NO_PICTURE)
        self.kept_bytes -= len(dropped.data)

    def _keep(self, node: str, picture: _Picture) -> None:
        self.forget(node)
        size_bytes = len(picture.data)
        all_bytes = self.kept_bytes + size_bytes
        shared_bytes = self._most_bytes // 2
        own_bytes = shared_bytes // max(1, len(self._nodes))
        is_within = all_bytes <= shared_bytes or (size_bytes <= own_bytes and all_bytes <= self._most_bytes)
        if is_within and node in self._nodes:
            self._pictures[node] = picture
            self.kept_bytes = all_bytes


def _read(data: bytes, before: _Picture) -> _Picture:
    """Decode a node report. Allocation reports with the same bytes as in the report before are not decoded again."""
    reports: list[AllocationReport] = []
    try:
        parts: list[msgspec.Raw] = decode(data, _Reports)
        known, most, at = before.parts, len(before.parts), 0
        for part in parts:
            # A node lists its allocations from the oldest to the newest. So the search continues after the last report that was found. The
            # allocation of every report that the search passes over is gone.
            passed = at
            while passed < most and known[passed] != part:
                passed += 1
                if passed > at + _MOST_GONE:
                    passed = most
            if passed < most:
                reports.append(before.reports[passed])
                at = passed + 1
            else:
                reports.append(decode(bytes(part), AllocationReport))
    except BadMessage as error:
        raise BadMessage(f"{error} - in `$.allocations`, entry {len(reports) + 1}") from None
    return _Picture(data, reports, parts)
