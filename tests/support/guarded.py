"""A server that lets in certain parties, each with the rights of the tables, in each way by which a server knows its users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headrace.access.key_credential import KeyCredential
from headrace.access.permissions import Party
from headrace.bus import BusError, Credential, PermissionRefused, connect
from headrace.bus.credential_files import read_credential
from headrace.bus.nats.bus import NatsBus
from headrace_cli.cluster.authority import Operator, Passwords, Proofs
from headrace_cli.up.state_folder import StateFolder
from tests.support.nats_server import nats_server

WAYS: Final = ("passwords", "operator")


class Guarded(msgspec.Struct, frozen=True):
    """Where the server listens, and the folder of credentials."""

    url: str
    folder: Path

    def credential(self, name: str) -> Credential | KeyCredential | None:
        return read_credential(str(self.folder / name))


@contextmanager
def guarded_server(way: str, parties: Mapping[str, Party], folder: Path) -> Iterator[Guarded]:
    """A running server. `way` is one of `WAYS`."""
    files = StateFolder(folder)
    proofs: Proofs = Passwords(files) if way == "passwords" else Operator(folder / "keys", lambda: 1)
    for name, party in parties.items():
        proofs.let_in(party, folder / name, name)
    with nats_server(proofs.server_part(folder)) as running:
        yield Guarded(running.url, folder)


@asynccontextmanager
async def everybody(server: Guarded, parties: Mapping[str, Party]) -> AsyncIterator[Mapping[str, NatsBus]]:
    """A connection of each party."""
    async with AsyncExitStack() as stack:
        buses = {}
        for name, party in parties.items():
            credential = server.credential(name)
            connecting = connect([server.url], name=name, credential=credential, inbox_prefix=party.inbox)
            buses[name] = await stack.enter_async_context(connecting)
        yield buses


async def is_refused(what: Awaitable[object]) -> bool:
    """True if the server refuses it by permission."""
    try:
        await what
    except PermissionRefused:
        return True
    except BusError:
        return False
    return False
