"""Server-sent events: the response that sends events until the reader leaves.

Events that wait at the same time are sent in one write, because a write costs far more than an event.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import anyio
from anyio.abc import TaskGroup
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError
from headrace_web.api.endpoint import Event
from headrace_web.api.problems import problem, problem_of

#: Seconds of silence after which a comment is sent, so that proxies keep the connection open, and the service notices if the reader is
#: gone.
_SILENCE_S: Final = 15.0
#: Number of waiting bytes at which no further event is added to a write.
_MOST_BYTES: Final = 64 * 1024
#: Last event of a stream that is under way when the service stops.
_STOPPING: Final = Event(
    "problem", problem(503, "stopping", "The service stops", "the web service stops; follow again later")
)
#: Last event of a stream whose token was revoked or has expired.
_ENDED: Final = Event("problem", problem(401, "not_admitted", "Not admitted", "the token was revoked or has expired"))


class _Gathered:
    """Written events that wait for the next write of a stream."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0
        self._is_complete = False
        self._arrived = anyio.Event()
        self._taken = anyio.Event()

    async def put(self, event: Event) -> None:
        """Add an event. If `_MOST_BYTES` or more are waiting to be taken, wait until they are taken."""
        while self._bytes >= _MOST_BYTES:
            await self._taken.wait()
        self._parts.append(event.written)
        self._bytes += len(event.written)
        self._arrived.set()

    def complete(self) -> None:
        """Note that no further event will be put."""
        self._is_complete = True
        self._arrived.set()

    async def take(self) -> bytes:
        """Wait for events, and return all that have been put since the last call. Empty if no further event will be put."""
        if not self._parts and not self._is_complete:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        written = b"".join(self._parts)
        self._parts.clear()
        self._bytes = 0
        self._taken.set()
        self._taken = anyio.Event()
        return written


class EventStream(Response):
    """Sends the events of a generator. The last event is `problem` if the generator raises an error, or `end` if the generator ends.

    The stream also ends when the service stops (`stopping` in the state of the application) or the session of the request ends (`ended` in
    the state of the request).
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        super().__init__()
        self._events = events
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the reader leaves."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        gathered = _Gathered()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, receive, tasks)
            tasks.start_soon(self._produce, gathered, _ends_of(scope))
            await self._pass_on(gathered, send)
            tasks.cancel_scope.cancel()

    async def _produce(self, gathered: _Gathered, ends: Sequence[tuple[anyio.Event, Event]]) -> None:
        async with aclosing(self._events) as events:
            last = _ENDED
            async with anyio.create_task_group() as tasks:
                for end, _ in ends:
                    tasks.start_soon(_cancel_at, end, tasks)
                try:
                    async for event in events:
                        await gathered.put(event)
                    last = Event("end", {})
                except HeadraceError as error:
                    last = Event("problem", problem_of(error))
                tasks.cancel_scope.cancel()
            if last is _ENDED:
                last = next(event for end, event in ends if end.is_set())
            await gathered.put(last)
            gathered.complete()

    async def _pass_on(self, gathered: _Gathered, send: Send) -> None:
        body = b": begun\n\n"
        while body:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            body = b": nothing new\n\n"
            with anyio.move_on_after(_SILENCE_S):
                body = await gathered.take()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, tasks: TaskGroup) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()


def _ends_of(scope: Scope) -> Sequence[tuple[anyio.Event, Event]]:
    """Return the conditions (`anyio.Event`) that end a stream, each with the event that the stream then sends last."""
    ended: anyio.Event | None = scope.get("state", {}).get("ended")
    return [(scope["app"].state.stopping, _STOPPING), *([(ended, _ENDED)] if ended is not None else [])]


async def _cancel_at(event: anyio.Event, tasks: TaskGroup) -> None:
    await event.wait()
    tasks.cancel_scope.cancel()
