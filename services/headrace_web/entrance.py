"""The requests by which browsers come and go: the ticket, the login of a shared service, and the end of a session."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.access.token_text import read_token_text
from headrace.access.web_login import BEGIN_PATH, FINISH_PATH, BeginLogin, FinishLogin, LoginFinished
from headrace.client import Unanswered
from headrace.errors import HeadraceError
from headrace.obs.logging import logger
from headrace_web.answers import body_of, json_answer, problem_answer
from headrace_web.api.problems import problem, problem_of
from headrace_web.api.requests import read_request
from headrace_web.door import Door, cookie_in
from headrace_web.logins import Logins
from headrace_web.shared_door import TICKET_S, SharedDoor, log_in
from headrace_web.token_sessions import NoSession, TokenSessions

#: Largest body of a request that needs no secret, in bytes. The second bound is for the request with a JWT.
_LARGEST_BYTES: Final = 1024
_LARGEST_FINISH_BYTES: Final = 40 * 1024
_NAME_BYTES: Final = 32
#: Seconds that the answer to a logout waits for the revocation of the session's token.
_REVOKE_S: Final = 5.0


class Ticket(msgspec.Struct, frozen=True):
    """The body of the request with which a browser is admitted."""

    ticket: str


class Entrance:
    """Admits browsers and lets them leave."""

    def __init__(self, door: Door | SharedDoor, sessions: TokenSessions, logins: Logins | None) -> None:
        """`logins` are None in a service for one person."""
        self._door = door
        self._sessions = sessions
        self._logins = logins

    def routes(self) -> list[Route]:
        """Return the routes of the requests by which browsers enter and leave."""
        own = [
            Route("/session", _guarded(self._enter), methods=["POST"]),
            Route("/session", _guarded(self._leave), methods=["DELETE"]),
        ]
        if self._logins is None:
            return own
        return [
            *own,
            Route(BEGIN_PATH, _guarded(self._begin), methods=["POST"]),
            Route(FINISH_PATH, _guarded(self._finish), methods=["POST"]),
        ]

    async def _enter(self, request: Request) -> Response:
        """Admit a browser that has the ticket: the browser gets the cookie, and its page gets the token."""
        ticket = read_request(Ticket, {}, (), await body_of(request, _LARGEST_BYTES)).ticket
        door = self._door
        session = door.enter(ticket)
        if session is None:
            more = "`headrace web` prints a new address after each use"
            if isinstance(door, SharedDoor):
                more = f"an address works once, within {TICKET_S} s; {log_in(request.headers)}"
            words = f"the ticket was used or is not known; {more}"
            return problem_answer(problem(403, "not_admitted", "Not admitted", words))
        response = json_answer({"token": session.token})
        response.set_cookie(door.cookie_name, session.cookie, httponly=True, samesite="strict", secure=door.has_tls)
        return response

    async def _leave(self, request: Request) -> Response:
        """Forget the browser, and revoke its token if it has one."""
        token = self._door.leave(request.headers, cookie_in(request.headers, self._door.cookie_name))
        if token is None:
            return problem_answer(problem(401, "not_admitted", "Not admitted", "this browser is not logged in"))
        is_revoked = bool(token) and await self._revoke(token)
        response = json_answer({"revoked": is_revoked})
        response.delete_cookie(self._door.cookie_name, httponly=True, samesite="strict", secure=self._door.has_tls)
        return response

    async def _revoke(self, token: str) -> bool:
        """Revoke the token of a session over the token's own connection, which then ends. Return True if the token is revoked."""
        credential = read_token_text(token).credential
        try:
            async with self._sessions.use(token) as session:
                assert session.context is not None
                with anyio.move_on_after(_REVOKE_S):
                    with suppress(Unanswered):  # the server closed the connection before the answer
                        await session.context.client.tokens.end(credential)
                        return True
                    await session.ended.wait()
                    return True
        except HeadraceError as error:
            logger().info("token of a session not revoked", error=str(error))
        finally:
            self._sessions.end(token)
        return False

    async def _begin(self, request: Request) -> Response:
        """Make the key of a new session. Nothing is kept: the key follows from the name of the login."""
        assert self._logins is not None
        user = read_request(BeginLogin, {}, (), await body_of(request, _LARGEST_BYTES)).user
        begun = self._logins.begin(user, secrets.token_urlsafe(_NAME_BYTES))
        return Response(msgspec.json.encode(begun), media_type="application/json")

    async def _finish(self, request: Request) -> Response:
        """Return the ticket for a session, once the server has admitted its token."""
        assert self._logins is not None
        assert isinstance(self._door, SharedDoor)
        asked = read_request(FinishLogin, {}, (), await body_of(request, _LARGEST_FINISH_BYTES))
        text = self._logins.finish(asked)
        async with self._sessions.use(text):
            token = read_token_text(text)
            expected = self._door.expect(token.user, text, token.expires_at_s * 1000)
        for each in expected.ended:
            self._sessions.end(each)
        if expected.ticket is None:
            return problem_answer(problem(503, "busy", "The service is busy", "too many browsers are logged in"))
        logger().info("browser may enter", user=token.user)
        return json_answer(LoginFinished(expected.ticket, TICKET_S))


def _guarded(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that answers errors with problems."""

    async def handle_all(request: Request) -> Response:
        try:
            return await handle(request)
        except NoSession as refused:
            return problem_answer(refused.problem)
        except HeadraceError as error:
            return problem_answer(problem_of(error))

    return handle_all
