"""Server-sent events: how events are written, and the response that sends them until the reader leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator
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
    """Sends the events of a generator. An error of the generator becomes a last event `problem`; an end becomes `end`.

    The event `stopping` in the state of the application ends the stream.
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
            tasks.start_soon(self._produce, put, scope["app"].state.stopping)
            await self._pass_on(take, send)
            tasks.cancel_scope.cancel()

    async def _produce(self, put: MemoryObjectSendStream[bytes], stopping: anyio.Event) -> None:
        async with put, aclosing(self._events) as events:
            last = _STOPPING
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_at, stopping, tasks)
                try:
                    async for event in events:
                        await put.send(written(event))
                    last = Event("end", {})
                except HeadraceError as error:
                    last = Event("problem", problem_of(error))
                tasks.cancel_scope.cancel()
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


async def _cancel_at(event: anyio.Event, tasks: TaskGroup) -> None:
    await event.wait()
    tasks.cancel_scope.cancel()
