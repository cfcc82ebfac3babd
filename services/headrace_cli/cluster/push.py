"""Telling a running server which keys of a cluster count no more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from headrace.client import ClientError
from headrace.client.connecting import open_bus
from headrace.client.place import find_place
from headrace.client.places.endpoint import CREDENTIAL_FILE
from headrace.errors import BadInput
from headrace_cli.cluster.authority import ACCOUNT_WORD, CLAIMS_UPDATE, OPERATOR_INBOX
from headrace_cli.cluster.folder import ClusterFolder

_ANSWER_S: Final = 10.0


class WordRefused(ClientError):
    """The server did not take the word about an account."""


class _Problem(msgspec.Struct, frozen=True):
    description: str = ""


class _Answer(msgspec.Struct, frozen=True):
    error: _Problem | None = None


async def tell_server(path: Path) -> None:
    """Sends the word about the account. Raises `BadInput`, `ClientError`, `BusError`."""
    authority = ClusterFolder(path).authority
    try:
        word = (authority / ACCOUNT_WORD).read_bytes().strip()
    except OSError as error:
        raise BadInput(
            str(authority), error.strerror or str(error), "the folder of a cluster with an operator"
        ) from None
    place = find_place(state=path / "client", credential_file=authority / CREDENTIAL_FILE)
    async with open_bus(place, "headrace cluster push", OPERATOR_INBOX) as bus:
        answer = msgspec.json.decode(await bus.request(CLAIMS_UPDATE, word, timeout_s=_ANSWER_S), type=_Answer)
    if answer.error is not None:
        raise WordRefused(f"{place.url}: {answer.error.description}")
