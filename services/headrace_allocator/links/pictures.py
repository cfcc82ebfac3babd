"""Reading heartbeats: what a node has told before is not read again.

A heartbeat is the whole picture of its node, and of most allocations there is nothing new. A report in the same bytes as in the
node's heartbeat before is the same object, and so is the list of all while none of them changed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Any, Final

import msgspec

from headrace.runtime.border import Caller
from headrace.wire.codec import BadMessage, decode
from headrace.wire.heartbeat import MOST_REPORTS, AllocationReport, Heartbeat

#: Of all nodes together. With the objects it is ten times as much: 150 MB for 10,000 nodes with 20 allocations each.
_MOST_KEPT_BYTES: Final = 32 * 1024 * 1024
#: So many may be gone between two reports that stood beside each other. Behind more all are read anew.
_MOST_GONE: Final = 4
_NO_REPORTS: Final = msgspec.Raw(b"\x90")
_Reports: Any = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_REPORTS)]


class _UnreadHeartbeat(Heartbeat, frozen=True):
    """A heartbeat in which the reports are bytes still."""

    allocations: msgspec.Raw = msgspec.field(default_factory=lambda: _NO_REPORTS)  # type: ignore[assignment]


class _Picture:
    """The newest picture of a node, in bytes and read."""

    __slots__ = ("data", "parts", "reports")

    def __init__(self, data: bytes, reports: list[AllocationReport], parts: list[msgspec.Raw]) -> None:
        self.data = data
        self.reports = reports
        #: The bytes of each report, within the data.
        self.parts = parts


_NO_PICTURE: Final = _Picture(b"", [], [])


class PictureReader:
    """Reads heartbeats. The pictures of the nodes that were silent for longest are dropped where all take too many bytes."""

    def __init__(self, most_bytes: int = _MOST_KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._pictures: OrderedDict[str, _Picture] = OrderedDict()
        #: Of all pictures.
        self.kept_bytes = 0

    def read(self, data: bytes, caller: Caller) -> Heartbeat:
        """The heartbeat in these bytes, as `decode` reads it. Raises `BadMessage`."""
        heartbeat = decode(data, _UnreadHeartbeat)
        known = self._pictures.get(caller.name, _NO_PICTURE)
        picture = bytes(heartbeat.allocations)
        if picture == known.data:
            self._pictures.move_to_end(caller.name)
        else:
            known = _read(picture, known)
            self._keep(caller.name, known)
        # The one that is read is nobody else's yet.
        msgspec.structs.force_setattr(heartbeat, "allocations", known.reports)
        return heartbeat

    def _keep(self, node: str, picture: _Picture) -> None:
        before = self._pictures.pop(node, _NO_PICTURE)
        self._pictures[node] = picture
        self.kept_bytes += len(picture.data) - len(before.data)
        while self.kept_bytes > self._most_bytes:
            _, dropped = self._pictures.popitem(last=False)
            self.kept_bytes -= len(dropped.data)


def _read(data: bytes, before: _Picture) -> _Picture:
    """A picture, of which those reports that stood in the one before need not be read."""
    reports: list[AllocationReport] = []
    try:
        parts: list[msgspec.Raw] = decode(data, _Reports)
        known, most, at = before.parts, len(before.parts), 0
        for part in parts:
            # A node shows what it got first first. So one comes right behind the one before it, or some between them are gone.
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
        raise BadMessage(f"{error} - in `$.allocations`, the {len(reports) + 1}. of them") from None
    return _Picture(data, reports, parts)
