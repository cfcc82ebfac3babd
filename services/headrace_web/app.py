"""The application: routes for the API's table of endpoints and for the page, behind the door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.access.token_text import PREFIX as TOKEN_PREFIX
from headrace.errors import BadInput, HeadraceError
from headrace.obs.logging import logger
from headrace.wire.plain_values import plain
from headrace_web.api.context import Context
from headrace_web.api.endpoint import PREFIX, Endpoint
from headrace_web.api.problems import RETRY_AFTER_S, Problem, problem, problem_of
from headrace_web.api.requests import LARGEST_BODY_BYTES, read_request
from headrace_web.api.streams import EventStream
from headrace_web.api.table import ENDPOINTS
from headrace_web.connections import Strangers
from headrace_web.door import Denied, Door, SharedDoor, bearer_in
from headrace_web.token_sessions import NoSession, TokenSessions

_HERE: Final = Path(__file__).parent
#: Largest body of a request that needs no secret, in bytes.
_LARGEST_TICKET_BYTES: Final = 1024
#: The description of the API, made by `make docs-reference`.
OPENAPI_FILE: Final = _HERE / "api" / "openapi.json"
#: Paths of the console's pages. All have the same text; `page/static/console.js` draws what belongs to the path.
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


class Ticket(msgspec.Struct, frozen=True):
    """The body of the request with which a browser enters."""

    ticket: str


def make_app(
    context: Context | None, door: Door | SharedDoor, strangers: Strangers, sessions: TokenSessions
) -> Starlette:
    """Return the application for the person of `context`, and for all who present a token.

    `strangers` are the connections that have shown no secret. The event `stopping` in its state ends all streams.
    """

    async def enter(request: Request) -> Response:
        """Admit a browser that has the ticket: it gets the cookie, and its page the token."""
        try:
            ticket = read_request(Ticket, {}, (), await _body(request, _LARGEST_TICKET_BYTES)).ticket
        except HeadraceError as error:
            return _problem(problem_of(error))
        session = door.enter(ticket) if isinstance(door, Door) else None
        if session is None:
            words = "the ticket was used or is not known; `headrace web` prints a new address after each use"
            return _problem(problem(403, "not_admitted", "Not admitted", words))
        response = _json({"token": session.token})
        response.set_cookie(door.cookie_name, session.cookie, httponly=True, samesite="strict")
        return response

    async def page(request: Request) -> Response:
        return FileResponse(_HERE / "page" / "index.html")

    async def description(request: Request) -> Response:
        return FileResponse(OPENAPI_FILE, media_type="application/json")

    app = Starlette(
        routes=[
            *(Route(each, page) for each in PAGES),
            Route("/session", enter, methods=["POST"]),
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
    """Asks the door about each request, finds whose it is, and adds the headers of every answer."""

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
            refusal = _problem(problem(denied.status, denied.name, "Not admitted", denied.detail))
            await refusal(scope, receive, send_with_headers)
            return
        token = bearer_in(Headers(scope=scope))
        if not token.startswith(TOKEN_PREFIX):
            scope.setdefault("state", {})["context"] = self._context
            await self._app(scope, receive, send_with_headers)
            return
        try:
            async with self._sessions.use(token) as session:
                self._strangers.remove(scope["client"])
                scope.setdefault("state", {}).update(context=session.context, ended=session.ended)
                await self._app(scope, receive, send_with_headers)
        except NoSession as refused:
            await _problem(refused.problem)(scope, receive, send_with_headers)

    def _denied(self, scope: Scope) -> Denied | None:
        headers = Headers(scope=scope)
        if not scope["path"].startswith("/api/"):
            return self._door.refuses_origin(headers)
        cookie = Request(scope).cookies.get(self._door.cookie_name, "")
        denied = self._door.refuses(scope["method"], headers, cookie)
        if denied is None and not bearer_in(headers).startswith(TOKEN_PREFIX):
            self._strangers.remove(scope["client"])
        return denied


def _handler(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            body = await _body(request) if endpoint.has_body else None
            asked = read_request(endpoint.request, request.path_params, _query(endpoint, request), body)
            answer = await endpoint.function(request.state.context, asked)
        except HeadraceError as error:
            return _problem(problem_of(error))
        return EventStream(answer) if endpoint.is_stream else _json(answer, endpoint.status)

    return handle


def _query(endpoint: Endpoint, request: Request) -> list[tuple[str, str]]:
    """Return the parameters. A browser that reconnects to a stream sends the id of the last event in a header."""
    query = request.query_params.multi_items()
    last = request.headers.get("last-event-id")
    if last is not None and "last_event_id" in endpoint.request.__struct_fields__:
        query = [*((name, value) for name, value in query if name != "last_event_id"), ("last_event_id", last)]
    return query


async def _body(request: Request, most_bytes: int = LARGEST_BODY_BYTES) -> bytes:
    """Return the body. Raises `BadInput` if its header does not say that it is JSON, and HTTPException if it is incomplete or too large."""
    data = bytearray()
    try:
        async for part in request.stream():
            data += part
            if len(data) > most_bytes:
                raise HTTPException(413, f"the body has more than {most_bytes} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the connection ended before the body") from None
    # Only JSON is accepted, because a form of a foreign page can send other types without asking this service first.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if data and kind != "application/json":
        raise BadInput("header content-type", kind, "application/json")
    return bytes(data)


def _json(answer: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(plain(answer)), status_code=status, media_type="application/json")


def _problem(found: Problem) -> Response:
    headers = {"retry-after": str(RETRY_AFTER_S)} if found.may_be_repeated else None
    data = msgspec.json.encode(found)
    return Response(data, status_code=found.status, headers=headers, media_type="application/problem+json")


async def _http_problem(request: Request, error: Exception) -> Response:
    """Return the problem for a request that no endpoint takes."""
    assert isinstance(error, HTTPException)
    named = {404: "not_found", 405: "wrong_method", 413: "too_large"}
    detail = error.detail
    if error.status_code in (404, 405):
        detail = f"there is no {request.method} {request.url.path}; see {PREFIX}/openapi.json"
    response = _problem(problem(error.status_code, named.get(error.status_code, "refused"), error.detail, detail))
    response.headers.update(error.headers or {})
    return response


async def _fault(request: Request, error: Exception) -> Response:
    """Return the problem for a defect of this service."""
    logger().error("request failed", path=request.url.path, error=repr(error))
    return _problem(problem(500, "fault", "The service failed", f"{type(error).__name__}; see its output"))
