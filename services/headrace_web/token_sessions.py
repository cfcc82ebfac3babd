"""Sessions of tokens: a connection to the bus for each token that was presented lately, shared by all its requests.

The bus decides: whoever presents a token acts under the credential in it, and a token that the server does not admit has no session. When a
token is revoked or expires, the server closes its connection. This ends the session of the token and all its streams.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup

from headrace.access.token_text import PresentedToken, read_token_text
from headrace.client import Client, NotAdmitted, Place
from headrace.client.asking import PATIENCE_S
from headrace.client.connecting import open_bus
from headrace.errors import BadInput, HeadraceError
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.wire import subjects
from headrace_web.api.context import Context
from headrace_web.api.event_hub import EventHub
from headrace_web.api.problems import Failed, Problem, problem, problem_of

#: Upper bound of the sessions. Beyond it, the session that was unused for longest is closed.
MOST_SESSIONS: Final = 256
#: Upper bound of the sessions of one person. The bound is needed because one token can be written in many ways, and each way gets a session
#: of its own.
MOST_OF_PERSON: Final = 64
#: Upper bound of the requests of one person that are computed at a time; further requests wait. Some answers take hundreds of megabytes
#: of memory until they are sent.
MOST_AT_ONCE: Final = 8
#: Upper bound of the sessions whose token the server has not admitted yet.
MOST_CONNECTING: Final = 32
#: Seconds after which an unused session is closed.
_IDLE_S: Final = 60.0
#: Largest number of seconds for connecting to the bus, and for a request.
_TIMEOUT_S: Final = 10.0


class NoSession(Failed):
    """A request whose token has no session."""


class Shared:
    """What all sessions of one person share."""

    def __init__(self) -> None:
        #: Held while a request of the person is computed.
        self.turns = anyio.Semaphore(MOST_AT_ONCE)
        #: Hubs of the person that receive events.
        self.hubs: set[EventHub] = set()


class TokenSession:
    """The connection of one token."""

    def __init__(self, user: str, shared: Shared) -> None:
        self.shared = shared
        #: The person that the token names. It is proved only when the server admits the token.
        self.user = user
        #: Set when the server admitted the token. None before that, and if the server refused the token.
        self.context: Context | None = None
        #: Set when the connection is closed.
        self.ended = anyio.Event()
        self._decided = anyio.Event()
        self._error: HeadraceError | None = None
        self._changed = anyio.Event()
        self.users = 0
        self.used_at_s = anyio.current_time()

    async def until_admitted(self) -> Context:
        """Return the context. Raises `NoSession` if the server does not admit the token, or cannot be reached."""
        await self._decided.wait()
        if self.context is not None and not self.ended.is_set():
            return self.context
        if self._error is None or isinstance(self._error, NotAdmitted):
            raise NoSession(_not_admitted("the token is not admitted: it was revoked, or it is of another cluster"))
        raise NoSession(problem_of(self._error))

    @property
    def is_connecting(self) -> bool:
        """True until the server has decided about the token."""
        return not self._decided.is_set()

    def admit(self, context: Context) -> None:
        """Note that the server admitted the token."""
        self.context = context
        self._decided.set()

    def end(self, error: HeadraceError | None = None) -> None:
        """Note that the connection is closed, or was not made."""
        self._error = error
        self.ended.set()
        self._decided.set()

    def count_user(self, change: int) -> None:
        """Record that a request begins to use the session (`change` is 1) or ends (-1)."""
        self.users += change
        self.used_at_s = anyio.current_time()
        self._changed.set()
        self._changed = anyio.Event()

    async def until_idle(self) -> None:
        """Wait until no request has used the session for `_IDLE_S` seconds."""
        while True:
            with anyio.move_on_after(_IDLE_S):
                await self._changed.wait()
                continue
            if not self.users:
                return


class TokenSessions:
    """The sessions of all tokens."""

    def __init__(self, place: Place, clock: Clock, tasks: TaskGroup) -> None:
        self._place = place
        self._clock = clock
        self._tasks = tasks
        #: Sessions by the SHA-256 of their tokens.
        self._sessions: dict[bytes, TokenSession] = {}

    @asynccontextmanager
    async def use(self, text: str) -> AsyncIterator[TokenSession]:
        """Yield the session of a token, and keep it open for a request. Raises `NoSession`."""
        key = hashlib.sha256(text.encode()).digest()
        session = self._sessions.get(key)
        if session is None or session.ended.is_set():
            session = self._open(key, self._read(text))
        session.count_user(1)
        try:
            await session.until_admitted()
            yield session
        finally:
            session.count_user(-1)

    def end(self, text: str) -> None:
        """Close the connection of a token, if there is one."""
        session = self._sessions.get(hashlib.sha256(text.encode()).digest())
        if session is not None:
            session.ended.set()

    def _read(self, text: str) -> PresentedToken:
        try:
            token = read_token_text(text)
        except BadInput as error:
            raise NoSession(_not_admitted(str(error))) from None
        if token.expires_at_s * 1000 <= self._clock.wall_ms():
            raise NoSession(_not_admitted("the token has expired; `headrace token create` makes a new one"))
        return token

    def _open(self, key: bytes, token: PresentedToken) -> TokenSession:
        # A token that is not admitted may be forged and name any person. So only sessions with an admitted token count for the person.
        own = {other: each for other, each in self._sessions.items() if each.user == token.user and each.context}
        is_own_full = len(own) >= MOST_OF_PERSON
        is_full = is_own_full or len(self._sessions) >= MOST_SESSIONS
        among = own if is_own_full else self._sessions
        idle = [(each.used_at_s, other) for other, each in among.items() if not each.users]
        if sum(each.is_connecting for each in self._sessions.values()) >= MOST_CONNECTING or (is_full and not idle):
            raise NoSession(problem(503, "busy", "The service is busy", "too many tokens are in use; try again later"))
        if is_full:
            self._sessions.pop(min(idle)[1]).ended.set()
        session = self._sessions[key] = TokenSession(token.user, self._shared_by(token.user))
        self._tasks.start_soon(self._keep, key, session, token)
        return session

    def _shared_by(self, user: str) -> Shared:
        return next((each.shared for each in self._sessions.values() if each.user == user), None) or Shared()

    async def _keep(self, key: bytes, session: TokenSession, token: PresentedToken) -> None:
        error: HeadraceError | None = None
        try:
            await self._run(session, token)
        except HeadraceError as raised:
            error = raised
            logger().info("token not admitted", user=token.user, error=str(raised))
        finally:
            if self._sessions.get(key) is session:
                del self._sessions[key]
            session.end(error)

    async def _run(self, session: TokenSession, token: PresentedToken) -> None:
        """Connect, and keep the connection until the server closes it or it is not used any more."""
        name, inbox = f"headrace web for {token.user}", subjects.inbox("user", token.user)
        bus_of = open_bus(self._place, name, inbox, timeout_s=_TIMEOUT_S, credential=token.credential)
        async with bus_of as bus:
            client = Client(bus, self._clock, self._place, token.user, timeout_s=_TIMEOUT_S, patience_s=PATIENCE_S)
            events = EventHub(client, self._clock, session.shared.hubs)
            async with anyio.create_task_group() as tasks:
                for wait in (bus.wait_closed, session.until_idle, session.ended.wait):
                    tasks.start_soon(_then_end, wait, session, tasks)
                session.admit(Context(client, events))
                await events.run()


async def _then_end(wait: Callable[[], Awaitable[object]], session: TokenSession, tasks: TaskGroup) -> None:
    await wait()
    session.ended.set()  # at once: no request may begin while the connection is closed
    tasks.cancel_scope.cancel()


def _not_admitted(detail: str) -> Problem:
    return problem(401, "not_admitted", "Not admitted", detail)
