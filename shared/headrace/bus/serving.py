"""Handlers of one served subject: each message in a task and a context of its own, so many at once."""

from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio

from headrace.bus.protocol import BusError, Handler, Message, TooLarge
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

__all__ = ["INBOXES", "Serving"]

#: Answers go to such subjects and to no others.
INBOXES: Final = "_INBOX."


class Serving:
    """Counts, bounds and guards the handlers of a subject."""

    def __init__(
        self,
        subject: str,
        handler: Handler,
        tasks: TaskGroup,
        answer: Callable[[str, bytes], Awaitable[None]],
        *,
        queue: str = "",
        concurrency: int,
        pending: int,
        statistics: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self.subject = subject
        self.queue = queue
        self.received = 0
        self.dropped = 0
        self.failed = 0
        #: Answers that could not be sent.
        self.unanswered = 0
        #: Answers that were wanted at a subject that is no inbox.
        self.misdirected = 0
        #: All handlers' time together, nanoseconds.
        self.busy_ns = 0
        self.last_error = ""
        self._handler = handler
        self._tasks = tasks
        self._answer = answer
        self._concurrency = concurrency
        self._pending = pending
        self._more_statistics = statistics
        self._waiting: deque[Message] = deque()
        self._running = 0
        self._closed = False
        self._idle = anyio.Event()
        self._throttle = LogThrottle()
        #: What closing must end besides.
        self.closing = AsyncExitStack()

    def on_message(self, message: Message) -> None:
        """Starts a handler, or lets the message wait for one. Drops it where too many wait already."""
        self.received += 1
        if self._running < self._concurrency:
            self._start(message)
        elif len(self._waiting) < self._pending:
            self._waiting.append(message)
        else:
            self.dropped += 1

    async def close(self) -> None:
        """Starts no more handlers. Those that run end and answer."""
        self._closed = True
        self.dropped += len(self._waiting)
        self._waiting.clear()
        await self.closing.aclose()

    async def wait_idle(self) -> None:
        """Returns when nothing runs and nothing waits."""
        while self._running or self._waiting:
            self._idle = anyio.Event()
            await self._idle.wait()

    def statistics(self) -> dict[str, int]:
        """Counts of the handlers."""
        return {
            "received": self.received,
            "dropped": self.dropped,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "misdirected": self.misdirected,
            "running": self._running,
            "pending": len(self._waiting),
        }

    def described(self) -> dict[str, object]:
        """The statistics for service discovery: those that came with the handler, and the counts."""
        more = self._more_statistics() if self._more_statistics is not None else {}
        return {**more, **self.statistics()}

    def _start(self, message: Message) -> None:
        self._running += 1
        # Without a fresh context each task would inherit that of whoever subscribed, its open span and its bound log fields.
        contextvars.Context().run(self._tasks.start_soon, self._handle, message)

    async def _handle(self, message: Message) -> None:
        started = time.perf_counter_ns()
        try:
            answer = await self._handler(message)
            if answer is None or not message.reply_to:
                return
            if message.reply_to.startswith(INBOXES):
                await self._reply(message.reply_to, answer)
            else:
                # Else whoever asks could have us write where we may and he may not, into the log for example.
                self.misdirected += 1
                if self._throttle.due("misdirected"):
                    logger().warning("answer wanted elsewhere", subject=self.subject, reply_to=message.reply_to[:200])
        except Exception as error:
            self.failed += 1
            self.last_error = type(error).__name__
            if self._throttle.due("failed"):
                logger().error("handler failed", subject=self.subject, received=message.subject, exception=error)
        finally:
            self.busy_ns += time.perf_counter_ns() - started
            self._running -= 1
            if self._waiting and not self._closed:
                self._start(self._waiting.popleft())
            elif not self._running:
                self._idle.set()

    async def _reply(self, reply_to: str, answer: bytes) -> None:
        try:
            await self._answer(reply_to, answer)
        except TooLarge:
            raise
        except BusError as error:
            # Whoever asked will ask again; the answer would be too old by the time of a reconnect.
            self.unanswered += 1
            if self._throttle.due("unanswered"):
                logger().info("answer not sent", subject=self.subject, error=str(error))
