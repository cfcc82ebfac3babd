"""Publishes the view of each changed operation, for clients that wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio
import anyio.lowlevel

from headrace.bus import Bus, BusError
from headrace.ids import OperationId
from headrace.obs.logging import logger
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace_admission.queries import published_view
from headrace_admission.state.operation import Operation

#: Number of views that are published before other tasks get their turn.
_SLICE: Final = 8


class OperationViews:
    """Publishes the views of operations that changed. If an operation changes several times before its turn, its view is published once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._changed: dict[OperationId, Operation] = {}
        self._wake = anyio.Event()

    def note(self, operations: Iterable[Operation]) -> None:
        """Record that these operations changed."""
        self._changed.update((operation.id, operation) for operation in operations)
        self._wake.set()

    async def publish(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._changed:
                name = next(iter(self._changed))
                operation = self._changed.pop(name)
                subject = subjects.operation_view(operation.user, name)
                try:
                    await self._bus.publish(subject, encode(published_view(operation)))
                except BusError as error:
                    logger().debug("view not published", operation=name, error=str(error))
                if not len(self._changed) % _SLICE:
                    await anyio.lowlevel.checkpoint()
