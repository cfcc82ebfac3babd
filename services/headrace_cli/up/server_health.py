"""The health of the NATS server: whether it records messages, and whether its folder can be written again.

After one failed write to a stream, a server refuses every later write to that stream until the server is started again, whatever the cause
was: no free bytes, no free inodes, a quota, an I/O error. Meanwhile the server answers all other requests, and names the error only when it
is asked for its health.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from headrace.client import Place
from headrace.client.connecting import open_bus
from headrace.errors import HeadraceError
from headrace.wire import subjects

#: A user of the server's system account that may request the server's health and nothing else.
HEALTH: Final = "health"
_INBOX: Final = subjects.inbox("service", HEALTH)
_ASK: Final = "$SYS.REQ.SERVER.PING.HEALTHZ"
_ANSWER_S: Final = 5.0
_POLL_S: Final = 1.0
_WRITE_ERROR: Final = "write error: "
#: Part of the error message of a server that has switched off all its streams after an error of its folder.
_NOT_ENABLED: Final = "not enabled"
_PROBE: Final = ".probe"
#: Size of a test write in bytes, more than the smallest block that the server writes.
_PROBE_BYTES: Final = 1024 * 1024


class Health(msgspec.Struct, frozen=True):
    """The result of one check of the server."""

    #: Reason why the server records no messages; empty if it records them.
    error: str = ""
    #: Reason why the server's folder cannot be written; looked for only if there is an error.
    obstacle: str = ""


class _Data(msgspec.Struct, frozen=True):
    error: str = ""


class _Answer(msgspec.Struct, frozen=True):
    data: _Data = _Data()


def health_user(proof: Mapping[str, str]) -> str:
    """Return the part of the server's configuration that allows requests for its health. `proof` has `user` and `password`."""
    permissions = {"publish": [_ASK], "subscribe": [f"{_INBOX}.>"]}
    entry = ", ".join(f"{key}: {json.dumps(value)}" for key, value in {**proof, "permissions": permissions}.items())
    return f"accounts {{ $SYS {{ users: [{{ {entry} }}] }} }}\n"


async def watch_health(place: Place, store: Path, on_look: Callable[[Health], Awaitable[None]]) -> None:
    """Check the health once a second while the server answers, and pass each result to `on_look`. Runs until cancelled.

    `place` must have the credential of the user `HEALTH`. `store` is the folder of the server's streams.
    """
    while True:
        with contextlib.suppress(HeadraceError):
            async with open_bus(place, "headrace up health", _INBOX) as bus:
                while True:
                    error = write_error_in(await bus.request(_ASK, b"", timeout_s=_ANSWER_S)) or await _unlisted(store)
                    await on_look(Health(error, await obstacle_in(store) if error else ""))
                    await anyio.sleep(_POLL_S)
        await anyio.sleep(_POLL_S)


def write_error_in(answer: bytes) -> str:
    """Return why the server records nothing, according to its answer to a request for its health. Empty if it records, or if the answer is
    unreadable.
    """
    try:
        error = msgspec.json.decode(answer, type=_Answer).data.error
    except msgspec.DecodeError:
        return ""
    if _NOT_ENABLED in error:
        return error
    return error.partition(_WRITE_ERROR)[2]


async def obstacle_in(folder: Path) -> str:
    """Try to write to a folder, for at most 5 s. Return why that fails, or an empty string."""
    tried: str = "no answer from its file system"
    with anyio.move_on_after(_ANSWER_S):
        tried = await anyio.to_thread.run_sync(_try_to_write, folder, abandon_on_cancel=True)
    return tried


def _try_to_write(folder: Path) -> str:
    file = folder / _PROBE
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as written:
                written.write(bytes(_PROBE_BYTES))
                written.flush()
                os.fsync(descriptor)
        finally:
            file.unlink()
    except OSError as error:
        return str(error.strerror)
    return ""


async def _unlisted(folder: Path) -> str:
    """Return why a folder cannot be listed, or an empty string.

    The server does not report such a folder: it finds no stream there, and then says that it is healthy.
    """
    try:
        with os.scandir(folder) as entries:
            next(entries, None)
    except OSError as error:
        return str(error.strerror)
    return ""
