"""News of an operation: the operation's newest view, which admission publishes to the operation's user."""

from __future__ import annotations

import msgspec

from headrace.bus import Bus, Inbox
from headrace.ids import OperationId
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode
from headrace.wire.operations import OperationView


async def news_of(bus: Bus, user: str, operation: OperationId) -> Inbox:
    """Subscribe to the news of a user's operation. Raises `PermissionRefused` for another user's operation, and `BusError`."""
    return await bus.subscribe(subjects.operation_view(user, operation), key=lambda _: None)


def newer(known: OperationView, data: bytes) -> OperationView | None:
    """Return the view in the news, with the command of the known view. None if the news contain nothing new."""
    try:
        view = decode(data, OperationView)
    except BadMessage:
        return None
    if view.sequence <= known.sequence and view.state == known.state:
        return None
    # The fields of the command are taken from the known view: the news do not contain these fields, since they never change.
    command = ("argv", "environment", "lines", "working_directory", "output", "error", "stdin", "image")
    spec = msgspec.structs.replace(view.spec, **{name: getattr(known.spec, name) for name in command})
    return msgspec.structs.replace(view, spec=spec, is_withheld=known.is_withheld)
