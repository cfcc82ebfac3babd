"""Runs the application on an address of this machine, for one person, until it is stopped."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import uvicorn
from starlette.applications import Starlette

from headrace.client import connect, find_place
from headrace.client.asking import PATIENCE_S
from headrace.errors import BadInput
from headrace.runtime.clock import SystemClock
from headrace_web.api.context import Context
from headrace_web.api.endpoint import PREFIX
from headrace_web.api.event_hub import EventHub
from headrace_web.app import make_app
from headrace_web.connections import Strangers
from headrace_web.door import Door, Secrets, Session
from headrace_web.logins import Logins
from headrace_web.shared_door import SharedDoor
from headrace_web.temporary_folder import temporary_folder
from headrace_web.token_sessions import TokenSessions

_ADDRESS: Final = "127.0.0.1"
#: Bytes of each secret.
_SECRET_BYTES: Final = 32
#: Seconds that unfinished answers get when the service stops. The time is bounded because streams never end by themselves.
_STOP_S: Final = 1
#: Settings of uvicorn. They switch off everything but HTTP itself, and bound the time that it takes to stop.
_CONFIG: Final[dict[str, Any]] = {
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "proxy_headers": False,
    "access_log": False,
    # Everybody who can connect can send requests that are not HTTP; a line for each of them would fill the terminal or the log.
    "log_level": "error",
    "server_header": False,
    "timeout_graceful_shutdown": _STOP_S,
}


class Options(msgspec.Struct, frozen=True):
    """Options of the service."""

    #: Port of the address; 0: a free one.
    port: int = 8040
    #: True: refuse all requests that change something.
    read_only: bool = False
    #: State folder of `headrace up`; None: the folder that every command uses by default.
    state: str | None = None
    #: Tree of requests that name no tree; empty: the tree that every command uses by default.
    tree: str = ""
    #: Folder of this account alone, for the secrets. A later process with the same folder admits the same programs and browsers.
    #: None: a folder that is removed at the end.
    folder: Path | None = None
    #: Address and port of a service for everybody in the cluster; empty: the service is for one person, at `port`.
    listen: str = ""
    #: Files with the certificate of that address and its key, in PEM.
    certificate: str = ""
    key: str = ""


class Listening(msgspec.Struct, frozen=True):
    """The addresses, the file and the names by which a person uses the service."""

    #: Address with the ticket, which works once.
    url: str
    #: Address of the API.
    api: str
    #: File with the header that a program must send. Only this account can read it.
    header_file: str
    user: str
    tree: str


class _KeepingDoor(Door):
    """A door that keeps its secrets in a file, and reports each new ticket."""

    def __init__(self, port: int, file: Path, tell: Callable[[str], None], *, read_only: bool) -> None:
        known = _read_secrets(file)
        super().__init__(port, _new_secret, read_only=read_only, known=known)
        self._file = file
        self._tell = tell
        write_private(file, msgspec.json.encode(self.secrets).decode())

    def enter(self, ticket: str) -> Session | None:
        session = super().enter(ticket)
        if session is not None:
            write_private(self._file, msgspec.json.encode(self.secrets).decode())
            self._tell(self.ticket)
        return session

    def leave(self, headers: Mapping[str, str], cookie: str) -> str | None:
        left = super().leave(headers, cookie)
        if left is not None:
            write_private(self._file, msgspec.json.encode(self.secrets).decode())
        return left


class _Server(uvicorn.Server):
    """A server that handles signals itself.

    uvicorn would end the process by the signal before the folder of the header file is removed.
    """

    #: Signals that arrived. After the first signal the server finishes its answers, a second signal ends the server at once.
    signals: tuple[int, ...] = ()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def stop_at_signal(self, stopping: anyio.Event) -> None:
        """Set `stopping` at the first SIGINT or SIGTERM. Runs until cancelled."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                self.signals = (*self.signals, number)
                self.force_exit = self.should_exit
                self.should_exit = True
                stopping.set()


