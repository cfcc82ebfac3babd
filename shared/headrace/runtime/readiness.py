"""When a service is ready, for the systemd that runs it.

A service is ready when it does its work. A service that has waited for a second for something outside of it (the server,
`headrace bus provision`, the end of another leader) is reported as ready, too, so that `systemctl start` does not wait any
longer. The status of the service then says what it waits for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from headrace.systemd.notifier import Notifier, silent_notifier

#: Seconds of waiting for something outside of the service after which the service is reported as ready.
_PATIENCE_S: Final = 1.0


class Readiness:
    """The state of one process, as `systemctl status` shows it."""

    def __init__(self, notifier: Notifier | None = None) -> None:
        self._notifier = notifier or silent_notifier()
        self._waits = False
        self._status = ""
        self._changed = anyio.Event()

    def waits(self, status: str) -> None:
        """Report that the process waits for something outside of it."""
        self._enter(status, waits=True)

    def works(self, status: str) -> None:
        """Report that the process prepares its work."""
        self._enter(status, waits=False)

    def ready(self, status: str) -> None:
        """Report that the process does its work."""
        self._waits = False
        self._notifier.ready(status)

    def _enter(self, status: str, *, waits: bool) -> None:
        self._waits, self._status = waits, status
        self._notifier.status(status)
        self._changed.set()

    @asynccontextmanager
    async def kept_alive(self) -> AsyncIterator[None]:
        """Give signs of life from the event loop during the block, so that systemd restarts a process whose loop hangs."""
        async with anyio.create_task_group() as tasks:
            if self._notifier.is_heard:
                tasks.start_soon(self._keep_alive)
            yield
            tasks.cancel_scope.cancel()

    async def _keep_alive(self) -> None:
        while True:
            self._changed = anyio.Event()
            is_waiting = self._waits and not self._notifier.is_ready
            with anyio.move_on_after(_PATIENCE_S if is_waiting else self._notifier.period_s):
                await self._changed.wait()
                continue
            if is_waiting and self._waits:
                self._notifier.ready(self._status)
            self._notifier.alive()
