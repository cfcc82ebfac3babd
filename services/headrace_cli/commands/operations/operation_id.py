"""Find an operation by its id or by the beginning of its id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from headrace.client import Client, Refused
from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace.wire.refusals import NotFound

#: The argument of commands that take several operations.
Ids = Annotated[Sequence[str], Parameter(negative=())]

#: The form of an id that a client makes. Such an id is complete, so no service is asked.
_MADE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{12}\Z")
_PART: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")


async def whole_id(client: Client, text: str) -> OperationId:
    """Return the id of the only operation whose id is the text or begins with it. Raises `BadInput`, `Refused`."""
    if _MADE.match(text):
        return OperationId(text)
    check_part(text)
    try:
        return (await client.get(text)).operation
    except Refused as refused:
        near = refused.refusal.near if isinstance(refused.refusal, NotFound) else []
        found = only_one(text, near)
        if found is None:
            raise
        return OperationId(found)


def check_part(text: str) -> None:
    """Check that an id can begin with this text. Raises `BadInput`."""
    if not _PART.match(text):
        raise BadInput("operation id", text, "1 to 64 characters of a-z, 0-9 and '-', or the beginning of an id")


def only_one(text: str, ids: Sequence[str]) -> str | None:
    """Return the id that is the text or begins with it, or None if there is none. Raises `BadInput` if several begin with it."""
    found = [each for each in ids if each.startswith(text)]
    if len(found) > 1 and text not in found:
        raise BadInput(
            "operation id", text, f"more characters of the id, because {', '.join(found[:3])} begin with these"
        )
    return (text if text in found else found[0]) if found else None
