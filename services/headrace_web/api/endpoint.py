"""An endpoint of the HTTP API: a method, a path, and the function that answers. All the rest follows from the function's signature.

The function takes the context and one request Struct. It checks the request, and then returns an answer Struct or an asynchronous generator
of events. The docstring of the function describes the endpoint.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import AsyncGenerator, Callable
from functools import cached_property
from typing import Any, Final

import msgspec

from headrace.wire.plain_values import plain

#: Path in front of all paths of the table.
PREFIX: Final = "/api/v1"
_IN_PATH: Final = re.compile(r"{(\w+)}")


class Event(msgspec.Struct, frozen=True, dict=True):
    """One server-sent event of a stream."""

    #: Kind of the event, such as `line`.
    event: str
    data: object
    #: Id from which a reader can resume after this event; empty: the stream cannot be resumed.
    id: str = ""

    @cached_property
    def written(self) -> bytes:
        """The event as it is sent. The bytes are kept, so that an event for many readers is encoded once only."""
        name, kind = f"id: {self.id}\n" if self.id else "", f"event: {self.event}\n" if self.event else ""
        # The JSON has no line end, which would end the field `data`: in its texts line ends are escaped.
        return b"".join(((name + kind).encode(), b"data: ", msgspec.json.encode(plain(self.data)), b"\n\n"))


class Endpoint:
    """One row of the table of endpoints."""

    def __init__(self, method: str, path: str, function: Callable[..., Any], *, status: int = 200) -> None:
        """`path` follows `PREFIX`. Names in braces in `path` are fields of the request. `status` is the status of a successful answer."""
        self.method = method
        self.path = path
        self.function = function
        self.status = status

    @property
    def name(self) -> str:
        """The name of the function, which no other endpoint has."""
        return self.function.__name__

    @property
    def in_path(self) -> list[str]:
        """Names of the fields of the request that the path contains."""
        return _IN_PATH.findall(self.path)

    @property
    def has_body(self) -> bool:
        """True if the fields that are not in the path come from the body, False if they come from the query."""
        return self.method in ("POST", "PATCH")

    @property
    def is_stream(self) -> bool:
        """True if the answer is a stream of server-sent events."""
        return typing.get_origin(self._hints["return"]) is AsyncGenerator

    @cached_property
    def request(self) -> type[msgspec.Struct]:
        """The Struct of the request."""
        kind: type[msgspec.Struct] = self._hints["request"]
        return kind

    @cached_property
    def answer(self) -> Any:
        """The type of the answer, if it is no stream."""
        return self._hints["return"]

    @property
    def description(self) -> str:
        """The docstring of the function."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.function, include_extras=True)
