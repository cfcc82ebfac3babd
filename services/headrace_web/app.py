"""The application: routes for the API's table of endpoints and for the page, behind the door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import HeadraceError
from headrace.obs.logging import logger
from headrace_web.answers import body_of, json_answer, problem_answer
from headrace_web.api.context import Context
from headrace_web.api.endpoint import PREFIX, Endpoint
from headrace_web.api.problems import Problem, problem, problem_of
from headrace_web.api.requests import read_request
from headrace_web.api.streams import EventStream
from headrace_web.api.table import ENDPOINTS
from headrace_web.connections import Strangers
from headrace_web.door import Denied, Door, bearer_in, cookie_in
from headrace_web.entrance import Entrance
from headrace_web.logins import Logins
from headrace_web.shared_door import SharedDoor, ended
from headrace_web.token_sessions import NoSession, TokenSessions

_HERE: Final = Path(__file__).parent
#: The description of the API, made by `make docs-reference`.
OPENAPI_FILE: Final = _HERE / "api" / "openapi.json"
#: Paths of the console's pages. The answer is the same HTML for all of them; `page/static/console.js` draws the page that belongs to the
#: path.
PAGES: Final = (
    "/",
    "/operations",
    "/operations/{operation}",
    "/pools/{pool}",
    "/preemptions",
    "/nodes",
    "/nodes/{node}",
    "/usage",
    "/me",
)
#: Headers of every answer. They forbid the page to load anything from elsewhere, to run inline scripts, and to be shown in a frame.
_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


def make_app(
    context: Context | None,
    door: Door | SharedDoor,
    strangers: Strangers,
    sessions: TokenSessions,
    logins: Logins | None = None,
) -> Starlette:
    """Return the application for the person of `context`, and for all who present a token. With `logins`, browsers can log in.

    `strangers` are the connections that have shown no secret. The event `stopping` in the state of the application ends all streams.
    """

    async def page(request: Request) -> Response:
        return FileResponse(_HERE / "page" / "index.html")

    async def description(request: Request) -> Response:
        return FileResponse(OPENAPI_FILE, media_type="application/json")

    app = Starlette(
        routes=[
            *(Route(each, page) for each in PAGES),
            *Entrance(door, sessions, logins).routes(),
            Route(f"{PREFIX}/openapi.json", description),
            *(Route(PREFIX + each.path, _handler(each), methods=[each.method]) for each in ENDPOINTS),
            Mount("/static", StaticFiles(directory=_HERE / "page" / "static")),
        ],
        exception_handlers={HTTPException: _http_problem, Exception: _fault},
    )
    app.state.stopping = anyio.Event()
    app.add_middleware(_Guard, context=context, door=door, strangers=strangers, sessions=sessions)
    return app


class _Guard:
    """Asks the door whether to admit each request, finds the person for whom it acts, and adds the headers that every answer has."""

    def __init__(
        self,
        app: ASGIApp,
        context: Context | None,
        door: Door | SharedDoor,
        strangers: Strangers,
        sessions: TokenSessions,
    ) -> None:
        self._app = app
        self._context = context
        self._door = door
        self._strangers = strangers
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        denied = self._denied(scope)
        if denied is not None:
            refusal = problem_answer(problem(denied.status, denied.name, "Not admitted", denied.detail))
            await refusal(scope, receive, send_with_headers)
            return
        token = self._token(scope) if _is_api(scope) else ""
        if not token:
            scope.setdefault("state", {}).update(context=self._context, turns=nullcontext())
            await self._app(scope, receive, send_with_headers)
            return
        try:
            async with self._sessions.use(token) as session:
                self._strangers.admit(scope["client"], session.user)
                scope.setdefault("state", {}).update(
                    context=session.context, ended=session.ended, turns=session.shared.turns
                )
                await self._app(scope, receive, send_with_headers)
        except NoSession as refused:
            await problem_answer(self._refusal(refused.problem, scope))(scope, receive, send_with_headers)

    def _token(self, scope: Scope) -> str:
        return self._door.token_of(Headers(scope=scope), self._cookie(scope))

    def _cookie(self, scope: Scope) -> str:
        return cookie_in(Headers(scope=scope), self._door.cookie_name)

    def _refusal(self, found: Problem, scope: Scope) -> Problem:
        """Return the problem of a request whose token has no session. If a browser's token is not admitted any more, forget the browser."""
        headers = Headers(scope=scope)
        if found.status != 401 or bearer_in(headers) or self._door.leave(headers, self._cookie(scope)) is None:
            return found
        denied = ended(headers)
        return problem(denied.status, denied.name, "Not admitted", denied.detail)

    def _denied(self, scope: Scope) -> Denied | None:
        headers = Headers(scope=scope)
        if not _is_api(scope):
            return self._door.refuses_origin(headers)
        denied = self._door.refuses(scope["method"], headers, self._cookie(scope))
        if denied is None and not self._token(scope):
            self._strangers.remove(scope["client"])
        return denied


def _is_api(scope: Scope) -> bool:
    """True for a request for data. All other answers are the same for everybody, or their requests have checks of their own."""
    return str(scope["path"]).startswith("/api/")


def _handler(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            body = await body_of(request) if endpoint.has_body else None
            asked = read_request(endpoint.request, request.path_params, _query(endpoint, request), body)
            async with request.state.turns:
                answer = await endpoint.function(request.state.context, asked)
                return EventStream(answer) if endpoint.is_stream else json_answer(answer, endpoint.status)
        except HeadraceError as error:
            return problem_answer(problem_of(error))

    return handle


def _query(endpoint: Endpoint, request: Request) -> list[tuple[str, str]]:
    """Return the parameters. A browser that reconnects to a stream sends the id of the last event in a header."""
    query = request.query_params.multi_items()
    last = request.headers.get("last-event-id")
    if last is not None and "last_event_id" in endpoint.request.__struct_fields__:
        query = [*((name, value) for name, value in query if name != "last_event_id"), ("last_event_id", last)]
    return query


async def _http_problem(request: Request, error: Exception) -> Response:
    """Return the error response to a request that no endpoint takes."""
    assert isinstance(error, HTTPException)
    named = {404: "not_found", 405: "wrong_method", 413: "too_large"}
    detail = error.detail
    if error.status_code in (404, 405):
        detail = f"there is no {request.method} {request.url.path}; see {PREFIX}/openapi.json"
    response = problem_answer(problem(error.status_code, named.get(error.status_code, "refused"), error.detail, detail))
    response.headers.update(error.headers or {})
    return response


async def _fault(request: Request, error: Exception) -> Response:
    """Return the problem for a defect of this service."""
    logger().error("request failed", path=request.url.path, error=repr(error))
    return problem_answer(problem(500, "fault", "The service failed", f"{type(error).__name__}; see its output"))
