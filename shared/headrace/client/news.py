"""News of an operation: the newest view of it, which admission publishes to its user."""

from __future__ import annotations

import msgspec

from headrace.bus import Bus, Inbox
from headrace.ids import OperationId
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode
from headrace.wire.operations import OperationView


async def news_of(bus: Bus, user: str, operation: OperationId) -> Inbox:
    """Listens for the news of a user's operation. Raises `PermissionRefused` for another user's, and `BusError`."""
    return await bus.subscribe(subjects.operation_view(user, operation), key=lambda _: None)


def newer(known: OperationView, data: bytes) -> OperationView | None:
    """The view that the news bring, with the command as it is known. None if it tells nothing new."""
    try:
        view = decode(data, OperationView)
    except BadMessage:
        return None
    if view.sequence <= known.sequence and view.state == known.state:
        return None
    # News leave out the command, which never changes.
    command = ("argv", "environment", "working_directory")
    spec = msgspec.structs.replace(view.spec, **{name: getattr(known.spec, name) for name in command})
    return msgspec.structs.replace(view, spec=spec, is_withheld=known.is_withheld)
