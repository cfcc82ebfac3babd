"""Server-sent events: how events are written, and the response that sends them until the reader leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError
from headrace.wire.plain_values import plain
from headrace_web.api.endpoint import Event
from headrace_web.api.problems import problem, problem_of

#: Seconds of silence after which a comment is sent, so that proxies keep the connection open and a gone reader is noticed.
_SILENCE_S: Final = 15.0
#: Last event of a stream that is under way when the service stops.
_STOPPING: Final = Event(
    "problem", problem(503, "stopping", "The service stops", "the web service stops; follow again later")
)
#: Last event of a stream whose token was revoked or has expired.
_ENDED: Final = Event("problem", problem(401, "not_admitted", "Not admitted", "the token was revoked or has expired"))


def written(event: Event) -> bytes:
    """Return an event as it is sent."""
    data = msgspec.json.encode(plain(event.data))
    return b"".join(
        (
            f"id: {event.id}\n".encode() if event.id else b"",
            f"event: {event.event}\n".encode() if event.event else b"",
            b"data: ",
            data,  # JSON has no line ends outside of texts, and escapes them there.
            b"\n\n",
        )
    )


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
        put, take = anyio.create_memory_object_stream[bytes](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, receive, tasks)
            tasks.start_soon(self._produce, put, _ends_of(scope))
            await self._pass_on(take, send)
            tasks.cancel_scope.cancel()

    async def _produce(self, put: MemoryObjectSendStream[bytes], ends: Sequence[tuple[anyio.Event, Event]]) -> None:
        async with put, aclosing(self._events) as events:
            last = _ENDED
            async with anyio.create_task_group() as tasks:
                for end, _ in ends:
                    tasks.start_soon(_cancel_at, end, tasks)
                try:
                    async for event in events:
                        await put.send(written(event))
                    last = Event("end", {})
                except HeadraceError as error:
                    last = Event("problem", problem_of(error))
                tasks.cancel_scope.cancel()
            if last is _ENDED:
                last = next(event for end, event in ends if end.is_set())
            await put.send(written(last))

    async def _pass_on(self, take: MemoryObjectReceiveStream[bytes], send: Send) -> None:
        body = b": begun\n\n"
        while body:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            body = b": nothing new\n\n"
            with anyio.move_on_after(_SILENCE_S):
                try:
                    body = await take.receive()
                except anyio.EndOfStream:
                    body = b""
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, tasks: TaskGroup) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()


def _ends_of(scope: Scope) -> Sequence[tuple[anyio.Event, Event]]:
    """Return the events that end a stream, each with the last event of the stream."""
    ended: anyio.Event | None = scope.get("state", {}).get("ended")
    return [(scope["app"].state.stopping, _STOPPING), *([(ended, _ENDED)] if ended is not None else [])]


async def _cancel_at(event: anyio.Event, tasks: TaskGroup) -> None:
    await event.wait()
    tasks.cancel_scope.cancel()
