"""Running the handlers of one served subject: a bounded number at once, each in a task that handles one message at a time.

If only the newest message of each sender counts, messages are handled one after the other instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, nullcontext
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import msgspec

from headrace.bus.inbox import Mailbox
from headrace.bus.protocol import (
    MAX_PENDING_BYTES,
    BusError,
    Handler,
    Message,
    Newest,
    RefusalReason,
    Senders,
    TooLarge,
)
from headrace.bus.sender_queues import SenderQueues, Waiting
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger
from headrace.obs.tracing import received

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

#: Prefix of subjects. Answers are sent only to subjects with this prefix.
INBOXES: Final = "_INBOX."
#: CPU time (ns) for which messages are answered one after the other before the connection may read again. The time is
#: short, because a message that still waits in the socket cannot be replaced by a newer one. The bound is CPU time, not
#: wall-clock time: on a busy machine, a bound of wall-clock time could be over after a single message, and too few
#: messages would be answered.
_TURN_NS: Final = 10_000_000
#: Number of handlers that may begin before the socket and the timers get their turn. If all waiting handlers began at once, a flood would
#: stop the loop for a while. The socket would not be read, so the server would close the connection, and the messages of all other senders
#: would be lost.
_BEGUN_IN_A_TURN: Final = 8
#: Upper bound of the bytes of the messages whose handlers begin in one turn of the loop. A single message may exceed it.
_BYTES_BEGUN_IN_A_TURN: Final = 64 * 1024
#: If senders are distinguished, one sender may use at most the number of handlers divided by this number.
_PARTS_OF_SENDERS: Final = 4
#: Number of idle tasks that are kept for the next messages. Creating a task costs as much as most handlers.
_MOST_AT_REST: Final = 8
_NO_SPAN: Final = nullcontext()


class _Places:
    """The number of running handlers of each sender.

    The number is bounded, so that a sender whose handlers are slow leaves handlers free for other senders.
    """

    def __init__(self, senders: Senders | None, concurrency: int) -> None:
        self._senders = senders
        self._most_of_one = max(1, concurrency // _PARTS_OF_SENDERS)
        self._running: Counter[str] = Counter()
        #: Senders for which no more handlers may start.
        self.full: set[str] = set()

    def has_one_for(self, message: Message) -> bool:
        return self._senders is None or self._senders.name(message) not in self.full

    def count(self, message: Message, by: int) -> None:
        """Count a handler that begins (`by` = 1) or ends (`by` = -1)."""
        if self._senders is None:
            return
        sender = self._senders.name(message)
        self._running[sender] += by
        if self._running[sender] >= self._most_of_one:
            self.full.add(sender)
        else:
            self.full.discard(sender)
            if not self._running[sender]:
                del self._running[sender]


class Serving:
    """Starts, bounds and counts the handlers of a subject, and catches their errors."""

    _is_closed = False

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
        running_bytes: int = MAX_PENDING_BYTES,
        senders: Senders | None = None,
        newest: Newest | None = None,
        statistics: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self.subject = subject
        self.queue = queue
        self.received = self.dropped = self.failed = 0
        #: `unanswered`: answers that could not be sent. `misdirected`: answers requested at a subject that is no inbox.
        self.unanswered = self.misdirected = 0
        #: Nanoseconds that all handlers together have run.
        self.busy_ns = 0
        self.last_error = ""
        self._handler = handler
        self._tasks = tasks
        self._answer = answer
        self._concurrency = concurrency
        self._most_running_bytes = running_bytes
        self._senders = senders
        self._more_statistics = statistics
        self._waiting = SenderQueues(
            pending,
            MAX_PENDING_BYTES,
            most_of_one=senders.most_messages if senders else None,
            most_bytes_of_one=senders.most_bytes if senders else None,
        )
        self._newest: Mailbox | None = None
        if newest is not None:
            self._newest = Mailbox(
                key=newest.name, pending=pending, longest_wait_s=newest.within_s, on_stale=newest.on_late
            )
        #: True while the task runs that answers the newest messages.
        self._answers_in_turn = False
        #: `_running`: handlers that run. `_begun`: handlers that began in this turn of the loop. `..._bytes`: the bytes
        #: of their messages.
        self._running = self._running_bytes = self._begun = self._begun_bytes = 0
        self._places = _Places(senders, concurrency)
        #: One future for each idle task. The task waits for the result of the future: the next message to handle, or None to end the task.
        self._at_rest: list[asyncio.Future[Message | None]] = []
        #: Messages that are still to be refused. In a flood the oldest messages are dropped from it, and their senders time out.
        self._refused: deque[Waiting] = deque(maxlen=pending)
        self._refuses = False
        self._idle = anyio.Event()
        self._throttle = LogThrottle()
        #: Creates the context in which a handler runs.
        self.new_context: Callable[[], contextvars.Context] = contextvars.Context
        #: If only the newest message of each sender counts: awaited each time when no message waits any more.
        self.rest: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
        #: Callbacks to run when the subject is closed.
        self.closing = AsyncExitStack()

    def on_message(self, message: Message) -> None:
        """Start a handler, or let the message wait in its sender's queue. A message that may not wait is refused."""
        self.received += 1
        if self._newest is not None:
            self._newest.put(message)
            if len(self._newest):
                self._running = 1
            if not self._answers_in_turn:
                self._answers_in_turn = True
                self.new_context().run(self._tasks.start_soon, self._handle_in_turn, self._newest)
            return
        is_free = not self._waiting and self._waiting.bears(message) and self._may_start()
        if is_free and self._places.has_one_for(message):
            self._start(message)
            return
        for given_up in self._waiting.put(self._senders.name(message) if self._senders else "", message):
            self._give_up(given_up)
        self._start_waiting()

    async def close(self) -> None:
        """Start no more handlers. Running handlers may end and answer."""
        self._is_closed = True
        while self._rouse(None):
            pass
        self.dropped += len(self._waiting)
        self._waiting.clear()
        if self._newest is not None:
            self._newest.clear()
            self._newest.end()
        await self.closing.aclose()

    async def wait_idle(self) -> None:
        """Return when no handler runs and no message waits."""
        while self._running or self._waiting:
            self._idle = anyio.Event()
            await self._idle.wait()

    def statistics(self) -> dict[str, int]:
        """Return the counts of messages and handlers."""
        counts = {
            "received": self.received,
            "dropped": self.dropped,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "misdirected": self.misdirected,
            "running": self._running,
            "pending": len(self._waiting),
        }
        if self._newest is None:
            return counts
        newest = self._newest.statistics()
        return {**counts, **newest, "failed": self.failed + newest["failed"]}

    def described(self) -> dict[str, object]:
        """Return the statistics for service discovery: the counts, and the statistics that were passed with the handler."""
        more = self._more_statistics() if self._more_statistics is not None else {}
        return {**more, **self.statistics()}

    def _give_up(self, given_up: Waiting) -> None:
        """Drop a message, and refuse it if senders are to be notified."""
        self.dropped += 1
        if self._senders is not None:
            if not self._refuses:
                self._refuses = True
                self._tasks.start_soon(self._refuse, self._senders)
            # The data may be very large, so the message is kept without its data until the refusal is sent.
            message = msgspec.structs.replace(given_up.message, data=b"")
            self._refused.append(msgspec.structs.replace(given_up, message=message))

    def _start_waiting(self) -> None:
        """Start handlers until too many run, too many began in this turn, or their messages hold too many bytes.

        If no handler runs, one handler may start however large its message is.
        """
        while self._waiting and self._may_start():
            try:
                waiting = self._waiting.take(self._places.full)
            except StopIteration:
                # No handler starts now: all waiting messages are from senders for which no more handlers may start.
                return
            if self._senders is not None and anyio.current_time() - waiting.since_s > self._senders.longest_wait_s:
                self._give_up(waiting)
            else:
                self._start(waiting.message)

    def _may_start(self) -> bool:
        may_run = self._running < self._concurrency and self._running_bytes < self._most_running_bytes
        return may_run and self._begun < _BEGUN_IN_A_TURN and self._begun_bytes <= _BYTES_BEGUN_IN_A_TURN

    def _begin_turn(self) -> None:
        self._begun = self._begun_bytes = 0
        self._start_waiting()

    def _start(self, message: Message) -> None:
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._begin_turn, context=self.new_context())
        self._running += 1
        self._places.count(message, 1)
        self._begun += 1
        self._running_bytes += len(message.data)
        self._begun_bytes += len(message.data)
        if not self._rouse(message):
            # Without a fresh context each task would inherit the context of the subscriber, with its open span and bound
            # log fields.
            self.new_context().run(self._tasks.start_soon, self._handle, message)

    def _rouse(self, message: Message | None) -> bool:
        """Give a message to an idle task, or end the task if the message is None. Return False if no task is idle."""
        while self._at_rest:
            rest = self._at_rest.pop()
            # If a future is done already, its task was cancelled and has not run since. Such a future is skipped.
            if not rest.done():
                rest.set_result(message)
                return True
        return False

    async def _handle(self, first: Message) -> None:
        """Handle a message, and then further messages until a handler changes the context of the task."""
        message: Message | None = first
        own = contextvars.copy_context()
        while message is not None:
            try:
                await self._answer_one(message)
            finally:
                self._running -= 1
                self._places.count(message, -1)
                self._running_bytes -= len(message.data)
                # Handlers for waiting messages are started before this task becomes idle. If the task were idle already, it would get the
                # message that arrives next, before messages that have waited longer.
                self._start_waiting()
                if not self._running:
                    self._idle.set()
            if self._is_closed or len(self._at_rest) >= _MOST_AT_REST or contextvars.copy_context() != own:
                return
            rest: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
            self._at_rest.append(rest)
            message = await rest

    async def _handle_in_turn(self, newest: Mailbox) -> None:
        """Answer all messages one after the other in this task. A task of its own for each message would cost more than most answers."""
        try:
            while not newest.ended:
                began_ns, look_ns = time.thread_time_ns(), time.perf_counter_ns() + _TURN_NS
                while (message := newest.take()) is not None:
                    await self._answer_one(message)
                    # The wall clock is read first, since reading it costs a tenth of reading the CPU time. The used CPU time cannot exceed
                    # the passed time, so the CPU time is read only after the bound has passed on the wall clock.
                    if time.perf_counter_ns() > look_ns:
                        left_ns = began_ns + _TURN_NS - time.thread_time_ns()
                        if left_ns < 0:
                            await anyio.lowlevel.checkpoint()
                            began_ns, left_ns = time.thread_time_ns(), _TURN_NS
                        look_ns = time.perf_counter_ns() + left_ns
                self._running = 0
                self._idle.set()
                await self.rest()
                await newest.arrival()
        finally:
            self._running = 0
            self._idle.set()

    async def _answer_one(self, message: Message) -> None:
        started = time.perf_counter_ns()
        try:
            with received(message.headers) if message.headers else _NO_SPAN:
                await self._reply(message, await self._handler(message))
        except Exception as error:
            self.failed += 1
            self.last_error = type(error).__name__
            if self._throttle.due("failed"):
                logger().error("handler failed", subject=self.subject, received=message.subject, exception=error)
        finally:
            self.busy_ns += time.perf_counter_ns() - started

    async def _refuse(self, senders: Senders) -> None:
        """Refuse the dropped messages, a few in each turn of the loop, so that the socket is still read during a flood."""
        while self._refused:
            for given_up in [self._refused.popleft() for _ in range(min(_BEGUN_IN_A_TURN, len(self._refused)))]:
                reason = RefusalReason(
                    waiting=given_up.over_quota or len(self._waiting),
                    is_sender_over_quota=given_up.over_quota > 0,
                    waited_s=anyio.current_time() - given_up.since_s,
                )
                await self._reply(given_up.message, senders.refusal(given_up.message, reason))
            await anyio.lowlevel.checkpoint()
        self._refuses = False

    async def _reply(self, message: Message, answer: bytes | None) -> None:
        if answer is None or not message.reply_to:
            return
        if not message.reply_to.startswith(INBOXES):
            # The answer is not sent. Otherwise a sender could make this process publish on subjects on which the sender itself may not
            # publish, such as the log.
            self.misdirected += 1
            if self._throttle.due("misdirected"):
                logger().warning(
                    "answer requested at a subject that is no inbox",
                    subject=self.subject,
                    reply_to=message.reply_to[:200],
                )
            return
        try:
            await self._answer(message.reply_to, answer)
        except TooLarge:
            raise
        except BusError as error:
            # The answer is dropped: the client repeats its request, and after a reconnect this answer would be too old.
            self.unanswered += 1
            if self._throttle.due("unanswered"):
                logger().info("answer not sent", subject=self.subject, error=str(error))
