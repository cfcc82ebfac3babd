"""Connecting to a server: the credential, the time limits, and the requirements on the server."""

from __future__ import annotations

import base64
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from nats.aio.client import Client, Server

from headrace.access.key_credential import KeyCredential
from headrace.bus.nats.error_classes import CredentialLost, understand
from headrace.bus.nats.link import Link
from headrace.bus.nats.transports import abort
from headrace.bus.protocol import CredentialRefused, NotConnected, ServerNotTrusted, ServerTooOld
from headrace.errors import BadInput

#: Lowest server version. Older servers accept newer requests without complaint, but ignore what is new in them: keys never expire, and the
#: messages of an atomic batch are stored one by one.
_REQUIRED_SERVER = (2, 12)
#: Number of pings that may be unanswered. A dead server is noticed after this number of ping intervals and one more. With nats-py's own
#: settings this takes six minutes.
_OUTSTANDING_PINGS = 2
#: Seconds that one attempt at one server may take.
_ATTEMPT_TIMEOUT_S = 2
_FIRST_DELAY_S = 0.1
#: The server does not say why it refuses a credential, so this text lists the possible reasons.
_WHY_REFUSED = (
    "it is unknown, expired or revoked, or it is held out for a while because it sent too much: an administrator sees it in "
    "`headrace service list`"
)
#: Bytes that nats-py may hold unsent. `Outgoing` makes senders wait far below this bound. At this bound nats-py itself would make them
#: wait, and would swallow a cancellation meanwhile.
_PENDING_BYTES = 16 * 1024 * 1024


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The user and password with which this process authenticates. `repr` does not show the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credential(user={self.user!r}, ...)"


class ServerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a server, the credential, and the file with the authorities that sign its certificate."""

    urls: Sequence[str]
    credential: Credential | KeyCredential | None = None
    ca_file: str = ""


#: Returns the access to use from now on. It must not wait or raise.
LookAgain = Callable[[], ServerAccess]


class Hooks:
    """The callbacks that nats-py calls. Until the first connection is made, they store its errors. Once there is a `Link`, they notify it.
    No callback may raise or wait.
    """

    def __init__(self, most_distrusted: int = 1) -> None:
        #: Number of certificates that may be refused before the first connection is given up.
        self.most_distrusted = most_distrusted
        self.link: Link | None = None
        self.attempt: anyio.CancelScope | None = None
        self.refusal = ""
        self.trouble = ""
        #: Why certificates were not trusted, one reason for each try.
        self.distrust: list[str] = []
        #: The credential for the next connection.
        self.credential: Any = None

    async def error(self, error: Exception) -> None:
        with suppress(Exception):
            if self.link is not None:
                self.link.note_error(error)
                return
            self.trouble = str(error) or type(error).__name__
            if isinstance(error, ssl.SSLCertVerificationError):
                self.distrust.append(error.verify_message)
                if len(self.distrust) >= self.most_distrusted and self.attempt is not None:
                    self.attempt.cancel()
            if isinstance(understand(error), CredentialLost) and self.attempt is not None:
                self.refusal = self.trouble
                self.attempt.cancel()

    def notifying(self, note: Callable[[Link], None]) -> Callable[[], Awaitable[None]]:
        """Return a callback without arguments that calls `note` with the link. Without a link, the callback does
        nothing.
        """

        async def notify() -> None:
            with suppress(Exception):
                if self.link is not None:
                    note(self.link)

        return notify


def next_server(servers: list[Server], _info: dict[str, Any], *, longest_delay_s: float) -> tuple[Server, float]:
    """Choose the server that was tried least, after a jittered delay that grows with the tries.

    Without this function, nats-py would try the first server for ever. The delay is random, so that the processes of a fleet do not all
    reconnect at the same time.
    """
    chosen = min(servers, key=lambda server: (server.reconnects, random.uniform(0, 1)))
    longest = min(longest_delay_s, _FIRST_DELAY_S * 2 ** min(chosen.reconnects, 10))
    return chosen, random.uniform(longest / 2, longest)


async def open_client(
    access: ServerAccess,
    *,
    name: str,
    inbox_prefix: str,
    connect_timeout_s: float,
    ping_interval_s: float,
    longest_reconnect_delay_s: float,
    look_again: LookAgain | None,
) -> tuple[Client, Hooks]:
    """Return a connected client. Raises `NotConnected`, `CredentialRefused`, `ServerNotTrusted`, `ServerTooOld`, `BadInput`."""
    client = Client()
    hooks = Hooks(len(access.urls))
    context = _tls_context(access)

    def try_again(servers: list[Server], info: dict[str, Any]) -> tuple[Server, float]:
        # The client is aborted before each further try. If a server accepts a connection but sends no greeting, nats-py
        # leaves that connection open.
        abort(client)
        if look_again is not None:
            _change_access(client, hooks, look_again(), context)
            servers = [Server(uri=each.uri, reconnects=each.reconnects) for each in client._server_pool]
        return next_server(servers, info, longest_delay_s=longest_reconnect_delay_s)

    with anyio.move_on_after(connect_timeout_s) as hooks.attempt:
        await client.connect(
            list(access.urls),
            name=name,
            error_cb=hooks.error,
            disconnected_cb=hooks.notifying(Link.note_disconnected),
            reconnected_cb=hooks.notifying(Link.note_reconnected),
            closed_cb=hooks.notifying(Link.note_closed),
            inbox_prefix=inbox_prefix,
            connect_timeout=_ATTEMPT_TIMEOUT_S,
            # Only the first connection uses this setting. Afterwards `next_server` sets the delay.
            reconnect_time_wait=0.2,  # type: ignore[arg-type]
            max_reconnect_attempts=-1,
            reconnect_to_server_handler=try_again,
            ping_interval=ping_interval_s,  # type: ignore[arg-type]
            max_outstanding_pings=_OUTSTANDING_PINGS,
            pending_size=_PENDING_BYTES,
            flush_timeout=_ATTEMPT_TIMEOUT_S,
            # The TLS handshake comes first: without this, nats-py speaks in the clear to any server that answers,
            # although it was given tls://.
            tls=context,
            tls_handshake_first=context is not None,
            **_proof(access.credential, hooks),
        )
    if not client.is_connected or hooks.refusal:
        await discard(client)
        raise _failure(hooks, access, connect_timeout_s)
    if too_old := _too_old(client):
        await discard(client)
        raise too_old
    return client, hooks


def _distrust(message: str, ca_file: str) -> str:
    """Return why a certificate is not trusted, and what helps, as a text for people."""
    reason = message.rstrip(".")
    if "issuer" in reason or "signed certificate" in reason:
        believed = f"the authorities in {ca_file}" if ca_file else "the authorities of this system"
        reason = (
            f"its certificate is not signed by {believed}; name the file with its authority (`ca.pem` of the cluster) "
            "with --ca-file, $HEADRACE_CA_FILE or the setting ca_file"
        )
    return f"{reason} (CERTIFICATE_VERIFY_FAILED)"


def _failure(
    hooks: Hooks, access: ServerAccess, timeout_s: float
) -> CredentialRefused | ServerNotTrusted | NotConnected:
    """Return the error for a connection that could not be made."""
    if hooks.refusal:
        return CredentialRefused(f"the server refuses the credential: {hooks.refusal}; {_WHY_REFUSED}")
    if len(hooks.distrust) >= hooks.most_distrusted:
        return ServerNotTrusted(_distrust(hooks.distrust[-1], access.ca_file))
    where = ", ".join(access.urls)
    return NotConnected(f"no server answers at {where} within {timeout_s:g} s ({hooks.trouble or 'no answer at all'})")


def _too_old(client: Client) -> ServerTooOld | None:
    found = client.connected_server_version
    required = ".".join(map(str, _REQUIRED_SERVER))
    try:
        is_known = (found.major, found.minor) >= _REQUIRED_SERVER
    except ValueError:
        return ServerTooOld("of an unreadable version", required)
    return None if is_known else ServerTooOld(f"{found.major}.{found.minor}.{found.patch}", required)


async def discard(client: Client) -> None:
    """Close a client that will not be used, whatever state it is in."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(_ATTEMPT_TIMEOUT_S), suppress(Exception):
        await client.close()
    abort(client)


