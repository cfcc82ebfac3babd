"""The client for programs without an event loop: each call returns when the service has answered.

    with headrace.Client() as client:
        operation = client.run(["python", "work.py"], pool="research", jobs=50, memory="512M")
        view = operation.wait()

The methods are those of `headrace.client.Client`, with the same arguments, results and errors; only sessions and callbacks, which need an
event loop, are missing. The methods run in an event loop in a
separate thread, so several threads may share one client. A forked process must make a client of its own.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Concatenate, Final, Generic, ParamSpec, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from headrace.client import client as asynchronous
from headrace.client.admission import DryRuns, Files, Groups, Hosts, Persons
from headrace.client.connecting import connect
from headrace.client.consumption import Consumption
from headrace.client.errors import ForkedClient
from headrace.client.finished import FinishedOperations
from headrace.client.happenings import Happenings
from headrace.client.pools import Pools
from headrace.client.processes import Processes
from headrace.client.tokens import Tokens
from headrace.client.trees import Trees
from headrace.ids import TreeName, UserName
from headrace.wire.operations import StartAnswer

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

#: Largest number of items of an iterator that are read before the program asks for them.
_READ_AHEAD: Final = 100


class _Connection:
    """The event loop of a client. It ends by `close`, or with the last object that refers to the connection."""

    def __init__(self, portal: BlockingPortal, close: Callable[[], None]) -> None:
        self._portal = portal
        self._process = os.getpid()
        # At the end of the program, the connection must end before the interpreter stops the thread of the event loop. Otherwise the
        # interpreter would wait for the thread for ever.
        self.close = weakref.finalize(self, self._end, self._process, portal, close)

    @property
    def portal(self) -> BlockingPortal:
        """The way into the event loop. Raises `ForkedClient` in a forked process, which has no thread for the loop."""
        if os.getpid() != self._process:
            raise ForkedClient
        return self._portal

    @staticmethod
    def _end(process: int, portal: BlockingPortal, close: Callable[[], None]) -> None:
        if os.getpid() == process:
            close()
            return
        # A forked process would wait for the thread of the event loop for ever. The portal refuses all calls once it is marked as stopped;
        # `stop` waits for nothing, so a single step of it is enough.
        with suppress(StopIteration):
            portal.stop().send(None)
        with suppress(RuntimeError):
            close()


class _Calls(Generic[S]):
    """Calls the methods of `target`, an object that lives in the event loop of a connection."""

    def __init__(self, connection: _Connection, target: S) -> None:
        self._connection = connection
        self._target = target

    def _wait_for(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call. The call is cancelled if an exception, such as Ctrl-C, ends the wait."""
        future = self._connection.portal.start_task_soon(call)
        try:
            return future.result()
        finally:
            future.cancel()

    def _iterate(self, items: Callable[[], AsyncIterator[T]]) -> Generator[T, None, None]:
        """Yield the items of an asynchronous iterator. One task reads all items, because cancel scopes must not move to
        another task.
        """
        send, receive = anyio.create_memory_object_stream[T](_READ_AHEAD)

        async def read() -> None:
            async with send:
                async for item in items():
                    await send.send(item)

        reader = self._connection.portal.start_task_soon(read)
        try:
            while True:
                try:
                    yield self._wait_for(receive.receive)
                except anyio.EndOfStream:
                    reader.result()
                    return
        finally:
            reader.cancel()
            self._connection.portal.call(receive.close)


