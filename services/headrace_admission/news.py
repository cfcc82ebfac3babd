"""News of operations: the view of each that changed is published for whoever waits for it."""

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
from headrace_admission.queries import news_of
from headrace_admission.state.operation import Operation

#: Views that are published between two turns of the loop.
_SLICE: Final = 8


class News:
    """Operations whose change is to be told. One that changes again before its turn is told of once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._changed: dict[OperationId, Operation] = {}
        self._wake = anyio.Event()

    def note(self, operations: Iterable[Operation]) -> None:
        """These changed."""
        self._changed.update((operation.id, operation) for operation in operations)
        self._wake.set()

    async def publish(self) -> None:
        """Publishes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._changed:
                name = next(iter(self._changed))
                operation = self._changed.pop(name)
                subject = subjects.operation_view(operation.user, name)
                try:
                    await self._bus.publish(subject, encode(news_of(operation)))
                except BusError as error:
                    logger().debug("view not published", operation=name, error=str(error))
                if not len(self._changed) % _SLICE:
                    await anyio.lowlevel.checkpoint()
