"""Make a client: find the server and the user, and check that the server listens."""

from __future__ import annotations

import contextlib
import os
import socket
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from headrace.access.key_credential import KeyCredential
from headrace.bus import BusError, CredentialRefused, PermissionRefused, ServerNotTrusted
from headrace.bus import connect as connect_bus
from headrace.bus.credential_files import read_credential
from headrace.bus.nats.bus import NatsBus
from headrace.bus.nats.connecting import ServerAccess
from headrace.client.client import Client
from headrace.client.errors import NotAdmitted, NotTrusted
from headrace.client.place import Place, find_place, login_user, moved
from headrace.client.places.credential_user import person_in
from headrace.errors import BadInput
from headrace.ids import user_name
from headrace.obs import tracing
from headrace.runtime.clock import SystemClock
from headrace.server_urls import parse_server_urls
from headrace.wire import subjects

#: Seconds within which a running `headrace up` restarts its server after the server ended.
_RESTART_S = 5.0
_RESTART_LOOK_S = 0.1


@asynccontextmanager
async def connect(
    *,
    state: Path | str | None = None,
    url: str = "",
    credential_file: Path | str | None = None,
    ca_file: Path | str | None = None,
    user: str = "",
    tree: str = "",
    timeout_s: float = 10.0,
    patience_s: float | None = None,
) -> AsyncIterator[Client]:
    """Connect by the state folder (`state`, else `$HEADRACE_STATE`, else the default folder) or by `url` and `credential_file`.

    `user` defaults to the user of the credential, else to the login name. Requests that name no tree are for the tree `tree`. Requests are
    retried for `timeout_s`. With `patience_s`, a service that does not answer a read request for that long is left out for a few seconds;
    the client's `silence` names these services. `ca_file` has the authorities that vouch for a server at `tls://`.

    Raises `NotRunning`, `NotAdmitted`, `NotTrusted`, `BadInput`.
    """
    place = find_place(state=state, url=url, credential_file=credential_file, ca_file=ca_file, tree=tree)
    # If the server was found by a state folder, the folder names the user, so the credential need not be read.
    named = user or place.user or ("" if place.folder else person_in(read_credential(place.credential_file)))
    name = user_name(named) if named else login_user()
    inbox = subjects.inbox("user", name)
    async with open_bus(place, f"headrace client of {name}", inbox, timeout_s=timeout_s) as bus:
        try:
            yield Client(bus, SystemClock(), place, name, timeout_s=timeout_s, patience_s=patience_s)
        finally:
            if place.traces.endpoint:
                # A collector may be slow to accept the last spans. So they are sent in a thread, and other tasks use the event loop
                # meanwhile.
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(tracing.end)


@asynccontextmanager
async def open_bus(
    place: Place,
    name: str,
    inbox_prefix: str,
    *,
    timeout_s: float = 10.0,
    replicas: int = 1,
    credential: KeyCredential | None = None,
) -> AsyncIterator[NatsBus]:
    """Connect to the server of a place. Streams and buckets that the connection creates get `replicas` copies.

    `credential` is used in place of the credential file.

    Raises `NotRunning`, `NotAdmitted`, `NotTrusted`, `BadInput`.
    """
    await _knock(place, timeout_s)
    access = _access(place, credential)

    def look_again() -> ServerAccess:
        """Read the state folder again: a restarted `headrace up` has another credential and may listen at another address."""
        try:
            return _access(moved(place), credential)
        except BadInput:
            return access

    opened = False
    try:
        async with connect_bus(
            access.urls,
            name=name,
            credential=access.credential,
            inbox_prefix=inbox_prefix,
            connect_timeout_s=timeout_s,
            ca_file=access.ca_file,
            look_again=look_again,
            replicas=replicas,
        ) as bus:
            opened = True
            yield bus
    except BusError as error:
        if opened:
            raise
        if isinstance(error, CredentialRefused | PermissionRefused):
            raise NotAdmitted(place.where, str(error)) from error
        if isinstance(error, ServerNotTrusted):
            raise NotTrusted(place.url, str(error)) from error
        raise place.not_running(str(error)) from error


def _access(place: Place, credential: KeyCredential | None) -> ServerAccess:
    """Return the addresses, the credential and the authority of a server. Raises `BadInput`."""
    urls = parse_server_urls(place.url, place="address of the server")
    return ServerAccess(
        urls=urls, credential=credential or read_credential(place.credential_file), ca_file=place.ca_file
    )


async def _knock(place: Place, timeout_s: float) -> None:
    """Raise `NotRunning` at once if nothing listens at the address. Without this check the bus would try to connect until its timeout.

    A running `headrace up` is given the time to restart its server.
    """
    addresses = [urllib.parse.urlsplit(url) for url in parse_server_urls(place.url, place="address of the server")]
    opened = False

    async def try_one(tasks: TaskGroup, host: str, port: int) -> None:
        nonlocal opened
        with contextlib.suppress(OSError, socket.gaierror):
            await (await anyio.connect_tcp(host, port)).aclose()
            opened = True
            tasks.cancel_scope.cancel()

    async def try_all() -> None:
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                tasks.start_soon(try_one, tasks, address.hostname or "127.0.0.1", address.port or 4222)

    with anyio.move_on_after(timeout_s):
        await try_all()
    with anyio.move_on_after(min(timeout_s, _RESTART_S)):
        while not opened and _lives(place.keeper):
            await anyio.sleep(_RESTART_LOOK_S)
            await try_all()
    if not opened:
        where = " or ".join(f"{address.hostname}:{address.port}" for address in addresses)
        raise place.not_running(f"nothing listens at {where}")


def _lives(pid: int) -> bool:
    """True if this machine has a process with this id. False for the id 0, which stands for an unknown process."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return pid > 0