def _call(method: Callable[Concatenate[S, P], Awaitable[T]]) -> Callable[Concatenate[_Calls[S], P], T]:
    @functools.wraps(method)
    def call(self: _Calls[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait_for(functools.partial(method, self._target, *args, **kwargs))

    return call


def _iteration(
    method: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[_Calls[S], P], Generator[T, None, None]]:
    @functools.wraps(method)
    def call(self: _Calls[S], /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._iterate(functools.partial(method, self._target, *args, **kwargs))

    return call


def _start(
    method: Callable[Concatenate[asynchronous.Client, P], Awaitable[asynchronous.Operation]],
) -> Callable[Concatenate[Client, P], Operation]:
    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Operation:
        started = self._wait_for(functools.partial(method, self._target, *args, **kwargs))
        return Operation(self._connection, started)

    return call


class Client(_Calls[asynchronous.Client]):
    """A connection to Headrace whose methods wait for their answers. See `headrace.client.Client` for a description of each method."""

    def __init__(
        self,
        *,
        state: Path | str | None = None,
        url: str = "",
        credential_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        user: str = "",
        tree: str = "",
        timeout_s: float = 10.0,
    ) -> None:
        """Connect, as `headrace.client.connect` does. Raises `NotRunning`, `NotAdmitted`, `NotTrusted`, `BadInput`."""
        opening = connect(
            state=state,
            url=url,
            credential_file=credential_file,
            ca_file=ca_file,
            user=user,
            tree=tree,
            timeout_s=timeout_s,
        )
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(name="headrace client"))
            client = stack.enter_context(portal.wrap_async_context_manager(opening))
            connection = _Connection(portal, stack.pop_all().close)
        super().__init__(connection, client)
        self.pools = PoolCalls(connection, self._target.pools)
        self.trees = TreeCalls(connection, self._target.trees)
        self.happenings = HappeningCalls(connection, self._target.happenings)
        self.persons = PersonCalls(connection, self._target.persons)
        self.groups = GroupCalls(connection, self._target.groups)
        self.tokens = TokenCalls(connection, self._target.tokens)
        self.files = FileCalls(connection, self._target.files)
        self.starts = DryRunCalls(connection, self._target.starts)
        self.consumption = ConsumptionCalls(connection, self._target.consumption)
        self.finished = FinishedCalls(connection, self._target.finished)
        self.hosts = HostCalls(connection, self._target.hosts)
        self.processes = ProcessCalls(connection, self._target.processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. Operations run on. Closing twice is no error."""
        self._connection.close()

    @property
    def user(self) -> UserName:
        """The user in whose name this client makes requests."""
        return self._target.user

    def check_process(self) -> None:
        """Raise `ForkedClient` if this process was forked after the client was made."""
        _ = self._connection.portal

    def in_background(self, work: Callable[[asynchronous.Client], Awaitable[T]]) -> Future[T]:
        """Run a coroutine with the asynchronous client in the event loop of this client."""
        return self._connection.portal.start_task_soon(work, self._target)

    def operation(self, operation: str) -> Operation:
        """Return a handle for an operation by its id, without a request. Raises `BadInput`."""
        return Operation(self._connection, self._target.operation(operation))

    run = _start(asynchronous.Client.run)
    start = _start(asynchronous.Client.start)
    get = _call(asynchronous.Client.get)
    list = _call(asynchronous.Client.list)
    abort = _call(asynchronous.Client.abort)
    explain = _call(asynchronous.Client.explain)
    update = _call(asynchronous.Client.update)
    suspend = _call(asynchronous.Client.suspend)
    resume = _call(asynchronous.Client.resume)
    complete = _call(asynchronous.Client.complete)
    counts = _call(asynchronous.Client.counts)
    wait = _call(asynchronous.Client.wait)
    jobs = _iteration(asynchronous.Client.jobs)
    places = _call(asynchronous.Client.places)
    nodes = _call(asynchronous.Client.nodes)
    change_node = _call(asynchronous.Client.change_node)
    logs = _iteration(asynchronous.Client.logs)
    scan = _call(asynchronous.Client.scan)
    trace_heartbeat = _call(asynchronous.Client.trace_heartbeat)


class Operation(_Calls[asynchronous.Operation]):
    """A handle for one operation. See `headrace.client.Operation` for each method."""

    @property
    def id(self) -> str:
        """The operation's id."""
        return self._target.id

    @property
    def answer(self) -> StartAnswer | None:
        """Answer of admission to the start; None if the handle was made from an id."""
        return self._target.answer

    def __repr__(self) -> str:
        return repr(self._target)

    view = _call(asynchronous.Operation.view)
    wait = _call(asynchronous.Operation.wait)
    abort = _call(asynchronous.Operation.abort)
    jobs = _call(asynchronous.Operation.jobs)
    places = _call(asynchronous.Operation.places)
    waiting = _call(asynchronous.Operation.waiting)
    logs = _iteration(asynchronous.Operation.logs)


class PoolCalls(_Calls[Pools]):
    """The pools of one tree. See `headrace.client.Pools` for each method."""

    def of(self, tree: TreeName) -> PoolCalls:
        """Return the pools of another tree."""
        return PoolCalls(self._connection, self._target.of(tree))

    @property
    def revision(self) -> int:
        """The newest revision of the pool configuration that a change through this client made; 0 for none."""
        return self._target.revision

    list = _call(Pools.list)
    page = _call(Pools.page)
    at = _call(Pools.at)
    named_in = _call(Pools.named_in)
    explain = _call(Pools.explain)
    preemptions = _call(Pools.preemptions)
    progress = _call(Pools.progress)
    starving = _call(Pools.starving)
    history = _call(Pools.history)
    lost_work = _call(Pools.lost_work)
    create = _call(Pools.create)
    set = _call(Pools.set)
    remove = _call(Pools.remove)
    change = _call(Pools.change)
    what_if = _call(Pools.what_if)
    move_to_tree = _call(Pools.move_to_tree)


class TreeCalls(_Calls[Trees]):
    """The pool trees. See `headrace.client.Trees` for each method."""

    list = _call(Trees.list)
    create = _call(Trees.create)
    set = _call(Trees.set)
    remove = _call(Trees.remove)


class HappeningCalls(_Calls[Happenings]):
    """Events in the log of operations. See `headrace.client.happenings.Happenings` for each method."""

    history = _iteration(Happenings.history)
    ends = _call(Happenings.ends)
    log = _iteration(Happenings.log)
    since = _iteration(Happenings.since)


class PersonCalls(_Calls[Persons]):
    """Requests about the caller's own rights."""

    rights = _call(Persons.rights)
    rights_on = _call(Persons.rights_on)


class GroupCalls(_Calls[Groups]):
    """Groups of people. See `headrace.client.admission.Groups` for each method."""

    list = _call(Groups.list)
    get = _call(Groups.get)
    create = _call(Groups.create)
    add = _call(Groups.add)
    remove = _call(Groups.remove)
    delete = _call(Groups.delete)


class TokenCalls(_Calls[Tokens]):
    """Access tokens of the caller. See `headrace.client.tokens.Tokens` for each method."""

    create = _call(Tokens.create)
    list = _call(Tokens.list)
    revoke = _call(Tokens.revoke)


class ConsumptionCalls(_Calls[Consumption]):
    """Sums of what finished runs consumed. See `headrace.client.consumption.Consumption`."""

    summed = _call(Consumption.summed)


class FinishedCalls(_Calls[FinishedOperations]):
    """Finished operations, each once. See `headrace.client.finished.FinishedOperations`."""

    pages = _iteration(FinishedOperations.pages)


class DryRunCalls(_Calls[DryRuns]):
    """What a start would do. See `headrace.client.admission.DryRuns` for each method."""

    plan = _call(DryRuns.plan)
    fit = _call(DryRuns.fit)
    shares = _call(DryRuns.shares)


class HostCalls(_Calls[Hosts]):
    """Enrolled nodes. See `headrace.client.admission.Hosts` for each method."""

    make_token = _call(Hosts.make_token)
    get = _call(Hosts.get)
    page = _call(Hosts.page)


class ProcessCalls(_Calls[Processes]):
    """The processes of services. See `headrace.client.processes.Processes` for each method."""

    list = _call(Processes.list)
    figures = _call(Processes.figures)


class FileCalls(_Calls[Files]):
    """Requests to send the files of operations."""

    send = _call(Files.send)
