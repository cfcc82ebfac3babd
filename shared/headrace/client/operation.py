"""A handle on one operation."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from headrace.ids import OperationId, operation_id
from headrace.runtime.clock import Clock
from headrace.wire.nodes import OperationPlaces
from headrace.wire.operations import JobRow, OperationView, StartAnswer

if TYPE_CHECKING:
    from headrace.client.client import Client
    from headrace.client.logs import LogLine

__all__ = ["Operation", "new_operation_id"]


def new_operation_id(clock: Clock) -> OperationId:
    """A new id: seconds of Unix time in hex, so that ids sort by age, and 48 random bits."""
    return operation_id(f"{clock.wall_ms() // 1000:08x}-{secrets.token_hex(6)}")


class Operation:
    """One operation, started by this client or named by its id."""

    def __init__(self, client: Client, operation: OperationId, answer: StartAnswer | None = None) -> None:
        self._client = client
        self.id = operation
        #: What admission said at the start; None where the handle was made from an id.
        self.answer = answer

    def __repr__(self) -> str:
        return f"<Operation {self.id}>"

    async def view(self) -> OperationView:
        """The operation as it is now. Raises as `Client.get`."""
        return await self._client.get(self.id)

    async def wait(
        self, progress: Callable[[OperationView], None] | None = None, *, timeout_s: float | None = None
    ) -> OperationView:
        """Waits until it is over. Raises as `Client.wait`."""
        return await self._client.wait(self.id, progress, timeout_s=timeout_s)

    async def abort(self, reason: str = "") -> OperationView:
        """Ends it; aborting twice is no error."""
        return await self._client.abort(self.id, reason)

    async def jobs(self) -> list[JobRow]:
        """Its jobs and where they ran."""
        return [row async for row in self._client.jobs(self.id)]

    async def places(self) -> OperationPlaces:
        """What of it runs where, and why the rest does not."""
        return await self._client.places(self.id)

    def logs(self, job: int | None = None, *, stderr: bool = False, follow: bool = False) -> AsyncIterator[LogLine]:
        """Its jobs' output; see `Client.logs`."""
        return self._client.logs(self.id, job, stderr=stderr, follow=follow)
