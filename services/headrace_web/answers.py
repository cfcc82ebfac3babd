"""Bodies of requests and of answers: JSON, and errors as problems."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headrace.errors import BadInput
from headrace.wire.plain_values import plain
from headrace_web.api.problems import RETRY_AFTER_S, Problem
from headrace_web.api.requests import LARGEST_BODY_BYTES


async def body_of(request: Request, most_bytes: int = LARGEST_BODY_BYTES) -> bytes:
    """Return the body. Raises `BadInput` if the header does not say that it is JSON, HTTPException if it is incomplete or too large."""
    data = bytearray()
    try:
        async for part in request.stream():
            data += part
            if len(data) > most_bytes:
                raise HTTPException(413, f"the body has more than {most_bytes} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the connection ended before the body") from None
    # Only JSON is accepted. A form in a foreign page can send other types, and the browser does not ask this service first.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if data and kind != "application/json":
        raise BadInput("header content-type", kind, "application/json")
    return bytes(data)


def json_answer(answer: object, status: int = 200) -> Response:
    """Return an answer as plain JSON."""
    return Response(msgspec.json.encode(plain(answer)), status_code=status, media_type="application/json")


def problem_answer(found: Problem) -> Response:
    """Return a problem."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if found.may_be_repeated else None
    data = msgspec.json.encode(found)
    return Response(data, status_code=found.status, headers=headers, media_type="application/problem+json")
