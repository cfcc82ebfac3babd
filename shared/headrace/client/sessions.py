"""Sessions with the terminal of a job, or with a command beside a job.

A session is a series of requests to the node, called turns. It survives lost connections and restarts of services and agents, because each
turn carries the offsets up to which input and output were transferred. A session ends when its process ends, or when the node has received
no turn for the grace time.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, Protocol

import anyio

from headrace.client.asking import Asker, Pauses
from headrace.client.errors import Unanswered
from headrace.errors import BadInput
from headrace.ids import operation_id
from headrace.wire.nodes import OperationPlaces
from headrace.wire.operations import JobRow
from headrace.wire.refusals import NotFound, Refused, WrongState
from headrace.wire.sessions import (
    LONGEST_TURN_MS,
    MOST_SESSION_BYTES,
    SessionCommand,
    SessionState,
    SessionTurn,
    TerminalSize,
)

#: Seconds for which one turn is retried. After that, `read` and `write` send new turns until the grace time is over.
_TURN_S: Final = 5.0
#: Seconds before each further try to start a command beside a job that its node has not started yet.
_STARTING_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
#: Seconds for which the last turn, which ends the session, is retried.
_FAREWELL_S: Final = 2.0
#: Grace time in milliseconds that is assumed until the node reports its own.
_GRACE_MS: Final = 60_000
#: Fraction of the grace time after which `stay` sends another turn, so that the node keeps the session.
_SIGN_OF_LIFE: Final = 0.25


class Output(NamedTuple):
    """Bytes that the process wrote. If it has a terminal, all bytes are in `stdout`, because a terminal does not separate stderr."""

    stdout: bytes
    stderr: bytes


class SessionEnded(NamedTuple):
    """The end of the process: its exit status, or the signal that ended it, or the reason why it was not started."""

    exit_code: int | None
    signal: int | None
    reason: str

    @property
    def status(self) -> int:
        """The exit status as a shell reports it: 128 plus the number of the signal if a signal ended the process. 1 if the process was not
        started.
        """
        if self.exit_code is not None:
            return self.exit_code
        return 1 if self.signal is None else 128 + self.signal


class Places(Protocol):
    """The requests that show where a job runs or ran. A `Client` implements them."""

    async def places(self, operation: str) -> OperationPlaces: ...
    def jobs(self, operation: str) -> AsyncIterator[JobRow]: ...


class Session:
    """One session. `read` yields what the process writes. All other methods may be called while `read` runs."""

    def __init__(self, asker: Asker, node: str, operation: str, index: int, command: SessionCommand | None) -> None:
        self._asker = asker
        self._verb = f"job.session.{node}"
        self.node = node
        self._session = secrets.token_hex(16)
        self._operation = operation_id(operation)
        self._index = index
        self._command = command
        self._turn = 0
        self._offsets = [0, 0]
        self._accepted = 0
        self._grace_ms = _GRACE_MS
        self._heard_s = anyio.current_time()
        #: The end of the process, once `read` has yielded all its output; None until then.
        self.end: SessionEnded | None = None

    @property
    def silent_s(self) -> float:
        """Seconds since the node answered last."""
        return anyio.current_time() - self._heard_s

    async def begin(self, size: tuple[int, int] | None) -> None:
        """Begin the session. `size` is the person's terminal: rows and columns. Raises `Refused`, `Unanswered`."""
        await self._take_turn(size=size)
        self._command = None

    async def read(self) -> AsyncIterator[Output]:
        """Yield output until the process has ended; `end` is set then.

        If nobody reads, the process can write only a bounded amount of output, and then waits. Raises `Unanswered` if
        the node does not answer for longer than the grace time, and `Refused` if the node does not know the session.
        """
        while self.end is None:
            try:
                state = await self._take_turn(wait_ms=LONGEST_TURN_MS)
            except Unanswered:
                if self.silent_s * 1000 > self._grace_ms:
                    raise
                continue
            output = Output(
                self._new(0, state.stdout_offset, state.stdout), self._new(1, state.stderr_offset, state.stderr)
            )
            if any(output):
                yield output
            if state.ended:
                self.end = SessionEnded(state.exit_code, state.signal, state.reason)

    async def write(self, data: bytes) -> None:
        """Send input. Return when the node has accepted all of it, or when the session has ended or the node is silent.

        If the process reads slowly, the node accepts more input only after the process has read some. Raises `Refused` as `read` does.
        """
        pauses = Pauses()
        while data and self.end is None:
            chunk, before = data[:MOST_SESSION_BYTES], self._accepted
            with suppress(Unanswered):
                state = await self._take_turn(data=chunk)
                self._accepted = max(before, min(state.input_offset, before + len(chunk)))
            data = data[self._accepted - before :]
            if self._accepted == before:
                if self.silent_s * 1000 > self._grace_ms:
                    return
                await anyio.sleep(pauses.next_s())
            else:
                pauses = Pauses()

    async def end_input(self) -> None:
        """Close the input of a command without a terminal. Raises `Refused`, `Unanswered`."""
        await self._take_turn(input_ended=True)

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal. Raises `Refused`, `Unanswered`."""
        await self._take_turn(size=(rows, columns))

    async def stay(self) -> None:
        """Send signs of life until cancelled, so that the node keeps the session even if the program does not call `read` for long."""
        while True:
            await anyio.sleep(self._grace_ms / 1000 * _SIGN_OF_LIFE)
            with suppress(Unanswered):
                await self._take_turn()

    async def leave(self) -> None:
        """Tell the node that the person leaves the session. If the process still runs, its terminal is hung up, and the process ends."""
        with suppress(Unanswered, Refused):
            await self._take_turn(hang_up=True, timeout_s=_FAREWELL_S)

    async def _take_turn(
        self,
        *,
        size: tuple[int, int] | None = None,
        data: bytes = b"",
        input_ended: bool = False,
        wait_ms: int | None = None,
        hang_up: bool = False,
        timeout_s: float = _TURN_S,
    ) -> SessionState:
        self._turn += 1
        turn = SessionTurn(
            self._session,
            self._operation,
            self._index,
            self._turn,
            self._command,
            TerminalSize(*size) if size is not None else None,
            input_offset=self._accepted,
            input=data,
            input_ended=input_ended,
            stdout_offset=self._offsets[0],
            stderr_offset=self._offsets[1],
            wait_ms=wait_ms,
            hang_up=hang_up,
        )
        state = await self._asker.ask(self._verb, turn, SessionState, timeout_s=timeout_s)
        self._heard_s = anyio.current_time()
        self._grace_ms = state.grace_ms or _GRACE_MS
        return state

    def _new(self, stream: int, offset: int, data: bytes) -> bytes:
        """Return the part of `data` that was not received before, and record it as received."""
        known = self._offsets[stream] - offset
        new = data[known:] if 0 <= known <= len(data) else b""
        self._offsets[stream] += len(new)
        return new


class Sessions:
    """Opens sessions: with the terminal of a job, or with a command beside a job."""

    def __init__(self, asker: Asker, places: Places) -> None:
        self._asker = asker
        self._places = places

    @asynccontextmanager
    async def terminal(
        self, operation: str, node: str, *, size: tuple[int, int] | None = None
    ) -> AsyncIterator[Session]:
        """Connect to the job's terminal on the node where the job runs, for an operation that was started with a terminal.

        The job ends when the block ends. Raises `Refused`, `Unanswered`.
        """
        session = Session(self._asker, node, operation, 0, None)
        await session.begin(size)
        async with self._left(session):
            yield session

    @asynccontextmanager
    async def exec(
        self,
        operation: str,
        argv: Sequence[str],
        *,
        job: int = 0,
        size: tuple[int, int] | None = None,
        term: str = "",
    ) -> AsyncIterator[Session]:
        """Start a command beside a running job: in its cgroup, environment, working folder and account.

        With `size` (rows, columns) the command gets a terminal, whose type is `term`. The command ends when the block ends. Raises
        `Refused`, `Unanswered`, `BadInput`.
        """
        if isinstance(argv, str) or not argv:
            raise BadInput("command", str(argv), "a list of a program and its arguments")
        node = await self.node_of(operation, job)
        if node is None:
            raise Refused(NotFound("running job", f"{operation}.{job}"))
        command = SessionCommand(list(argv), size is not None, term)
        session = Session(self._asker, node, operation, job, command)
        for pause_s in (*_STARTING_S, None):
            try:
                await session.begin(size)
                break
            except Refused as refused:
                # If the job was given to the node just now, its process may not have started yet. Then the session is tried again after a
                # pause.
                is_starting = isinstance(refused.refusal, WrongState) and await self.node_of(operation, job) == node
                if pause_s is None or not is_starting:
                    raise
            await anyio.sleep(pause_s)
        async with self._left(session):
            yield session

    async def node_of(self, operation: str, job: int = 0) -> str | None:
        """Return the node where a job runs, or None if it does not run. Raises `Refused`, `Unanswered`."""
        try:
            running = (await self._places.places(operation)).running
        except Refused as refused:
            if isinstance(refused.refusal, NotFound):
                return None  # The allocator does not know the operation yet, or the operation has just ended.
            raise
        return next((place.node for place in running if place.index == job), None)

    async def last_node_of(self, operation: str, job: int = 0) -> str | None:
        """Return the node where a job ended last, or None if none of its runs has ended. Raises `Refused`, `Unanswered`."""
        async for row in self._places.jobs(operation):
            if row.slot.index == job and row.result is not None and row.node:
                return str(row.node)
        return None

    @asynccontextmanager
    async def _left(self, session: Session) -> AsyncIterator[None]:
        """Leave the session at the end of the block."""
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await session.leave()