def _proof(credential: Credential | KeyCredential | None, hooks: Hooks) -> dict[str, Any]:
    """Return nats-py's options for a credential. The options are callbacks, so that each new connection uses the newest credential in
    `hooks`.
    """
    hooks.credential = credential
    if isinstance(credential, Credential):
        return {"user": lambda: hooks.credential.user, "password": lambda: hooks.credential.password}
    if credential is None:
        return {}
    # The import is here because it takes a while, and few processes need the module.
    from headrace.access.nkeys import SigningKey

    def sign(nonce: str) -> bytes:
        return base64.b64encode(SigningKey.from_seed(hooks.credential.seed).sign(nonce.encode()))

    return {"user_jwt_cb": lambda: hooks.credential.jwt.encode(), "signature_cb": sign}


def _change_access(client: Client, hooks: Hooks, found: ServerAccess, context: ssl.SSLContext | None) -> None:
    """Use the access `found` for the next try, except for what a connection cannot change: TLS, and the kind of credential."""
    if type(found.credential) is type(hooks.credential):
        hooks.credential = found.credential
    if _is_secure(found.urls) is not (context is not None):
        return
    if context is not None and found.ca_file:
        with suppress(OSError):  # the file may just be being replaced
            context.load_verify_locations(found.ca_file)
    for server, url in zip(client._server_pool, found.urls, strict=False):
        server.uri = client._parse_server_uri(url)


def _is_secure(urls: Sequence[str]) -> bool:
    return all(url.startswith(("tls://", "wss://")) for url in urls)


def _tls_context(access: ServerAccess) -> ssl.SSLContext | None:
    """Return the TLS context that checks servers at `tls://`, or None without TLS. Raises `BadInput`."""
    if not _is_secure(access.urls):
        if access.ca_file or any(_is_secure([url]) for url in access.urls):
            expected = "tls:// in all addresses, or in no address and no ca_file"
            raise BadInput("servers", ", ".join(access.urls), expected)
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
    except OSError as error:
        expected = f"a readable file of certificates in PEM ({error})"
        raise BadInput("ca_file", access.ca_file, expected) from None
    # Without the filter asyncio logs a warning for each connection that ends.
    logging.getLogger("asyncio").addFilter(_is_news)
    return context


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for asyncio's warning that `eof_received` has no effect. asyncio logs this warning whenever a TLS connection of nats-py
    ends, and it means nothing.
    """
    return "eof_received() has no effect" not in str(record.msg)