async def serve(options: Options, tell: Callable[[Listening], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. `tell` is called when the service listens, and again with each new ticket.

    Raises KeyboardInterrupt after Ctrl-C, what `connect` raises, and `BadInput` if the port is in use.
    """
    if options.listen:
        await _serve_everybody(options, tell)
        return
    strangers = Strangers()
    async with connect(state=options.state, tree=options.tree, patience_s=PATIENCE_S) as client:
        with _listening(_ADDRESS, options.port, "--port") as listener, _folder(options.folder) as folder:
            port = listener.getsockname()[1]
            base, header_file = f"http://{_ADDRESS}:{port}", folder / "header"

            def tell_ticket(ticket: str) -> None:
                url = f"{base}/#ticket={ticket}"
                tell(Listening(url, f"{base}{PREFIX}", str(header_file), client.user, client.place.tree))

            door = _KeepingDoor(port, folder / "secrets.json", tell_ticket, read_only=options.read_only)
            write_private(header_file, f"Authorization: Bearer {door.secrets.program_token}\n")
            events = EventHub(client, SystemClock())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(events.run)
                sessions = TokenSessions(client.place, SystemClock(), tasks)
                app = make_app(Context(client, events), door, strangers, sessions)
                tell_ticket(door.ticket)
                signals = await _run(app, uvicorn.Config(app, http=strangers.protocol(), **_CONFIG), listener)
                tasks.cancel_scope.cancel()
    _raise_interrupt(signals)


async def _serve_everybody(options: Options, tell: Callable[[Listening], None]) -> None:
    """Serve programs that present a token, and browsers that log in. The service uses TLS and has no credential."""
    strangers, place = Strangers(), find_place(state=options.state, tree=options.tree)
    host, port = _address(options.listen)
    _check_certificate(options)
    with _listening(host, port, "--listen") as listener:
        base = f"https://{host}:{listener.getsockname()[1]}"
        async with anyio.create_task_group() as tasks:
            sessions = TokenSessions(place, SystemClock(), tasks)
            door = SharedDoor(_new_secret, SystemClock().wall_ms, read_only=options.read_only)
            app = make_app(None, door, strangers, sessions, Logins(secrets.token_bytes(_SECRET_BYTES)))
            config = uvicorn.Config(
                app,
                http=strangers.protocol(),
                ssl_certfile=options.certificate,
                ssl_keyfile=options.key,
                **_CONFIG,
            )
            tell(Listening(base, f"{base}{PREFIX}", "", "", place.tree))
            signals = await _run(app, config, listener)
            tasks.cancel_scope.cancel()
    _raise_interrupt(signals)


async def _run(app: Starlette, config: uvicorn.Config, listener: socket.socket) -> tuple[int, ...]:
    """Serve until a signal. Return the signals that arrived."""
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.stop_at_signal, app.state.stopping)
        await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()
    return server.signals


def _new_secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


def _raise_interrupt(signals: tuple[int, ...]) -> None:
    if signal.SIGINT in signals:
        raise KeyboardInterrupt


def _address(text: str) -> tuple[str, int]:
    """Return the host and the port of `--listen`. Raises `BadInput`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise BadInput("--listen", text, "ADDRESS:PORT, such as 0.0.0.0:8040; port 0 means any free port")
    return host.strip("[]"), int(port)


def _check_certificate(options: Options) -> None:
    """Raise `BadInput` if the certificate and its key cannot be used."""
    for name, file in (("--certificate", options.certificate), ("--key", options.key)):
        if not file:
            raise BadInput.because(
                name, "no file is named. Tokens are sent to this address, so TLS is needed. Name a file in PEM"
            )
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(options.certificate, options.key)
    except (OSError, ValueError) as error:
        raise BadInput(
            "--certificate", options.certificate, f"a certificate in PEM with the key in --key ({error})"
        ) from None


@contextlib.contextmanager
def _listening(host: str, port: int, option: str) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(128)
        except (OSError, OverflowError) as error:
            words = f"an address of this machine and a port that nothing listens at, or 0 for any free port ({error})"
            raise BadInput(option, port if host == _ADDRESS else f"{host}:{port}", words) from None
        yield listener


@contextlib.contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(mode=0o700, exist_ok=True)
        yield given
        return
    with temporary_folder("headrace-web-") as made:
        yield made


def _read_secrets(file: Path) -> Secrets | None:
    """Return the secrets in a file. None if there is no file, or if it cannot be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Secrets)
    except (OSError, msgspec.DecodeError):
        return None


def write_private(file: Path, text: str) -> None:
    """Replace a file as a whole. Its folder belongs to this account alone."""
    new = file.with_name(f"{file.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="ascii") as out:
        out.write(text)
    new.replace(file)
