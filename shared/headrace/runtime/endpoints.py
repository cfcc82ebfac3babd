"""The request handling of a service: bytes in, a checked message to the handler, an answer out.

No engine gets a message that is malformed, oversized or sent under another party's name. Such messages are counted, and logged
once per sender and minute. A malformed request is answered with a refusal. So is a request whose handler fails; the service goes
on.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeVar

import msgspec

from headrace.bus import MAX_PENDING_BYTES, AppendUnknown, Bus, BusError, Message, Newest, Senders, Subscription
from headrace.bus.protocol import RefusalReason
from headrace.errors import BadInput
from headrace.obs import tracing
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger
from headrace.obs.tracing import SpanKind
from headrace.runtime.clock import Clock
from headrace.runtime.engine import Figure, counter
from headrace.runtime.role import Deposed, Deposition, Role
from headrace.runtime.slow_questions import SlowQuestions
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, MessageTooLarge, decode, encode
from headrace.wire.refusals import AnswerTooLarge, BadRequest, Busy, ServiceFault

T = TypeVar("T")

_NO_SPAN: Final = nullcontext()
#: Largest number of slow requests of one kind that are being answered or wait for their turn. At most one of them is from the same user.
SLOW_AT_ONCE: Final = 4


class CallerKind(enum.StrEnum):
    """Kinds of senders; the subject of a message shows the kind."""

    USER = "user"
    NODE = "node"
    HOST = "host"
    SERVICE = "service"


class Caller(msgspec.Struct, frozen=True):
    """The sender of a message, as the message's subject and reply subject show it.

    They prove the sender, because the server allows each party only subjects and reply subjects of its own.
    """

    kind: CallerKind
    name: str
    subject: str


_Handler = Callable[[T, Caller], Awaitable[msgspec.Struct | bytes | None]]


class UserQuota(msgspec.Struct, frozen=True):
    """How many requests of one user, and how many bytes of them, may wait at each subject of a service. The quota is the same for
    every user.
    """

    requests: int = 10_000
    request_bytes: int = MAX_PENDING_BYTES
    #: Longest wait in seconds. A request that waited longer is refused and has no effect. Otherwise it might take effect after
    #: its client gave up, which happens after 4 s, and the client would not know the outcome.
    longest_wait_s: float = 1.5

    def refusal_of(self, busy: Busy) -> Busy:
        """Return the refusal of a request that exceeds the quota."""
        return msgspec.structs.replace(
            busy, most_requests_of_a_user=self.requests, most_request_bytes_of_a_user=self.request_bytes
        )


class Endpoints:
    """Wraps the request handlers of one service."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        deposition: Deposition,
        *,
        users: Bus | None = None,
        nodes: Bus | None = None,
        quota: UserQuota | None = None,
    ) -> None:
        """`users` is the connection for requests of users, `nodes` the connection for requests of nodes and hosts. If a
        connection is None, `bus` serves these requests.
        """
        self._bus = bus
        self._quota = quota or UserQuota()
        self._users = users or bus
        self._nodes = nodes or bus
        self._deposition = deposition
        self._throttle = LogThrottle(clock.steady_s)
        #: Gives the slow requests of this service their turns: only one slow request is answered at a time.
        self.slow = SlowQuestions(clock)
        #: The role that this process leads. While it is set, requests of parties other than services are handled only once
        #: it is certain that no other process leads.
        self.leads: Role | None = None
        self.malformed = 0
        self.forged = 0
        self.answered_too_large = 0
        self.failed = 0

    async def serve(
        self,
        subject: str,
        kind: type[T],
        caller_kind: CallerKind,
        handler: _Handler[T],
        *,
        name_at: int = 3,
        concurrency: int = 64,
        running_bytes: int = MAX_PENDING_BYTES,
        pending: int = 10_000,
        newest: Newest | None = None,
        read: Callable[[bytes, Caller], T] | None = None,
        slow: bool = False,
    ) -> Subscription:
        """Serve requests of type `kind`. `name_at` is the part of the subject that has the name of the user, node or host.

        At most `concurrency` handlers run at a time, and at most a quarter of them for one sender. With `slow` these requests
        take turns with the other slow requests of the service. With `newest` only the newest message of each sender is answered,
        unless it has waited too long. `read` replaces `decode`, for messages that can be decoded only with the caller's earlier
        messages; it must raise `BadMessage` for a malformed message.
        """
        handler = self._in_turn(handler) if slow else handler

        async def handle(message: Message) -> bytes | None:
            caller = self._caller(message, caller_kind, name_at)
            if caller is None:
                return None
            try:
                request = decode(message.data, kind) if read is None else read(message.data, caller)
            except BadMessage as error:
                return self._answer_to_malformed(error, message, caller, kind)
            if self.leads is not None and caller_kind is not CallerKind.SERVICE:
                # A leader that was replaced while it was frozen has old state, but an agent without a known term would obey it.
                await self.leads.until_sure()
            try:
                with _span(kind, request, caller_kind, subject) if tracing.current() else _NO_SPAN:
                    answer = await handler(request, caller)
            except Deposed as error:
                self._deposition.depose(str(error))
                return None
            except AppendUnknown:
                return None  # The appender has logged why. The caller asks again, as after a lost answer.
            except BusError:
                raise  # It is unknown whether the request took effect: the caller asks again, as after a lost answer.
            except Exception as error:
                answer = self._answer_to_failure(error, caller, subject)
            if answer is None or not message.reply_to:
                return None
            return answer if isinstance(answer, bytes) else self._encode(answer, caller, subject)

        return await self._connection_for(caller_kind).serve(
            subject,
            handle,
            concurrency=min(concurrency, SLOW_AT_ONCE) if slow else concurrency,
            running_bytes=running_bytes,
            pending=pending,
            senders=self._lines_of(caller_kind, name_at) if newest is None else None,
            newest=newest,
        )

    def _connection_for(self, kind: CallerKind) -> Bus:
        match kind:
            case CallerKind.USER:
                return self._users
            case CallerKind.NODE | CallerKind.HOST:
                return self._nodes
            case CallerKind.SERVICE:
                return self._bus

    def _answer_to_malformed(self, error: BadMessage, message: Message, caller: Caller, kind: type[T]) -> bytes | None:
        self.report_malformed(caller.name, message.subject, str(error))
        if not message.reply_to:
            return None
        return encode(
            BadRequest.because("message", f"the message is not a valid {_kind_name(kind)}: {_shorten(str(error))}")
        )

    def _in_turn(self, handler: _Handler[T]) -> _Handler[T]:
        async def handle(request: T, caller: Caller) -> msgspec.Struct | bytes | None:
            async with self.slow.turn():
                return await handler(request, caller)

        return handle

    def decode(self, message: Message, kind: type[T]) -> T | None:
        """Decode a published message. Return None if it is not of type `kind`; the message is then counted and logged."""
        try:
            return decode(message.data, kind)
        except BadMessage as error:
            self.report_malformed(message.subject, message.subject, str(error))
            return None

    def report_malformed(self, sender: str, subject: str, defect: str) -> None:
        """Count a malformed message, and log it once per sender and minute."""
        self.malformed += 1
        if self._throttle.due(f"malformed {sender}"):
            logger().warning("malformed message", sender=sender, subject=subject, defect=_shorten(defect))

    def report_forged(self, sender: str, subject: str, defect: str) -> None:
        """Count a message sent under another party's name, and log it once per sender and minute."""
        self.forged += 1
        if self._throttle.due(f"forged {sender}"):
            logger().warning("forged message", sender=sender, subject=subject, defect=_shorten(defect))

    def figures(self) -> list[Figure]:
        """Return the metrics of messages that no engine got, of failed answers, and of lost connections."""
        counted = [each.statistics() for each in dict.fromkeys((self._bus, self._users, self._nodes))]
        return [
            counter(
                "dropped_messages",
                "messages",
                sum(each.get("dropped", 0) for each in counted),
                "Messages that were dropped because too many messages waited, or waited too long.",
            ),
            counter(
                "reconnects",
                "connections",
                sum(each.get("reconnects", 0) for each in counted),
                "Connections to the server that were lost and made again. The server disconnects slow readers.",
            ),
            counter("malformed_messages", "messages", self.malformed, "Messages that could not be read."),
            counter("forged_messages", "messages", self.forged, "Messages whose sender may not send them."),
            counter(
                "foreign_entries",
                "entries",
                sum(each.get("foreign", 0) for each in counted),
                "Entries of buckets and streams that were ignored because they were written for another subject.",
            ),
            counter(
                "too_large_answers",
                "messages",
                self.answered_too_large,
                "Answers that were larger than a message may be.",
            ),
            counter(
                "failed_requests", "messages", self.failed, "Requests that failed because of a defect of the service."
            ),
        ]

    def _lines_of(self, kind: CallerKind, name_at: int) -> Senders | None:
        """Return the rule that gives each person, node or host a queue of its own, so that no sender waits behind another
        sender's flood. Return None for services: they trust each other, and share one queue.
        """
        if kind is CallerKind.SERVICE:
            return None

        def refusal(message: Message, reason: RefusalReason) -> bytes | None:
            if self._caller(message, kind, name_at) is None:
                return None
            busy = Busy(waiting=reason.waiting, oldest_waiting_ms=int(reason.waited_s * 1000))
            return encode(self._quota.refusal_of(busy) if reason.is_sender_over_quota else busy)

        return Senders(
            lambda message: subjects.nth(message.subject, name_at),
            refusal,
            most_messages=self._quota.requests,
            most_bytes=self._quota.request_bytes,
            # Requests of agents may wait without a limit, because an agent repeats its request until it is answered.
            longest_wait_s=self._quota.longest_wait_s if kind is CallerKind.USER else math.inf,
        )

    def _caller(self, message: Message, kind: CallerKind, name_at: int) -> Caller | None:
        caller, prefix = _sender(message.subject, kind, name_at)
        # If a message has no reply subject, its subject alone proves the sender: the server lets only that sender
        # publish on the subject.
        if message.reply_to and not message.reply_to.startswith(prefix):
            # A forged message gets no answer, since the sender could make this service send the answer to another party.
            sender = caller.name or message.reply_to
            self.report_forged(sender, message.subject, f"wants its answer at {message.reply_to}")
            return None
        return caller

    def _answer_to_failure(self, error: Exception, caller: Caller, served: str) -> BadRequest | ServiceFault:
        """Return the refusal of a request whose handler failed.

        The handler fails if it cannot parse a text of the request, or if the service has a defect.
        """
        if isinstance(error, BadInput):
            self.report_malformed(caller.name, caller.subject, str(error))
            return BadRequest.of(error)
        self.failed += 1
        if self._throttle.due(f"failed {served} {type(error).__name__}"):
            logger().error("request failed", sender=caller.name, subject=caller.subject, exception=error)
        return ServiceFault(type(error).__name__)

    def _encode(self, answer: msgspec.Struct, caller: Caller, served: str) -> bytes:
        try:
            return encode(answer)
        except MessageTooLarge as error:
            self.answered_too_large += 1
            logger().error("answer too large", subject=caller.subject, size_bytes=error.size_bytes)
            return encode(AnswerTooLarge(error.size_bytes))
        except Exception as error:  # msgpack has no form for a value of the answer, such as a number of 65 bits
            return encode(self._answer_to_failure(error, caller, served))


def _sender(subject: str, kind: CallerKind, name_at: int) -> tuple[Caller, str]:
    """Return the sender that a subject names, and the prefix of this sender's inboxes. Answers may go to these inboxes only.

    The result is not cached: computing it takes 0.5 us, and a cache of fewer senders than there are nodes takes more, since nodes send in
    turn.
    """
    name = "" if kind is CallerKind.SERVICE else subjects.nth(subject, name_at)
    prefix = subjects.inbox(kind.value, name) if name else f"_INBOX.{kind.value}"
    return Caller(kind=kind, name=name, subject=subject), prefix + "."


def _span(kind: Any, request: object, caller: CallerKind, subject: str) -> AbstractContextManager[object]:
    """Return the context in which a request is handled: in most cases a span. Requests of users get no span, and only a few
    requests of nodes in each second get one. Otherwise a party could add a trace header to each of thousands of requests, and
    make this process write spans without a limit.
    """
    if caller is CallerKind.USER or (caller is CallerKind.NODE and not tracing.may_continue()):
        return tracing.apart()
    about = {"operation": request.operation} if hasattr(request, "operation") else {}
    return tracing.child(_kind_name(kind), about, kind=SpanKind.SERVER, subject=subject)


def _shorten(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."


def _kind_name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
