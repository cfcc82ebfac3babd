"""The bus of one simulated process: the Protocol of `headrace.bus` on a simulated server."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from headrace.access.key_credential import KeyCredential
from headrace.bus import (
    MAX_MESSAGE_BYTES,
    AppendRefused,
    AppendUnknown,
    BusClosed,
    BusError,
    ConnectionLost,
    Entry,
    Handler,
    HeardWrites,
    KeyValue,
    Log,
    LogEntry,
    Message,
    Mirror,
    Newest,
    NotConnected,
    Records,
    RequestTimeout,
    Senders,
    TooLarge,
    Writes,
)
from headrace.bus.inbox import Mailbox
from headrace.bus.protocol import MAX_PENDING_BYTES
from headrace.bus.serving import Serving
from tests.simulation.loop import PROCESS
from tests.simulation.server import Interest, Pipe, SimulatedServer
from tests.simulation.store import Bucket, Stored

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

__all__ = ["SimulatedBus", "connect_to"]

T = TypeVar("T")

API_TIMEOUT_S: Final = 5.0
READ_ALL_S: Final = 5.0
_RECONNECT_S: Final = (0.05, 0.5)


@asynccontextmanager
async def connect_to(server: SimulatedServer, name: str, inbox_prefix: str = "") -> AsyncIterator[SimulatedBus]:
    """A connection of the process that runs this; closed at the end of the block."""
    async with anyio.create_task_group() as tasks:
        bus = SimulatedBus(server, name, inbox_prefix or f"_INBOX.service.{name}", tasks)
        await bus.open()
        try:
            yield bus
        finally:
            with anyio.CancelScope(shield=True):
                await bus.close()
            tasks.cancel_scope.cancel()


class SimulatedBus:
    """Implements `headrace.bus.protocol.Bus`; made by `connect_to`."""

    def __init__(self, server: SimulatedServer, name: str, inbox_prefix: str, tasks: TaskGroup) -> None:
        self.name = name
        self.server = server
        self.to_server = Pipe(server, self, "to")
        self.from_server = Pipe(server, self, "from")
        self._prefix = f"{inbox_prefix}.{server.new_number()}"
        self._tasks = tasks
        self._context = contextvars.copy_context()
        self.process = PROCESS.get()
        self._connected = False
        self._closed = False
        self._lost = anyio.Event()
        self._numbers = 0
        self._calls: dict[int, Callable[[Message | BusError], None]] = {}
        self._interests: list[Interest] = []
        self._servings: list[Serving] = []
        self._inboxes: list[Mailbox] = []
        self._mirrors: list[_Mirror] = []
        self.reconnects = 0

    # --- the connection -------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._connected

    def is_frozen(self) -> bool:
        """True while its process is frozen."""
        return self.server.loop.is_frozen(self.process)

    def take(self, arrive: Callable[[], None]) -> None:
        """Runs, as the process, what arrives. The process lives and is not frozen."""
        self._context.run(arrive)

    async def open(self) -> None:
        """Connects. Raises `NotConnected` when the server is not there within 10 s."""
        with anyio.move_on_after(10.0):
            while not self.server.is_up:  # noqa: ASYNC110 - a client only tries
                await anyio.sleep(0.05)
        if not self.server.is_up:
            raise NotConnected("no server answers")
        self._take_connection()

    def lose_connection(self) -> None:
        """The connection breaks: what is on its way is lost; the client hears of it and connects anew."""
        self.server.forget(self)
        self.to_server.break_off()
        self.from_server.break_off()
        was, self._connected = self._connected, False
        if was and not self._closed:
            self.server.loop.call_soon(self._on_lost, context=self._context)

    def _on_lost(self) -> None:
        for answer in list(self._calls.values()):
            answer(ConnectionLost())
        self._tasks.start_soon(self._reconnect)

    async def _reconnect(self) -> None:
        while not self._closed:
            await anyio.sleep(self.server.random.uniform(*_RECONNECT_S))
            if self.server.is_up and not self._closed:
                self._take_connection()
                self.reconnects += 1
                for mirror in self._mirrors:
                    mirror.ask()
                return

    def _take_connection(self) -> None:
        self._connected = True
        self.server.clients.append(self)
        for interest in self._interests:
            self.server.add(interest)

    # --- messages -------------------------------------------------------------------------------------------------

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        answers = await self._ask(subject, data, headers, wait_s=timeout_s, first=True)
        if not answers:
            raise RequestTimeout(f"{subject}: no answer within {timeout_s:g} s")
        return answers[0].data

    async def gather(self, subject: str, data: bytes, *, wait_s: float) -> list[bytes]:
        try:
            return [answer.data for answer in await self._ask(subject, data, None, wait_s=wait_s, first=False)]
        except BusError as error:
            if type(error).__name__ == "NoResponders":
                return []
            raise

    async def _ask(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None, *, wait_s: float, first: bool
    ) -> list[Message]:
        self._check(subject, data, headers)
        self._numbers += 1
        number, arrived = self._numbers, anyio.Event()
        answers: list[Message] = []
        failures: list[BusError] = []

        def on_answer(answer: Message | BusError) -> None:
            if isinstance(answer, Message):
                answers.append(answer)
            else:
                failures.append(answer)
            if first or failures:
                arrived.set()

        self._calls[number] = on_answer
        try:
            message = Message(subject, data, _lower(headers), f"{self._prefix}.{number}")
            self._send(lambda: self._route(message, lambda error: self._tell(number, error)))
            with anyio.move_on_after(wait_s):
                await arrived.wait()
        finally:
            del self._calls[number]
        if failures and not answers:
            raise failures[0]
        return answers

    async def publish(self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None) -> None:
        self._check(subject, data, headers)
        message = Message(subject, data, _lower(headers))
        self._send(lambda: self._route(message, None))
        await anyio.lowlevel.checkpoint()

    def _route(self, message: Message, on_nobody: Callable[[BusError], None] | None) -> None:
        if not self._is_dropped():
            self.server.route(self, message, on_nobody)

    async def _answer(self, reply_to: str, data: bytes) -> None:
        self._check(reply_to, data, None)
        self._send(lambda: self._route_answer(Message(reply_to, data, {})))

    def _route_answer(self, message: Message) -> None:
        prefix, _, number = message.subject.rpartition(".")
        asker = next((client for client in self.server.clients if client._prefix == prefix), None)
        if asker is None:
            self.server.route(self, message, None)
        elif number.isdigit() and not self._is_dropped():
            asker.from_server.send(lambda: asker._on_answer(int(number), message))

    def _on_answer(self, number: int, answer: Message | BusError) -> None:
        call = self._calls.get(number)
        if call is not None:
            call(answer)

    def _tell(self, number: int, error: BusError) -> None:
        self.from_server.send(lambda: self._on_answer(number, error))

    async def serve(
        self,
        subject: str,
        handler: Handler,
        *,
        queue: str = "",
        concurrency: int = 64,
        running_bytes: int = MAX_PENDING_BYTES,
        pending: int = 10_000,
        senders: Senders | None = None,
        newest: Newest | None = None,
        statistics: Callable[[], Mapping[str, object]] | None = None,
    ) -> Serving:
        serving = Serving(
            subject,
            handler,
            self._tasks,
            self._answer,
            queue=queue,
            concurrency=concurrency,
            running_bytes=running_bytes,
            pending=pending,
            senders=senders,
            newest=newest,
            statistics=statistics,
        )
        # Handlers run as the process that serves, so that they die and freeze with it.
        serving.new_context = self._context.copy
        await self._listen(subject, queue, serving.on_message, serving.closing)
        self._servings.append(serving)
        return serving

    async def subscribe(
        self, *subjects: str, key: Callable[[Message], Hashable] | None = None, pending: int = 10_000
    ) -> Mailbox:
        inbox = Mailbox(key=key, pending=pending)
        for subject in subjects:
            await self._listen(subject, "", inbox.put, inbox.closing)
        self._inboxes.append(inbox)
        return inbox

    async def _listen(
        self,
        subject: str,
        queue: str,
        on_message: Callable[[Message], None],
        closing: AsyncExitStack,
    ) -> None:
        interest = Interest(self, subject, queue, on_message)

        async def close() -> None:
            if interest in self._interests:
                self._interests.remove(interest)
            self.server.remove(interest)

        await self.at_server(lambda: self.server.add(interest))
        self._interests.append(interest)
        closing.push_async_callback(close)

    # --- streams --------------------------------------------------------------------------------------------------

    async def key_value(self, bucket: str, *, history: int = 1) -> KeyValue:
        await self.ask_stream(lambda: self.server.store.bucket(bucket, history))
        return _KeyValue(self, bucket, history)

    async def writes(self, bucket: str) -> Writes:
        return _Writes(self, bucket)

    async def log(self, name: str, subject: str) -> Log:
        await self.ask_stream(lambda: self.server.store.stream(name))
        return _Log(self, name, subject)

    async def records(self, name: str, subject: str, *, max_age_s: float, max_bytes: int) -> Records:
        await self.ask_stream(lambda: self.server.store.stream(name))
        return _Records(self, name, subject)

    async def at_server(self, do: Callable[[], T], timeout_s: float = API_TIMEOUT_S) -> T:
        """Has something done at the server and waits for its answer. Raises `BusError`; then it may be done all the same.

        Neither is ever dropped: they belong to the connection, which delivers what it delivers in order.
        """
        self._check_open()
        loop = self.server.loop
        arrived: asyncio.Future[T] = loop.create_future()

        def take(outcome: T | BusError) -> None:
            if arrived.done():
                return
            if isinstance(outcome, BusError):
                arrived.set_exception(outcome)
            else:
                arrived.set_result(outcome)

        def hear_nothing() -> None:
            take(RequestTimeout(f"the server did not answer within {timeout_s:g} s"))

        def arrive() -> None:
            try:
                outcome: T | BusError = do()
            except BusError as error:
                outcome = error
            self.from_server.send(lambda: take(outcome))

        self._numbers += 1
        number = self._numbers
        self._calls[number] = lambda answer: take(answer) if isinstance(answer, BusError) else None
        timer = loop.call_later(timeout_s, hear_nothing)
        try:
            self._send(arrive)
            return await arrived
        finally:
            timer.cancel()
            del self._calls[number]

    async def ask_stream(self, do: Callable[[], T], timeout_s: float = API_TIMEOUT_S) -> T:
        """The same for streams and buckets, which a server without a leader leaves unanswered."""
        silent = False

        def at_leader() -> T:
            nonlocal silent
            silent = not self.server.has_leader or self.process in self.server.deaf or self._is_dropped()
            if silent:
                return None  # type: ignore[return-value]
            done = do()
            silent = self._is_dropped()
            return done

        began = self.server.loop.time()
        outcome = await self.at_server(at_leader, timeout_s)
        if silent:
            await anyio.sleep(max(0.0, began + timeout_s - self.server.loop.time()))
            raise RequestTimeout(f"the stream did not answer within {timeout_s:g} s")
        return outcome

    # --- the end --------------------------------------------------------------------------------------------------

    async def barrier(self) -> None:
        await self.at_server(lambda: None)

    async def renew(self, credential: KeyCredential) -> None:
        """Nobody here has a credential."""

    async def stop_serving(self) -> None:
        for interest in self._interests:
            self.server.remove(interest)
        for inbox in self._inboxes:
            inbox.end()
        with anyio.move_on_after(10.0):
            for serving in self._servings:
                await serving.wait_idle()
        await anyio.sleep(self.server.faults.latency_s[1])

    async def close(self) -> None:
        """Closes at once; what waits is dropped."""
        self._closed = True
        self._connected = False
        self.server.forget(self)
        self.from_server.break_off()
        for serving in self._servings:
            await serving.close()
        for inbox in self._inboxes:
            inbox.end()

    async def wait_closed(self) -> None:
        await self._lost.wait()

    def statistics(self) -> Mapping[str, int]:
        return {"reconnects": self.reconnects, "calls": len(self._calls)}

    def _send(self, arrive: Callable[[], None]) -> None:
        if self._closed:
            raise BusClosed
        if not self._connected:
            raise NotConnected(f"{self.name} is not connected")
        self.to_server.send(arrive)

    def _is_dropped(self) -> bool:
        return self.server.random.random() < self.server.faults.drop

    def _check_open(self) -> None:
        if self._closed:
            raise BusClosed

    def _check(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> None:
        self._check_open()
        size = len(data) + sum(len(name) + len(value) for name, value in (headers or {}).items())
        if size > MAX_MESSAGE_BYTES:
            raise TooLarge(subject, size)


class _KeyValue:
    def __init__(self, bus: SimulatedBus, name: str, history: int) -> None:
        self._bus = bus
        self._name = name
        self._history = history

    @property
    def bucket(self) -> Bucket:
        return self._bus.server.store.bucket(self._name, self._history)

    async def get(self, key: str) -> Entry | None:
        stored = await self._bus.ask_stream(lambda: self.bucket.get(key))
        return None if stored is None or stored.is_deletion else stored.entry()

    async def entries(self) -> dict[str, Entry]:
        return await self._bus.ask_stream(lambda: self.bucket.entries())

    async def read(self, prefix: str, *, after: int = 0, batch_bytes: int | None = None) -> AsyncGenerator[Entry, None]:
        entries = await self._bus.ask_stream(lambda: self.bucket.entries())
        for entry in sorted(entries.values(), key=lambda each: each.revision):
            if entry.key.startswith(f"{prefix}.") and entry.revision > after:
                yield entry

    async def put(self, key: str, value: bytes) -> int:
        return await self._write(key, value, None)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        return await self._write(key, value, revision)

    async def delete(self, key: str) -> None:
        await self._write(key, b"", None, is_deletion=True)

    async def purge(self, prefix: str) -> None:
        await self._bus.ask_stream(lambda: self.bucket.purge(f"{prefix}."))

    async def revision(self) -> int:
        return await self._bus.ask_stream(lambda: self.bucket.last_sequence)

    async def size_bytes(self) -> int:
        return await self._bus.ask_stream(lambda: sum(len(entry.value) for entry in self.bucket.entries().values()))

    async def clear(self, up_to: int) -> None:
        await self._bus.ask_stream(lambda: self.bucket.forget(up_to))

    async def history(self, key: str) -> list[Entry]:
        return await self._bus.ask_stream(lambda: self.bucket.kept(key))

    @asynccontextmanager
    async def mirror(
        self, on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None = None
    ) -> AsyncIterator[Mirror]:
        mirror = _Mirror(self._bus, self, on_change)
        await mirror.refresh()
        self._bus._mirrors.append(mirror)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(mirror.run)
                yield mirror
                tasks.cancel_scope.cancel()
        finally:
            self._bus._mirrors.remove(mirror)

    async def _write(self, key: str, value: bytes, expected: int | None, *, is_deletion: bool = False) -> int:
        self._bus._check(f"$KV.{self._name}.{key}", value, None)
        server = self._bus.server

        def write() -> int:
            stored = self.bucket.write(key, value, server.now_ms(), expected, is_deletion=is_deletion)
            self._tell_watches(stored)
            return stored.sequence

        return await self._bus.ask_stream(write)

    def _tell_watches(self, stored: Stored) -> None:
        server = self._bus.server
        for client in server.clients:
            for mirror in client._mirrors:
                if mirror.name == self._name and server.random.random() >= server.faults.blind:
                    client.from_server.send(lambda mirror=mirror: mirror.hear(stored))  # type: ignore[misc]

    @property
    def name(self) -> str:
        return self._name


class _Writes:
    """Counts at the server itself: nobody can have heard of a write that is not counted."""

    def __init__(self, bus: SimulatedBus, bucket: str) -> None:
        self._bus = bus
        self._bucket = bucket
        self._taken = self._reconnects = 0

    def take(self) -> HeardWrites:
        tried, reconnects = self._tried(), self._bus.reconnects
        # A bucket that was lost and made anew has forgotten its tries.
        is_anew = len(tried) < self._taken
        heard = HeardWrites(unclear=reconnects - self._reconnects + is_anew)
        for key, revision in tried[0 if is_anew else self._taken :]:
            heard.named[key] = max(revision, heard.named.get(key, 0))
        self._taken, self._reconnects = len(tried), reconnects
        return heard

    def _tried(self) -> list[tuple[str, int]]:
        return self._bus.server.store.bucket(self._bucket, 1).tried

    def statistics(self) -> Mapping[str, int]:
        return {"received": len(self._tried())}

    async def close(self) -> None:
        """There is nothing to end."""


class _Mirror:
    """Keeps a copy by what it hears, and reads the whole at a period, after a reconnect and when asked."""

    def __init__(
        self,
        bus: SimulatedBus,
        bucket: _KeyValue,
        on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None,
    ) -> None:
        self._bus = bus
        self._bucket = bucket
        self._on_change = on_change
        self.name = bucket.name
        self.entries: dict[str, Entry] = {}
        self.revision = 0
        #: Keys that the bucket lost, and that nobody deleted.
        self._lost: dict[str, Entry] = {}
        self._life: int | None = None
        self._changed = anyio.Event()
        self._asked = anyio.Event()

    def ask(self) -> None:
        """Has the whole read soon."""
        self._asked.set()

    def hear(self, stored: Stored) -> None:
        """A change that the watch brought; a gap is filled by reading the whole."""
        if stored.sequence <= self.revision:
            return
        if stored.sequence > self.revision + 1:
            self.ask()
        self._lost.pop(stored.subject, None)
        if stored.is_deletion:
            self.entries.pop(stored.subject, None)
        else:
            self.entries[stored.subject] = Entry(stored.subject, stored.data, stored.sequence)
        self.revision = stored.sequence
        self._tell({stored.subject})

    async def refresh(self) -> None:
        def read() -> tuple[dict[str, Entry], set[str], int, int]:
            bucket = self._bucket.bucket
            return bucket.entries(), {each.subject for each in bucket.messages}, bucket.last_sequence, bucket.life

        entries, named, revision, life = await self._bus.ask_stream(read)
        if self._life is not None and (revision < self.revision or life != self._life):
            self._lost = {key: Entry(key, entry.value, revision=0) for key, entry in self.entries.items()}
        for key in named:
            self._lost.pop(key, None)
        entries |= self._lost
        self._life = life
        changed = {key for key, entry in entries.items() if self.entries.get(key) != entry}
        changed |= self.entries.keys() - entries.keys()
        self.entries.clear()
        self.entries.update(entries)
        self.revision = revision
        self._tell(changed)

    async def wait_for(self, revision: int, *, timeout_s: float) -> bool:
        with anyio.move_on_after(timeout_s):
            while self.revision < revision:
                changed = self._changed
                with anyio.move_on_after(0.2) as scope:
                    await changed.wait()
                if scope.cancelled_caught:
                    self.ask()
        return self.revision >= revision

    async def catch_up(self, *, timeout_s: float) -> bool:
        newest = await self._bus.ask_stream(lambda: self._bucket.bucket.last_sequence)
        return await self.wait_for(newest, timeout_s=timeout_s)

    async def run(self) -> None:
        """Looks at a period, and when asked."""
        while True:
            with anyio.move_on_after(READ_ALL_S):
                await self._asked.wait()
            self._asked = anyio.Event()
            try:
                await self.refresh()
            except BusClosed:
                return
            except BusError:
                await anyio.sleep(self._bus.server.random.uniform(0.5, 1.0))
                self._asked.set()

    def _tell(self, changed: set[str]) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        if changed and self._on_change is not None:
            self._on_change(self.entries, frozenset(changed))


class _Log:
    def __init__(self, bus: SimulatedBus, name: str, subject: str) -> None:
        self._bus = bus
        self._name = name
        self._subject = subject

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        self._bus._check(self._subject, data, None)
        server = self._bus.server
        stream = server.store.stream(self._name)
        try:
            return await self._bus.ask_stream(
                lambda: stream.append(self._subject, data, server.now_ms(), expected_last), timeout_s
            )
        except (AppendRefused, BusClosed, TooLarge):
            raise
        except BusError as error:
            raise AppendUnknown(str(error)) from None

    async def last(self) -> LogEntry | None:
        entries = await self._bus.ask_stream(lambda: self._stream.after(self._stream.last_sequence - 1))
        return entries[-1] if entries else None

    async def bounds(self) -> tuple[int, int]:
        return await self._bus.ask_stream(lambda: (self._stream.first_sequence, self._stream.last_sequence))

    async def size_bytes(self) -> int:
        return await self._bus.ask_stream(lambda: sum(len(each.data) for each in self._stream.messages))

    async def read(self, after: int, *, batch_bytes: int | None = None) -> AsyncGenerator[LogEntry, None]:
        for entry in await self._bus.ask_stream(lambda: self._stream.after(after)):
            yield entry

    async def forget(self, up_to: int) -> None:
        await self._bus.ask_stream(lambda: self._stream.forget(up_to))

    @property
    def _stream(self) -> Any:
        return self._bus.server.store.stream(self._name)


class _Records:
    def __init__(self, bus: SimulatedBus, name: str, subject: str) -> None:
        self._bus = bus
        self._name = name
        self._subject = subject

    async def add(self, data: bytes, *, timeout_s: float, expected_last: int | None = None) -> int:
        self._bus._check(self._subject, data, None)
        server = self._bus.server
        stream = server.store.stream(self._name)

        def add() -> int:
            last = stream.last_sequence if expected_last is None else expected_last
            return stream.append(self._subject, data, server.now_ms(), last)

        return await self._bus.ask_stream(add, timeout_s)

    async def last(self) -> LogEntry:
        stream = self._bus.server.store.stream(self._name)
        kept = await self._bus.ask_stream(lambda: stream.after(stream.last_sequence - 1))
        return kept[-1] if kept else LogEntry(stream.last_sequence, b"")

    async def oldest_ms(self) -> int | None:
        stream = self._bus.server.store.stream(self._name)
        return await self._bus.ask_stream(lambda: stream.messages[0].at_ms if stream.messages else None)

    async def read(self, *, after: int = 0, since_ms: int = 0) -> AsyncGenerator[LogEntry, None]:
        stream = self._bus.server.store.stream(self._name)
        kept = await self._bus.ask_stream(
            lambda: [each for each in stream.messages if each.sequence > after and each.at_ms >= since_ms]
        )
        for each in kept:
            yield LogEntry(each.sequence, each.data)


def _lower(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}
